"""Hypotheses of a search in slots: on its device, and as the host reads them.

A hypothesis is a row and a step. What it wrote is read along the parents of its rows, from the last word to the first.
"""

# s slots · r rows of each, or ranks · t steps
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from regard.data import PAD
from regard.decoding.outputs import Output, SearchResult


@dataclass(frozen=True, eq=False)
class HostHypotheses:
    """Hypotheses of some slots, in the host's memory: by rank, with the past of all rows."""

    scores: np.ndarray  # [s r]; -∞ where there is none
    log_probs: np.ndarray
    lengths: np.ndarray  # tokens before END
    rows: np.ndarray  # that END followed
    natural: np.ndarray  # whether END came by itself
    parents: np.ndarray  # [s t r]
    words: np.ndarray  # [s t r]

    def results(self, nbest: int | Sequence[int]) -> list[SearchResult]:
        """The best outputs of each slot: `nbest` of them, a number for all or one each."""
        counts = [nbest] * len(self.scores) if isinstance(nbest, int) else list(nbest)
        many = np.array(
            [[i, rank] for i, count in enumerate(counts) for rank in range(min(count, self.scores.shape[1]))]
        )
        slot, rank = many.T if len(many) else np.zeros((2, 0), np.int64)
        chosen = self.scores[slot, rank] > -np.inf
        slot, rank = slot[chosen], rank[chosen]
        lengths, row = self.lengths[slot, rank], self.rows[slot, rank].astype(np.int64)
        longest = int(lengths.max(initial=0))
        history = np.full((len(slot), longest), PAD, dtype=np.int64)
        for step in range(longest - 1, -1, -1):  # all hypotheses side by side
            there = step < lengths
            history[:, step] = np.where(there, self.words[slot, step, row], PAD)
            row = np.where(there, self.parents[slot, step, row], row)
        results = [SearchResult() for _ in counts]
        parts = (x[slot, rank].tolist() for x in (self.log_probs, self.scores, self.natural))
        for i, tokens, length, *rest in zip(slot.tolist(), history.tolist(), lengths.tolist(), *parts, strict=True):
            results[i].outputs.append(Output(tokens[:length], *rest))
        return results


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """Hypotheses of some slots, on their device or on their way to the host, as `HostHypotheses` has them."""

    scores: Tensor
    log_probs: Tensor
    lengths: Tensor
    rows: Tensor
    natural: Tensor
    parents: Tensor
    words: Tensor

    def to_host(self) -> HostHypotheses:
        """Copy them to the host; this waits for the device."""
        return HostHypotheses(*(part.cpu().numpy() for part in vars(self).values()))

    def results(self, nbest: int | Sequence[int]) -> list[SearchResult]:
        """The best outputs of each slot; this waits for the device."""
        return self.to_host().results(nbest)
