"""The next token's loss, against the formula with everything written out."""

import pytest
import torch

from regard.data import collate
from regard.models import build, read_model_config
from regard.training.objective import Prediction, inputs

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
    # Without smoothing where it is measured.
    measured = Prediction(model, smoothing).eval()(batch)
    torch.testing.assert_close(measured.total, nll, rtol=1e-10, atol=1e-10)


def test_a_batch_is_its_halves():
    _, batch = made([([4, 5], [6, 7, 8]), ([9], [10]), ([4, 4, 4], [5, 5])])
    model, _ = made([([4], [4])])
    objective = Prediction(model, 0.1).train()
    parts = sum(objective(half).total for half in batch.halves())
    torch.testing.assert_close(objective(batch).total, parts, rtol=1e-10, atol=1e-10)
