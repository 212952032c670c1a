"""Figures of several seeds."""

import pytest

from regard.studies.seed_statistics import Spread, spread


def test_mean_and_deviation():
    found = Spread((1.0, 2.0, 3.0))
    assert (found.mean, found.deviation) == (2.0, 1.0)
    assert found.told() == "2.0 ± 1.0"
    assert found.told(".0f") == "2 ± 1"


def test_one_seed_has_no_deviation():
    assert Spread((37.25,)).told() == "37.2"
    assert Spread((37.25,)).deviation == 0


def test_a_figure_of_each():
    assert spread([3, 5], lambda each: 2.0 * each).values == (6.0, 10.0)


def test_negative_ones_have_a_true_minus():
    assert Spread((-1.0, -2.0)).told() == "−1.5 ± 0.7"
    assert Spread((-1.5,)).mean == pytest.approx(-1.5)
