"""Small sizes, models and batches for the decoding benchmark."""

import pytest
import torch
from bench.cases import ROWS, TINY

from regard_bench import decoding


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    monkeypatch.setattr(decoding, "REST", 0)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return decoding.transformer(TINY).eval()


@pytest.fixture
def batch():
    return decoding.make_batches(3, ROWS, TINY.vocabulary, seed=2)[0]
