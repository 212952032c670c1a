"""What tests of commands share."""

from pathlib import Path

import pytest


@pytest.fixture
def at_desk(desk, monkeypatch) -> Path:
    """A module's `desk`, as the folder in which commands are typed."""
    monkeypatch.chdir(desk)
    return desk
