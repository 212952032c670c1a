"""`regard translate`."""

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import number
from regard.decoding.options import Options

BATCH_TOKENS = "Source tokens of a batch, for each hypothesis; default: 8192, and on a GPU as many as fit."
LIMITS = {field.name: {k: v for k, v in field.metadata.items() if k != "help"} for field in fields(Options)}
MOST_TOKENS = 16_777_216
HELP = {field.name: str(field.metadata["help"]) for field in fields(Options)}


def flag(name: str, help: str) -> Any:
    """An option that is there or not."""
    return typer.Option(name, help=help)


def text(help: str) -> Any:
    """An option that has a value, and none by default."""
    return typer.Option(help=help, show_default=False)


def search(name: str) -> Any:
    """An option of the search, in the words that `Options` has for it."""
    help, default = f"{HELP[name][0].upper()}{HELP[name][1:]}.", getattr(Options, name)
    limits = LIMITS[name]
    if not limits:
        return typer.Option(help=help, show_default=default is not None)
    kind: Any = "fraction" if isinstance(default, float) else "whole"
    return number(help, kind=kind, show_default=default is not None, **limits)


def translate(
    run: Annotated[str, typer.Argument(help="A run folder.", show_default=False)],
    more: Annotated[list[str] | None, typer.Argument(metavar="run or file", help="Other runs; a file to read.")] = None,
    beam: Annotated[int, search("beam")] = Options.beam,
    nbest: Annotated[int, search("nbest")] = Options.nbest,
    out: Annotated[Path | None, text("File to write, in place of standard output.")] = None,
    scores: Annotated[bool, flag("--scores", "Write the score behind a tab.")] = False,
    alignment: Annotated[bool, flag("--alignment", "Write links of words, as in 0-0 1-2, behind a tab.")] = False,
    as_json: Annotated[bool, flag("--json", "Write a JSON object a line.")] = False,
    split: Annotated[bool, flag("--split", "Translate sentence by sentence; then nothing is cut off.")] = False,
    prefix: Annotated[str | None, text("A text that every output begins with.")] = None,
    prefixes: Annotated[str | None, text("A file of such texts, one a line.")] = None,
    replace_unknown: Annotated[bool, flag("--replace-unknown", "Put source words in place of unknown ones.")] = False,
    shortest: Annotated[int, search("shortest")] = Options.shortest,
    longest: Annotated[int | None, search("longest")] = Options.longest,
    length_penalty: Annotated[float, search("length_penalty")] = Options.length_penalty,
    coverage_penalty: Annotated[float, search("coverage_penalty")] = Options.coverage_penalty,
    no_repeat: Annotated[int, search("no_repeat")] = Options.no_repeat,
    groups: Annotated[int, search("groups")] = Options.groups,
    diversity: Annotated[float, search("diversity")] = Options.diversity,
    sample: Annotated[bool, flag("--sample", "Draw each token at random in place of searching.")] = False,
    temperature: Annotated[float, search("temperature")] = Options.temperature,
    top_k: Annotated[int, search("top_k")] = Options.top_k,
    top_p: Annotated[float, search("top_p")] = Options.top_p,
    seed: Annotated[int, search("seed")] = Options.seed,
    checkpoint: Annotated[str, typer.Option(help="best, last, or one by its name.")] = "best",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps (Apple), or auto: a GPU where there is one.")] = "auto",
    precision: Annotated[str, search("precision")] = Options.precision,
    batch_tokens: Annotated[int | None, number(BATCH_TOKENS, least=1, most=MOST_TOKENS, show_default=False)] = None,
) -> None:
    """Translate a text, line by line, with a trained run; several runs make an ensemble.

    regard translate runs/en-de input.txt --out output.txt; without a file, standard input is read as it comes.
    """
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import runs_and_file, search_options, translate_file
    from regard.io.formats import OutputFormat
    from regard.io.inputs import SourceLines
    from regard.io.lines import ignore
    from regard.io.output import check_out, open_output

    def warn(said: str) -> None:
        print(f"regard: {said}", file=sys.stderr)

    options = search_options({name: value for name, value in locals().items() if name in HELP})
    runs, file = runs_and_file([run, *(more or [])])
    check_out(out, file, prefixes)
    processes = Processes()
    given = SourceLines(file, prefix, prefixes, processes.world, say=warn if processes.first else ignore)

    from regard.decoding.translate_file import Fit
    from regard.io.lines import CHUNK_CUDA
    from regard.io.output import progress_bar
    from regard.run import load

    with processes:
        opened = load(*runs, checkpoint=checkpoint, device=processes.device(device))
        if opened.device.type == "cuda" and processes.world == 1:
            given.size = CHUNK_CUDA
        source, wanted = opened.tokenizers.source, {"alignment": alignment, "replace_unknown": replace_unknown}
        done = translate_file(
            given,
            lambda texts, begun: opened.stream(texts, prefixes=begun, batch_tokens=batch_tokens, **wanted, **options),
            Fit(
                lambda texts: [len(ids) for ids in source.encode_batch(texts)],
                min(opened.settings.data.longest, opened.model.limit or sys.maxsize),
                split=split,
                warn=warn,
            ),
            OutputFormat(scores, alignment, nbest > 1, as_json),
            processes,
            nbest=nbest,
            ranked=not sample,
        )
        with (
            open_output(out, processes.first) as write,
            progress_bar(given.total, out is not None, processes.first) as advance,
        ):
            for lines, written in done:
                write(written)
                advance(lines)
