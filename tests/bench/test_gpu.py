"""Benchmarks of a GPU where there is none."""

import pytest
import torch

from regard.errors import RegardError
from regard_bench import attention, decoding, training


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("run", [attention.run, decoding.run, training.run])
def test_no_gpu_is_said(run):
    with pytest.raises(RegardError, match="torch finds no CUDA device"):
        next(iter(run(3, device="cuda")))
