"""`regard models`: every kind, and every option and preset of each."""

import dataclasses

import pytest
from typer.testing import CliRunner

from regard.cli.program import app
from regard.models import KINDS


def shown(*arguments):
    return CliRunner().invoke(app, ["models", *arguments])


def test_every_kind_with_its_paper():
    lines = shown().stdout.splitlines()
    for kind, line in zip(KINDS.values(), lines, strict=False):
        assert line.split()[0] == kind.name
        assert kind.paper in line


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_and_preset(kind):
    found = shown(kind)
    assert found.exit_code == 0
    first = [line.split()[0] for line in found.stdout.splitlines() if line]
    assert {field.name for field in dataclasses.fields(KINDS[kind].config)} <= set(first)
    assert set(KINDS[kind].presets) <= set(first)


def test_a_kind_that_is_none():
    found = shown("transfomer")
    assert found.exit_code == 2
    assert found.stderr == "regard: transfomer: no such kind; did you mean 'transformer'?\n"
