"""Figures of several seeds."""

import pytest

from regard.studies.seed_statistics import SeedStatistics, over_seeds


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
