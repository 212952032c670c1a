"""Pairs of lines as they come, to be scored; of a language model, the lines of one file."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from regard.data.corpus import unequal
from regard.data.lines import Say, silent
from regard.decoding.lines import CHUNK, changed, chunks, count_lines, is_pipe, name_of
from regard.decoding.written import json_line, number
from regard.errors import CommandError, DataError

__all__ = ["Judged", "Pairs"]


class Pairs:
    """Line i of one file with line i of the other; where there is no source, the lines of the target alone.

    Files that can be read twice are looked at in advance; `total` is the number of pairs, and None of pipes. `say` is
    told of lines that were cut.
    """

    def __init__(self, source: str | None, target: str | None, say: Say = silent):
        if target is None:
            raise CommandError("--target: missing, expected a text file of what is to be scored")
        if source == target == "-":
            raise CommandError("--target: standard input is the source already, expected a file")
        self.source, self.target, self.say = source, target, say
        counts = [count_lines(path) for path in (source, target) if path is not None and not is_pipe(path)]
        if source is not None and len(counts) == 2 and counts[0] != counts[1]:
            raise unequal(source, counts[0], target, counts[1])
        self.total = counts[0] if counts else None

    def check(self, run: str, task: str) -> None:
        """Refuse a source that nobody reads, and a translation without its source."""
        if task == "language-model" and self.source is not None:
            raise CommandError(f"--source: {run} is a language model, which reads none; give --target alone")
        if task == "translate" and self.source is None:
            raise CommandError(f"--source: missing, and {run} translates; expected the text file of the sources")

    def chunks(self) -> Iterator[tuple[list[str] | None, list[str]]]:
        """Sources, where there are any, and as many targets."""
        if self.source is None:
            done = 0
            for lines in chunks(self.target, CHUNK, self.say):
                yield None, lines
                done += len(lines)
            changed(self.target, self.total, done)
            return
        done, sides = 0, chunks(self.source, CHUNK, self.say)
        targets = chain.from_iterable(chunks(self.target, say=self.say))
        names = name_of(self.source), name_of(self.target)
        for sources in sides:
            own = list(islice(targets, len(sources)))
            if len(own) < len(sources):
                raise unequal(names[0], done + len(sources) + sum(map(len, sides)), names[1], done + len(own))
            yield sources, own
            done += len(sources)
        more = sum(1 for _ in targets)
        if more:
            raise unequal(names[0], done, names[1], done + more)
        changed(self.source, self.total, done)


def check_lengths(name: str | None, lines: Sequence[Sequence[int]], most: int | None, done: int) -> None:
    """Refuse a line of more tokens than the model has positions for; `done` lines were before these."""
    for i, ids in enumerate(lines if most is not None else (), done + 1):
        if most is not None and len(ids) > most:
            place = f"{name_of(name or '')}, line {i:,}"
            raise DataError(f"{place}: {len(ids):,} tokens, expected at most {most:,}, the model's length")


class Judged(NamedTuple):
    """A target and what a model thinks of it; the last of its pieces is the end."""

    source: str | None
    target: str
    log_prob: float
    pieces: list[str]
    log_probs: list[float]

    def line(self, *, tokens: bool = False, normalise: bool = False, as_json: bool = False) -> str:
        """The log-probability; behind tabs the pieces, and theirs."""
        mean = self.log_prob / len(self.pieces)
        if as_json:
            row: dict[str, Any] = {} if self.source is None else {"source": self.source}
            row |= {"target": self.target, "log_prob": number(self.log_prob), "normalised": number(mean)}
            row |= {"tokens": self.pieces, "log_probs": [number(each) for each in self.log_probs]} if tokens else {}
            return json_line(row)
        cells = [f"{mean if normalise else self.log_prob:.4f}"]
        if tokens:
            cells += [" ".join(self.pieces), " ".join(f"{each:.4f}" for each in self.log_probs)]
        return "\t".join(cells) + "\n"
