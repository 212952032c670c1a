"""Pairs of sentences to train on: made up, as long as those of Multi30k, and learnable.

No corpus is in the package, so lengths are drawn: log-normal, source and target correlated, with the means that
Multi30k's English and German have when 8,000 joint pieces cut their 13 and 12.5 words. Tokens are Zipf's, and the
target is the source word for word in another numbering, cut or repeated to its length, so that a loss can fall.
"""

import math

import numpy as np

from regard.data import UNKNOWN, Batch, Order, collate

__all__ = ["make_buckets", "join_at_random", "make_pairs"]

Pair = tuple[np.ndarray, np.ndarray]

MEANS = (14.6, 15.4)  # pieces of source and target
SPREAD = 0.36  # of the logarithm of a length
SHARED = 0.8  # the correlation of the two
FIRST = UNKNOWN + 1  # of the words
SHORTEST, LONGEST = 4, 60


def make_pairs(
    count: int, vocabulary: int, seed: int = 0, means: tuple[float, float] = MEANS, longest: int = LONGEST
) -> list[Pair]:
    """Encoded pairs, without start and end."""
    random = np.random.default_rng(seed)
    common, own = random.standard_normal((count, 1)), random.standard_normal((count, 2))
    logs = math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * own
    lengths = np.array(means) * np.exp(SPREAD * logs - SPREAD**2 / 2)
    lengths = lengths.round().astype(np.int64).clip(SHORTEST, longest)
    words = vocabulary - FIRST
    frequency = 1 / np.arange(1, words + 1)
    renumbered = random.permutation(words)
    pairs = []
    for m, n in lengths:
        source = random.choice(words, size=m, p=frequency / frequency.sum())
        pairs.append((FIRST + source, FIRST + renumbered[np.resize(source, n)]))
    return pairs


def make_buckets(pairs: list[Pair], budget: int, seed: int = 0) -> list[Batch]:
    """Batches as Regard makes them: sorted by length, filled to the budget, shuffled."""
    order = Order(np.array([[len(source), len(target)] for source, target in pairs]), budget, seed=seed)
    return [collate([pairs[i] for i in indices]) for indices in order.epoch(0)][:-1]


def join_at_random(pairs: list[Pair], budget: int, seed: int = 0) -> list[Batch]:
    """Batches as JoeyNMT 2.3 makes them: in random order, until rows × longest, with an end, reaches the budget."""
    batches, rows, longest = [], [], 0
    for i in np.random.default_rng(seed).permutation(len(pairs)):
        rows.append(pairs[i])
        longest = max(longest, *(len(side) + 1 for side in pairs[i]))
        if longest * len(rows) >= budget:
            batches.append(collate(rows))
            rows, longest = [], 0
    return batches
