"""Lines made to fit a model: cut, or split into sentences that are translated one by one and put together again."""

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from regard.data.sentences import Piece, cut, pieces

__all__ = ["Fit", "joined"]

T = TypeVar("T")
NAMED = 10  # long lines that are named; more are counted


class Fit:
    """What is done about lines that have more than `limit` tokens.

    `measure` says how many tokens texts have. With `split` every line becomes its sentences, and the long ones of those
    pieces; else long lines are cut, and `warn` is told of each.
    """

    def __init__(
        self,
        measure: Callable[[list[str]], list[int]],
        limit: int,
        *,
        split: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ):
        self.measure, self.limit, self.split, self.warn = measure, limit, split, warn
        self.cut = 0  # lines so far

    def parts(self, lines: list[str], name: str, first: int = 1) -> list[list[Piece]]:
        """The pieces of each line, at least one; the line `first` of the file `name` is the first of them."""
        if self.split:
            return [pieces(line, self.count, self.limit) or [Piece(0, 0, "")] for line in lines]
        found = []
        for number, (line, length) in enumerate(zip(lines, self.measure(lines), strict=True), first):
            text = line if length <= self.limit else cut(line, self.count, self.limit)
            found.append([Piece(0, len(text), text)])
            if length > self.limit:
                self.cut += 1
                if self.cut <= NAMED:
                    self.warn(
                        f"{name}, line {number:,}: {length:,} tokens, cut to {self.count(text):,}, as the model takes "
                        f"{self.limit:,}; --split translates all of it"
                    )
        return found

    def count(self, text: str) -> int:
        """The tokens of one text."""
        return self.measure([text])[0]

    def end(self) -> None:
        """Say how many lines were cut that were not named."""
        if self.cut > NAMED:
            self.warn(f"{self.cut - NAMED:,} more lines were cut to {self.limit:,} tokens")


def joined(
    line: str, parts: Sequence[Piece], outputs: Sequence[Sequence[T]], count: int, ranked: bool = True
) -> list[T]:
    """The outputs for a line from those for its pieces: texts and tokens in a row, scores summed.

    Pieces are independent of each other, so that the `count` best of the line are among the combinations of the best of
    each. What is not ranked, such as samples, is put together in its order.
    """
    found: list[T] = list(outputs[0])
    for i, more in enumerate(outputs[1:], 1):
        # Words are counted in the whole line; a piece may begin within one.
        words = len(line[: parts[i].start].split())
        words -= parts[i].start > 0 and not line[parts[i].start - 1].isspace()
        if ranked:
            both = heapq.nlargest(
                count,
                itertools.product(found, more),
                key=lambda pair: pair[0].score + pair[1].score,  # type: ignore[attr-defined]
            )
        else:
            both = list(zip(found, more, strict=False))
        found = [two(first, second, words) for first, second in both]
    return found


def two(first: Any, second: Any, words: int) -> Any:
    """One output and the next; the second's source begins at the word `words` of the line."""
    alignment = first.alignment
    if alignment is not None and second.alignment is not None:
        said = len(first.text.split())
        alignment += tuple((source + words, target + said) for source, target in second.alignment)
    return dataclasses.replace(
        first,
        text=" ".join(filter(None, (first.text, second.text))),
        score=first.score + second.score,
        log_prob=first.log_prob + second.log_prob,
        tokens=first.tokens + second.tokens,
        finished=first.finished and second.finished,
        alignment=alignment,
    )
