"""Learning rates against their formulas."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import training

from regard.training.update import rate_at


@given(step=st.integers(1, 10**6), warmup=st.integers(1, 10**4), peak=st.floats(1e-6, 10))
def test_noam_is_the_papers(step, warmup, peak):
    """d^-0.5 · min(t^-0.5, t · w^-1.5), scaled so that its peak, at t = w, is the rate given."""
    settings = training(schedule="noam", warmup=warmup, rate=peak)
    papers = min(step**-0.5, step * warmup**-1.5) / warmup**-0.5
    assert rate_at(step, settings) == pytest.approx(peak * papers)


@pytest.mark.parametrize("schedule", ["noam", "cosine", "constant"])
def test_it_grows_evenly_to_its_peak(schedule):
    settings = training(schedule=schedule, warmup=10, rate=2.0, steps=100)
    assert [rate_at(step, settings) for step in range(1, 11)] == pytest.approx([0.2 * step for step in range(1, 11)])
    later = [rate_at(step, settings) for step in range(10, 101)]
    assert all(b <= a for a, b in itertools.pairwise(later))


def test_cosine_ends_at_nothing():
    settings = training(schedule="cosine", warmup=0, rate=1.0, steps=8)
    assert rate_at(4, settings) == pytest.approx(0.5)
    assert rate_at(2, settings) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert rate_at(8, settings) == rate_at(9, settings) == pytest.approx(0, abs=1e-12)


def test_a_warm_up_longer_than_the_run():
    assert rate_at(5, training(schedule="cosine", warmup=10, rate=1.0, steps=5)) == 0.5


def test_constant_without_a_warm_up():
    assert {rate_at(step, training(schedule="constant", warmup=0, rate=0.3)) for step in (1, 2, 1000)} == {0.3}


def test_cosine_begins_where_the_warm_up_ends():
    """Halfway between them it is at half of its peak, and at the last step at nothing."""
    settings = training(schedule="cosine", warmup=10, rate=1.0, steps=30)
    assert [rate_at(step, settings) for step in (5, 10, 20, 30)] == pytest.approx([0.5, 1.0, 0.5, 0.0], abs=1e-12)
