"""Shortened studies: few updates of small systems."""

import pytest

from regard.run import Run
from regard_studies import Setting


@pytest.fixture
def shorten(monkeypatch, tmp_path):
    """Shorten a study and return its setting: change its tables by section, its outputs, and names of its module."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    translate = Run.translate

    def shorten(study, *, training=(), model=(), data=(), longest_output=None, only=None, **names):
        tables = study.tables
        few = {"steps": 2, "validate_every": 2, "warmup": 1}
        changes = {"training": few | dict(training), "model": dict(model), "data": dict(data)}

        def short(*given):
            made = tables(*given)
            changed = {
                name: table | {part: table[part] | own for part, own in changes.items()} for name, table in made.items()
            }
            return {name: changed[name] for name in only or changed}

        for name, value in (names | {"tables": short}).items():
            monkeypatch.setattr(study, name, value)
        if longest_output is not None:
            monkeypatch.setattr(Run, "translate", lambda *given, **o: translate(*given, longest=longest_output, **o))
        return Setting((4,), quick=True, device="cpu", out=tmp_path / "studies")

    return shorten
