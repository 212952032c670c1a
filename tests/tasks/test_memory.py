"""A configuration's sizes are compared with the weights before a model is built: no option can use up memory."""

import contextlib
import dataclasses
import math
import resource
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w
import torch
from torch import nn
from untrained import DATA, SMALL, STEP, TASKS, change_manifest, make_run

import regard.config
from regard.config import read
from regard.errors import CheckpointError, ConfigError, RegardError
from regard.models import KINDS, build
from regard.run import load
from regard.tasks import memory
from regard.tasks.memory import (
    CPU_TOKENS,
    DOCUMENT_TOKENS,
    LEAST_TOKENS,
    MOST_TOKENS,
    PICTURE_TOKENS,
    TRAINED,
    check_batches,
    check_sizes,
    check_weights,
    count_weights,
    largest_budget,
    make_worst_batch,
    token_budget,
)
from regard.tasks.settings import read_settings
from regard.training import weight_files

HUGE = [10**4, 10**6, 10**9, 2**31, 2**40, 10**12, 2**63 - 1]
TRIES = [pytest.param([10**9], id="short"), pytest.param(HUGE, marks=pytest.mark.slow, id="all")]


def integers(kind: str) -> list[str]:
    """Return the integer options of a kind."""
    return [field.name for field in dataclasses.fields(KINDS[kind].config) if "int" in str(field.type)]


LITTLE = {"stages"}  # options of small numbers: each stage doubles the widths


def peak_memory() -> int:
    """Return this process's peak memory in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)


def enlarge(run: Path, option: str, value: int) -> None:
    """Change an option in the configuration and in the manifest, so that they agree."""
    table = read(run / "config.toml")
    table["model"][option] = value
    (run / "config.toml").write_text(tomli_w.dumps(table))
    change_manifest(run, lambda manifest: manifest["task"]["model"].update({option: value}))


@pytest.mark.parametrize("values", TRIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_size_of_every_kind(tmp_path, kind, values, monkeypatch):
    """Without the configuration's own limits, which are far above those of a file."""
    monkeypatch.setattr(regard.config, "in_limits", lambda *given: None)
    run = make_run(tmp_path / "run", kind)
    whole = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    load(run)
    before = peak_memory()
    for option in integers(kind):
        for value in values if option not in LITTLE else [5, 6]:
            enlarge(run, option, value)
            start = time.perf_counter()
            with contextlib.suppress(RegardError):  # an option that this model does not use may have any value
                load(run)
            assert torch.is_grad_enabled()
            assert time.perf_counter() - start < 5, (option, value)
            assert peak_memory() - before < 300, (option, value)
            for path, content in whole.items():
                path.write_bytes(content)
    load(run)


@pytest.mark.parametrize("option", ["layers", "size", "hidden", "heads"])
def test_what_is_said(tmp_path, option):
    run = make_run(tmp_path / "run", "transformer")
    if option != "heads":  # heads divide the same widths
        enlarge(run, option, 4)
        with pytest.raises(CheckpointError, match=f"{STEP}/model.safetensors: weight model.* is "):
            load(run)
    enlarge(run, option, 64_000)
    with pytest.raises(RegardError) as caught:
        load(run)
    assert str(run) in str(caught.value)


def test_a_vocabulary_of_another_size(tmp_path):
    """The tokenizer is valid, but larger than the embedding."""
    from untrained import TEXTS, change_tokenizer

    from regard.data import Tokenizers, train

    run = make_run(tmp_path / "run", "transformer")
    larger = Tokenizers(train([*TEXTS, " ".join(f"w{i}" for i in range(5000))], "word"))
    change_tokenizer(run, larger.dumps().encode())
    with pytest.raises(CheckpointError, match=r"model.safetensors: weight .* is \[14, 8\], expected \[5014, 8\]"):
        load(run)


def test_labels_of_another_number(tmp_path):
    run = make_run(tmp_path / "run", "han")
    change_manifest(run, lambda manifest: manifest["task"].update(labels=[str(i) for i in range(50_000)]))
    with pytest.raises(CheckpointError, match=r"weight model.readout.weight is \[2, 8\], expected \[50000, 8\]"):
        load(run)


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_a_fraction_of_what_is_allowed(kind):
    """The largest preset of every kind needs less than half of the limits."""
    presets = KINDS[kind].presets
    config = KINDS[kind].config(**presets["base" if "base" in presets else "small"])
    own = weight_files.weights_of(build(kind, config, 1000, 1000))
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    numbers = sum(math.prod(shape) for shape in shapes.values())
    with memory.limit_parts(len(shapes) // 2, numbers // 2):
        build(kind, config, 1000, 1000)
    found = check_sizes(lambda: build(kind, config, 1000, 1000), config, shapes, config_path="c", weights_path="w")
    assert {name: tuple(tensor.shape) for name, tensor in weight_files.weights_of(found).items()} == shapes


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: nn.ModuleList(nn.Linear(1, 1) for _ in range(10**9)), "weights"),
        (lambda: nn.ModuleList(nn.Identity() for _ in range(10**9)), "modules"),
        (lambda: nn.Sequential(*(nn.Sequential(nn.ReLU()) for _ in range(10**9))), "modules"),
        (lambda: nn.LSTM(2048, 2048), "numbers"),
        (lambda: nn.Linear(2**20, 2), "numbers"),
    ],
)
def test_it_stops_at_the_first_part_too_many(build, what):
    with pytest.raises(memory.TooManyError, match=what), memory.limit_parts(3, 100):
        build()
    build_others = threading.Thread(target=lambda: built.append(nn.Linear(2**21, 1)))
    built = []
    with memory.limit_parts(3, 100):  # the limits do not apply to another thread's models
        build_others.start()
        build_others.join()
    assert built


def test_wherever_it_stops_torch_is_as_it_was():
    config = KINDS["transformer"].config(**SMALL["transformer"])
    for weights in range(0, 60, 2):
        with contextlib.suppress(memory.TooManyError), memory.limit_parts(weights - 4 * memory.SOME, 10**6):
            build("transformer", config, 14, 14)
        assert torch.is_grad_enabled()
    assert build("transformer", config, 14, 14).readout.weight.requires_grad


def test_the_generator_is_left_alone(tmp_path):
    """The check of a run to resume draws no random numbers: the weights drawn after it stay the same."""
    folder = make_run(tmp_path / "run", "transformer")
    run = load(folder)
    prepared = SimpleNamespace(tokenizers=run.tokenizers, labels=None)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    memory.check_run_sizes(run.settings, prepared, folder, folder / "checkpoints" / STEP, resumed=True)
    assert torch.equal(torch.rand(3), expected)


def test_all_kinds_are_made():
    assert SMALL.keys() == KINDS.keys()
    assert DATA.keys() | TASKS.keys() <= KINDS.keys()


# ---- the least memory of a run, when that is too much, and the token budget of a batch


CPU = torch.device("cpu")
MODEL = {"kind": "transformer", "size": 16, "heads": 2, "layers": 2, "hidden": 16}
ALONE = SimpleNamespace(device=torch.device("cpu"))
LARGE = (99, 99, 100_000)


def settings(**training):
    return read_settings({"model": MODEL, "training": training})


@pytest.mark.parametrize(
    ("training", "processes", "bytes_a_weight"),
    [
        ({}, 1, TRAINED),
        ({}, 4, TRAINED),  # each process holds all of them
        ({"shard": True}, 4, TRAINED / 4),
        ({"ema": 0.9}, 1, TRAINED + 4),
        ({"ema": 0.9, "shard": True}, 2, (TRAINED + 4) / 2),
    ],
)
def test_what_weights_take_in_training(training, processes, bytes_a_weight):
    given = settings(**training)
    count = count_weights(given, 50, 60)
    assert count > 60 * 16
    assert check_weights(given, CPU, 50, 60, processes) == int(count * bytes_a_weight)


def test_weights_are_refused_where_there_is_no_room_for_one_more(monkeypatch):
    needed = check_weights(settings(), CPU, 50, 60)
    monkeypatch.setattr(memory, "memory", lambda: needed)
    assert check_weights(settings(), CPU, 50, 60) == needed
    monkeypatch.setattr(memory, "memory", lambda: needed - 1)
    with pytest.raises(ConfigError, match="weights would take .* in training, but this machine has"):
        check_weights(settings(), CPU, 50, 60)


@pytest.mark.parametrize(
    ("device", "precision", "size"), [("cpu", "auto", 4), ("cuda", "auto", 2), ("cuda", "fp32", 4)]
)
def test_batches_are_refused_beside_the_model(monkeypatch, device, precision, size):
    """A token takes four vectors of sixteen numbers in each of two layers; a batch has at most all tokens."""
    prepared = SimpleNamespace(pictures=None, train=SimpleNamespace(lengths=np.full((100, 2), 5, np.int32)))
    given, tokens = settings(precision=precision), 500
    needed = 1000 + 4 * 16 * 2 * size * tokens
    room = {"bytes": needed}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=room["bytes"]))
    monkeypatch.setattr(memory, "memory", lambda: room["bytes"])
    check_batches(given, torch.device(device), prepared, 100_000, 1000)
    room["bytes"] -= 1
    check_batches(given, torch.device(device), prepared, 499, 1000)
    with pytest.raises(ConfigError, match="training.batch_tokens: a batch of 500 tokens would take"):
        check_batches(given, torch.device(device), prepared, 100_000, 1000)


def test_weights_beside_which_adapters_learn_take_no_more_than_themselves():
    given = read_settings({"model": {**MODEL, "adapter": 4}, "training": {"ema": 0.9}})
    assert check_weights(given, CPU, 50, 60) == 4 * count_weights(given, 50, 60)


def prepared(source: int, target: int, rows: int) -> SimpleNamespace:
    """Return `rows` rows of so many tokens a side, without END."""
    lengths = np.broadcast_to(np.array([source, target], np.int32), (rows, 2))
    return SimpleNamespace(train=SimpleNamespace(lengths=lengths))


@pytest.mark.parametrize(
    ("tokens", "device", "budget"),
    [
        (200 * 4096, "cpu", 4096),
        (200 * 4096 - 16, "cpu", 2048),
        (50 * 4096, "cuda", 4096),
        (50 * 4096 - 16, "cuda", 2048),
        (200 * 8191, "cpu", 4096),
        (16, "cpu", LEAST_TOKENS),
        (50 * MOST_TOKENS, "cuda", MOST_TOKENS),
        (400 * MOST_TOKENS, "cuda", MOST_TOKENS),
    ],
)
def test_an_epoch_has_enough_batches(tokens, device, budget):
    """The budget is the largest power of two with 50 batches on a GPU, 200 elsewhere; each target counts its END."""
    assert largest_budget(prepared(3, 15, tokens // 16), "text", device) == budget


def test_documents_are_counted_by_themselves():
    of_text, of_documents = (largest_budget(prepared(4095, 1, 200), reads, "cpu") for reads in ("text", "documents"))
    assert (of_text, of_documents) == (LEAST_TOKENS, 4096)


@pytest.mark.parametrize(
    ("table", "corpus", "budget"),
    [
        ({"data": {"source": "a", "target": "b"}}, LARGE, CPU_TOKENS),
        ({"data": {"source": "a", "target": "b"}}, (7, 7, 51_200), 2048),
        ({"data": {"documents": "a.tsv"}}, LARGE, DOCUMENT_TOKENS),
        ({"data": {"images": "a", "captions": "b"}}, LARGE, PICTURE_TOKENS),
        ({"data": {"source": "a", "target": "b"}, "training": {"batch_tokens": 77}}, LARGE, 77),
    ],
)
def test_what_a_cpu_takes_of_a_corpus(table, corpus, budget):
    assert token_budget(read_settings(table), prepared(*corpus), ALONE) == budget


@pytest.mark.parametrize(("budget", "longest", "rows"), [(1024, 100, 10), (100, 100, 1), (10, 100, 1)])
def test_the_worst_batch_is_full_of_the_longest(budget, longest, rows):
    batch = make_worst_batch(budget, longest)
    assert batch.source.shape == (rows, longest)
    assert batch.target.shape == (rows, longest + 1)  # with START and END
    assert set(batch.source_lengths.tolist()) == {longest}
