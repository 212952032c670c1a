"""`regard caption`."""

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.commands.translate import HELP, flag, search, text
from regard.cli.options import number
from regard.decoding.options import Options


def caption(
    run: Annotated[str, typer.Argument(help="A run folder.", show_default=False)],
    pictures: Annotated[list[str], typer.Argument(metavar="picture", help="Picture files, or folders of them.")],
    beam: Annotated[int, search("beam")] = Options.beam,
    nbest: Annotated[int, search("nbest")] = Options.nbest,
    out: Annotated[Path | None, text("File to write, in place of standard output.")] = None,
    scores: Annotated[bool, flag("--scores", "Write the score behind a tab.")] = False,
    as_json: Annotated[bool, flag("--json", "Write a JSON object a picture, a line each.")] = False,
    shortest: Annotated[int, search("shortest")] = Options.shortest,
    longest: Annotated[
        int | None, number("Tokens of a caption at most; default: 60.", least=0, most=1_048_576, show_default=False)
    ] = Options.longest,
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
) -> None:
    """Say what pictures show, with a trained run.

    regard caption runs/flickr8k photo.jpg writes the caption; of several pictures, or a folder, each stands behind its
    path and a tab. One that cannot be read is named on standard error and left out.
    """
    from regard.data.captions import NAMED, named, pictures_in
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import search_options
    from regard.errors import CommandError, DataError
    from regard.io.formats import caption_lines
    from regard.io.output import check_out, open_output

    options = search_options({name: value for name, value in locals().items() if name in HELP})
    paths = pictures_in(pictures, lambda said: print(f"regard: {said}", file=sys.stderr))
    check_out(out, *pictures)

    from regard.data.pictures import read_for
    from regard.run import load

    opened = load(run, checkpoint=checkpoint, device=Processes().device(device))
    names, lost = deque[str](), 0

    def pixels() -> Iterator[Any]:
        nonlocal lost
        for path in paths:
            try:
                read = read_for(opened.settings.data, path)
            except DataError as error:
                if len(paths) == 1:
                    raise
                lost += 1
                if lost <= NAMED:
                    print(f"regard: {named([str(error)])}", file=sys.stderr)
                continue
            names.append(path)
            yield read

    alone = paths == pictures and len(paths) == 1
    found = opened.captions(pixels(), **options)
    with open_output(out) as write:
        for each in found:
            write(caption_lines("" if alone and not as_json else names.popleft(), each, scores or nbest > 1, as_json))
    if lost == len(paths):
        raise CommandError(f"none of {lost:,} pictures can be read")
    if lost:
        print(f"regard: {lost:,} of {len(paths):,} pictures cannot be read and are left out", file=sys.stderr)
