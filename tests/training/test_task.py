"""A user's own task needs only batches: everything else has a default."""

import itertools

import pytest
import torch
from tiny import Line

from regard.data import collate
from regard.errors import TrainingError
from regard.models import build, read_model_config
from regard.training.loop import Result
from regard.training.task import Loss, Position, Prediction, Task, inputs


class Numbers(Task):
    """A task with epochs of different lengths."""

    def epoch(self, number):
        return [(number, i) for i in range(3 + number % 2)]


def take(position, count=9):
    return list(itertools.islice(Numbers().stream(position), count))


@pytest.mark.parametrize("skip", [0, 1, 3, 5, 8])
def test_a_stream_from_a_position_is_the_rest_of_the_stream(skip):
    whole = take(Position(0, 0), 20)
    position, _ = whole[skip]
    assert take(position) == whole[skip : skip + 9]
    assert all(plan == (position.epoch, position.batch) for position, plan in whole)


def test_an_empty_epoch_is_refused():
    class Empty(Task):
        def epoch(self, number):
            return []

    with pytest.raises(TrainingError, match="no batches to train on"):
        next(Empty().stream(Position(0, 0)))


def test_a_batch_of_any_shape_is_moved():
    batch = (torch.ones(2), [torch.zeros(1), "a word"], 7)
    moved = Task().move(batch, torch.device("meta"))
    assert moved[0].device.type == moved[1][0].device.type == "meta"
    assert moved[1][1:] == ["a word"]
    assert moved[2] == 7


def test_what_a_task_does_not_say_is_nothing():
    task = Task()
    assert (task.validate(), task.samples(), task.facts(), task.fingerprint()) == ({}, [], [], {})
    assert task.count([1, 2, 3]) == 3
    assert task.batch("plan", Position(0, 0)) == "plan"
    with pytest.raises(TrainingError, match="cannot be split: make them smaller"):
        task.halves([1, 2])


def test_halves_add_up_to_the_whole():
    task = Line(rows=7)
    _, plan = next(task.stream(Position(0, 0)))
    whole = task.objective(plan)
    assert isinstance(whole, Loss)
    torch.testing.assert_close(sum(task.objective(half).total for half in task.halves(plan)), whole.total)


def test_a_task_that_defines_older_names_is_asked_by_the_new_ones():
    with pytest.warns(DeprecationWarning, match="is now called") as warned:

        class Older(Line):
            ahead = True

            def few_shapes(self, half):
                super().few_shapes(half)
                self.half = half

    assert [str(each.message) for each in warned] == [
        "Older.few_shapes is now called limit_shapes: rename it",
        "Older.ahead is now called can_prefetch: rename it",
    ]
    task = type("Younger", (Older,), {})()
    task.limit_shapes(True)
    assert task.half is task.can_prefetch is task.ahead is True


def test_a_result_tells_why_it_stopped_by_its_older_name():
    with pytest.warns(DeprecationWarning, match="stop_reason"):
        assert Result(1, None, 0, "patience", 0.0).why == "patience"


# ---- the loss of the next token, against the written-out formula

SMALL = {"kind": "transformer", "size": 8, "heads": 2, "layers": 1, "hidden": 8, "dropout": 0.0}


def made(pairs):
    model = build("transformer", read_model_config(SMALL), 11, 11).double()
    return model, collate(pairs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_sum_over_real_tokens(smoothing):
    model, batch = made([([4, 5], [6, 7, 8]), ([9], [10]), ([4, 4, 4], [5, 5])])
    loss = Prediction(model, smoothing).train()(batch)
    logits = model(*inputs(batch)).log_softmax(-1)
    total = nll = 0.0
    for row, length in enumerate(batch.target_lengths.tolist()):
        for i in range(length):
            right = logits[row, i, batch.target[row, i + 1]]
            nll -= right
            total -= (1 - smoothing) * right + smoothing * logits[row, i].mean()
    torch.testing.assert_close(loss.total, total, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(loss.parts["nll"], nll, rtol=1e-10, atol=1e-10)
    # Evaluation has no smoothing.
    measured = Prediction(model, smoothing).eval()(batch)
    torch.testing.assert_close(measured.total, nll, rtol=1e-10, atol=1e-10)


def test_a_batch_is_its_halves():
    _, batch = made([([4, 5], [6, 7, 8]), ([9], [10]), ([4, 4, 4], [5, 5])])
    model, _ = made([([4], [4])])
    objective = Prediction(model, 0.1).train()
    parts = sum(objective(half).total for half in batch.halves())
    torch.testing.assert_close(objective(batch).total, parts, rtol=1e-10, atol=1e-10)
