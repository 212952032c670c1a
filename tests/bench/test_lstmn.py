"""The LSTMN benchmark: it prints three lines, and none if results differ."""

import pytest
import torch

from regard.errors import RegardError
from regard.models import Tapes
from regard_bench import lstmn

SMALL = {"rounds": 3, "rows": 3, "steps": 5, "width": 7}


def test_three_ratios_of_medians():
    results = list(lstmn.run(**SMALL))
    assert [result.what.split(", ")[1] for result in results] == [
        "one step at length 5",
        *["a sentence of 5 words"] * 2,
    ]
    for result in results:
        assert result.ratio == pytest.approx(result.details["ours_s"] / result.details["peer_s"])
        assert result.reached == (result.ratio <= 3)


def test_nothing_is_compared_where_the_steps_say_something_else(monkeypatch):
    step = Tapes.step
    monkeypatch.setattr(Tapes, "step", lambda *args: step(*args) + 0.01)
    with pytest.raises(RegardError, match="the states of the steps: results differ"):
        next(lstmn.run(**SMALL))


def test_nor_where_it_is_no_lstm_without_looking_back(monkeypatch):
    forward = Tapes.forward
    monkeypatch.setattr(Tapes, "forward", lambda self, x: forward(self, torch.flip(x, [0])))
    with pytest.raises(RegardError, match="an LSTM's states: results differ"):
        next(lstmn.run(**SMALL))
