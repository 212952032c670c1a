"""Figures of several seeds, and significance: errors against repetitions of the whole experiment."""

import math

import numpy as np
import pytest

from regard_studies.seed_statistics import (
    FLOOR,
    MeanDifference,
    SeedStatistics,
    are_alike,
    margin,
    mean_difference,
    over_seeds,
)


def test_mean_and_deviation():
    found = SeedStatistics((1.0, 2.0, 3.0))
    assert (found.mean, found.deviation) == (2.0, 1.0)
    assert found.as_text() == "2.0 ± 1.0"
    assert found.as_text(".0f") == "2 ± 1"


def test_one_seed_has_no_deviation():
    assert SeedStatistics((37.25,)).as_text() == "37.2"
    assert SeedStatistics((37.25,)).deviation == 0


def test_a_figure_of_each():
    assert over_seeds([3, 5], lambda each: 2.0 * each).values == (6.0, 10.0)


def test_negative_ones_have_a_true_minus():
    assert SeedStatistics((-1.0, -2.0)).as_text() == "−1.5 ± 0.7"
    assert SeedStatistics((-1.5,)).mean == pytest.approx(-1.5)


def test_two_standard_errors_of_the_difference():
    pooled = math.sqrt((2 * 0.25**2 + 2 * 0.75**2) / 4)
    found = margin([SeedStatistics((1.0, 1.25, 0.75)), SeedStatistics((9.0, 9.75, 8.25))])
    assert found == pytest.approx(2 * pooled * math.sqrt(2 / 3))


def test_means_do_not_matter_to_it():
    assert margin([SeedStatistics((1.0, 2.0)), SeedStatistics((5.0, 6.0))]) == margin(
        [SeedStatistics((0.0, 1.0)), SeedStatistics((0.0, 1.0))]
    )


def test_one_seed_has_a_floor():
    assert margin([SeedStatistics((1.0,)), SeedStatistics((30.0,))]) == FLOOR
    assert margin([SeedStatistics((1.0,))], floor=5.0) == 5.0


def test_alike_hangs_on_the_two_alone():
    one, other = SeedStatistics((30.0, 31.0)), SeedStatistics((31.0, 32.0))
    assert are_alike(one, other)
    assert not are_alike(SeedStatistics((30.5, 30.5)), SeedStatistics((31.5, 31.5)))
    assert are_alike(SeedStatistics((30.0,)), SeedStatistics((30.4,)))
    assert not are_alike(SeedStatistics((30.0,)), SeedStatistics((30.6,)))


def drawn(random, seeds, items, lead, luck):
    """Draw two systems that share the difficulty of each item; `luck` is the effect of a seed on a whole system."""
    hard = random.normal(size=items)
    sizes = random.integers(1, 9, items).astype(float)
    own = [random.normal(size=(seeds, items)) * 0.5 + luck * random.normal(size=(seeds, 1)) for _ in range(2)]
    return (hard + lead + own[0]) * sizes, (hard + own[1]) * sizes, sizes


@pytest.mark.parametrize(("seeds", "luck"), [(1, 0.0), (2, 0.0), (4, 0.3)])
def test_the_error_is_how_far_the_mean_scatters(seeds, luck):
    random = np.random.default_rng(5)
    found = [mean_difference(*drawn(random, seeds, 60, 0.2, luck)) for _ in range(600)]
    scatter = np.std([each.mean for each in found])
    assert np.mean([each.mean for each in found]) == pytest.approx(0.2, abs=4 * scatter / 600**0.5)
    error = np.sqrt(np.mean([each.error**2 for each in found]))
    # Few seeds must not hide an error, but may overstate it: on average the estimate is a little too large.
    assert 0.92 * scatter < error < (1.08 if seeds == 1 else 1.4) * scatter


def test_what_both_find_hard_does_not_count():
    one = np.array([[0.0, 10.0, 20.0, 30.0]])
    assert mean_difference(one + 1, one) == MeanDifference(1.0, 0.0)
    assert mean_difference(one + 1, one).more
    assert not mean_difference(one, one).more
    assert not mean_difference(one, one + 1).more


def test_one_item_and_one_seed_are_no_accident():
    assert mean_difference(np.array([[3.0]]), np.array([[1.0]]), np.array([4.0])) == MeanDifference(0.5, 0.0)


def test_as_it_is_told():
    assert MeanDifference(1.26, 0.2).as_text() == "+1.3 ± 0.4"
    assert MeanDifference(-0.5, 0.25).as_text() == "−0.5 ± 0.5"
    assert not MeanDifference(0.5, 0.25).more
