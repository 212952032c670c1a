"""Results of a search: outputs, best first, and on request everything that was considered on the way."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from regard.errors import NotFiniteError


class Output(NamedTuple):
    """One output: its tokens without END."""

    tokens: list[int]
    log_prob: float  # of the tokens and END after them: what `score` says of the pair
    score: float  # with the penalties: what outputs are sorted by
    finished: bool  # END came by itself, not because the limit was reached


class Candidate(NamedTuple):
    """A hypothesis that was considered at a step: one of the step before, and a token."""

    parent: int  # the row of the step before
    token: int
    log_prob: float  # of everything so far
    fate: Literal["kept", "finished", "dropped"]
    row: int | None  # where it is kept: the parent of the next step's


@dataclass
class SearchResult:
    """The outputs for one sentence, best first (samples as they were drawn), and its steps where asked for."""

    outputs: list[Output] = field(default_factory=list)
    steps: list[list[Candidate]] | None = None


class Pool:
    """The best finished hypotheses of a group, at most `size` of them."""

    def __init__(self, size: int):
        self.size, self.outputs = size, list[Output]()

    def add(self, output: Output) -> None:
        """Add a hypothesis, if it is among the best."""
        self.outputs.append(output)
        self.outputs.sort(key=lambda each: -each.score)
        del self.outputs[self.size :]

    @property
    def full(self) -> bool:
        """Return whether the pool is full, so that a new hypothesis must beat the last."""
        return len(self.outputs) == self.size


def check_outputs(outputs: list[Output]) -> None:
    """Refuse a search that found nothing because every possible output has probability zero."""
    if not outputs:
        raise NotFiniteError(
            "the search found no output with a probability above zero: the model cannot produce the given prefix, "
            "or its scores are not finite (NaN or infinity)"
        )


def merge_pools(pools: list[Pool], count: int) -> list[Output]:
    """Merge the best of all groups, each sequence once."""
    best: dict[tuple[int, ...], Output] = {}
    for output in sorted((each for pool in pools for each in pool.outputs), key=lambda each: -each.score):
        best.setdefault(tuple(output.tokens), output)
    return list(best.values())[:count]
