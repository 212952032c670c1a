"""What stands in the place of self-attention, on a GPU: fused in half precision, and as exact as torch's operations."""

import pytest
import torch
from models.cases import SOURCES, TARGETS, sentences
from rounding import DRAWS, check_as_exact

from regard.attention import fused_stack
from regard.models.config import TransformerConfig
from regard.models.kinds import build

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("mixing", ["window", "convolution", "recurrence"])
def test_it_is_as_exact_as_torchs_operations(mixing, norm, monkeypatch):
    ran, draws = [], []
    monkeypatch.setattr(fused_stack, "run", lambda *given, run=fused_stack.run: ran.append(1) or run(*given))
    reach = {} if mixing == "recurrence" else {"reach": 3}
    config = TransformerConfig(size=64, heads=2, layers=2, hidden=96, dropout=0.0, norm=norm, mixing=mixing, **reach)
    for number in range(DRAWS):
        model = build("transformer", config, SOURCES, TARGETS).cuda()
        source = sentences(SOURCES, [5, 40, 1, 17, 33])
        exact = model.encode(source.to("cuda")).states[source.real.cuda()]
        along, parameters = torch.randn_like(exact), list(model.encoder.parameters())

        def with_gradients(states, along=along, parameters=parameters):
            return [states, *torch.autograd.grad(states, parameters, along.to(states.dtype))]

        with torch.autocast("cuda", torch.bfloat16):
            found = model.encode(source.pack().to("cuda")).states
        assert len(ran) == number + 1
        with torch.autocast("cuda", torch.bfloat16), monkeypatch.context() as plainly:
            plainly.setattr(fused_stack, "serves", lambda *given: False)
            plain = model.encode(source.pack().to("cuda")).states
        assert len(ran) == number + 1
        draws.append(tuple(map(with_gradients, (found, plain, exact))))
    check_as_exact(draws)
