"""Translation as a task."""

import pytest
import torch
from tiny import table

from regard.data import prepare
from regard.tasks.settings import read_settings
from regard.tasks.task import make_task


@pytest.fixture
def task(tmp_path):
    settings = read_settings(table(tmp_path))
    return make_task(settings, prepare(settings.data, settings.tokenizer), 64)


def test_the_validation_loss_is_the_mean_over_all_tokens(task):
    task.objective.eval()
    with torch.no_grad():
        found = task.validate()
        total = count = 0.0
        from regard.data import batching

        for i in range(len(task.prepared.valid)):
            batch = batching.load(task.prepared.valid, [i])
            total += float(task.objective(batch).total)
            count += batch.tokens
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found.keys() == {"loss", "bleu", "chrf", "exact"}
    assert len(task.samples()) == 3
    assert all(sample.source and sample.reference for sample in task.samples())
    assert task.samples() == task.samples()
