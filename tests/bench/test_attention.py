"""The attention benchmark runs: results agree first, then it prints ratios. The tests do not check times."""

import pytest
import torch

from regard.attention import Additive, Attention
from regard_bench import attention


def test_watching_is_measured():
    off, on = attention.watching(rounds=1)
    assert off.details["never_s"] > 0
    assert on.ratio > 0


@pytest.mark.slow
def test_the_whole_benchmark_runs_and_memory_is_within_its_goal():
    results = list(attention.run(rounds=3))
    memory = next(result for result in results if "memory" in result.what)
    assert memory.reached, memory
    assert len(results) == 11


# ---- the GPU's attention benchmark: the formula it compares with is additive attention


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 7)])
def test_the_formula_is_additive_attention(n, m):
    torch.manual_seed(0)
    module = Attention(Additive(5, 6, hidden=4)).double()
    query, keys, values = (torch.randn(2, *shape, dtype=torch.float64) for shape in ((n, 5), (m, 6), (m, 3)))
    projected, prepared = module.score.project_query(query), module.prepare(keys, values)
    made = attention.plain(projected, prepared.keys, values, module.score.vector)
    torch.testing.assert_close(made, module(query, keys, values))
