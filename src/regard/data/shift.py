"""Shifts: from some line on, one side of a corpus stands a line, or a few, beside its translation.

A line that was lost or doubled on one side moves all that follow. Two sides that belong together agree in their lengths
(Gale and Church 1993, Computational Linguistics 19:1), and in the numbers and names that are the same in both. What is
asked is not how well they agree, which depends on languages and tasks, but whether they agree better with a neighbour:
$d_i(k) = a(s_{i+k}, t_i) - a(s_i, t_i)$ is negative on average where pairs are right, whatever the corpus, and positive
where they are shifted by k. The stretch of lines with the largest sum of $d_i(k)$ is a shift if that sum is far more
than chance makes.

Pairs that would be copies of each other at a distance of k are left out: in a dialogue, or where the next sentence is
what is to be predicted, each target is the next source.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

FARTHEST = 3  # lines
LEAST = 40  # pairs of a stretch
EFFECT = 0.3  # of a stretch: its mean over the deviation of all pairs
CLOSE = 1.0  # of two logarithms of lengths: what is farther apart does not belong together, however far
ANCHORS = 20_000  # pairs in which numbers and names are looked for; lengths are looked at in all
WEIGHT = 2.0  # of numbers and names beside lengths
COMMON = 0.02  # share of lines from which a word says nothing
WORD = re.compile(r"[^\W\d_]*\d\w*|[A-ZÀ-Þ]\w{3,}")  # numbers, and what may be a name


@dataclass(frozen=True)
class Shift:
    """A stretch of pairs of which target i agrees with source i + by."""

    by: int
    first: int  # places of its first and its last pair, from 0
    last: int
    evidence: float  # standard deviations by which it agrees better there


def find_shift(
    sources: Sequence[str], targets: Sequence[str], lines: Sequence[int] | Int64[np.ndarray, " n"] | None = None
) -> Shift | None:
    """Find the clearest shift; `lines` are the numbers of the pairs in their files, where they are a sample.

    Only pairs whose lines are as far apart as their places are compared.
    """
    count = len(sources)
    if count < LEAST:
        return None
    places = np.arange(count) if lines is None else np.asarray(lines, np.int64)
    agreement = Agreement(sources, targets, places)
    best: Shift | None = None
    at_home, _ = agreement.at(0)
    for by in range(-FARTHEST, FARTHEST + 1):
        if by:
            there, valid = agreement.at(by)
            shift = find_stretch((there - at_home)[valid], np.flatnonzero(valid), by)
            if shift is not None and (best is None or shift.evidence > best.evidence):
                best = shift
    return best


def find_stretch(gains: Float64[np.ndarray, " m"], places: Int64[np.ndarray, " m"], by: int) -> Shift | None:
    """Find the stretch with the largest sum (Kadane), if it is long, and its sum more than chance makes."""
    if len(gains) < LEAST or not (deviation := float(gains.std())):
        return None
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    rise = sums - np.minimum.accumulate(sums)
    end = int(rise.argmax())
    start = int(sums[: end + 1].argmin())
    length = end - start
    if length < LEAST:
        return None
    effect = float(sums[end] - sums[start]) / length / deviation
    evidence = effect * math.sqrt(length)
    # The longer the file, the more stretches there are among which chance may choose.
    needed = 4.1 + 0.6 * math.log10(max(1.0, len(gains) / 60))
    if effect < EFFECT or evidence < needed:
        return None
    return Shift(by, int(places[start]), int(places[end - 1]), evidence)


class Agreement:
    """The agreement of targets with sources at a distance: lengths, and numbers and names in both."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str], lines: Int64[np.ndarray, " n"]):
        self.count, self.lines = len(sources), lines
        self.sizes = [np.log(np.fromiter(map(len, texts), np.float64, self.count) + 3) for texts in (sources, targets)]
        self.usual = float(np.median(self.sizes[1] - self.sizes[0]))
        self.hashes = [np.fromiter(map(hash, texts), np.int64, self.count) for texts in (sources, targets)]
        self.blank = np.array([not source or not target for source, target in zip(sources, targets, strict=True)])
        stretches = np.cumsum(np.concatenate([[0], np.diff(lines) != 1]))  # of a sample, those that hang together
        every = 1 + self.count // ANCHORS
        chosen = np.flatnonzero((stretches if stretches[-1] else np.arange(self.count) // 500) % every == 0)
        self.find_anchors(sources, targets, chosen)

    def find_anchors(self, sources: Sequence[str], targets: Sequence[str], chosen: Int64[np.ndarray, " c"]) -> None:
        """Find the numbers and names of the chosen pairs that occur on both sides, each with its weight."""
        rows = [[set(WORD.findall(texts[i])) for i in chosen.tolist()] for texts in (sources, targets)]
        counts = [Counter(word for row in side for word in row) for side in rows]
        most = COMMON * len(chosen) + 2
        ids = dict[str, int]()
        for word, count in counts[0].items():
            if word in counts[1] and max(count, counts[1][word]) <= most:
                ids[word] = len(ids)
        weights = [math.log((len(chosen) + 1) / max(counts[0][word], counts[1][word])) for word in ids]
        self.size, self.weights = len(ids) + 1, np.array([*weights, 0.0])
        self.rows, self.words = list[Int64[np.ndarray, " a"]](), list[Int64[np.ndarray, " a"]]()
        for side in rows:
            pairs = [
                (row, ids[word])
                for row, words in zip(chosen.tolist(), side, strict=True)
                for word in words & ids.keys()
            ]
            array = np.array(pairs, np.int64).reshape(-1, 2)
            self.rows.append(array[:, 0])
            self.words.append(array[:, 1])
        self.keys = np.sort(self.rows[0] * self.size + self.words[0])
        self.totals = [
            np.bincount(rows, self.weights[words], self.count)
            for rows, words in zip(self.rows, self.words, strict=True)
        ]

    def at(self, by: int) -> tuple[Float64[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Return the agreement of each target with the source `by` places on, and where there is one to compare."""
        places = np.arange(self.count) + by
        others = places.clip(0, self.count - 1)
        valid = (places == others) & (self.lines[others] - self.lines == by)
        valid &= (self.hashes[0][others] != self.hashes[1]) & ~self.blank & ~self.blank[others]
        lengths = -np.minimum(np.abs(self.sizes[1] - self.sizes[0][others] - self.usual), CLOSE)
        if not len(self.keys):
            return lengths, valid
        wanted = (self.rows[1] + by) * self.size + self.words[1]
        nearest = np.searchsorted(self.keys, wanted).clip(0, len(self.keys) - 1)
        found = np.where(self.keys[nearest] == wanted, self.weights[self.words[1]], 0.0)
        shared = np.bincount(self.rows[1], found, self.count)
        whole = np.maximum(np.maximum(self.totals[0][others], self.totals[1]), 4.0)
        return lengths + WEIGHT * shared / whole, valid
