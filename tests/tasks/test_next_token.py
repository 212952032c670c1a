"""Tasks of pairs of texts: batches by a token budget, padded or packed, and their halves."""

import pytest
import torch
from tiny import first, table

from regard.data import Position, prepare
from regard.errors import TrainingError
from regard.tasks.settings import read_settings


@pytest.fixture
def task(tmp_path):
    settings = read_settings(table(tmp_path))
    return settings.row.load()(settings, prepare(settings.data, settings.tokenizer), 64)


def test_counts_are_the_tokens_that_are_predicted(task):
    for position, plan in first(task.stream(Position()), 20):
        assert task.count(plan) == task.batch(plan, position).tokens


@pytest.mark.parametrize("half", [True, False])
def test_batches_of_limit_shapes_hold_the_same_sentences(task, half):
    task.objective.eval()
    plans = first(task.stream(Position()), 5)
    before = [task.objective(task.batch(plan, position)) for position, plan in plans]
    task.limit_shapes(half)
    assert task.form == ("packed" if half else "padded")
    for (position, plan), expected in zip(plans, before, strict=True):
        batch = task.batch(plan, position)
        found = task.objective(batch)
        assert batch.tokens == task.count(plan)
        assert float(found.parts["tokens"]) == task.count(plan)
        assert float(found.total.detach()) == pytest.approx(float(expected.total.detach()), rel=1e-4)
        assert sum(half.tokens for half in task.halves(batch)) == batch.tokens
    with pytest.raises(TrainingError, match=r"out of memory with one sentence of \d+ tokens"):
        task.halves(task.batch(plan[:1], position).part(0, 1))


def test_one_sentence_cannot_be_halved(task):
    position, plan = next(task.stream(Position()))
    batch = task.batch(plan[:1], position)
    with pytest.raises(TrainingError, match=r"out of memory with one sentence of \d+ tokens"):
        task.halves(batch)


def test_the_seed_makes_the_weights(tmp_path):
    def weight(seed):
        settings = read_settings(table(tmp_path, training__seed=seed))
        torch.rand(seed)
        made = settings.row.load()(settings, prepare(settings.data, settings.tokenizer), 64)
        return next(made.model.parameters())

    assert torch.equal(weight(1), weight(1))
    assert not torch.equal(weight(1), weight(2))
