"""Settings of training that exclude each other are refused with the name of their key."""

import pytest

from regard.errors import ConfigError
from regard.training.settings import TrainingSettings


def test_what_is_there_by_default_is_accepted():
    settings = TrainingSettings()
    assert (settings.schedule, settings.metric, settings.batch_tokens) == ("noam", None, "auto")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"betas": (0.9,)}, "betas: 1 numbers given, expected two"),
        ({"betas": (0.9, 0.98, 0.99)}, "betas: 3 numbers given, expected two"),
        ({"warmup": 0}, 'warmup: 0 given with schedule = "noam", which needs at least 1'),
        ({"average": 3}, "average: 3 given, but only 2 checkpoints are kept"),
    ],
)
def test_what_cannot_be_is_named_by_its_key(values, message):
    with pytest.raises(ConfigError, match=message):
        TrainingSettings(**values)


@pytest.mark.parametrize("values", [{"warmup": 0, "schedule": "cosine"}, {"average": 3, "keep": 3}])
def test_and_what_makes_it_possible_is_accepted(values):
    TrainingSettings(**values)
