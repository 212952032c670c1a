"""What tests of commands share: typer's own classes are not those it documents, so that no type is checked here."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Check no types at run time in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("unchecked")


@pytest.fixture
def at_desk(desk, monkeypatch) -> Path:
    """A module's `desk`, as the folder in which commands are typed."""
    monkeypatch.chdir(desk)
    return desk
