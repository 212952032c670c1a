"""A file, or what comes through a pipe, translated line by line; with torchrun, by several processes."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import parse
from regard.data.lines import Say, silent
from regard.decoding.lines import CHUNK, changed, chunks, count_lines, is_pipe, name_of
from regard.decoding.long import Fit, joined
from regard.decoding.options import Options
from regard.decoding.shared import Processes
from regard.decoding.written import Form
from regard.errors import CommandError, ConfigError, DataError

__all__ = ["Block", "Input", "runs_and_file", "search_options", "translate_file"]

Translate = Callable[[list[str], list[str] | None], Iterator[Sequence[Any]]]


def runs_and_file(paths: Sequence[str]) -> tuple[list[str], str]:
    """Run folders and, last, the file to read; "-", standard input, where none is given."""
    *runs, last = paths
    for path in runs:
        if path == "-" or Path(path).is_file():
            raise CommandError(f"{path}: a file given before {last}, expected run folders, and then one file at most")
    if Path(last).is_dir():
        return [*runs, last], "-"
    if not runs:
        no_run = "a file" if last == "-" or Path(last).exists() else "no such folder"
        raise CommandError(f"{last}: {no_run}, expected a run folder first, as in: regard translate runs/en-de FILE")
    if last != "-" and not Path(last).exists():
        text = "; text to translate comes from a file or through a pipe" if " " in last else ""
        raise CommandError(f"{last}: no such file, and no run folder{text}")
    return runs, last


def search_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the search as a command was given them; what is wrong is called by its flag."""
    try:
        parse(Options, given)
    except ConfigError as error:
        raise CommandError(f"--{error.key.replace('_', '-')}: {error.problem}") from None
    for name in ("temperature", "top_k", "top_p"):
        if not given.get("sample", True) and given[name] != getattr(Options, name):
            raise CommandError(
                f"--{name.replace('_', '-')}: {given[name]} given without --sample, and a beam draws nothing"
            )
    return dict(given)


class Block(NamedTuple):
    """Lines that are translated together: the number of the first, from 1, and what each output begins with."""

    first: int
    lines: list[str]
    prefixes: list[str] | None


class Input:
    """Lines to translate, and the prefixes of their outputs: one for all, or a file with one for each.

    What can be read twice is looked at in advance: `total` is the number of its lines, and None of a pipe. `say` is
    told of lines that were cut.
    """

    def __init__(
        self,
        path: str,
        prefix: str | None = None,
        prefixes: str | None = None,
        processes: int = 1,
        say: Say = silent,
    ):
        self.path, self.prefix, self.prefixes, self.say = path, prefix, prefixes, say
        if prefix is not None and prefixes is not None:
            raise CommandError("--prefix: given beside --prefixes; give one of them")
        if prefixes == path == "-":
            raise CommandError("--prefixes: standard input is what is translated, expected a file")
        for each in (path, prefixes):
            if processes > 1 and each is not None and is_pipe(each):
                raise CommandError(f"{name_of(each)}: cannot be shared among {processes} processes, expected a file")
        self.total = None if is_pipe(path) else count_lines(path)
        begun = None if prefixes is None or is_pipe(prefixes) else count_lines(prefixes)
        if begun is not None and self.total is not None and begun != self.total:
            raise self.unequal(f"{self.total:,}", begun)
        if path == "-" and sys.stdin is not None and sys.stdin.isatty():
            print("reading from the keyboard: a sentence a line, and Ctrl-D to end", file=sys.stderr)
        # Each process has work to do even where the lines are few.
        self.size = CHUNK if processes == 1 else min(CHUNK, max(1, (self.total or 0) // (4 * processes)))

    def blocks(self) -> Iterator[Block]:
        """All lines, in order."""
        first = 1
        given = None if self.prefixes is None else chain.from_iterable(chunks(self.prefixes, say=self.say))
        for lines in chunks(self.path, self.size, self.say):
            own = None if self.prefix is None else [self.prefix] * len(lines)
            if given is not None:
                own = list(islice(given, len(lines)))
                if len(own) < len(lines):  # of pipes nobody knew
                    raise self.unequal(f"at least {first - 1 + len(lines):,}", first - 1 + len(own))
            yield Block(first, lines, own)
            first += len(lines)
        more = 0 if given is None else sum(1 for _ in given)
        if more:
            raise self.unequal(f"{first - 1:,}", first - 1 + more)
        changed(self.path, self.total, first - 1)

    def unequal(self, lines: str, prefixes: int) -> DataError:
        """As many prefixes as lines are expected."""
        return DataError(
            f"--prefixes: {self.prefixes} has {prefixes:,} line{'s' * (prefixes != 1)} and {name_of(self.path)} has "
            f"{lines}; expected as many in both"
        )


def translate_file(
    given: Input,
    translate: Translate,
    fit: Fit,
    form: Form,
    processes: Processes,
    *,
    nbest: int = 1,
    ranked: bool = True,
) -> Iterator[tuple[int, str]]:
    """How many lines were done, and what is to be written for them, block by block.

    `translate` is given texts and their prefixes, and gives the outputs of each.
    """
    import torch  # by now loaded, with the model

    def work(block: Block) -> tuple[int, str]:
        parts = fit.parts(block.lines, name_of(given.path), block.first)
        texts = [piece.text for each in parts for piece in each]
        prefixes = None
        if block.prefixes is not None:  # of the first piece of a line
            begins = zip(parts, block.prefixes, strict=True)
            prefixes = [text for each, prefix in begins for text in (prefix, *[""] * (len(each) - 1))]
        try:
            found = iter(list(translate(texts, prefixes)))
        except torch.OutOfMemoryError:
            last = block.first + len(block.lines) - 1
            place = f"{name_of(given.path)}, lines {block.first:,} to {last:,}"
            raise CommandError(f"{place}: out of memory; set --batch-tokens or --beam lower") from None
        written = []
        for i, (line, each) in enumerate(zip(block.lines, parts, strict=True), block.first - 1):
            outputs = joined(line, each, list(islice(found, len(each))), nbest, ranked)
            written.append(form.lines(i, line, outputs))
        return len(block.lines), "".join(written)

    yield from processes.share(given.blocks(), work)
    fit.end()
