"""Labels as they are written, a line each, and what is said of documents that have none."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from regard.decoding.lines import changed, chunks, count_lines, is_pipe, name_of
from regard.decoding.written import BREAKS, json_line, number
from regard.errors import CommandError

__all__ = ["Labelled", "Lines", "label_line"]

NAMED = 10  # documents without words that are named; more are counted
CHUNK = 256  # documents that are read together


@runtime_checkable
class Labelled(Protocol):
    """A label, as far as it is written."""

    @property
    def label(self) -> str: ...
    @property
    def probability(self) -> float: ...
    @property
    def probabilities(self) -> dict[str, float]: ...


def label_line(item: dict[str, str], found: Labelled | None, scores: bool, as_json: bool, place: str = "") -> str:
    """The label; behind a tab its probability. `item` is what JSON calls it; `place` stands before the label."""
    if as_json:
        row: dict[str, Any] = {**item, "label": None, "probability": None, "probabilities": None}
        if found is not None:
            each = {label: number(value) for label, value in found.probabilities.items()}
            row |= {"label": found.label, "probability": number(found.probability), "probabilities": each}
        return json_line(row)
    cells = [BREAKS.sub(" ", place)] if place else []
    if found is not None:
        cells += [BREAKS.sub(" ", found.label), *([f"{found.probability:.4f}"] if scores else [])]
    return "\t".join(cells) + "\n"


class Lines:
    """Documents to be labelled, one a line: of a file, or of standard input ("-") as they come.

    A file is looked at in advance: `total` is the number of its lines, and None of a pipe.
    """

    def __init__(self, path: str, warn: Callable[[str], None]):
        self.path, self.warn = path, warn
        self.total = None if is_pipe(path) else count_lines(path)
        self.done = self.empty = 0
        if path == "-" and sys.stdin is not None and sys.stdin.isatty():
            print("reading from the keyboard: a document a line, and Ctrl-D to end", file=sys.stderr)

    @classmethod
    def of(cls, given: Sequence[str], warn: Callable[[str], None]) -> "Lines":
        """Those of the one file that a command was given, or of standard input."""
        if len(given) > 1:
            raise CommandError(f"{given[1]}: a second file given, expected one, with a document a line")
        return cls(given[0] if given else "-", warn)

    def labelled(
        self, classify: Callable[[list[str]], Sequence[Labelled | None]], scores: bool, as_json: bool
    ) -> Iterator[tuple[int, str]]:
        """How many lines were done, and what is to be written for them; one without words is an empty line."""
        for lines in chunks(self.path, CHUNK, self.warn):
            written = []
            for text, found in zip(lines, classify(lines), strict=True):
                self.done += 1
                if found is None:
                    self.empty += 1
                    if self.empty <= NAMED:
                        self.warn(f"{name_of(self.path)}, line {self.done:,}: a document without words")
                written.append(label_line({"text": text}, found, scores, as_json))
            yield len(lines), "".join(written)
        changed(self.path, self.total, self.done)
        if self.empty:
            self.warn(f"{self.empty:,} of {self.done:,} documents have no words, and no label")
