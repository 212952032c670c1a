"""What a study makes of a test set, and what it takes for a difference."""

import math

import pytest

from regard.studies.seed_statistics import SeedStatistics
from regard.studies.translation import FLOOR, are_alike, margin


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
