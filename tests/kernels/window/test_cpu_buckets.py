"""Queries sorted into groups of one bucket each."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.kernels.window import cpu


@given(st.lists(st.integers(0, 9), min_size=1, max_size=300))
def test_sorting_into_groups(buckets):
    """Every query has a place of its own, in a group of its bucket, and no more groups are made than must be."""
    given_buckets = torch.tensor(buckets)
    slot, bucket = cpu.sort_into_groups(given_buckets, 10)
    assert len(set(slot.tolist())) == len(buckets)
    assert torch.equal(bucket[slot // cpu.GROUP], given_buckets)
    assert len(bucket) == sum(-(-buckets.count(one) // cpu.GROUP) for one in range(10))
