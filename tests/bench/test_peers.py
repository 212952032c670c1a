"""A peer that cannot be used is named with what is missing, and skipped: never a traceback."""

import pytest
from bench.cases import LENGTH, ROWS, SMALL, TINY

from regard_bench import decoding, peers, training

HALF = "import importlib_metadata_that_is_missing\n"


@pytest.fixture
def half(tmp_path, monkeypatch):
    """JoeyNMT, installed without what it imports."""
    (tmp_path / "joeynmt").mkdir()
    (tmp_path / "joeynmt" / "__init__.py").write_text("")
    for name in ("batch", "model", "search", "vocabulary"):
        (tmp_path / "joeynmt" / f"{name}.py").write_text(HALF if name == "search" else "")
    monkeypatch.syspath_prepend(tmp_path)
    peers.import_error.cache_clear()
    yield "is installed by half (ModuleNotFoundError: No module named 'importlib_metadata_that_is_missing')"
    peers.import_error.cache_clear()


def test_what_is_missing_is_said(half, tmp_path):
    assert peers.obstacle("a_package_that_is_nowhere") == "is not installed"
    assert peers.obstacle("joeynmt") == half
    (tmp_path / "joeynmt" / "search.py").write_text("")
    peers.import_error.cache_clear()
    assert peers.obstacle("joeynmt") is None


@pytest.mark.parametrize("code", ["import sys; sys.exit(3)", "import os; os._exit(4)", "raise ValueError('no\\nway')"])
def test_an_import_that_ends_otherwise_is_an_obstacle_too(code, half, tmp_path):
    (tmp_path / "joeynmt" / "search.py").write_text(code)
    assert peers.obstacle("joeynmt").startswith("is installed by half (")


@pytest.mark.parametrize("bench", ["training", "decoding"])
def test_a_bench_skips_a_peer_that_is_installed_by_half(bench, half, monkeypatch):
    monkeypatch.setattr(decoding, "PACKAGES", dict.fromkeys(decoding.PACKAGES, "joeynmt"))
    monkeypatch.setattr(training, "PACKAGES", dict.fromkeys(training.PACKAGES, "joeynmt"))
    if bench == "decoding":
        results = list(decoding.run(rounds=1, sizes=TINY, rows=ROWS, length=LENGTH))
    else:
        monkeypatch.setattr(training, "PAIRS", 300)
        monkeypatch.setattr(training, "RATE", 1e-2)
        monkeypatch.setattr(training, "memory", lambda *given: iter(()))
        _, *results = training.run(rounds=4, sizes=SMALL, budget=256)
    assert results
    for result in results:
        assert result.ratio is None
        assert result.peer.endswith(half)
