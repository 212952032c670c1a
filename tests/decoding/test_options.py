"""Options of a search that contradict each other are refused by name."""

import pytest

from regard.decoding.options import GREEDY, Options
from regard.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beam": 2, "nbest": 3}, "nbest: 3 given, expected at most the beam, 2"),
        ({"beam": 5, "groups": 2}, "groups: a beam of 5 is not divisible by 2"),
        ({"beam": 4, "groups": 2, "sample": True}, "groups: 2 given with sampling"),
        ({"shortest": 4, "longest": 3}, "longest: 3 given, less than shortest, 4"),
    ],
)
def test_contradictions(given, message):
    with pytest.raises(ConfigError, match=message):
        Options(**given)


def test_samples_may_be_more_than_the_beam():
    assert Options(beam=1, nbest=9, sample=True).nbest == 9


def test_greedy_is_a_beam_of_one():
    assert Options(beam=1) == GREEDY
