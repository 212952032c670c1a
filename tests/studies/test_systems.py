"""Systems that a study trains: found again, resumed, and told apart."""

from dataclasses import replace

import pytest
import torch
from forked import fork_for_spawn

from regard.errors import CommandError, RegardError
from regard_studies import Setting, systems
from regard_studies.systems import differing_keys, train_all, train_or_load

TABLE = {
    "data": {"builtin": "reverse", "count": 60},
    "model": {"kind": "rnn", "size": 8, "embedding": 8},
    "training": {"steps": 4, "batch_tokens": 128, "validate_every": 2, "validate_rows": 2, "metric": "loss"},
}


def changed(part, **values):
    return {**TABLE, part: {**TABLE[part], **values}}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def said(tmp_path):
    lines = []
    return lines, Setting((3, 5), quick=True, device="cpu", out=tmp_path / "studies", say=lines.append)


def test_every_system_with_every_seed_and_then_found(said, monkeypatch):
    lines, setting = said
    first = train_all("some", {"a": TABLE, "b": changed("model", size=12)}, setting)
    assert [(each.name, each.seed, each.step) for each in first] == [("a", 3, 4), ("a", 5, 4), ("b", 3, 4), ("b", 5, 4)]
    assert lines == [f"{name}, seed {seed}: training" for name in "ab" for seed in (3, 5)]
    assert first[0].run.settings.training.seed == 3
    assert first[2].run.settings.model.size == 12
    monkeypatch.setattr(systems, "start", None)  # the second time nothing is trained
    again = train_all("some", {"a": TABLE}, setting)
    assert [each.seconds for each in again] == [each.seconds for each in first[:2]]
    assert again[0].run.translate(["1 2 3"]) == first[0].run.translate(["1 2 3"])
    assert all("found in" in line for line in lines[4:])


def test_one_that_was_interrupted_goes_on(said):
    lines, setting = said
    train_or_load("some", "a", changed("training", steps=2), 3, setting)
    found = train_or_load("some", "a", TABLE, 3, setting)
    assert found.step == 4
    assert lines == ["a, seed 3: training", "a, seed 3: training, from where it stopped"]


def test_a_run_of_something_else_is_refused(said):
    _, setting = said
    train_or_load("some", "a", TABLE, 3, setting)
    with pytest.raises(CommandError, match=r"quick-a-3: trained with another model\.size; remove it"):
        train_or_load("some", "a", changed("model", size=12), 3, setting)
    with pytest.raises(CommandError, match=r"another data\.count"):
        train_or_load("some", "a", changed("data", count=70), 3, setting)


def test_what_differs():
    assert differing_keys({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ["b", "c"]
    assert differing_keys({"a": 1}, {"a": 1}) == []


@pytest.fixture
def one_thread():
    """Use one thread: of two cores each process gets one, and two threads would sum in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def started(request, monkeypatch):
    """Start processes anew, which imports torch for seconds, or by a fork, which has it already.

    A study in tests/test_plugins_processes.py starts a new process in every run of the tests.
    """
    if request.param == "fork":
        fork_for_spawn(monkeypatch)


@pytest.mark.usefixtures("one_thread", "started")
def test_at_the_same_time_is_the_same(said, tmp_path, monkeypatch):
    lines, setting = said
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    one = train_all("some", {"a": TABLE}, setting)
    both = train_all("some", {"a": TABLE}, replace(setting, jobs=2, out=tmp_path / "both"))
    assert lines[2:] == ["a, seed 3: trained", "a, seed 5: trained"]
    for first, second in zip(one, both, strict=True):
        assert first.seed == second.seed
        for a, b in zip(first.run.model.parameters(), second.run.model.parameters(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.usefixtures("started")
def test_what_fails_beside_others_is_told(said):
    _, setting = said
    short = changed("model", kind="luong", score="location", length=1)
    with pytest.raises(CommandError, match=r"model\.length: 1 given"):
        train_all("some", {"a": short}, replace(setting, jobs=2))
    lost = {**TABLE, "data": {"source": "nowhere.en", "target": "nowhere.de"}}
    with pytest.raises(RegardError, match=r"nowhere\.en"):
        train_all("some", {"a": lost}, replace(setting, jobs=2))
