"""`regard translate`."""

import sys
from typing import Annotated

import typer

from regard.cli.messages import print_message
from regard.cli.options import (
    SEARCH,
    BatchTokensOption,
    BeamOption,
    CheckpointOption,
    CoveragePenaltyOption,
    DeviceOption,
    DiversityOption,
    GroupsOption,
    JsonLinesOption,
    LengthPenaltyOption,
    LongestOption,
    NbestOption,
    NoRepeatOption,
    OutOption,
    PrecisionOption,
    RunArgument,
    SampleOption,
    SampleSeedOption,
    ScoresOption,
    ShortestOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    flag_option,
    text_option,
)
from regard.decoding.options import Options


def translate(
    run: RunArgument,
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="run or file", help="Further run folders, which make an ensemble; a text file to read."),
    ] = None,
    beam: BeamOption = Options.beam,
    nbest: NbestOption = Options.nbest,
    out: OutOption = None,
    scores: ScoresOption = False,
    alignment: Annotated[
        bool, flag_option("--alignment", "Write links of words as well, as in 0-0 1-2, after a tab.")
    ] = False,
    as_json: JsonLinesOption = False,
    split: Annotated[
        bool, flag_option("--split", "Translate sentence by sentence, so that nothing is cut off.")
    ] = False,
    prefix: Annotated[str | None, text_option("Text that every output begins with.")] = None,
    prefixes: Annotated[str | None, text_option("Text file of such texts, one a line.")] = None,
    replace_unknown: Annotated[
        bool, flag_option("--replace-unknown", "Replace unknown words by source words.")
    ] = False,
    shortest: ShortestOption = Options.shortest,
    longest: LongestOption = Options.longest,
    length_penalty: LengthPenaltyOption = Options.length_penalty,
    coverage_penalty: CoveragePenaltyOption = Options.coverage_penalty,
    no_repeat: NoRepeatOption = Options.no_repeat,
    groups: GroupsOption = Options.groups,
    diversity: DiversityOption = Options.diversity,
    sample: SampleOption = False,
    temperature: TemperatureOption = Options.temperature,
    top_k: TopKOption = Options.top_k,
    top_p: TopPOption = Options.top_p,
    seed: SampleSeedOption = Options.seed,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = Options.precision,
    batch_tokens: BatchTokensOption = None,
) -> None:
    """Translate a text, line by line, with a trained run; several runs make an ensemble.

    regard translate runs/en-de input.txt --out output.txt; without a file, standard input is read as it comes.
    """
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import runs_and_file, search_options, translate_file
    from regard.io.formats import OutputFormat
    from regard.io.inputs import SourceLines
    from regard.io.lines import ignore
    from regard.io.output import check_output, open_output

    options = search_options({name: value for name, value in locals().items() if name in SEARCH})
    runs, file = runs_and_file([run, *(more or [])])
    check_output(out, file, prefixes)
    processes = Processes()
    source_lines = SourceLines(
        file, prefix, prefixes, processes.world, say=print_message if processes.first else ignore
    )

    from regard.decoding.translate_file import LineFitter
    from regard.io.lines import CHUNK_CUDA
    from regard.io.output import progress_bar
    from regard.run import load

    with processes:
        opened = load(*runs, checkpoint=checkpoint, device=processes.device(device))
        if opened.device.type == "cuda" and processes.world == 1:
            source_lines.size = CHUNK_CUDA
        source, wanted = opened.tokenizers.source, {"alignment": alignment, "replace_unknown": replace_unknown}
        done = translate_file(
            source_lines,
            lambda texts, begun: opened.stream(texts, prefixes=begun, batch_tokens=batch_tokens, **wanted, **options),
            LineFitter(
                lambda texts: [len(ids) for ids in source.encode_batch(texts)],
                min(opened.settings.data.longest, opened.model.limit or sys.maxsize),
                split=split,
                warn=print_message,
            ),
            OutputFormat(scores, alignment, nbest > 1, as_json),
            processes,
            nbest=nbest,
            ranked=not sample,
        )
        with (
            open_output(out, processes.first) as write,
            progress_bar(source_lines.total, out is not None, processes.first) as advance,
        ):
            for lines, written in done:
                write(written)
                advance(lines)
