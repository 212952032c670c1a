"""What a time limit leaves to the measured pace, and what a person takes back from it."""

import pytest

from regard.errors import ConfigError
from regard.tasks.settings import read_settings
from regard.tasks.time_limit import leave_open, set_by_hand

OPEN = ("steps", "warmup", "validate_every")


def test_what_nobody_set_is_left_open():
    def fit(**given):
        return leave_open(read_settings({"data": {"source": "a", "target": "b"}, "training": given})).training.fit

    assert fit(minutes=3) == OPEN
    assert fit(minutes=3, warmup=7) == ("steps", "validate_every")
    assert fit(minutes=3, steps=100) == ()
    assert fit() == ()
    run = {"training": {"minutes": 3.0, "steps": 9, "fit": [*OPEN]}}
    assert set_by_hand(run, {"minutes"})["training"]["fit"] == [*OPEN]
    assert set_by_hand(run, {"warmup"})["training"]["fit"] == ["steps", "validate_every"]
    assert set_by_hand(run, {"steps"})["training"]["fit"] == []
    with pytest.raises(ConfigError, match=r"training\.fit: \"step\" given"):
        read_settings({"training": {"minutes": 3, "fit": ["step"]}})
    with pytest.raises(ConfigError, match=r"training\.fit: given without training\.minutes"):
        read_settings({"training": {"fit": ["steps"]}})
