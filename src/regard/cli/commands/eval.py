"""`regard eval`."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.messages import print_message, print_table, show_progress
from regard.cli.options import (
    AlternativesOption,
    BatchTokensOption,
    BeamOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    LengthPenaltyOption,
    LowercaseOption,
    ReferenceOption,
    SourceOption,
    TokenizeOption,
    flag_option,
    text_option,
)
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.evaluation import EvaluationReport

PICTURES = (".png", ".svg", ".pdf")
MOST = 12  # lines about what is left out


def eval(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Run folder; several make an ensemble.")
    ] = None,
    source: SourceOption = None,
    reference: ReferenceOption = None,
    hypothesis: Annotated[Path | None, text_option("Text file of outputs to score, instead of translating.")] = None,
    documents: Annotated[Path | None, text_option("TSV file of labelled documents, for a classifier.")] = None,
    images: Annotated[Path | None, text_option("Folder of pictures, for a run that reads them.")] = None,
    captions: Annotated[Path | None, text_option("TSV file of captions of the pictures.")] = None,
    labels: Annotated[
        Path | None, text_option("TSV file of labels of the pictures; default: the names of their folders.")
    ] = None,
    names: Annotated[
        Path | None, text_option("Text file of the pictures to take, a name a line; default: all.")
    ] = None,
    alignment: Annotated[
        Path | None,
        text_option("File of gold links, to measure those of the run or of --hypothesis by."),
    ] = None,
    from_one: Annotated[bool, flag_option("--from-one", "Count words of the gold links from 1.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics, with commas between them: bleu, chrf, ter, exact, character_errors, token_errors, "
            "perplexity and lengths.",
            show_default="all",
        ),
    ] = None,
    alternatives: AlternativesOption = False,
    lowercase: LowercaseOption = False,
    tokenize: TokenizeOption = "13a",
    output: Annotated[Path | None, text_option("File to write the outputs to.")] = None,
    plot: Annotated[Path | None, text_option("Picture of BLEU by source length to write: .png, .svg or .pdf.")] = None,
    as_json: JsonOption = False,
    beam: BeamOption = 5,
    length_penalty: LengthPenaltyOption = 0.6,
    batch_tokens: BatchTokensOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Measure a run: translate a test set, and compare with its references.

    `regard eval runs/en-de --source test.en --reference test.de` prints each score with its signature, which says how
    it was reached. `regard eval --hypothesis output.de --reference test.de` scores the output of any program.
    `--documents test.tsv` measures a classifier, `--images DIR --captions FILE` one that describes pictures.
    `--alignment GOLD` measures word alignments, of a run between source and reference, or in the file of --hypothesis.
    """
    search = {"beam": beam, "length_penalty": length_penalty}
    opening = {"checkpoint": checkpoint, "device": device}
    if alignment is not None:
        if documents or images or metrics or output or plot:
            raise CommandError("--alignment: given with options of other measurements, expected --source, --reference")
        show(evaluate_links(runs, source, reference, hypothesis, alignment, int(from_one), opening), as_json)
        return
    if documents or images:
        if not runs or len(runs) > 1 or source or reference or hypothesis:
            raise CommandError("--documents and --images: give one run folder beside them, and no texts to translate")
        files: dict[str, Path | None]
        if documents is not None:
            files = {"documents": documents}
        elif captions is not None:
            files = {"images": images, "captions": captions, "names": names}
        else:
            files = {"images": images, "labels": labels}
        show(evaluate_items(runs[0], files, search, output, opening), as_json)
        return
    if captions or labels or names:
        raise CommandError("--images: missing, expected the folder of the pictures")
    if not runs and hypothesis is None:
        raise CommandError("which run? give a run folder, or --hypothesis with a file of outputs to score")
    if reference is None:
        raise CommandError("--reference: missing, expected a text file with what is right")
    if source is None and (alternatives or plot):
        what = "--alternatives" if alternatives else "--plot"
        raise CommandError(f"--source: missing, {what} needs the text that the outputs are translations of")
    if output is not None and hypothesis is not None:
        raise CommandError("--output: given with --hypothesis, which translates nothing")
    from regard.io.output import check_output, open_output

    if plot is not None and plot.suffix.lower() not in PICTURES:
        raise CommandError(f"--plot: {plot} given, expected a name that ends in {', '.join(PICTURES)}")
    check_output(plot, source, reference, flag="--plot")
    check_output(output, source, reference, flag="--output")

    from regard.tasks.evaluation import TextTest

    check_metrics(metrics, run=bool(runs), source=source is not None)
    how: dict[str, Any] = {"alternatives": alternatives, "lowercase": lowercase, "tokenize": tokenize}
    how |= {"metrics": metrics, "run": bool(runs), "lengths": plot is not None, "say": print_message}
    test = TextTest.read(reference, source, hypothesis, **how)
    system = str(hypothesis or " + ".join(map(str, runs or [])))
    if runs and test.needs_run:
        run = open_run(runs, search, lowercase, **opening)
        if source is None and not run.settings.row.alone:
            raise CommandError(f"--source: missing, expected the text that {run.folder} is to translate")

        def keep(lines: Iterable[str]) -> None:
            with open_output(output) as write:
                write("".join(f"{line}\n" for line in lines))

        given: dict[str, Any] = {"test": test, "system": system, "search": search, "batch_tokens": batch_tokens}
        given |= {"say": print_message, "watch": show_progress, "keep": keep if output is not None else None}
        found = run.evaluate(**given)
    else:
        found = test.measure(None, system)
    if plot is not None and found.lengths is not None:
        from regard.inspection.draw.heatmap import save
        from regard.inspection.draw.plot import draw_lengths

        save(draw_lengths(found.lengths), plot)
    show(found, as_json)


def evaluate_links(
    runs: list[Path] | None,
    source: Path | None,
    reference: Path | None,
    hypothesis: Path | None,
    gold_path: Path,
    first: int,
    opening: dict[str, str],
) -> "EvaluationReport":
    """Measure word alignments: of a run between source and reference, or those of a file."""
    from regard.evaluation.alignment import check_links, read_links
    from regard.evaluation.items import read_items
    from regard.io.lines import unequal_lines
    from regard.tasks.evaluation import measure_alignment

    gold = read_links(gold_path, first=first, say=print_message)
    if hypothesis is not None:
        found = [sorted(each.possible) for each in read_links(hypothesis, say=print_message)]
        if len(found) != len(gold):
            raise unequal_lines(str(hypothesis), len(found), str(gold_path), len(gold))
        return measure_alignment(str(hypothesis), found, gold)
    if not runs or source is None or reference is None:
        raise CommandError("--alignment: expected a run with --source and --reference, or --hypothesis with links")
    items = read_items(source, reference, say=print_message)
    pairs = [(one, two) for one, (two,) in zip(items.sources or [], items.references, strict=True)]
    for slip in check_links(gold_path, gold, [one for one, _ in pairs], [two for _, two in pairs]):
        print_message(slip)
    run = open_run(runs, {}, lowercase=True, **opening)
    found = list(show_progress(run.links(pairs), len(pairs), f"aligning with {run.folder}"))
    return measure_alignment(f"{run.folder}, {run.chosen}", found, gold)


def evaluate_items(
    folder: Path, files: dict[str, Path | None], search: dict[str, Any], output: Path | None, opening: dict[str, str]
) -> "EvaluationReport":
    """Measure a run on documents or pictures, and keep what it said of each."""
    from regard.io.output import check_output, open_output

    check_output(output, *(path for name, path in files.items() if path and name != "images"), flag="--output")
    run = open_run([folder], search, lowercase=True, **opening)
    given: dict[str, Any] = {name: path for name, path in files.items() if path is not None}
    found = run.evaluate(**given, **(search if "captions" in files else {}))
    for line in found.notes[:MOST]:
        print_message(line)
    if len(found.notes) > MOST:
        print_message(f"… and {len(found.notes) - MOST:,} more that are left out")
    if output is not None:
        with open_output(output) as write:
            write("".join(f"{place}\t{text}\n" for place, text in found.outputs.items()))
    return found


def show(found: "EvaluationReport", as_json: bool) -> None:
    """Print a measurement for people or for programs."""
    if as_json:
        print(json.dumps(found.json, ensure_ascii=False, allow_nan=False))
        return
    print(found.heading)
    for table in found.tables:
        print()
        if table.title:
            print(table.title + "\n" * table.apart)
        print_table(table.columns, table.rows)


def check_metrics(metrics: str | None, *, run: bool, source: bool) -> None:
    """Refuse metrics of what is not given."""
    from regard.tasks.evaluation import possible_metrics

    keys = possible_metrics(metrics, outputs=True, run=run, source=source)
    if "perplexity" in keys and not run:
        raise CommandError("--metrics: perplexity given, which needs a run to ask")
    if "lengths" in keys and not source:
        raise CommandError("--metrics: lengths given, which needs --source")


def open_run(runs: Sequence[Path], search: dict[str, Any], lowercase: bool, *, checkpoint: str, device: str) -> "Run":
    """The run, or an ensemble of several; options of the search are checked before anything is read."""
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import search_options

    search_options(search)

    from regard.run import load

    run = load(*runs, checkpoint=checkpoint, device=Processes().device(device))
    if run.settings.data.lowercase and not lowercase:
        print_message(f"{run.folder} writes lower case only (data.lowercase); --lowercase compares without case")
    return run
