"""What inspection asks of a run: an opened run of any task answers it."""

import pytest
from inspection.subjects import subject

from regard.decoding import first_model
from regard.inspection.collect.teacher_forcing import OpenedSettings, OpenRun


@pytest.mark.parametrize("name", ["rnnsearch", "han", "captioner"])
def test_a_run_is_one(name):
    run = subject(name)
    assert isinstance(run, OpenRun)
    assert {each for each in vars(OpenedSettings) if not each.startswith("_")} == {"task", "kind", "data"}
    assert run.settings.kind == name
    assert first_model(run.model) is run.model
    assert run.device == next(run.model.parameters()).device


def test_less_than_that_is_none():
    assert not isinstance(object(), OpenRun)
