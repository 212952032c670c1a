"""A few queries by two products: the reference, whatever the span says."""

import pytest
import torch
from kernels.dot.test_sdpa import LIMITS, make

from regard.kernels import reference
from regard.kernels.dot import sdpa


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
def test_it_is_the_reference(limits):
    call = make(**limits)
    torch.testing.assert_close(sdpa.attend_few_queries(call), reference.attend(call), rtol=1e-6, atol=1e-6)
