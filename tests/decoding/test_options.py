"""Options that contradict each other are refused by name; outputs are the best that ended, each sequence once."""

import random

import pytest

from regard.decoding.options import GREEDY, Options, Output, Pool, check_outputs, merge_pools
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


def test_a_pool_holds_the_best():
    scores = [random.random() for _ in range(20)]
    pool = Pool(4)
    for i, score in enumerate(scores):
        assert pool.full is (i >= 4)
        pool.add(output(score, i))
    assert [each.score for each in pool.outputs] == sorted(scores, reverse=True)[:4]


def test_of_equal_scores_the_first_stays():
    pool = Pool(1)
    pool.add(output(-1.0, 5))
    pool.add(output(-1.0, 6))
    assert pool.outputs[0].tokens == [5]


def test_pools_are_merged_each_sequence_once():
    pools = [Pool(3), Pool(3)]
    for pool, outputs in zip(pools, ([(-1.0, 5), (-3.0, 6)], [(-2.0, 5), (-2.5, 7)]), strict=True):
        for score, token in outputs:
            pool.add(output(score, token))
    assert [(each.tokens, each.score) for each in merge_pools(pools, 9)] == [([5], -1.0), ([7], -2.5), ([6], -3.0)]
    assert len(merge_pools(pools, 2)) == 2


def test_a_search_that_found_nothing_is_refused():
    check_outputs([output(-1.0, 5)])
    with pytest.raises(NotFiniteError, match="no output with a probability above zero"):
        check_outputs([])
