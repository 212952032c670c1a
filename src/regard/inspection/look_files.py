"""Inputs of `regard look` (texts, files and folders of pictures) and the paths of its output.

Several pages become numbered files, in a folder if one is given.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from regard.data import TableTexts, caption_files
from regard.errors import CommandError
from regard.io import GivenText, announce_keyboard, check_link, packs, read_chunks, text_or_file
from regard.models import KINDS
from regard.tasks import TrainedRun

# Suffixes of unsupported formats: a path with one of them is an error and not the name of a new folder.
FILES = ("bmp", "csv", "doc", "docx", "eps", "gif", "htm", "jpeg", "jpg", "json", "md", "pptx", "ps", "tex", "tif",
         "tiff", "tsv", "txt", "webp", "xml")  # fmt: skip


@dataclass(frozen=True)
class OutputPaths:
    """Paths to write pages or pictures to, and their format."""

    out: Path
    format: str
    folder: bool = False

    @classmethod
    def parse(cls, out: Path | None, format: str | None, formats: Sequence[str]) -> Self:
        """Parse and check --out and --format before any work is done; a file's suffix determines its format.

        A name whose suffix is none of the formats is that of a folder; `list_paths` makes missing folders.
        """
        if format is not None and format not in formats:
            raise CommandError(f"--format: {format!r} given, expected {', '.join(formats[:-1])} or {formats[-1]}")
        if out is None:
            out = Path(f"look.{format or formats[0]}")
        check_link(out, "--out")
        ending = out.suffix.removeprefix(".")
        expected = f"expected a name that ends in {', '.join(f'.{each}' for each in formats)}, or a folder"
        if ending.lower() in FILES and not out.is_dir():
            raise CommandError(f"--out: {out} given, {expected}")
        if out.is_dir() or (ending not in formats and not out.exists()):
            return cls(out, format or formats[0], True)
        if ending not in formats:
            raise CommandError(f"--out: {out} is a file, {expected}")
        if format is not None and ending != format:
            raise CommandError(f"--out: {out} given with --format {format}, expected a name that ends in .{format}")
        return cls(out, ending)

    def list_paths(self, count: int, inputs: Sequence[str] = ()) -> list[Path]:
        """List the paths of `count` files, numbered if there are several; none of them may be an input."""
        folder = self.out if self.folder else self.out.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"--out: {folder}: the folder cannot be made: {error.strerror}") from None
        if self.folder:
            paths = [self.out / f"look-{number}.{self.format}" for number in range(1, count + 1)]
        elif count == 1:
            paths = [self.out]
        else:
            paths = [self.out.with_stem(f"{self.out.stem}-{number}") for number in range(1, count + 1)]
        for path in paths:
            if path.is_dir():
                raise CommandError(f"--out: {path} is a folder, expected a file to write")
            there = filter(os.path.exists, inputs if path.is_file() else ())  # some inputs are texts, not file names
            if str(path) in inputs or any(map(path.samefile, there)):
                raise CommandError(f"--out: {path} is an input file, expected another")
        return paths


def graph_path(out: Path | None, format: str | None) -> Path:
    """Return the path of a graph's picture from --out and --format; SVG is the only format."""
    if format not in (None, "svg"):
        raise CommandError(f"--format: {format!r} given, expected svg for a graph alone; with a text it is on its page")
    if out is not None and out.suffix not in ("", ".svg") and not out.is_dir():
        raise CommandError(f"--out: {out} given, expected a name that ends in .svg; with a text a graph is on its page")
    paths = OutputPaths.parse(Path("graph.svg") if out is None else out, None, ("svg",))
    return paths.out / "graph.svg" if paths.folder else paths.out


# ---- inputs


def read_inputs(
    run: TrainedRun, arguments: Sequence[str], count: int, say: Callable[[str], None], as_text: bool = False
) -> list[str]:
    """Read the first `count` inputs; `say` reports inputs that are left out.

    For a run that reads pictures, all arguments are picture files or folders of them. For other runs, a file contains
    one text per line, "-" is standard input, and an argument with white space is a text; with `as_text` all are texts.
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
    """Return whether an argument is a run folder and not a text or a file."""
    return packs.is_file(Path(text) / "config.toml")


def read_against(run: TrainedRun, text: str, count: int, as_text: bool = False) -> list[str]:
    """Read the inputs to compare with: one for each of the `count` first inputs, or a single one for all of them."""
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
    """Return the first `count` inputs; `say` reports if there are more."""
    if len(inputs) > count:
        say(f"only the first {count:,} {name} are shown; --count says how many")
    return list(inputs[:count])
