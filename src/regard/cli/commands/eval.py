"""`regard eval`."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
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
)
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.evaluation.evaluate import Evaluation
    from regard.evaluation.metric import Reference
    from regard.run import Run

PICTURES = (".png", ".svg", ".pdf")
CHUNK = 256  # sentences that are translated or scored together
MOST = 12  # lines about what is left out, or labels of a table across


def eval(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="A run folder; several are an ensemble.")
    ] = None,
    source: SourceOption = None,
    reference: ReferenceOption = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Score these outputs, and translate nothing.", show_default=False)
    ] = None,
    documents: Annotated[
        Path | None, typer.Option(help="Of a classifier: labelled documents, as in training.", show_default=False)
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Of a run that reads pictures: their folder.", show_default=False)
    ] = None,
    captions: Annotated[Path | None, typer.Option(help="What the pictures show.", show_default=False)] = None,
    labels: Annotated[
        Path | None, typer.Option(help="What to call the pictures; else their folders say.", show_default=False)
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="Only these of the pictures, a name a line.", show_default=False)
    ] = None,
    alignment: Annotated[
        Path | None,
        typer.Option(help="Gold links: measure those of the run, or of --hypothesis.", show_default=False),
    ] = None,
    from_one: Annotated[bool, typer.Option("--from-one", help="Words of these are counted from 1.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Some of bleu, chrf, ter, exact, character_errors, token_errors, perplexity and lengths, "
            "with commas between them.",
            show_default="all",
        ),
    ] = None,
    alternatives: AlternativesOption = False,
    lowercase: LowercaseOption = False,
    tokenize: TokenizeOption = "13a",
    output: Annotated[Path | None, typer.Option(help="Keep the translations here.", show_default=False)] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw BLEU by source length: .png, .svg or .pdf.", show_default=False)
    ] = None,
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
    if alignment is not None:
        if documents or images or metrics or output or plot:
            raise CommandError("--alignment: given with options of other measurements, expected --source, --reference")
        show_links(runs, source, reference, hypothesis, alignment, int(from_one), checkpoint, device, as_json)
        return
    if documents or images:
        if not runs or len(runs) > 1 or source or reference or hypothesis:
            raise CommandError("--documents and --images: give one run folder beside them, and no texts to translate")
        search = {"beam": beam, "length_penalty": length_penalty}
        told = other(runs[0], documents, images, captions, labels, names, search, output, checkpoint, device)
        print(json.dumps(told, ensure_ascii=False)) if as_json else show_other(told)
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
    from regard.io.output import check_out, open_output

    if plot is not None and plot.suffix.lower() not in PICTURES:
        raise CommandError(f"--plot: {plot} given, expected a name that ends in {', '.join(PICTURES)}")
    check_out(plot, source, reference, flag="--plot")
    check_out(output, source, reference, flag="--output")

    from regard.evaluation.evaluate import evaluate
    from regard.evaluation.items import read_items
    from regard.evaluation.text import check_tokenizer
    from regard.io.formats import BREAKS

    keys = keys_of(metrics, outputs=bool(source or hypothesis), run=bool(runs), source=source is not None)
    keys += ["lengths"] * (plot is not None and "lengths" not in keys)
    check_tokenizer(tokenize)
    items = read_items(source, reference, alternatives=alternatives, say=print_message)
    keys = without_slow(keys, items.references) if metrics is None else keys
    outputs = None if hypothesis is None else items.read_outputs(hypothesis, print_message)
    search = {"beam": beam, "length_penalty": length_penalty}
    needed = runs and (outputs is None or "perplexity" in keys)
    run = opened(runs, checkpoint, device, search, lowercase) if runs and needed else None
    if run is not None and source is None and run.settings.task != "language-model":
        raise CommandError(f"--source: missing, expected the text that {run.folder} is to translate")
    if run is not None and outputs is None and (output is not None or keys != ["perplexity"]):
        outputs = translated(run, items.sources or [], search, batch_tokens)
        if output is not None:
            with open_output(output) as write:
                write("".join(f"{BREAKS.sub(' ', text)}\n" for text in items.by_line(outputs)))
    tokens = scored(run, list(items.pairs())) if run is not None and "perplexity" in keys else iter(())
    kind = f"{run.settings.tokenizer.kind}[{run.tokenizers.target.size}]" if run is not None else ""
    found = evaluate(items, outputs, keys, lowercase=lowercase, tokenize=tokenize, tokens=tokens, tokenizer=kind)
    if plot is not None and found.lengths is not None:
        from regard.inspection.draw.heatmap import save
        from regard.inspection.draw.lengths import draw_lengths

        save(draw_lengths(found.lengths), plot)
    show(found, str(hypothesis or " + ".join(map(str, runs or []))), None if hypothesis else search, as_json)


def show_links(
    runs: list[Path] | None,
    source: Path | None,
    reference: Path | None,
    hypothesis: Path | None,
    gold_path: Path,
    first: int,
    checkpoint: str,
    device: str,
    as_json: bool,
) -> None:
    """Measure word alignments: of a run between source and reference, or those of a file."""
    from regard.evaluation.alignment import check_links, measure_links, read_links
    from regard.evaluation.items import read_items
    from regard.evaluation.metric import finite
    from regard.io.lines import unequal_lines

    gold = read_links(gold_path, first=first, say=print_message)
    if hypothesis is not None:
        found = [sorted(each.possible) for each in read_links(hypothesis, say=print_message)]
        if len(found) != len(gold):
            raise unequal_lines(str(hypothesis), len(found), str(gold_path), len(gold))
        system = str(hypothesis)
    else:
        if not runs or source is None or reference is None:
            raise CommandError("--alignment: expected a run with --source and --reference, or --hypothesis with links")
        items = read_items(source, reference, say=print_message)
        pairs = [(one, two) for one, (two,) in zip(items.sources or [], items.references, strict=True)]
        for slip in check_links(gold_path, gold, [one for one, _ in pairs], [two for _, two in pairs]):
            print_message(slip)
        run = opened(runs, checkpoint, device, {}, lowercase=True)
        found = list(show_progress(run.links(pairs), len(pairs), f"aligning with {run.folder}"))
        system = f"{run.folder}, {run.chosen}"
    scores = {key: each.score() for key, each in measure_links(found, gold).items()}
    if as_json:
        table = {key: {**asdict(score), "value": finite(score.value)} for key, score in scores.items()}
        print(json.dumps({"system": system, "sentences": len(gold), "scores": table}, ensure_ascii=False))
        return
    print(f"{system}: {len(gold):,} sentence{'s' * (len(gold) != 1)}\n")
    rows = [(score.name, str(score), score.signature) for score in scores.values()]
    print_table(("metric", "score", "signature"), rows)


def other(
    folder: Path,
    documents: Path | None,
    images: Path | None,
    captions: Path | None,
    labels: Path | None,
    names: Path | None,
    search: dict[str, Any],
    output: Path | None,
    checkpoint: str,
    device: str,
) -> dict[str, Any]:
    """A run measured on documents or pictures: what is printed."""
    from regard.io.output import check_out, open_output

    check_out(output, *filter(None, (documents, captions, labels)), flag="--output")
    run = opened([folder], checkpoint, device, search, lowercase=True)

    from regard.measured import describe, name_documents, name_pictures

    whole: dict[str, Any] = {"system": str(folder)}
    if documents is None and captions is not None and images is not None:
        described = describe(run, images, captions, names, **search)
        lost, outputs = described.lost, described.outputs
        whole |= {"search": search, "pictures": len(outputs)}
        whole["scores"] = {
            score.name: {"value": score.value, "signature": score.signature, "shown": str(score)}
            for score in described.scores
        }
    else:
        named = name_documents(run, str(documents)) if documents else name_pictures(run, Path(str(images)), labels)
        lost, outputs = named.lost, named.outputs
        whole |= {"documents" if documents else "pictures": len(outputs), **named.report.table()}
    for line in lost[:MOST]:
        print_message(line)
    if len(lost) > MOST:
        print_message(f"… and {len(lost) - MOST:,} more that are left out")
    if output is not None:
        with open_output(output) as write:
            write("".join(f"{place}\t{text}\n" for place, text in outputs.items()))
    return whole


def show_other(found: dict[str, Any]) -> None:
    """Print such a measurement for people."""
    what = "documents" if "documents" in found else "pictures"
    search = found.get("search")
    how = f", beam {search['beam']}, length penalty {search['length_penalty']:g}" if search else ""
    print(f"{found['system']}{how}: {found[what]:,} {what}\n")
    if search:
        rows = [(name, each["shown"], each["signature"]) for name, each in found["scores"].items()]
        print_table(("metric", "score", "signature"), rows)
        return
    print(f"accuracy {found['accuracy']:.2%}, macro-F1 {found['f1']:.2%}\n")
    each = found["labels"]
    print_table(
        ("label", what, "precision", "recall", "F1"),
        [
            (name, f"{row['count']:,}", *(f"{row[key]:.2%}" for key in ("precision", "recall", "f1")))
            for name, row in each.items()
        ],
    )
    if len(each) <= MOST:
        print("\nsaid (across) for what is right (down)")
        counts = zip(each, found["confusion"], strict=True)
        print_table(("", *each), [(name, *(f"{count:,}" for count in row)) for name, row in counts])


def show(found: "Evaluation", system: str, search: dict[str, Any] | None, as_json: bool) -> None:
    """Print an evaluation for people or for programs."""
    if as_json:
        whole = {"system": system, "search": search, **found.table()}
        print(json.dumps(whole, ensure_ascii=False, allow_nan=False))
        return
    how = f", beam {search['beam']}, length penalty {search['length_penalty']:g}" if search else ""
    print(f"{system}{how}: {found.counted()}")
    if found.scores:
        print()
        print_table(
            ("metric", "score", "signature"),
            [(score.name, str(score), score.signature) for score in found.scores.values()],
        )
    if found.lengths is not None:
        print(f"\n{found.lengths.metric} by source length")
        print_table(
            (found.lengths.unit, "sentences", found.lengths.metric, "95 % interval"),
            [
                (each.name, f"{each.sentences:,}", f"{each.value:.2f}", spread(each.interval))
                for each in found.lengths.buckets
            ],
        )


def spread(interval: tuple[float, float] | None) -> str:
    """An interval as people write it."""
    return "–" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def keys_of(metrics: str | None, *, outputs: bool, run: bool, source: bool) -> list[str]:
    """The metrics asked for, or all there can be."""
    from regard.evaluation.metric import choose_metrics, metric_names

    if metrics is None:
        can = {key: source if key == "lengths" else run if key == "perplexity" else outputs for key in metric_names()}
        return [key for key in can if can[key]]
    keys = choose_metrics(metrics, metric_names())
    if "perplexity" in keys and not run:
        raise CommandError("--metrics: perplexity given, which needs a run to ask")
    if "lengths" in keys and not source:
        raise CommandError("--metrics: lengths given, which needs --source")
    return keys


def without_slow(keys: list[str], references: "Sequence[Reference]") -> list[str]:
    """The metrics without TER, where nobody asked for it and it would take minutes."""
    from regard.evaluation.text import ter_takes_minutes

    if "ter" not in keys or not ter_takes_minutes(references):
        return keys
    print_message("TER is left out: on text as long as this it takes minutes; --metrics ter asks for it")
    return [key for key in keys if key != "ter"]


def opened(runs: Sequence[Path], checkpoint: str, device: str, search: dict[str, Any], lowercase: bool) -> "Run":
    """The run, or an ensemble of several; options of the search are checked before anything is read."""
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import search_options

    search_options(search)

    from regard.run import load

    run = load(*runs, checkpoint=checkpoint, device=Processes().device(device))
    if run.settings.data.lowercase and not lowercase:
        print_message(f"{run.folder} writes lower case only (data.lowercase); --lowercase compares without case")
    return run


def translated(run: "Run", sources: Sequence[str], search: dict[str, Any], batch_tokens: int | None) -> list[str]:
    """The best translation of each source; one that is longer than the run takes is cut, as `regard translate` does."""
    from regard.decoding.translate_file import Fit

    most = min(run.settings.data.longest, run.model.limit or sys.maxsize)
    fit = Fit(lambda texts: [len(ids) for ids in run.tokenizers.source.encode_batch(texts)], most)
    starts = range(0, len(sources), CHUNK)
    texts = (part[0].text for i in starts for part in fit.parts(list(sources[i : i + CHUNK]), ""))
    chunk = CHUNK if run.device.type == "cpu" else None  # on a GPU many more go together
    stream = run.stream(texts, chunk=chunk, batch_tokens=batch_tokens, **search)
    outputs = [best[0].text for best in show_progress(stream, len(sources), f"translating with {run.folder}")]
    if fit.cut:
        print_message(
            f"{fit.cut:,} of {len(sources):,} sources were cut to the {most:,} tokens that {run.folder} takes"
        )
    return outputs


def scored(run: "Run", pairs: Sequence[tuple[str, str]]) -> Iterator[list[float]]:
    """The log-probabilities of the tokens of each reference, but of pairs that are longer than the model can be."""
    alone, most, left = run.settings.task == "language-model", run.model.limit, 0
    for start in show_progress(
        range(0, len(pairs), CHUNK), -(-len(pairs) // CHUNK), f"scoring references with {run.folder}"
    ):
        chunk = pairs[start : start + CHUNK]
        if most is not None:
            source, target = run.tokenizers.source, run.tokenizers.target
            fitting = [pair for pair in chunk if max(len(source.encode(pair[0])), len(target.encode(pair[1]))) < most]
            left, chunk = left + len(chunk) - len(fitting), fitting
        sources, references = [source for source, _ in chunk], [reference for _, reference in chunk]
        yield from (each.tokens for each in (run.score(references) if alone else run.score(sources, references)))
    if left:
        print_message(
            f"perplexity: {left:,} pairs that are longer than the {most:,} tokens of {run.folder} are left out"
        )
