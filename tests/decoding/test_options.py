"""Options that contradict each other are refused by name; outputs are the best finished ones, each sequence once."""

import pytest

from regard.decoding.options import GREEDY, Options, Output, check_outputs
from regard.decoding.sentence_search import SentenceSearch
from regard.errors import ConfigError, NotFiniteError


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


def output(score, *tokens):
    return Output(list(tokens), score, score, True)


def test_groups_are_merged_each_sequence_once():
    pools = [[output(-1.0, 5), output(-3.0, 6)], [output(-2.0, 5), output(-2.5, 7)]]
    found = SentenceSearch(Options(beam=4, nbest=4, groups=2), pools).result().outputs
    assert [(each.tokens, each.score) for each in found] == [([5], -1.0), ([7], -2.5), ([6], -3.0)]
    assert SentenceSearch(Options(beam=4, nbest=2, groups=2), pools).result().outputs == found[:2]


def test_a_search_that_found_nothing_is_refused():
    check_outputs([output(-1.0, 5)])
    with pytest.raises(NotFiniteError, match="no output with a probability above zero"):
        check_outputs([])
