"""`regard models`: every kind, and every option and preset of each."""

import dataclasses

import pytest
from cli.typing_in import Command

from regard.models import KINDS

COMMAND = Command("models")


def test_every_kind_with_its_paper():
    lines = COMMAND.said()
    for kind, line in zip(KINDS.values(), lines, strict=False):
        assert line.split()[0] == kind.name
        assert kind.paper in line


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_and_preset(kind):
    first = [line.split()[0] for line in COMMAND.said(kind) if line]
    assert {field.name for field in dataclasses.fields(KINDS[kind].config)} <= set(first)
    assert set(KINDS[kind].presets) <= set(first)


def test_a_kind_that_is_none():
    assert COMMAND.refused("transfomer") == "transfomer: no such kind; did you mean 'transformer'?"
