"""Who drops: the mask drawn here on a CPU, torch's own dropout elsewhere and for a compiler."""

import pytest
import torch

from regard.kernels.operations.dropout import (
    CPU,
    describe,
    dropout,
    dropout_add,
    gelu_dropout,
    relu_dropout,
    silu_dropout,
)
from regard.kernels.table import COMPILING, Request

FORMS = [
    lambda x: dropout(x, 0.5),
    lambda x: dropout_add(x, x, 0.5),
    lambda x: relu_dropout(x, 0.5),
    lambda x: gelu_dropout(x + 1, 0.5),
    lambda x: silu_dropout(x + 1, 0.5),
]


def test_who_serves():
    request = Request("cpu", (torch.float32,))
    assert describe(torch.zeros(3)) == request
    assert CPU.serves(request)
    assert CPU.refusal(request._replace(device="cuda")) == "it runs on cpu, not on cuda"
    assert CPU.refusal(request._replace(features=("something new",))) == "it does not serve something new"


@pytest.mark.parametrize("form", FORMS)
def test_a_compiler_gets_torchs_own(form, monkeypatch):
    """Which it sees through: the same draw as torch's from the same seed."""
    x = torch.ones(1000)
    torch.manual_seed(1)
    mask = torch.nn.functional.dropout(x, 0.5) > 0
    torch.manual_seed(1)
    assert not torch.equal(form(x) == form(torch.zeros(1000)), ~mask)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert describe(x).features == (COMPILING,)
    torch.manual_seed(1)
    found = form(x)
    assert torch.equal(found > 1.5, mask)
