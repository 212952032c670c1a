"""Batches of the GPU's training benchmark."""

import pytest
import torch

from regard.data import Position, collate
from regard_bench import training_cuda
from regard_bench.training_peers import Sizes, make_pairs


@pytest.mark.parametrize("half", [True, False])
def test_the_batches_of_a_gpu_are_those_of_its_peers(half):
    sizes = Sizes(vocabulary=30, size=8, heads=2, layers=1, hidden=8, dropout=0.0)
    pairs = make_pairs(60, sizes.vocabulary, 0, training_cuda.MEANS, training_cuda.MAX_WORDS)
    task = training_cuda.PairTask(training_cuda.transformer(sizes), pairs, sizes.smoothing, budget=512)
    task.limit_shapes(half)
    stream = task.stream(Position())
    for plan in task.plans:
        _, number = next(stream)
        rows = collate([pairs[i] for i in plan])
        expected = task.objective(rows)
        found = task.objective(task.form_of(number))
        assert task.count(number) == rows.tokens
        torch.testing.assert_close(found.total, expected.total, rtol=1e-4, atol=1e-4)
