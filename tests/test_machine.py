"""This machine's memory and its device; a stand-in for Apple's, as no test machine has one."""

import gc
import resource

import pytest
import torch
from apple import apple
from tiny import records, table
from training.cases import Said

from regard import load
from regard.decoding import Processes
from regard.errors import CommandError, ConfigError, TrainingError
from regard.kernels import backends
from regard.kernels.backends import BILINEAR, CAUSAL, SOFTMAX
from regard.kernels.planning import Request
from regard.machine import NEW, amount, auto_device, memory, pause_garbage_collection, settle_memory, wide_dtype
from regard.tasks import start
from regard.training import Group, TrainingSettings, describe_device, uses_bf16


@pytest.fixture
def with_apple(monkeypatch):
    """Provide a machine with Apple's GPU and no other."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def test_memory_is_no_more_than_a_process_may_have():
    found = memory()
    assert found is None or 2**26 < found < 2**50
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (10 * 2**30, before[1]))
    try:
        assert memory() <= 10 * 2**30
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_amounts_in_words():
    assert [amount(each) for each in (2**30, 1.5 * 2**40, 2**50)] == ["1.0 GiB", "1,536.0 GiB", "1,024 TiB"]


# ---- choice of the device


def test_auto_takes_apple_where_there_is_one(with_apple, capsys):
    assert auto_device() == "mps"
    group = Group("auto")
    assert (group.device, group.automatic) == (torch.device("mps"), True)
    assert Processes().device("auto") == "mps"
    assert "Apple's GPU (mps) is taken, in float32" in capsys.readouterr().err
    assert Processes().device("mps") == "mps"
    assert Processes().device("cpu") == "cpu"
    assert capsys.readouterr().err == ""  # no message after an explicit choice


def test_auto_takes_cuda_before_it(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert auto_device() == "cuda"


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is one")
def test_none_is_said():
    with pytest.raises(CommandError, match="--device: mps given, but torch finds no Apple GPU"):
        Processes().device("mps")
    with pytest.raises(TrainingError, match=r"training.device: mps given, but torch finds no Apple GPU"):
        Group("mps")
    with pytest.raises(CommandError, match="--device: 'mps:1' given"):
        Processes().device("mps:1")


def test_one_process_and_float32(with_apple, monkeypatch):
    device = torch.device("mps")
    assert not uses_bf16(TrainingSettings(), device)
    with pytest.raises(ConfigError, match=r'training.precision: "bf16" given with an Apple GPU'):
        uses_bf16(TrainingSettings(precision="bf16"), device)
    assert describe_device(device, 1, False) == "Apple GPU (mps), fp32"
    assert (wide_dtype(device), wide_dtype(torch.device("cpu"))) == (torch.float32, torch.float64)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="torchrun: 2 processes given, but Apple's GPU serves only one"):
        Group("auto")


def test_kernels_of_other_devices_are_not_asked():
    sizes = {"rows": 8, "queries": 64, "keys": 64, "width": 64, "value width": 64, "radius": 0}
    request = Request("mps", (torch.float32,), (BILINEAR, SOFTMAX, CAUSAL), sizes)
    known = {each.name: each for each in backends.BACKENDS}
    assert backends.choose(request).name == "sdpa"
    assert "not on mps" in known["flex"].refusal(request)


# ---- the plain path, in float32


# torch's recurrent layers change shapes in place, in C++, which the stand-in cannot see.
MODELS = {
    "sinusoids": {},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi", "norm": "post"},
    "additive": {"score": "additive"},
    "window": {"mixing": "window"},
}


@pytest.mark.parametrize(
    "name", [*list(MODELS)[:1], *(pytest.param(n, marks=pytest.mark.slow) for n in list(MODELS)[1:])]
)
def test_a_run_from_training_to_looking(name, tmp_path, with_apple):
    """No tensor there is float64, no host tensor mixes with device tensors, and the results equal a CPU's."""
    short = {"steps": 2, "validate_every": 1, "validate_rows": 1, "ema": 0.9, "average": 2, "device": "auto"}
    whole = table(tmp_path)
    whole["training"] |= short
    whole["model"] |= {"dropout": 0.0, **MODELS[name]}  # each device draws its own
    said = Said()
    with apple():
        started = start(whole, tmp_path / "apple", progress=said)
        run = load(tmp_path / "apple", device="mps")
        texts = ["1 2 3", "4 5"]
        there = run.translate(texts, beam=3), run.score(texts, ["3 2 1", "5 4"])
        drawn = [each.text for each in next(run.stream(["1 2 3"], sample=True, nbest=3, seed=1))]
        looked = run.align("1 2 3", "3 2 1").weights
    assert any("Apple's GPU" in line for line in said.lines)
    assert dict(started.facts)["device"] == "Apple GPU (mps), fp32"
    here = load(tmp_path / "apple", device="cpu")
    assert here.translate(texts, beam=3) == there[0]
    scores = [each.log_prob for each in here.score(texts, ["3 2 1", "5 4"])]
    assert [each.log_prob for each in there[1]] == pytest.approx(scores, rel=1e-4)
    assert [each.text for each in next(here.stream(["1 2 3"], sample=True, nbest=3, seed=1))] == drawn
    torch.testing.assert_close(looked.cpu(), here.align("1 2 3", "3 2 1").weights, rtol=1e-3, atol=1e-4)
    start({**whole, "training": {**whole["training"], "device": "cpu"}}, tmp_path / "cpu")
    one, other = (
        [record["loss"] for record in records(tmp_path / name) if record["kind"] == "valid"]
        for name in ("apple", "cpu")
    )
    assert one == pytest.approx(other, rel=1e-3)
    assert len(one) >= 2


# ---- garbage is not collected inside, and afterwards as before


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collection_of_garbage_is_as_it_was(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pause_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(ZeroDivisionError), pause_garbage_collection():
            1 / 0  # noqa: B018
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_what_is_there_is_not_looked_through_again():
    frozen, threshold = gc.get_freeze_count(), gc.get_threshold()
    try:
        settle_memory()
        assert gc.get_freeze_count() > frozen
        assert gc.get_threshold() == NEW
    finally:
        gc.set_threshold(*threshold)
        if not frozen:
            gc.unfreeze()
