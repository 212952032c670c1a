"""Measuring: rounds are interleaved, differing results are refused, and peak memory is the memory really needed."""

import json
import time

import pytest
import torch
from bench.cases import DEMO, LENGTH, ROWS, SMALL, TINY, Here
from forked import fork_for_spawn

from regard.errors import RegardError
from regard_bench import attention, decoding, measure, training
from regard_bench.measure import Result, agree, peak_memory, save, signature, time_interleaved

MIB = 1024 * 1024


def test_rounds_are_interleaved_and_the_median_is_the_middle():
    order = []
    naps = iter([0, 0, 0.02, 0.2, 0.02])  # two to warm up; one of three rounds is an outlier

    def slow():
        order.append("slow")
        time.sleep(next(naps))

    slow_timing, _ = time_interleaved([slow, lambda: order.append("quick")], rounds=3)
    assert order == ["slow", "slow", "quick", "quick"] + ["slow", "quick"] * 3
    assert 0.02 <= slow_timing.median < 0.1
    assert slow_timing.low <= slow_timing.median <= slow_timing.high


def test_results_that_differ_are_not_compared():
    one = torch.ones(3)
    agree("same", one, one + 1e-7, 1e-5)
    with pytest.raises(RegardError, match="results differ by 1.00e-01.*so no speed is compared"):
        agree("other", one + 0.1, one, 1e-3)
    with pytest.raises(RegardError, match="results differ by nan"):
        agree("nothing", one * float("nan"), one, 1e-3)


def hold_much():
    torch.ones(64 * MIB // 4).sum()


def hold_nothing():
    pass


def fail():
    raise SystemExit(3)


@pytest.fixture
def forks(monkeypatch):
    """Fork processes; `test_peak_memory_is_what_was_held` starts a new one."""
    fork_for_spawn(monkeypatch)


def test_peak_memory_is_what_was_held():
    assert 64 * MIB <= peak_memory(hold_much) < 80 * MIB


@pytest.mark.usefixtures("forks")
def test_what_was_held_before_is_not_counted():
    held = torch.ones(64 * MIB // 4)
    assert peak_memory(hold_nothing) < 8 * MIB
    assert held.all()


@pytest.mark.usefixtures("forks")
def test_a_process_that_dies_is_named():
    with pytest.raises(RegardError, match="fail ended with status"):
        peak_memory(fail)


def test_figures_are_saved_with_their_signature(tmp_path):
    path = tmp_path / "new" / "figures.json"
    save(path, [Result("what", "ours", "peer", 0.5, "at most 1", True, {"ours_s": 1.0})], signature("cpu", 2))
    saved = json.loads(path.read_text())
    assert saved["results"][0]["ratio"] == 0.5
    assert saved["signature"]["torch"] == torch.__version__
    assert saved["signature"]["threads"] == 2


HALF = "import importlib_metadata_that_is_missing\n"


@pytest.fixture
def half(tmp_path, monkeypatch):
    """Install JoeyNMT without its dependencies."""
    (tmp_path / "joeynmt").mkdir()
    (tmp_path / "joeynmt" / "__init__.py").write_text("")
    for name in ("batch", "model", "search", "vocabulary"):
        (tmp_path / "joeynmt" / f"{name}.py").write_text(HALF if name == "search" else "")
    monkeypatch.syspath_prepend(tmp_path)
    measure.import_error.cache_clear()
    yield "is installed by half (ModuleNotFoundError: No module named 'importlib_metadata_that_is_missing')"
    measure.import_error.cache_clear()


def test_what_is_missing_is_said(half, tmp_path):
    assert measure.obstacle("a_package_that_is_nowhere") == "is not installed"
    assert measure.obstacle("joeynmt") == half
    (tmp_path / "joeynmt" / "search.py").write_text("")
    measure.import_error.cache_clear()
    assert measure.obstacle("joeynmt") is None


@pytest.mark.parametrize("code", ["import sys; sys.exit(3)", "import os; os._exit(4)", "raise ValueError('no\\nway')"])
def test_an_import_that_ends_otherwise_is_an_obstacle_too(code, half, tmp_path):
    (tmp_path / "joeynmt" / "search.py").write_text(code)
    assert measure.obstacle("joeynmt").startswith("is installed by half (")


@pytest.mark.parametrize("bench", ["training", "decoding"])
def test_a_bench_skips_a_peer_that_is_installed_by_half(bench, half, monkeypatch):
    monkeypatch.setattr(decoding, "PACKAGES", dict.fromkeys(decoding.PACKAGES, "joeynmt"))
    monkeypatch.setattr(training, "PACKAGES", dict.fromkeys(training.PACKAGES, "joeynmt"))
    if bench == "decoding":
        monkeypatch.setattr(decoding, "DecoderProcess", Here)  # test_decoding.py starts processes
        results = list(decoding.run(rounds=1, sizes=TINY, rows=ROWS, length=LENGTH, demo=DEMO))
    else:
        monkeypatch.setattr(training, "PAIRS", 300)
        monkeypatch.setattr(training, "RATE", 1e-2)
        monkeypatch.setattr(training, "memory", lambda *given: iter(()))
        _, *results = training.run(rounds=4, sizes=SMALL, budget=256)
    assert results
    for result in results:
        assert result.ratio is None
        assert result.peer.endswith(half)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("run", [attention.run, decoding.run, training.run])
def test_no_gpu_is_said(run):
    with pytest.raises(RegardError, match="torch finds no CUDA device"):
        next(iter(run(3, device="cuda")))
