"""Plugins in tests: afterwards, their registered rows and their modules are removed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regard import plugins


@contextmanager
def forget_plugins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make `folder` the current folder in this context; plugins loaded meanwhile are forgotten at the end."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REGARD_CACHE", str(folder / "cache"))
    monkeypatch.setenv(plugins.VARIABLE, "")
    before, modules = (dict(plugins.PROVIDERS), dict(plugins.LOADED)), set(sys.modules)
    yield
    for what, rows in plugins.TABLES.items():
        for name in [name for name in rows if (what, name) in plugins.PROVIDERS.keys() - before[0].keys()]:
            del rows[name]  # built-in ones stay: their modules are imported once
    for mine, theirs in zip((plugins.PROVIDERS, plugins.LOADED), before, strict=True):
        mine.clear()
        mine.update(theirs)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
