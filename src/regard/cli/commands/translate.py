"""`regard translate`: a text translated line by line."""

from typing import Annotated, Any

import typer

from regard.cli import options
from regard.cli.messages import print_message
from regard.cli.options import file_option, flag_option, text_option, with_languages, with_search
from regard.cli.runs import (
    check_engine,
    check_folders,
    check_served,
    open_run,
    print_unknown_words,
    split_runs_and_inputs,
)
from regard.io import check_output

MoreArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN]... [TEXT or FILE]...",
        help="Texts to translate, or text files, one sentence per line; default: standard input. Further run folders "
        "before them make an ensemble.",
    ),
]
AlignmentOption = Annotated[bool, flag_option("--alignment", "Also write word links, such as 0-0 1-2, after a tab.")]
SplitOption = Annotated[
    bool | None,
    flag_option(
        "--split/--no-split",
        "Translate each sentence of a line by itself, so that none is left out and long lines are not truncated; "
        "default: texts given as arguments or typed, not files and pipes.",
    ),
]
CoverageOption = Annotated[
    bool | None,
    typer.Option(
        "--coverage/--no-coverage",
        help="Report source words that were perhaps not translated; default: for typed texts, not for files and pipes.",
        show_default=False,
    ),
]
PrefixesOption = Annotated[
    str | None, file_option("Text file of prefixes, one per line, for the outputs to begin with.")
]
ReplaceUnknownOption = Annotated[
    bool, flag_option("--replace-unknown", "Replace each unknown word with the source word it attended to most.")
]
EXAMPLES = (
    'regard translate runs/en-de "A man rides a horse."',
    "regard translate runs/en-de input.en -o output.de --beam 8",
)


@with_languages
@with_search()
def translate(
    run: options.RunArgument,
    more: MoreArgument = None,
    *,
    as_text: options.TextOption = False,
    encoding: options.EncodingOption = None,
    out: options.OutOption = None,
    scores: options.ScoresOption = False,
    alignment: AlignmentOption = False,
    as_json: options.JsonLinesOption = False,
    split: SplitOption = None,
    coverage: CoverageOption = None,
    prefix: Annotated[str | None, text_option("Text that every output begins with.")] = None,
    prefixes: PrefixesOption = None,
    replace_unknown: ReplaceUnknownOption = False,
    languages: dict[str, str | None],
    search: dict[str, Any],
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
    batch_tokens: options.BatchTokensOption = None,
    engine: options.EngineOption = "regard",
    quantize: options.QuantizeOption = None,
) -> None:
    """Translate texts, or files line by line, with a trained run.

    Without a text or a file, it reads standard input as it comes. In a table (.tsv, .csv, .jsonl, .json), it reads the
    sources and ignores translations. Several runs make an ensemble.
    """
    from regard.decoding import Processes
    from regard.io import SourceLines, encode_input, encode_inputs, formats, ignore, open_output, progress_bar

    check_engine(engine, quantize)
    runs, inputs = split_runs_and_inputs([run, *(more or [])], as_text)
    inputs, prefixes = encode_inputs(encoding, *inputs), encode_input(prefixes, encoding)
    check_folders(*runs, engine=engine)
    check_output(out, *inputs, prefixes)
    processes = Processes()
    say = print_message if processes.first else ignore
    source_lines = SourceLines(inputs, prefix, prefixes, processes.world, say=say)

    from regard.tasks import translate_lines

    with processes:
        opening: dict[str, Any] = {"checkpoint": checkpoint, "device": device, "engine": engine, "quantize": quantize}
        opened = open_run(*runs, **opening, languages=languages, processes=processes)
        check_served(opened, search)
        form = formats.OutputFormat(scores, alignment, search["nbest"] > 1, as_json)
        extras: dict[str, Any] = {"alignment": alignment, "replace_unknown": replace_unknown, "coverage": coverage}
        extras |= {"split": split, "batch_tokens": batch_tokens, "warn": print_message}
        blocks = translate_lines(opened, source_lines, form, processes, **extras, **search)
        bar = progress_bar(source_lines.total, out is not None, processes.first)
        with open_output(out, processes.first) as write, bar as advance:
            for lines, text in blocks:
                write(text)
                advance(lines)
        if processes.first:
            print_unknown_words(opened)
