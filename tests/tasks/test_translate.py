"""Translation as a task."""

import pytest
import torch
from tiny import first, table

from regard.data.prepare import prepare
from regard.errors import TrainingError
from regard.tasks.settings import read_settings
from regard.tasks.task import make_task
from regard.training.task import Position


@pytest.fixture
def task(tmp_path):
    settings = read_settings(table(tmp_path))
    return make_task(settings, prepare(settings.data, settings.tokenizer), 64)


def test_counts_are_the_tokens_that_are_predicted(task):
    for position, plan in first(task.stream(Position()), 20):
        assert task.count(plan) == task.batch(plan, position).tokens


def test_the_validation_loss_is_the_mean_over_all_tokens(task):
    task.objective.eval()
    with torch.no_grad():
        found = task.validate()
        total = count = 0.0
        from regard.data.batching import load

        for i in range(len(task.prepared.valid)):
            batch = load(task.prepared.valid, [i])
            total += float(task.objective(batch).total)
            count += batch.tokens
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found.keys() == {"loss", "bleu", "chrf", "exact"}
    assert len(task.samples()) == 3
    assert all(sample.source and sample.reference for sample in task.samples())
    assert task.samples() == task.samples()


@pytest.mark.parametrize("half", [True, False])
def test_batches_of_few_shapes_hold_the_same_sentences(task, half):
    task.objective.eval()
    plans = first(task.stream(Position()), 5)
    before = [task.objective(task.batch(plan, position)) for position, plan in plans]
    task.few_shapes(half)
    assert task.form == ("packed" if half else "padded")
    for (position, plan), expected in zip(plans, before, strict=True):
        batch = task.batch(plan, position)
        found = task.objective(batch)
        assert batch.tokens == task.count(plan)
        assert float(found.parts["tokens"]) == task.count(plan)
        assert float(found.total.detach()) == pytest.approx(float(expected.total.detach()), rel=1e-4)
        assert sum(half.tokens for half in task.halves(batch)) == batch.tokens
    with pytest.raises(TrainingError, match=r"out of memory with one sentence of \d+ tokens"):
        task.halves(
            task.batch(plan[:1], position).part(0, 1) if half else task.batch(plan[:1], position).part(slice(1))
        )


def test_one_sentence_cannot_be_halved(task):
    position, plan = next(task.stream(Position()))
    batch = task.batch(plan[:1], position)
    with pytest.raises(TrainingError, match=r"out of memory with one sentence of \d+ tokens"):
        task.halves(batch)


def test_the_seed_makes_the_weights(tmp_path):
    def weight(seed):
        settings = read_settings(table(tmp_path, training__seed=seed))
        torch.rand(seed)
        made = make_task(settings, prepare(settings.data, settings.tokenizer), 64)
        return next(made.model.parameters())

    assert torch.equal(weight(1), weight(1))
    assert not torch.equal(weight(1), weight(2))
