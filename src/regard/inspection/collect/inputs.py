"""The inputs of a look: texts as they are, files of them line by line, pictures and folders of pictures."""

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.data import TableTexts, caption_files
from regard.errors import CommandError
from regard.io import GivenText, announce_keyboard, packs, read_chunks, text_or_file
from regard.models import KINDS
from regard.tasks import TrainedRun


def read_inputs(
    run: TrainedRun, arguments: Sequence[str], count: int, say: Callable[[str], None], as_text: bool = False
) -> list[str]:
    """Read the first `count` inputs; `say` reports what is left out.

    Of a run that reads pictures all are files or folders of them. For others, what is a file is read, a text per line,
    "-" is standard input, and what has white space in it is a text; with `as_text` all are texts.
    """
    if KINDS[run.settings.kind].reads == "pictures":
        if not arguments:
            raise CommandError(f"which pictures? {run.folder} reads pictures; give files, or folders of them")
        return first(caption_files.pictures_in(arguments, say), count, "pictures", say)
    texts = list[str]()
    for each in [text_or_file(argument, as_text) for argument in arguments] or ["-"]:
        if not isinstance(each, GivenText):
            if os.path.isdir(each):
                raise CommandError(f"{each}: a folder given, expected a file; if it is a text, add --text")
            announce_keyboard(each, "text")
            tabular = run.settings.data.reads == "documents" or run.can("translate")
            texts_of = (TableTexts.of(each, run.settings.data, say) if tabular else None) or list
            read = (line for lines in read_chunks(each, say=say) for line in texts_of(lines) if line.strip())
            lines = list(itertools.islice(read, count + 1 - len(texts)))
            if not lines:
                raise CommandError(f"{'standard input' if each == '-' else each}: no text in it")
            texts += lines
        else:
            texts.append(str(each))
        if len(texts) > count:
            break
    return first(texts, count, "texts", say)


def is_run(text: str) -> bool:
    """Return whether a run folder is meant, and not a text or a file."""
    return packs.is_file(Path(text) / "config.toml")


def read_against(run: TrainedRun, text: str, count: int, as_text: bool = False) -> list[str]:
    """Read the second inputs of a run, one for each of the `count` first ones: a text or picture for all, or a file."""
    expected = "expected a run folder, or a text, a file or a picture for the same run"
    # A single word may be the name of a file or a folder.
    word = KINDS[run.settings.kind].reads != "pictures" and not as_text and text.split() == [text]
    if word and (os.path.isdir(text) or not (text == "-" or os.path.exists(text))):
        missing = "no config.toml in it" if os.path.isdir(text) else "no such folder or file"
        raise CommandError(f"--against: {text}: {missing}, {expected}; if it is a text, add --text")
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


def first(inputs: Sequence[str], count: int, name: str, say: Callable[[str], None]) -> list[str]:
    """Return the first inputs."""
    if len(inputs) > count:
        say(f"only the first {count:,} {name} are shown; --count says how many")
    return list(inputs[:count])
