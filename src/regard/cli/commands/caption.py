"""`regard caption`: captions of pictures."""

from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from regard.cli import options
from regard.cli.messages import print_message
from regard.cli.options import flag_option, with_search
from regard.cli.runs import open_run

EXAMPLES = ("regard caption runs/flickr8k photo.jpg", "regard caption runs/flickr8k photos/ --json -o captions.jsonl")


@with_search(without=["precision"], longest="Maximum number of tokens in a caption; default: 60.")
def caption(
    run: options.RunArgument,
    pictures: Annotated[list[str], typer.Argument(metavar="PICTURE", help="Picture files, or folders of them.")],
    *,
    out: options.OutOption = None,
    scores: options.ScoresOption = False,
    as_json: Annotated[bool, flag_option("--json", "Write one JSON object per picture and line.")] = False,
    search: dict[str, Any],
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Write captions for pictures, with a trained run.

    With several pictures, or a folder, each caption follows the picture's path and a tab. Pictures that cannot be read
    are named on standard error and skipped.
    """
    from regard.data import caption_files
    from regard.io import check_output, formats, open_output

    files = caption_files.PictureFiles(pictures, print_message)
    check_output(out, *pictures)
    opened = open_run(run, checkpoint=checkpoint, device=device)
    paths = deque[str]()

    def pixels() -> Iterator[Any]:
        for path, picture in files.read(opened.settings.data):
            paths.append(path)
            yield picture

    captions = opened.captions(pixels(), **search)
    with open_output(out) as write:
        for each in captions:
            path = "" if files.single and not as_json else paths.popleft()
            write(formats.caption_lines(path, each, scores or search["nbest"] > 1, as_json))
    files.end()
