"""`regard eval`: scores of a run on a test set."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import options
from regard.cli.messages import print_message, print_report, show_progress
from regard.cli.options import file_option, folder_option, out_option, with_languages, with_search
from regard.cli.runs import check_served, open_run, warn_of_lowercase
from regard.errors import CommandError
from regard.io import encode_inputs

if TYPE_CHECKING:
    from regard.tasks import evaluation

RunsArgument = Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Run folder; several make an ensemble.")]
GoldOption = Annotated[
    Path | None, file_option("File of gold word links, to compare with those of the run or of --hypothesis.")
]
Labels = Annotated[
    Path | None, file_option("TSV or CSV file with the pictures' labels; default: the names of their folders.")
]
Names = Annotated[
    Path | None, file_option("Text file with the names of the pictures to use, one per line; default: all.")
]
PlotOption = Annotated[Path | None, file_option("Picture file to write, of BLEU by source length: .png, .svg or .pdf.")]


EXAMPLES = (
    "regard eval runs/en-de --source test.en --reference test.de",
    "regard eval --hypothesis output.de --reference test.de",
)
PICTURES = (".png", ".svg", ".pdf")
MAX_NOTES = 12  # printed lines about skipped items


@with_languages
@with_search("beam", "length_penalty")
def eval(
    runs: RunsArgument = None,
    *,
    source: options.SourceOption = None,
    reference: options.ReferenceOption = None,
    hypothesis: Annotated[Path | None, file_option("Text file of outputs to score, instead of translating.")] = None,
    documents: Annotated[Path | None, file_option("TSV or CSV file of labelled documents, for a classifier.")] = None,
    images: Annotated[Path | None, folder_option("Folder of pictures, for a run that reads them.")] = None,
    captions: Annotated[Path | None, file_option("TSV or CSV file with the pictures' captions.")] = None,
    labels: Labels = None,
    names: Names = None,
    gold: GoldOption = None,
    from_one: options.FromOneOption = False,
    encoding: options.EncodingOption = None,
    metrics: options.MetricsOption = None,
    alternatives: options.AlternativesOption = False,
    lowercase: options.LowercaseOption = False,
    tokenize: options.TokenizeOption = "auto",
    out: Annotated[Path | None, out_option("File to write the outputs to.")] = None,
    plot: PlotOption = None,
    as_json: options.JsonOption = False,
    languages: dict[str, str | None],
    search: dict[str, Any],
    batch_tokens: options.BatchTokensOption = None,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
    engine: options.EngineOption = "regard",
    quantize: options.QuantizeOption = None,
) -> None:
    """Measure a run, or the output of any program, on a test set.

    Each score is printed with its signature, which says how it was computed. --hypothesis scores the output of any
    program, --documents a classifier, --images with --captions a captioner, and --gold word alignments: those of a run
    between source and reference, or those in the file of --hypothesis.
    """
    source, reference, hypothesis = encode_inputs(encoding, source, reference, hypothesis)
    documents, captions, labels, names = encode_inputs(encoding, documents, captions, labels, names)
    opening: dict[str, Any] = {"checkpoint": checkpoint, "device": device, "engine": engine, "quantize": quantize}
    opening["languages"] = languages
    texts = {"source": source, "reference": reference, "hypothesis": hypothesis}
    if gold is not None:
        if documents or images or metrics or out or plot:
            raise CommandError("--gold: give only --source and --reference with it, or --hypothesis")
        report = measure_links(runs, gold, texts, int(from_one), opening)
    elif documents or images:
        if not runs or len(runs) > 1 or source or reference or hypothesis:
            raise CommandError("--documents and --images: give exactly one run folder, and no texts to translate")
        pictures = {"images": images, **({"captions": captions, "names": names} if captions else {"labels": labels})}
        files = pictures if documents is None else {"documents": documents}
        report = measure_items(runs[0], files, out, search if "captions" in files else {}, opening)
    else:
        if captions or labels or names:
            raise CommandError("--images: missing, expected the folder of the pictures")
        how = {"metrics": metrics, "alternatives": alternatives, "lowercase": lowercase, "tokenize": tokenize}
        report = measure_texts(runs or [], texts, how, out, plot, search, batch_tokens, opening)
    print_report(report, as_json)


def measure_links(
    runs: list[Path] | None, gold: Path, texts: dict[str, Any], first: int, opening: dict[str, Any]
) -> "evaluation.EvaluationReport":
    """Score word alignments: those of a run between source and reference, or those of a file."""
    from regard.tasks import evaluation

    opens = texts["hypothesis"] is None
    if opens and not (runs and texts["source"] and texts["reference"]):
        raise CommandError("--gold: give a run with --source and --reference, or --hypothesis with a file of links")
    test = evaluation.AlignmentTest.read(gold, **texts, first=first, say=print_message)
    return test.measure(open_run(*runs, **opening) if runs and opens else None, show_progress)


def measure_items(
    folder: Path, files: Mapping[str, Path | None], out: Path | None, search: dict[str, Any], opening: dict[str, Any]
) -> "evaluation.EvaluationReport":
    """Score a run on documents or pictures, and write its output for each."""
    from regard.io import check_output, open_output

    paths = {name: path for name, path in files.items() if path is not None}
    check_output(out, *(path for name, path in paths.items() if name != "images"))
    report = open_run(folder, **opening).evaluate(**paths, **search)
    for line in report.notes[:MAX_NOTES]:
        print_message(line)
    if len(report.notes) > MAX_NOTES:
        print_message(f"… and {len(report.notes) - MAX_NOTES:,} more skipped items")
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
    """Score the translations of a run, or those of a file, against references; write them, and draw BLEU by length."""
    check_texts(runs, texts, how, out, plot)

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
        if texts["source"] is None and run.settings.row.has_source:
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
    runs: list[Path], texts: dict[str, Any], how: dict[str, Any], out: Path | None, plot: Path | None
) -> None:
    """Check that the given files suffice for the scores, before reading any of them."""
    source, reference, hypothesis = (texts[name] for name in ("source", "reference", "hypothesis"))
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
