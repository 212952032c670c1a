"""The inputs of a look: texts as they are, files of them line by line, pictures and folders of pictures."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from regard.data.images.caption_files import pictures_in
from regard.errors import CommandError
from regard.inspection.collect.open_run import OpenRun
from regard.io.inputs import announce_keyboard
from regard.io.lines import read_chunks
from regard.models.kinds import KINDS

__all__ = ["is_run", "read_against", "read_inputs"]

FILES = {".txt", ".tsv", ".csv", ".json", ".jsonl", ".gz", ".html", ".md"}
FILES |= {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"}


def read_inputs(
    run: OpenRun, arguments: Sequence[str], count: int, say: Callable[[str], None], as_text: bool = False
) -> list[str]:
    """Read the first `count` inputs; `say` reports what is left out.

    Of a run that reads pictures all are files or folders of them. For others, what is a file is read, a text a line,
    "-" is standard input, and anything else is a text; with `as_text` all are texts.
    """
    if KINDS[run.settings.kind].reads == "pictures":
        if not arguments:
            raise CommandError(f"which pictures? {run.folder} reads pictures; give files, or folders of them")
        return first(pictures_in(arguments, say), count, "pictures", say)
    texts = list[str]()
    for each in arguments or ["-"]:
        if not arguments or (not as_text and (each == "-" or is_file(each))):
            announce_keyboard(each, "text")
            read = (line for lines in read_chunks(each, say=say) for line in lines if line.strip())
            lines = list(itertools.islice(read, count + 1 - len(texts)))
            if not lines:
                raise CommandError(f"{'standard input' if each == '-' else each}: no text in it")
            texts += lines
        else:
            texts.append(each)
        if len(texts) > count:
            break
    return first(texts, count, "texts", say)


def is_run(text: str) -> bool:
    """Return whether a run folder is meant, and not a text or a file."""
    try:
        return (Path(text) / "config.toml").is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def read_against(run: OpenRun, text: str, count: int, as_text: bool = False) -> list[str]:
    """Read the second inputs of a run, one for each of the `count` first ones: a text or a picture for all, or a file.

    What names a folder, or a path into one that is there, is taken for a slip, as a run folder may be meant.
    """
    expected = "expected a run folder, or a text, a file or a picture for the same run"
    reads_text = KINDS[run.settings.kind].reads != "pictures"
    try:
        path = Path(text) if reads_text and text.strip() and not any(map(str.isspace, text)) else None
        folder = path is not None and path.is_dir()
        slip = path is not None and len(path.parts) > 1 and path.parent.is_dir() and not path.exists()
    except (OSError, ValueError):
        folder = slip = False
    if (folder or slip) and not as_text:
        raise CommandError(f"--against: {text}: {'no config.toml in it' if folder else 'no such folder'}, {expected}")
    try:
        inputs = read_inputs(run, [text], count + 1, lambda line: None, as_text)
    except CommandError as error:
        raise CommandError(f"--against: {error}; {expected}") from None
    if len(inputs) not in (1, count):
        how_many = f"more than {count:,}" if len(inputs) > count else f"{len(inputs):,}"
        raise CommandError(
            f"--against: {how_many} inputs in {text}, expected one for all, or one for each of the {count:,}"
        )
    return inputs if len(inputs) == count else inputs * count


def is_file(text: str) -> bool:
    """Return whether a file is meant: one that exists, or a name like one's. "and/or" is a text, as is "data"."""
    if not text.strip():
        return False
    try:
        folder = Path(text).is_dir()
        there = folder or Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False
    written_as_path = text.startswith(("/", "./", "../", "~/")) or text.endswith("/")
    if there:
        return not folder or written_as_path  # a word may be a folder's name, too
    named = not any(map(str.isspace, text)) and (written_as_path or Path(text).suffix.lower() in FILES)
    if named:
        raise CommandError(f"{text}: no such file; if it is a text, add --text")
    return False


def first(inputs: Iterable[str], count: int, name: str, say: Callable[[str], None]) -> list[str]:
    """Return the first inputs."""
    items = list(inputs)
    if len(items) > count:
        say(f"only the first {count:,} {name} are shown; --count says how many")
    return items[:count]
