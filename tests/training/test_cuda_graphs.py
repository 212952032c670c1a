"""Replayed updates equal eager ones bit by bit, and run eagerly where they cannot be replayed."""

import gc

import numpy as np
import pytest
import torch
from tiny import Line, records, training
from torch import nn
from training import cases
from training.cases import Numbers, same

from regard.data import batching, collate
from regard.errors import ConfigError
from regard.models import build, read_model_config
from regard.training.adapters import add_adapters, plain_weights
from regard.training.distributed import Group
from regard.training.loop import Trainer, train
from regard.training.progress import Progress
from regard.training.task import Loss, Position, Prediction, Task
from regard.training.update import CaptureError, Replay, batch_tensors
from regard.training.weights import weights_of

gpu = pytest.mark.gpu
MODEL = {"kind": "transformer", "size": 64, "heads": 2, "layers": 2, "hidden": 64, "dropout": 0.1, "tied": "all"}


class Sentences(Task):
    """A task with three batches of made-up pairs, over and over."""

    can_prefetch = True

    def __init__(self, form, model=MODEL):
        torch.manual_seed(0)
        self.model = build(model["kind"], read_model_config(model), 50, 50)
        self.objective, self.form = Prediction(self.model, 0.1), form

    def epoch(self, number):
        draw = np.random.default_rng(number)
        return [
            [tuple(draw.integers(4, 50, draw.integers(3, 9)).tolist() for _ in range(2)) for _ in range(rows)]
            for rows in (20, 19, 30)
        ]

    def count(self, plan):
        return sum(len(target) + 1 for _, target in plan)

    def batch(self, plan, position):
        if self.form == "padded":
            return batching.pad_up(collate(plan), 16)
        lengths = np.array([[len(source), len(target)] for source, target in plan])
        return batching.pack(*(np.concatenate([np.array(pair[side]) for pair in plan]) for side in (0, 1)), lengths, 64)

    def fingerprint(self):
        return {"form": self.form}


class Error(nn.Module):
    replays = True

    def __init__(self):
        super().__init__()
        self.net, self.calls = nn.Linear(3, 1), 0

    def forward(self, batch):
        self.calls += 1
        return Loss(nn.functional.dropout(self.net(batch.x), 0.5).square().sum())


class Waiting(Error):
    def forward(self, batch):
        loss = super().forward(batch)
        return Loss(loss.total * (1.0 if loss.total.item() >= 0 else 2.0))


class Full(Error):
    """An objective that runs out of memory in mid-backward, when some weights have gradients already."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)

    def forward(self, batch):
        hidden = self.first(batch.x)
        if torch.cuda.is_current_stream_capturing():
            hidden.register_hook(self.fail)
        return super().forward(Numbers(hidden))

    def fail(self, grad):
        assert self.net.weight.grad is not None
        raise torch.OutOfMemoryError("CUDA out of memory (so this test says)")


class Watchful(Error):
    """An objective that notes whether garbage may be collected inside a capture."""

    def forward(self, batch):
        if torch.cuda.is_current_stream_capturing():
            self.collected = gc.isenabled()
        return super().forward(batch)


class Late(Error):
    def forward(self, batch):
        loss = super().forward(batch)
        if torch.cuda.is_current_stream_capturing():
            loss.total.item()
        return loss


class Points(Task):
    def __init__(self, objective, bad=()):
        torch.manual_seed(0)
        self.objective, self.bad = objective(), bad

    def stream(self, position):
        for i in range(position.batch, 10**6):
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
            x[0, 0] = float("nan") if i in self.bad else x[0, 0]
            yield Position(0, i), Numbers(x)

    def count(self, plan):
        return len(plan.x)


def stepped(task, count, folder, **settings):
    given = training(**{"device": "cuda", "warmup": 4, "schedule": "noam", **settings})
    trainer = cases.stepped(given, task, folder, count)
    trainer.updater.read_sums(trainer.now)
    return trainer


def test_a_cpu_replays_nothing(tmp_path):
    trainer = Trainer(Line(), training(), tmp_path, Progress(), Group("cpu"))
    trainer.prepare(False)
    assert trainer.updater.replay is trainer.updater.copies is None  # the objective is a plain module
    with pytest.raises(ConfigError, match=r"training\.replay: true given, but updates on a CPU"):
        train(Line(), training(replay=True), tmp_path)


# ---- the host: which updates are captured and replayed


class Recorder:
    """A capture without a GPU: a replay repeats the work on memory of its own, like a graph."""

    def __init__(self, work, problems=()):
        self.work, self.problems, self.captures, self.replays, self.repaired = work, list(problems), [], [], 0

    def __call__(self, batch):
        self.captures.append(batch.shape)
        problem = self.problems.pop(0) if self.problems else None
        if problem is not None:
            raise problem
        return Recording(self, Numbers(torch.full_like(batch.x, torch.nan)))

    def repair(self):
        self.repaired += 1


class Recording:
    def __init__(self, recorder, there):
        self.recorder, self.there = recorder, there

    def replay(self, batch):
        for mine, given in zip(batch_tensors(self.there), batch_tensors(batch), strict=True):
            mine.copy_(given)
        self.recorder.replays.append(batch.shape)
        self.recorder.work(self.there)


def batches(*rows):
    return [Numbers(torch.full((each, 3), float(i))) for i, each in enumerate(rows)]


def test_a_shape_is_captured_when_it_comes_for_the_second_time_and_replayed_from_then_on():
    done = []
    recorder = Recorder(lambda batch: done.append(batch.x.clone()))
    replay = Replay(recorder)
    given = batches(1, 2, 1, 1, 3, 2, 1)
    assert [replay(batch) for batch in given] == [False, False, True, True, False, True, True]
    assert recorder.captures == [(1, 3), (2, 3)]
    replayed = [given[i].x for i in (2, 3, 5, 6)]
    assert all(map(torch.equal, done, replayed))  # each with its own batch, none with that of the capture
    assert len(done) == len(replayed)


def test_there_are_no_more_graphs_than_allowed():
    recorder = Recorder(lambda batch: None)
    replay = Replay(recorder, most=2, often=2)
    found = [replay(batch) for batch in batches(1, 2, 3, 1, 2, 3, 3, 1, 2)]
    assert found == [False, False, False, True, True, False, False, True, True]
    assert list(replay.graphs) == [(1, 3), (2, 3)]


@pytest.mark.parametrize("often", [1, 3])
def test_how_often_a_shape_has_to_come(often):
    replay = Replay(Recorder(lambda batch: None), often=often)
    assert [replay(batch) for batch in batches(*[4] * 5)] == [False] * (often - 1) + [True] * (6 - often)


def test_what_has_no_shape_is_eager():
    recorder = Recorder(lambda batch: None)
    assert not any(Replay(recorder)((1, 2)) for _ in range(5))
    assert not recorder.captures


def test_where_a_graph_finds_no_room_those_that_do_serve_on():
    full = CaptureError(torch.OutOfMemoryError("CUDA out of memory"), ended=True)
    recorder = Recorder(lambda batch: None, [None, full])
    replay = Replay(recorder, often=1)
    assert [replay(batch) for batch in batches(1, 2, 2, 3, 1)] == [True, False, False, False, True]
    assert recorder.captures == [(1, 3), (2, 3)]  # nothing else is tried
    assert replay.on
    assert replay.problem is None
    assert not recorder.repaired


@pytest.mark.parametrize(
    ("problem", "ended"),
    [
        (RuntimeError("operation not permitted when stream is capturing"), True),
        (RuntimeError("operation not permitted when stream is capturing"), False),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
    ],
)
def test_what_cannot_be_captured_ends_all_replays(problem, ended):
    held = []
    recorder = Recorder(lambda batch: None, [None, CaptureError(problem, ended)])
    replay = Replay(recorder, often=1)
    recorder.repair = lambda: held.append(dict(replay.graphs))
    assert [replay(batch) for batch in batches(1, 2, 1, 1)] == [True, False, False, False]
    assert not replay.on
    assert replay.problem is problem
    assert held == ([] if ended else [{}])  # repaired once, when no graph was left


def test_what_is_forgotten_is_not_captured_again():
    replay = Replay(recorder := Recorder(lambda batch: None), often=1)
    assert replay(batches(1)[0])
    replay.forget()
    assert not replay.graphs
    assert not any(replay(batch) for batch in batches(1, 1, 2))
    assert len(recorder.captures) == 1


# ---- on a GPU


@gpu
@pytest.mark.parametrize("form", ["packed", "padded"])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("ema", [None, 0.9])
def test_replayed_is_eager(form, precision, ema, tmp_path):
    options = {"precision": precision, "ema": ema}
    eager = stepped(Sentences(form), 10, tmp_path, replay=False, **options)
    replayed = stepped(Sentences(form), 10, tmp_path, replay=True, **options)
    assert eager.updater.replay is None
    assert replayed.updater.replay.on, replayed.updater.replay.problem
    assert replayed.updater.replay.graphs
    same(replayed, eager)
    if ema:
        assert all(map(torch.equal, replayed.ema, eager.ema))


@gpu
@pytest.mark.parametrize(
    "options",
    [
        {"activation": "silu", "sines": "halves", "norm": "post"},
        {"activation": "gelu", "sines": "fairseq", "scale_embeddings": False, "output_bias": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["packed", "padded"])
def test_forms_of_other_toolkits_are_replayed(form, options, tmp_path):
    eager, replayed = (
        stepped(Sentences(form, {**MODEL, **options}), 10, tmp_path, replay=replay, precision="bf16")
        for replay in (False, True)
    )
    assert replayed.updater.replay.graphs, replayed.updater.replay.problem
    same(replayed, eager)


@gpu
@pytest.mark.parametrize("form", ["packed", "padded"])
def test_adapters_are_replayed(form, tmp_path):
    found = []
    for replay in (False, True):
        task = Sentences(form)
        before = {name: tensor.clone() for name, tensor in weights_of(task.model).items()}
        add_adapters(task.model, 4)
        found.append(stepped(task, 10, tmp_path, replay=replay, precision="bf16"))
        after = {name: tensor.cpu() for name, tensor in plain_weights(task.model).items()}
        assert all(torch.equal(tensor, after[name]) for name, tensor in before.items()), "they alone learn"
    assert found[1].updater.replay.graphs, found[1].updater.replay.problem
    same(found[1], found[0])


@gpu
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrence_is_replayed(cell, tmp_path):
    model = {"kind": "rnnsearch", "size": 32, "embedding": 32, "hidden": 32, "maxout": 32, "dropout": 0.1, "cell": cell}
    eager = stepped(Sentences("padded", model), 10, tmp_path, replay=False, precision="bf16")
    replayed = stepped(Sentences("padded", model), 10, tmp_path, replay=True, precision="bf16")
    assert replayed.updater.replay.graphs
    same(replayed, eager)


@gpu
@pytest.mark.parametrize("form", ["packed", "padded"])
def test_resumed_is_not_stopped(form, tmp_path):
    options = {"device": "cuda", "replay": True, "precision": "bf16", "validate_every": 5, "keep": 9}
    whole, cut, rest = Sentences(form), Sentences(form), Sentences(form)
    train(whole, training(steps=14, **options), tmp_path / "whole")
    train(cut, training(steps=10, **options), tmp_path / "cut")
    train(rest, training(steps=14, **options), tmp_path / "cut", resume=True)
    for name, tensor in whole.objective.state_dict().items():
        assert torch.equal(tensor, rest.objective.state_dict()[name]), name


@gpu
def test_what_is_recorded_is_the_same(tmp_path):
    options = {"device": "cuda", "precision": "bf16", "steps": 13, "validate_every": 5, "log_every": 2}
    for name in ("eager", "replayed"):
        train(Sentences("packed"), training(replay=name == "replayed", **options), tmp_path / name)
    found, expected = (records(tmp_path / name) for name in ("replayed", "eager"))
    assert len(found) > 5
    assert found == expected


@gpu
def test_a_step_that_is_not_finite_is_skipped(tmp_path):
    replayed = stepped(Points(Error, bad=(5, 7)), 8, tmp_path, replay=True)
    assert replayed.updater.replay.graphs
    assert replayed.now.skipped == 2
    eager = stepped(Points(Error, bad=(5, 7)), 8, tmp_path, replay=False)
    assert replayed.objective.calls < eager.objective.calls
    assert all(torch.isfinite(each).all() for each in replayed.updater.parameters)
    assert all(map(torch.equal, replayed.updater.parameters, eager.updater.parameters))


@gpu
@pytest.mark.parametrize("objective", [Waiting, Full, Late])
def test_what_cannot_be_captured_is_done_eagerly(objective, tmp_path):
    trainer = stepped(Points(objective), 8, tmp_path, replay=True)
    assert not trainer.updater.replay.graphs
    same(trainer, stepped(Points(objective), 8, tmp_path, replay=False))


@gpu
def test_no_garbage_is_collected_inside_a_capture(tmp_path):
    """A finished trainer holds its graphs in a reference cycle; to free them inside a capture would end the capture."""
    trainer = stepped(Points(Watchful), 8, tmp_path, replay=True)
    assert trainer.updater.replay.graphs
    assert trainer.objective.collected is False
    assert gc.isenabled()
