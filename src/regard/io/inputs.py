"""Inputs that commands read line by line: sources with prefixes, pairs to score, documents to label."""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from regard.errors import CommandError, DataError
from regard.io.encodings import EncodedFile, check_encoding
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
from regard.io.results import LabelOutput, label_line

NAMED = 10  # documents without words that warnings name; further ones are only counted
SHOWN = 60  # maximum characters of an argument in a message
Name = TypeVar("Name", str, Path, str | None, Path | None)
DOCUMENTS = 256  # documents per chunk


def text_or_file(argument: str, as_text: bool = False) -> str:
    """Decide whether an argument is a text or a file name; return a GivenText, or the name unchanged.

    An existing path and "-" (standard input) are files; any other argument that contains white space is a text. Any
    other single word may be a mistyped file name, so it is refused unless `as_text` is set (`--text`).
    """
    if not as_text and is_there(argument):
        return argument
    if as_text or is_clearly_text(argument):
        return GivenText(argument)
    raise CommandError(f"{argument}: no such file; if it is a text, add --text")


def texts_or_files(arguments: Sequence[str], as_text: bool = False) -> list[str]:
    """Decide whether arguments are texts or file names; return one GivenText with all texts, or the names.

    They are all texts or all files. If one argument is clearly a text (empty, or with white space), single words count
    as texts too.
    """
    if not arguments:
        return ["-"]
    if len(arguments) == 1 and not as_text:
        return [text_or_file(arguments[0])]
    files = [] if as_text else [each for each in arguments if is_there(each)]
    if len(files) == len(arguments):
        if files.count("-") > 1:
            raise CommandError("-: standard input given twice, expected it once")
        return files
    if files:
        other = next(each for each in arguments if each not in files)
        what = "a text" if is_clearly_text(other) else "no such file"
        raise CommandError(
            f"{show_argument(other)}: {what}, beside the file {files[0]}; give run folders first, and then texts or "
            "files, not both (--text makes texts of all)"
        )
    if not as_text and not any(map(is_clearly_text, arguments)):
        raise CommandError(f"{show_argument(arguments[0])}: no such file; if these are texts, add --text")
    return [GivenText("".join(each if each.endswith("\n") else f"{each}\n" for each in arguments))]


def is_there(argument: str) -> bool:
    """Return whether the argument names an existing file or folder, or is "-" (standard input)."""
    if not argument.strip():
        return False
    try:
        return argument == "-" or Path(argument).exists()
    except PermissionError:  # the folder is not accessible: reading the file reports it
        return True
    except (OSError, ValueError):  # too long for a file name, or with a NUL character
        return False


def is_clearly_text(argument: str) -> bool:
    """Return whether an argument that is not a file is too unlike a file name to be a mistyped one."""
    return not argument or any(map(str.isspace, argument))


def show_argument(argument: str) -> str:
    """Shorten an argument for a message."""
    return argument if len(argument) <= SHOWN else f"{argument[:SHOWN]}…"


def encode_input(path: Name, encoding: str | None) -> Name:
    """Attach the encoding given with `--encoding` to a file name; a typed text has none."""
    if encoding is None:
        return path
    if problem := check_encoding(encoding):
        raise CommandError(f"--encoding: {encoding} given, {problem}")
    return path if path is None or isinstance(path, GivenText) else cast(Name, EncodedFile(str(path), encoding))


def encode_inputs(encoding: str | None, *paths: Any) -> list[Any]:
    """Attach the encoding to several file names."""
    return [encode_input(path, encoding) for path in paths]


def one_input(arguments: Sequence[str]) -> str:
    """Return a command's only file or text argument; "-" (standard input) if there is none."""
    if len(arguments) > 1:
        raise CommandError(
            f"{arguments[1]}: a second argument given, expected one text, or one file of a document a line"
        )
    return arguments[0] if arguments else "-"


def announce_keyboard(path: str, what: str) -> None:
    """If standard input is a terminal, print that lines come from the keyboard; `what` names the content of a line."""
    if is_keyboard(path):
        print(f"reading from the keyboard: one {what} per line, Ctrl-D to end", file=sys.stderr)


def is_keyboard(path: str) -> bool:
    """Return whether the input is typed at a terminal."""
    return path == "-" and sys.stdin is not None and sys.stdin.isatty()


class Block(NamedTuple):
    """Lines of one input that are translated together, with the prefix of each output.

    `first` is the number of the first line among the lines of all inputs, from 1.
    """

    first: int
    lines: list[str]
    prefixes: list[str] | None
    path: str = "-"
    place: int = 1  # the number of the first line in that input


class SourceLines:
    """Lines to translate, from one or several inputs, with the prefixes of their outputs: one for all, or one per line.

    Inputs that can be read twice are checked in advance: `total` is their number of lines, or None if one is a pipe.
    Bytes that are not UTF-8 are read as �; `say` reports them, and truncated lines. Callers may set `texts`, which
    holds one function per input that turns its lines into sources.
    """

    def __init__(
        self,
        path: str | Sequence[str],
        prefix: str | None = None,
        prefixes: str | None = None,
        processes: int = 1,
        say: Say = ignore,
    ):
        self.paths = [path] if isinstance(path, str) else list(path)
        self.prefix, self.prefixes, self.say = prefix, prefixes, say
        self.texts: list[Callable[[list[str]], list[str]]] = [list for _ in self.paths]
        if prefix is not None and prefixes is not None:
            raise CommandError("--prefix: given together with --prefixes; give one of them")
        if prefixes == "-" and "-" in self.paths:
            raise CommandError("--prefixes: standard input is the text to translate, expected a file")
        for each in (*self.paths, prefixes):
            if processes > 1 and each is not None and is_pipe(each):
                raise CommandError(
                    f"{display_name(each)}: cannot be shared among {processes} processes, expected a file"
                )
        totals = [None if is_pipe(each) else count_lines(each, replace=True) for each in self.paths]
        self.totals, self.total = totals, None if None in totals else sum(filter(None, totals))
        begun = None if prefixes is None or is_pipe(prefixes) else count_lines(prefixes)
        if begun is not None and self.total is not None and begun != self.total:
            raise self.unequal(f"{self.total:,}", begun)
        for each, count in zip(self.paths, totals, strict=True):
            announce_keyboard(each, "sentence")
            if count == 0:
                say(f"{display_name(each)}: empty, nothing to translate")
        # Small blocks, so that every process has work even if there are few lines.
        self.size = CHUNK if processes == 1 else min(CHUNK, max(1, (self.total or 0) // (4 * processes)))

    def blocks(self) -> Iterator[Block]:
        """Yield all lines, in order."""
        first = 1
        prefixes = None if self.prefixes is None else chain.from_iterable(read_chunks(self.prefixes, say=self.say))
        for path, texts, total in zip(self.paths, self.texts, self.totals, strict=True):
            before = first
            for lines in read_chunks(path, self.size, self.say, replace=True):
                own = None if self.prefix is None else [self.prefix] * len(lines)
                if prefixes is not None:
                    own = list(islice(prefixes, len(lines)))
                    if len(own) < len(lines):  # a pipe was too short
                        raise self.unequal(f"at least {first - 1 + len(lines):,}", first - 1 + len(own))
                yield Block(first, texts(lines), own, path, first - before + 1)
                first += len(lines)
            check_unchanged(path, total, first - before)
        more = 0 if prefixes is None else sum(1 for _ in prefixes)
        if more:
            raise self.unequal(f"{first - 1:,}", first - 1 + more)

    def unequal(self, lines: str, prefixes: int) -> DataError:
        """Build the error for a prefix file whose number of lines differs from that of the sources."""
        *names, last = map(display_name, self.paths)
        given, have = (f"{', '.join(names)} and {last}", "have") if names else (last, "has")
        return DataError(
            f"--prefixes: {self.prefixes} has {prefixes:,} line{'s' * (prefixes != 1)} and "
            f"{given} {have} {lines}; expected the same number"
        )


class LinePairs:
    """Pairs of line i of a source file and line i of a target file; without a source, only the target's lines.

    Files that can be read twice are checked in advance; `total` is the number of pairs, or None if all files are pipes.
    `say` reports truncated lines. Callers may set `source_texts` and `target_texts`, which turn lines into texts.
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
        """Refuse a source for a language model (`alone`), and a missing source for a model that reads text."""
        if alone and self.source is not None:
            raise CommandError(f"--source: {run} is a language model and reads no source; give only --target")
        if not alone and "text" in reads and self.source is None:
            raise CommandError(f"--source: missing, expected the text file of the sources, because {run} translates")

    def chunks(self) -> Iterator[tuple[list[str] | None, list[str]]]:
        """Yield chunks of sources (None without a source file) and of as many targets."""
        first = self.target if self.source is None else self.source
        count, chunks = 0, read_chunks(first, CHUNK, self.say)
        alone = self.source is None
        targets = iter(()) if alone else chain.from_iterable(read_chunks(self.target, say=self.say))
        names = display_name(first), display_name(self.target)
        for lines in chunks:
            own = lines if alone else list(islice(targets, len(lines)))
            if len(own) < len(lines):
                raise unequal_lines(names[0], count + len(lines) + sum(map(len, chunks)), names[1], count + len(own))
            yield None if alone else self.source_texts(lines), self.target_texts(own)
            count += len(lines)
        if more := sum(1 for _ in targets):
            raise unequal_lines(names[0], count, names[1], count + more)
        check_unchanged(first, self.total, count)


def check_lengths(name: str | None, lines: Sequence[Sequence[int]], most: int | None, earlier: int) -> None:
    """Refuse a line with more tokens than the model has positions; `earlier` lines precede these in the file."""
    for i, ids in enumerate(lines if most is not None else (), earlier + 1):
        if most is not None and len(ids) > most:
            place = f"{display_name(name or '')}, line {i:,}"
            raise DataError(f"{place}: {len(ids):,} tokens, expected at most {most:,}, the model's length")


class DocumentLines:
    """Documents to label, one per line, from a file, or from standard input ("-") as they arrive.

    A file is checked in advance: `total` is its number of lines, or None for a pipe. Bytes that are not UTF-8 are read
    as �, and `warn` reports how many lines have some. `texts` turns lines into documents.
    """

    def __init__(self, path: str, warn: Callable[[str], None], texts: Callable[[list[str]], list[str]] | None = None):
        self.path, self.warn, self.texts = path, warn, texts or list
        self.total = None if is_pipe(path) else count_lines(path, replace=True)
        self.count = self.empty = 0
        announce_keyboard(path, "document")
        if self.total == 0:
            warn(f"{display_name(path)}: empty, nothing to classify")

    def labelled(
        self, classify: Callable[[list[str]], Sequence[LabelOutput | None]], scores: bool, as_json: bool
    ) -> Iterator[tuple[int, str]]:
        """Yield the number of lines labelled and the text to write for them; a line without words gets no label."""
        for lines in map(self.texts, read_chunks(self.path, DOCUMENTS, self.warn, replace=True)):
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
