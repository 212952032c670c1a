"""The benchmark runs: results agree first, then come ratios. Times themselves are not tested."""

import pytest

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
