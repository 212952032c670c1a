"""The inputs of a look: texts as they are, files of them line by line, pictures and folders of pictures."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from regard.data.images.caption_files import pictures_in
from regard.errors import CommandError
from regard.inspection.collect.open_run import OpenRun
from regard.io.lines import read_chunks
from regard.models.kinds import KINDS

__all__ = ["read_inputs"]

FILES = {".txt", ".tsv", ".csv", ".json", ".jsonl", ".gz", ".html", ".md"}
FILES |= {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"}


def read_inputs(run: OpenRun, arguments: Sequence[str], count: int, say: Callable[[str], None]) -> list[str]:
    """The first `count` things to look at; `say` is told of what is left out.

    Of a run that reads pictures all are files or folders of them. For others, what is a file is read, a text a line,
    "-" is standard input, and anything else is a text.
    """
    if KINDS[run.settings.kind].reads == "pictures":
        if not arguments:
            raise CommandError(f"which pictures? {run.folder} reads pictures; give files, or folders of them")
        return first(pictures_in(arguments, say), count, "pictures", say)
    texts = list[str]()
    for each in arguments or ["-"]:
        if each == "-" or is_file(each):
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


def is_file(text: str) -> bool:
    """Return whether a file is meant: one that is there, or a name that looks it. "and/or" is a text, as is "data"."""
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
        raise CommandError(f"{text}: no such file; a text that looks like a file's name can come through a pipe")
    return False


def first(inputs: Iterable[str], count: int, name: str, say: Callable[[str], None]) -> list[str]:
    """The first of them."""
    items = list(inputs)
    if len(items) > count:
        say(f"only the first {count:,} {name} are shown; --count says how many")
    return items[:count]
