"""The three measurements of `regard eval`: word links, documents or pictures, and texts."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.messages import print_message, show_progress
from regard.cli.runs import check_served, open_run, warn_of_lowercase
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.tasks import evaluation

PICTURES = (".png", ".svg", ".pdf")
MOST = 12  # lines about what is left out


def measure_links(
    runs: list[Path] | None,
    gold: Path,
    source: Path | None,
    reference: Path | None,
    hypothesis: Path | None,
    first: int,
    opening: dict[str, Any],
) -> "evaluation.EvaluationReport":
    """Measure word alignments: of a run between source and reference, or those of a file."""
    from regard.tasks import evaluation

    if hypothesis is None and not (runs and source and reference):
        raise CommandError("--gold: give a run with --source and --reference, or --hypothesis with a file of links")
    test = evaluation.AlignmentTest.read(gold, source, reference, hypothesis, first=first, say=print_message)
    return test.measure(open_run(*runs, **opening) if runs and hypothesis is None else None, show_progress)


def measure_items(
    folder: Path, files: Mapping[str, Path | None], out: Path | None, search: dict[str, Any], opening: dict[str, Any]
) -> "evaluation.EvaluationReport":
    """Measure a run on documents or pictures, and write what it said of each."""
    from regard.io import check_output, open_output

    paths = {name: path for name, path in files.items() if path is not None}
    check_output(out, *(path for name, path in paths.items() if name != "images"))
    report = open_run(folder, **opening).evaluate(**paths, **search)
    for line in report.notes[:MOST]:
        print_message(line)
    if len(report.notes) > MOST:
        print_message(f"… and {len(report.notes) - MOST:,} more skipped items")
    if out is not None:
        with open_output(out) as write:
            write("".join(f"{place}\t{text}\n" for place, text in report.outputs.items()))
    return report


def measure_texts(
    runs: list[Path],
    texts: dict[str, Any],
    how: dict[str, Any],
    out: Path | None,
    plot: Path | None,
    search: dict[str, Any],
    batch_tokens: int | None,
    opening: dict[str, Any],
) -> "evaluation.EvaluationReport":
    """Compare texts that a run writes, or those of a file, with references; write them, and draw BLEU by length."""
    check_texts(runs, **texts, how=how, out=out, plot=plot)

    from regard.io import open_output
    from regard.tasks import evaluation

    test = evaluation.TextTest.read(**texts, **how, run=bool(runs), lengths=plot is not None, say=print_message)
    system = str(texts["hypothesis"] or " + ".join(map(str, runs)))

    def keep(lines: Iterable[str]) -> None:
        with open_output(out) as write:
            write("".join(f"{line}\n" for line in lines))

    if runs and test.needs_run:
        run = open_run(*runs, **opening)
        check_served(run, search)
        warn_of_lowercase(run, how["lowercase"])
        if texts["source"] is None and not run.settings.row.alone:
            raise CommandError(f"--source: missing, expected the text that {run.folder} is to translate")
        options: dict[str, Any] = {"search": search, "batch_tokens": batch_tokens, "say": print_message}
        options |= {"watch": show_progress, "keep": keep if out is not None else None}
        report = run.evaluate(test=test, system=system, **options)
    else:
        report = test.measure(None, system, say=print_message)
    if plot is not None and report.lengths is not None:
        from regard.inspection import draw_lengths, save

        save(draw_lengths(report.lengths), plot)
    return report


def check_texts(
    runs: list[Path],
    source: Path | None,
    reference: Path | None,
    hypothesis: Path | None,
    how: dict[str, Any],
    out: Path | None,
    plot: Path | None,
) -> None:
    """Refuse what cannot be measured by the files that are given, before any is read."""
    if not runs and hypothesis is None:
        raise CommandError("which run? give a run folder, or --hypothesis with a file of outputs to score")
    if reference is None:
        others = "; a classifier is measured with --documents or --images, a captioner with --images and --captions"
        raise CommandError(f"--reference: missing, expected a text file of references{others if runs else ''}")
    if source is None and (how["alternatives"] or plot):
        what = "--alternatives" if how["alternatives"] else "--plot"
        raise CommandError(f"--source: missing, {what} needs the text file of the sources")
    if out is not None and hypothesis is not None:
        raise CommandError("--out: --hypothesis translates nothing to write; leave out one of them")
    if plot is not None and plot.suffix.lower() not in PICTURES:
        raise CommandError(f"--plot: {plot} given, expected a name that ends in {', '.join(PICTURES)}")

    from regard.io import check_output
    from regard.tasks import evaluation

    check_output(plot, source, reference, flag="--plot")
    check_output(out, source, reference)
    keys = evaluation.possible_metrics(how["metrics"], outputs=True, run=bool(runs), source=source is not None)
    if "perplexity" in keys and not runs:
        raise CommandError("--metrics: perplexity needs a run; give its folder")
    if "lengths" in keys and source is None:
        raise CommandError("--metrics: lengths needs --source; add it")
