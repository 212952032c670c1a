"""Hypotheses are read along the parents of their rows."""

import numpy as np
import pytest
import torch

from regard.decoding.hypotheses import HostHypotheses, Hypotheses


def history():
    """Two slots of two rows: in the first the rows change places at the second step."""
    parents = np.array([[[0, 0], [1, 0], [0, 1]], [[0, 0], [0, 1], [0, 1]]], dtype=np.int16)
    words = np.array([[[5, 6], [7, 8], [9, 4]], [[10, 11], [12, 13], [14, 15]]], dtype=np.int32)
    return parents, words


def hypotheses():
    scores = np.array([[-0.5, -0.75], [-1.0, -np.inf]])
    lengths, rows = np.array([[3, 2], [1, 0]]), np.array([[1, 0], [1, 0]])
    natural = np.array([[True, False], [True, True]])
    return HostHypotheses(scores, 2 * scores, lengths, rows, natural, *history())


def test_words_are_read_from_the_last_to_the_first():
    first, second = hypotheses().results(2)
    assert [output.tokens for output in first.outputs] == [[5, 8, 4], [6, 7]]
    assert [(output.score, output.log_prob, output.finished) for output in first.outputs] == [
        (-0.5, -1.0, True),
        (-0.75, -1.5, False),
    ]
    assert [output.tokens for output in second.outputs] == [[11]]  # there is no second


def test_each_slot_has_its_own_number_of_outputs():
    counts = [len(result.outputs) for result in hypotheses().results([1, 2])]
    assert counts == [1, 1]
    assert [len(result.outputs) for result in hypotheses().results([2, 1])] == [2, 1]
    assert [len(result.outputs) for result in hypotheses().results(9)] == [2, 1]


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_read(count):
    empty = HostHypotheses(*(part[:count] for part in vars(hypotheses()).values()))
    assert len(empty.results(0)) == count
    assert all(result.outputs == [] for result in empty.results(0))


def test_what_is_on_a_device_is_what_the_host_reads():
    given = hypotheses()
    parts = (torch.from_numpy(part) for part in vars(given).values())
    assert Hypotheses(*parts).results([2, 1]) == given.results([2, 1])
