"""The inputs that commands read line by line: sources with their prefixes, pairs to be scored, documents to be
labelled.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from regard.errors import CommandError, DataError
from regard.io.encodings import EncodedFile, check_encoding
from regard.io.formats import LabelOutput, label_line
from regard.io.lines import (
    CHUNK,
    GivenText,
    Say,
    check_unchanged,
    count_lines,
    display_name,
    ignore,
    is_pipe,
    read_chunks,
    unequal_lines,
)

__all__ = [
    "Block",
    "DocumentLines",
    "LinePairs",
    "SourceLines",
    "announce_keyboard",
    "encode_input",
    "encode_inputs",
    "one_input",
    "text_or_file",
]


NAMED = 10  # documents without words that are named; more are counted
Name = TypeVar("Name", str, Path, str | None, Path | None)
DOCUMENTS = 256  # documents that are read together


def text_or_file(argument: str, as_text: bool = False) -> str:
    """Decide whether a person gave a text or the name of a file: a GivenText, or the name as it is.

    What is there is a file, and so is "-", standard input; what has white space in it is a text. A single word that is
    no file may be the name of one, mistyped: it is refused, unless the person says that it is a text (`--text`).
    """
    if as_text or not argument.strip():
        return GivenText(argument)
    try:
        is_path = argument == "-" or Path(argument).exists()
    except PermissionError:  # in a folder that may not be looked into: reading it says so
        is_path = True
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        is_path = False
    if is_path:
        return argument
    if any(map(str.isspace, argument)):
        return GivenText(argument)
    raise CommandError(f"{argument}: no such file; if it is a text, add --text")


def encode_input(path: Name, encoding: str | None) -> Name:
    """Attach the encoding that a person gave to the name of a file; a text that was typed has none."""
    if encoding is None:
        return path
    if problem := check_encoding(encoding):
        raise CommandError(f"--encoding: {encoding} given, {problem}")
    return path if path is None or isinstance(path, GivenText) else cast(Name, EncodedFile(str(path), encoding))


def encode_inputs(encoding: str | None, *paths: Any) -> list[Any]:
    """Attach the encoding to the names of several files."""
    return [encode_input(path, encoding) for path in paths]


def one_input(arguments: Sequence[str]) -> str:
    """Return the one file or text that a command was given, or "-", standard input."""
    if len(arguments) > 1:
        raise CommandError(
            f"{arguments[1]}: a second argument given, expected one text, or one file of a document a line"
        )
    return arguments[0] if arguments else "-"


def announce_keyboard(path: str, what: str) -> None:
    """Print that lines are read from the keyboard, where standard input is one: `what` is what a line holds."""
    if path == "-" and sys.stdin is not None and sys.stdin.isatty():
        print(f"reading from the keyboard: one {what} per line, Ctrl-D to end", file=sys.stderr)


class Block(NamedTuple):
    """Lines that are translated together: the number of the first, from 1, and what each output begins with."""

    first: int
    lines: list[str]
    prefixes: list[str] | None


class SourceLines:
    """Lines to translate, and the prefixes of their outputs: one for all, or a file with one for each.

    What can be read twice is looked at in advance: `total` is the number of its lines, and None of a pipe. `say` is
    told of lines that were cut. `texts` may be set: it makes sources of lines that are not that already.
    """

    def __init__(
        self,
        path: str,
        prefix: str | None = None,
        prefixes: str | None = None,
        processes: int = 1,
        say: Say = ignore,
    ):
        self.path, self.prefix, self.prefixes, self.say = path, prefix, prefixes, say
        self.texts: Callable[[list[str]], list[str]] = list
        if prefix is not None and prefixes is not None:
            raise CommandError("--prefix: given together with --prefixes; give one of them")
        if prefixes == path == "-":
            raise CommandError("--prefixes: standard input is the text to translate, expected a file")
        for each in (path, prefixes):
            if processes > 1 and each is not None and is_pipe(each):
                raise CommandError(
                    f"{display_name(each)}: cannot be shared among {processes} processes, expected a file"
                )
        self.total = None if is_pipe(path) else count_lines(path)
        begun = None if prefixes is None or is_pipe(prefixes) else count_lines(prefixes)
        if begun is not None and self.total is not None and begun != self.total:
            raise self.unequal(f"{self.total:,}", begun)
        announce_keyboard(path, "sentence")
        if self.total == 0:
            say(f"{display_name(path)}: empty, nothing to translate")
        # Each process has work to do even where the lines are few.
        self.size = CHUNK if processes == 1 else min(CHUNK, max(1, (self.total or 0) // (4 * processes)))

    def blocks(self) -> Iterator[Block]:
        """All lines, in order."""
        first = 1
        prefixes = None if self.prefixes is None else chain.from_iterable(read_chunks(self.prefixes, say=self.say))
        for lines in read_chunks(self.path, self.size, self.say):
            own = None if self.prefix is None else [self.prefix] * len(lines)
            if prefixes is not None:
                own = list(islice(prefixes, len(lines)))
                if len(own) < len(lines):  # of pipes nobody knew
                    raise self.unequal(f"at least {first - 1 + len(lines):,}", first - 1 + len(own))
            yield Block(first, self.texts(lines), own)
            first += len(lines)
        more = 0 if prefixes is None else sum(1 for _ in prefixes)
        if more:
            raise self.unequal(f"{first - 1:,}", first - 1 + more)
        check_unchanged(self.path, self.total, first - 1)

    def unequal(self, lines: str, prefixes: int) -> DataError:
        """Build the error for a file of prefixes whose number of lines differs from the sources'."""
        return DataError(
            f"--prefixes: {self.prefixes} has {prefixes:,} line{'s' * (prefixes != 1)} and "
            f"{display_name(self.path)} has {lines}; expected the same number"
        )


class LinePairs:
    """Line i of one file with line i of the other; without a source, only the lines of the target.

    Files that can be read twice are looked at in advance; `total` is the number of pairs, and None of pipes. `say` is
    told of lines that were cut. `source_texts` and `target_texts` may be set: they make texts of lines that are not
    that already.
    """

    def __init__(self, source: str | None, target: str | None, say: Say = ignore):
        self.source_texts: Callable[[list[str]], list[str]] = list
        self.target_texts: Callable[[list[str]], list[str]] = list
        if target is None:
            raise CommandError("--target: missing, expected a text to score, or a file of them")
        if source == target == "-":
            raise CommandError("--target: standard input is the source already, expected a file")
        self.source, self.target, self.say = source, target, say
        counts = [count_lines(path) for path in (source, target) if path is not None and not is_pipe(path)]
        if source is not None and len(counts) == 2 and counts[0] != counts[1]:
            raise unequal_lines(source, counts[0], target, counts[1])
        self.total = counts[0] if counts else None

    def check(self, run: str, alone: bool, reads: Sequence[str] = ("text",)) -> None:
        """Refuse a source that nobody reads, as it writes `alone`, and a translation without its source."""
        if alone and self.source is not None:
            raise CommandError(f"--source: {run} is a language model and reads no source; give only --target")
        if not alone and "text" in reads and self.source is None:
            raise CommandError(f"--source: missing, expected the text file of the sources, because {run} translates")

    def chunks(self) -> Iterator[tuple[list[str] | None, list[str]]]:
        """Sources, where there are any, and as many targets."""
        if self.source is None:
            count = 0
            for lines in read_chunks(self.target, CHUNK, self.say):
                yield None, self.target_texts(lines)
                count += len(lines)
            check_unchanged(self.target, self.total, count)
            return
        count, sides = 0, read_chunks(self.source, CHUNK, self.say)
        targets = chain.from_iterable(read_chunks(self.target, say=self.say))
        names = display_name(self.source), display_name(self.target)
        for sources in sides:
            own = list(islice(targets, len(sources)))
            if len(own) < len(sources):
                raise unequal_lines(names[0], count + len(sources) + sum(map(len, sides)), names[1], count + len(own))
            yield self.source_texts(sources), self.target_texts(own)
            count += len(sources)
        more = sum(1 for _ in targets)
        if more:
            raise unequal_lines(names[0], count, names[1], count + more)
        check_unchanged(self.source, self.total, count)


def check_lengths(name: str | None, lines: Sequence[Sequence[int]], most: int | None, earlier: int) -> None:
    """Refuse a line of more tokens than the model has positions for; `earlier` lines were before these."""
    for i, ids in enumerate(lines if most is not None else (), earlier + 1):
        if most is not None and len(ids) > most:
            place = f"{display_name(name or '')}, line {i:,}"
            raise DataError(f"{place}: {len(ids):,} tokens, expected at most {most:,}, the model's length")


class DocumentLines:
    """Documents to label, one per line, from a file, or from standard input ("-") as they arrive.

    A file is looked at in advance: `total` is the number of its lines, and None of a pipe. `texts` makes documents of
    its lines where they are not that already.
    """

    def __init__(self, path: str, warn: Callable[[str], None], texts: Callable[[list[str]], list[str]] | None = None):
        self.path, self.warn, self.texts = path, warn, texts or list
        self.total = None if is_pipe(path) else count_lines(path)
        self.count = self.empty = 0
        announce_keyboard(path, "document")
        if self.total == 0:
            warn(f"{display_name(path)}: empty, nothing to classify")

    def labelled(
        self, classify: Callable[[list[str]], Sequence[LabelOutput | None]], scores: bool, as_json: bool
    ) -> Iterator[tuple[int, str]]:
        """Yield how many lines were labelled, and the text to write for them; a line without words stays empty."""
        for lines in map(self.texts, read_chunks(self.path, DOCUMENTS, self.warn)):
            lines_out = []
            for text, output in zip(lines, classify(lines), strict=True):
                self.count += 1
                if output is None:
                    self.empty += 1
                    if self.empty <= NAMED:
                        self.warn(f"{display_name(self.path)}, line {self.count:,}: a document without words")
                lines_out.append(label_line({"text": text}, output, scores, as_json))
            yield len(lines), "".join(lines_out)
        check_unchanged(self.path, self.total, self.count)
        if self.empty:
            self.warn(f"{self.empty:,} of {self.count:,} documents have no words and get no label")
