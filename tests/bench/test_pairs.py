"""Random pairs of a real corpus's lengths, and their batches."""

import numpy as np

from regard.data import PAD, UNKNOWN
from regard_bench.pairs import join_at_random, make_buckets, make_pairs


def test_lengths_are_those_of_multi30k():
    pairs = make_pairs(4000, 8000)
    lengths = np.array([[len(source), len(target)] for source, target in pairs])
    assert 14 < lengths[:, 0].mean() < 15.2
    assert 14.8 < lengths[:, 1].mean() < 16
    assert 0.7 < np.corrcoef(np.log(lengths.T))[0, 1] < 0.9
    assert min(source.min() for source, _ in pairs) > UNKNOWN


def test_batches_hold_the_same_pairs_by_the_same_budget():
    pairs = make_pairs(2000, 8000)
    sorted_ones, random_ones = make_buckets(pairs, 1024), join_at_random(pairs, 1024)
    for batch in [*sorted_ones, *random_ones]:
        assert batch.tokens == int((batch.target[:, 1:] != PAD).sum())
    for batch in sorted_ones:
        assert max(batch.target.shape[1] - 1, batch.source.shape[1]) * len(batch) <= 1024
    for batch in random_ones:  # JoeyNMT stops as soon as the budget is reached, and not before
        assert max(batch.target.shape[1] - 1, batch.source.shape[1] + 1) * len(batch) >= 1024
        rest = max(batch.target_lengths[:-1].max(), batch.source_lengths[:-1].max() + 1)
        assert rest * (len(batch) - 1) < 1024
    tokens = [sum(batch.tokens for batch in batches) / len(batches) for batches in (sorted_ones, random_ones)]
    assert tokens[0] > 1.5 * tokens[1]  # what bucketing is for
