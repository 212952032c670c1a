"""`regard eval`: scores of a run on a test set."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.evaluation import measure_items, measure_links, measure_texts
from regard.cli.messages import print_report
from regard.cli.options import (
    AlternativesOption,
    BatchTokensOption,
    CheckpointOption,
    DeviceOption,
    EncodingOption,
    EngineOption,
    FromOneOption,
    JsonOption,
    LowercaseOption,
    MetricsOption,
    QuantizeOption,
    ReferenceOption,
    SourceOption,
    TokenizeOption,
    file_option,
    folder_option,
    out_option,
    with_languages,
    with_search,
)
from regard.errors import CommandError
from regard.io import encode_inputs

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


@with_languages
@with_search("beam", "length_penalty")
def eval(
    runs: RunsArgument = None,
    *,
    source: SourceOption = None,
    reference: ReferenceOption = None,
    hypothesis: Annotated[Path | None, file_option("Text file of outputs to score, instead of translating.")] = None,
    documents: Annotated[Path | None, file_option("TSV or CSV file of labelled documents, for a classifier.")] = None,
    images: Annotated[Path | None, folder_option("Folder of pictures, for a run that reads them.")] = None,
    captions: Annotated[Path | None, file_option("TSV or CSV file with the pictures' captions.")] = None,
    labels: Labels = None,
    names: Names = None,
    gold: GoldOption = None,
    from_one: FromOneOption = False,
    encoding: EncodingOption = None,
    metrics: MetricsOption = None,
    alternatives: AlternativesOption = False,
    lowercase: LowercaseOption = False,
    tokenize: TokenizeOption = "auto",
    out: Annotated[Path | None, out_option("File to write the outputs to.")] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    languages: dict[str, str | None],
    search: dict[str, Any],
    batch_tokens: BatchTokensOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    engine: EngineOption = "regard",
    quantize: QuantizeOption = None,
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
    if gold is not None:
        if documents or images or metrics or out or plot:
            raise CommandError("--gold: give only --source and --reference with it, or --hypothesis")
        report = measure_links(runs, gold, source, reference, hypothesis, int(from_one), opening)
    elif documents or images:
        if not runs or len(runs) > 1 or source or reference or hypothesis:
            raise CommandError("--documents and --images: give exactly one run folder, and no texts to translate")
        pictures = {"images": images, **({"captions": captions, "names": names} if captions else {"labels": labels})}
        files = pictures if documents is None else {"documents": documents}
        report = measure_items(runs[0], files, out, search if "captions" in files else {}, opening)
    else:
        if captions or labels or names:
            raise CommandError("--images: missing, expected the folder of the pictures")
        texts = {"reference": reference, "source": source, "hypothesis": hypothesis}
        how = {"metrics": metrics, "alternatives": alternatives, "lowercase": lowercase, "tokenize": tokenize}
        report = measure_texts(runs or [], texts, how, out, plot, search, batch_tokens, opening)
    print_report(report, as_json)
