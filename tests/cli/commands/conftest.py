"""Fixtures that the tests of commands share."""

from pathlib import Path

import pytest


@pytest.fixture
def at_desk(desk, monkeypatch) -> Path:
    """Make the module's `desk` the current folder, and return it."""
    monkeypatch.chdir(desk)
    return desk
