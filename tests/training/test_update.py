"""Updates give equal weights, eager, replayed or split; batches load ahead in order on a thread, and raise in turn."""

import itertools
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import Fit, Line, records, training
from torch import nn
from training.cases import Numbers, Said, same, stepped, weights

from regard.errors import TrainingError
from regard.machine import is_out_of_memory
from regard.models import build, read_model_config
from regard.training.loop import train
from regard.training.task import Loss, Position, Prediction, Prefetch, Task
from regard.training.update import Replay, attempt_in_parts, batch_tensors, describe_path, not_replayed

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
START = Position(0, 0)


class Numbered(Line):
    """A task whose batches are their position; loading may take time or fail."""

    can_prefetch = True

    def __init__(self, seconds=0.0, fails=None):
        super().__init__()
        self.seconds, self.fails, self.threads = seconds, fails, set()

    def count(self, plan):
        return 3

    def batch(self, plan, position):
        self.threads.add(threading.current_thread())
        time.sleep(self.seconds)
        if position == self.fails:
            raise RuntimeError("this one cannot be loaded")
        return position


def processes(rank=0, world=1):
    return SimpleNamespace(rank=rank, world=world, device=torch.device("cpu"))


def taken(task, count, position=START, accumulate=1, rank=0, world=1):
    with Prefetch(task, position, accumulate, processes(rank, world)) as ahead:
        return list(itertools.islice(ahead, count))


def test_shares_come_in_the_order_of_the_stream_each_with_where_it_ends():
    task = Numbered()
    shares = taken(task, 4, Position(1, 3))
    assert [share.batches for share in shares] == [
        [Position(1, 3)],
        [Position(1, 4)],
        [Position(2, 0)],
        [Position(2, 1)],
    ]
    assert [share.end for share in shares] == [Position(1, 4), Position(1, 5), Position(2, 1), Position(2, 2)]
    assert threading.main_thread() not in task.threads
    assert len(task.threads) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_processes_share_an_update_and_count_it_whole(rank):
    (share,) = taken(Numbered(), 1, accumulate=2, rank=rank, world=2)
    assert share.batches == [Position(0, rank), Position(0, rank + 2)]
    assert share.count == 12
    assert share.end == Position(0, 4)


def test_what_was_loaded_in_time_is_not_waited_for():
    with Prefetch(Numbered(0.3), Position(0, 0), 1, processes()) as ahead:
        next(ahead)
        first = ahead.waited
        time.sleep(1.0)  # the loop is busy
        before = time.monotonic()
        next(ahead)
        assert time.monotonic() - before < 0.15
        assert first >= 0.15
        assert ahead.waited - first < 0.15


def test_an_error_comes_when_its_update_is_asked_for():
    with Prefetch(Numbered(fails=Position(0, 1)), Position(0, 0), 1, processes()) as ahead:
        assert next(ahead).batches == [Position(0, 0)]
        with pytest.raises(RuntimeError, match="cannot be loaded"):
            next(ahead)


def test_what_is_not_said_to_be_fit_for_it_is_loaded_when_its_step_comes():
    class Here(Numbered):
        can_prefetch = False

    task = Here()
    assert [share.batches for share in taken(task, 2)] == [[Position(0, 0)], [Position(0, 1)]]
    assert task.threads == {threading.main_thread()}


def test_nothing_runs_on_after_the_end():
    task = Numbered(0.01)
    taken(task, 2)
    assert not any(thread.is_alive() for thread in task.threads)


class Error(nn.Module):
    """An objective that counts its Python calls, and fails in the given ones."""

    replays = True

    def __init__(self, problems):
        super().__init__()
        self.net, self.calls, self.problems = nn.Linear(3, 1), 0, problems

    def forward(self, batch):
        self.calls += 1
        total = self.net(nn.functional.dropout(batch.x, 0.5)).square().sum()
        if self.calls in self.problems:
            raise self.problems[self.calls]
        return Loss(total, {"rows": torch.tensor(float(len(batch.x)))})


class Points(Task):
    """A task with batches of two alternating shapes."""

    def __init__(self, problems=None):
        torch.manual_seed(0)
        self.objective = Error(problems or {})

    def stream(self, position):
        for i in range(position.batch, 10**6):
            yield Position(0, i), Numbers(torch.randn(2 + i % 2, 3, generator=torch.Generator().manual_seed(i)))

    def count(self, plan):
        return len(plan.x)

    def halves(self, batch):
        return [Numbers(part) for part in batch.x.chunk(2)]


class Again:
    """A capture on a CPU: a replay repeats the work on memory of its own."""

    def __init__(self, work):
        self.work, self.replays = work, 0

    def __call__(self, batch):
        there = replace(batch, x=torch.empty_like(batch.x))

        class Recording:
            def replay(_, given):
                for mine, other in zip(batch_tensors(there), batch_tensors(given), strict=True):
                    mine.copy_(other)
                self.replays += 1
                self.work(there)

        return Recording()

    def repair(self):
        pytest.fail("there is nothing to repair")


def updated(task, count, folder, replays):
    def replay(trainer):
        trainer.updater.replay = Replay(Again(trainer.updater.update_on))

    trainer = stepped(training(), task, folder, count, replay if replays else None)
    trainer.updater.read_sums(trainer.now)
    return trainer


def test_replayed_is_eager(tmp_path):
    replayed, eager = (updated(Points(), 9, tmp_path, replays) for replays in (True, False))
    # The first update is eager, the second a rehearsal, and the fourth the warm-up of the other shape.
    assert replayed.updater.replay.capture.replays == 6
    same(replayed, eager)


def test_who_listens_hears_every_update(tmp_path):
    task, heard = Points(), []
    task.objective.net.register_forward_hook(lambda *_: heard.append(1))
    trainer = updated(task, 8, tmp_path, True)
    assert len(heard) == 8
    assert not trainer.updater.replay.graphs


@pytest.mark.parametrize(
    ("problem", "on", "said"),
    [
        (
            RuntimeError("called a synchronizing CUDA operation"),
            False,
            "updates are not replayed, because this model waits",
        ),
        (torch.OutOfMemoryError("no room"), True, None),
    ],
)
def test_a_rehearsal_that_fails_is_done_again_eagerly(tmp_path, problem, on, said):
    """The second update repeats with the same random numbers, and without the rehearsal's gradients."""
    trainer = updated(Points({2: problem}), 8, tmp_path, True)
    assert trainer.updater.replay.on is on
    assert [said in line for line in trainer.progress.lines] == ([True] if said else [])
    same(trainer, updated(Points(), 8, tmp_path, False))


def test_another_error_of_a_rehearsal_is_raised(tmp_path):
    with pytest.raises(RuntimeError, match="shapes"):
        updated(Points({2: RuntimeError("shapes cannot be multiplied")}), 2, tmp_path, True)


def test_no_graph_is_held_where_memory_ran_out(tmp_path):
    trainer = updated(Points(), 6, tmp_path, True)
    assert trainer.updater.replay.graphs
    trainer.updater.redo(2)
    assert not trainer.updater.replay.graphs
    assert trainer.progress.lines == ["step 7: out of memory, the batch is redone in 2 parts"]
    with trainer.shares() as shares:
        trainer.update(shares)
    assert not trainer.updater.replay.graphs


@pytest.mark.parametrize(
    ("device", "world", "accumulate", "objective", "problem"),
    [
        (CUDA, 1, 1, Error({}), None),
        (CPU, 1, 1, Error({}), "updates on a CPU or an Apple GPU"),
        (torch.device("mps"), 1, 1, Error({}), "updates on a CPU or an Apple GPU"),
        (CUDA, 2, 1, Error({}), "updates of 2 processes"),
        (CUDA, 1, 2, Error({}), "updates with training.accumulate = 2"),
        (CUDA, 1, 1, nn.Linear(1, 1), "the updates of an objective that does not set `replays`"),
    ],
)
def test_what_is_replayed(device, world, accumulate, objective, problem):
    assert not_replayed(device, world, accumulate, objective) == problem


@pytest.mark.parametrize(("options", "packs"), [({}, True), ({"positions": "alibi"}, False)])
def test_who_takes_weights_in_half_precision(options, packs):
    table = {"kind": "transformer", "size": 64, "heads": 2, "layers": 1, "hidden": 64, **options}
    model = build("transformer", read_model_config(table), 20, 20)
    assert model.packs is packs
    assert Prediction(model).half_weights is packs


def test_the_sums_that_a_replay_adds_to_are_read(tmp_path):
    """A replay runs no Python that could note the change of the sums."""
    trainer = updated(Points(), 6, tmp_path, True)
    updater, before = trainer.updater, trainer.now.sums["loss"]
    updater.device_sums = {"loss": torch.zeros((), dtype=torch.float64)}

    class Graph:
        def replay(self, batch):
            updater.device_sums["loss"] += 3.0

    updater.replay.graphs = {shape: Graph() for shape in updater.replay.graphs}
    for expected in (before + 3.0, before + 6.0):
        with trainer.shares() as shares:
            trainer.update(shares)
        trainer.updater.read_sums(trainer.now)
        trainer.updater.read_sums(trainer.now)  # a second reading adds nothing
        assert trainer.now.sums["loss"] == expected


class Cramped(Fit):
    """An objective that runs out of memory beyond so many rows, in the forward or in the backward pass."""

    def __init__(self, room, where):
        super().__init__(torch.float64)
        self.room, self.where, self.seen = room, where, []

    def forward(self, batch):
        rows = len(batch[0])
        self.seen.append(rows)
        if self.where == "forward" and rows > self.room and self.training:
            raise torch.OutOfMemoryError("no room")
        x = batch[0]
        if self.where == "backward" and rows > self.room and self.training:
            x = Tight.apply(x.clone().requires_grad_())
        if self.where == "host" and rows > self.room and self.training:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            )
        return super().forward((x, batch[1]))


class Tight(torch.autograd.Function):
    """A function that fails in the backward pass, when all later parameters have their gradients."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("no room")


@pytest.mark.parametrize("where", ["forward", "backward", "host"])
@pytest.mark.parametrize(("rows", "room", "accumulate"), [(8, 4, 1), (7, 2, 1), (3, 1, 1), (8, 1, 2), (5, 3, 3)])
def test_out_of_memory_changes_nothing(tmp_path, where, rows, room, accumulate):
    cramped, plain = Line(rows, dtype=torch.float64), Line(rows, dtype=torch.float64)
    torch.manual_seed(3)
    cramped.objective = Cramped(room, where)
    said = Said()
    settings = training(accumulate=accumulate, steps=6)
    train(cramped, settings, tmp_path / "a", progress=said)
    train(plain, settings, tmp_path / "b")
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(cramped)[name], tensor, rtol=0, atol=1e-12)
    assert len([line for line in said.lines if "out of memory" in line]) >= 6
    for one, other in zip(records(tmp_path / "a"), records(tmp_path / "b"), strict=True):
        assert one.keys() == other.keys()
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-12)


def test_a_batch_that_cannot_be_cut_does_not_stop_the_others(tmp_path):
    """An update of one row and eight rows: only the eight exceed the memory."""

    class Odd(Line):
        def epoch(self, number):
            for x, y in super().epoch(number):
                yield x, y
                yield x[:1], y[:1]

    task, plain = Odd(dtype=torch.float64), Odd(dtype=torch.float64)
    torch.manual_seed(3)
    task.objective = Cramped(2, "forward")
    stepped(training(accumulate=2), task, tmp_path / "a", 3)
    stepped(training(accumulate=2), plain, tmp_path / "b", 3)
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(task)[name], tensor, rtol=0, atol=1e-12)
    task.objective.room = 0
    with pytest.raises(TrainingError, match="one row, and no room"):
        stepped(training(), task, tmp_path / "c", 1)


@pytest.mark.parametrize(
    ("halves", "said"),
    [
        (lambda batch: Task().halves(batch), "cannot be split"),
        (lambda batch: [batch], "cannot make its batches smaller"),
    ],
)
def test_no_room_at_all_is_one_sentence(tmp_path, halves, said):
    task = Line(dtype=torch.float64)
    task.objective = Cramped(0, "forward")
    task.halves = halves
    with pytest.raises(TrainingError, match=said):
        train(task, training(), tmp_path)


def test_another_error_is_not_taken_for_memory(tmp_path):
    class Wrong(Fit):
        def forward(self, batch):
            raise RuntimeError("shapes cannot be multiplied")

    task = Line()
    task.objective = Wrong()
    with pytest.raises(RuntimeError, match="shapes"):
        train(task, training(), tmp_path)


# ---- the path in one line of the log


def objective(**options):
    table = {"kind": "transformer", "size": 64, "heads": 4, "layers": 1, "hidden": 64, **options}
    return Prediction(build("transformer", read_model_config(table), 20, 20))


@pytest.mark.parametrize(
    ("options", "form", "given", "words"),
    [
        ({}, "packed", {"replayed": True}, "packed, fused, replayed"),
        (
            {"positions": "rotary"},
            "packed",
            {"replayed": True},
            "packed, block by block, because of rotary positions (model.positions), replayed",
        ),
        (
            {},
            "padded",
            {"world": 2},
            "padded, eager (updates of 2 processes are not replayed)",
        ),
        ({}, "packed", {}, "packed, fused, eager (training.replay is false)"),
        ({}, None, {"replayed": True, "compiled": True}, "padded, replayed, compiled"),
        ({}, None, {"device": CPU}, "padded, eager"),
        (
            {"positions": "rotary", "norm": "none"},
            "packed",
            {"device": CPU},
            "packed, block by block, because of rotary positions (model.positions) and no layer norms (model.norm), "
            "eager",
        ),
    ],
)
def test_the_path_names_the_option_that_costs_a_faster_one(options, form, given, words):
    how = {"device": CUDA, "replayed": False, "compiled": False, **given}
    obstacle = not_replayed(how["device"], how.pop("world", 1), 1, objective())
    assert describe_path(form, objective(**options), obstacle=obstacle, **how) == words


# ---- the same update in smaller parts


@pytest.mark.parametrize("fits", [1, 2, 4, 16])
def test_parts_double_until_they_fit(fits):
    tried, told = [], []

    def attempt(parts):
        tried.append(parts)
        if parts < fits:
            raise torch.OutOfMemoryError("no room")
        return parts

    assert attempt_in_parts(attempt, told.append) == fits
    assert tried == [1, *told]
    assert told == [2**i for i in range(1, fits.bit_length())]


def test_another_error_goes_through():
    def attempt(parts):
        raise RuntimeError("shapes")

    with pytest.raises(RuntimeError, match="shapes"):
        attempt_in_parts(attempt, lambda parts: pytest.fail("again"))


def test_what_did_not_fit_is_let_go_before_the_next_try():
    """The traceback of the failure must not keep its tensors alive."""
    import gc
    import weakref

    held = []

    def attempt(parts):
        if parts == 1:
            large = torch.zeros(10)
            held.append(weakref.ref(large))
            raise torch.OutOfMemoryError("no room")
        gc.collect()
        return held[0]() is None

    assert attempt_in_parts(attempt, lambda parts: None)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("x"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_which_errors_are_memory(error, is_memory):
    assert is_out_of_memory(error) is is_memory
