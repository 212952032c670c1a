"""RNNsearch on a GPU: trained by the fused recurrence it has the loop's loss and gradients, eager and replayed."""

import pytest
import torch

from regard.models import RNNSearchConfig, Tokens
from regard.models.rnnsearch import RNNSearchModel

pytestmark = pytest.mark.gpu


def drawn(cell):
    torch.manual_seed(0)
    config = RNNSearchConfig(cell=cell, size=64, embedding=64, hidden=64, maxout=64, layers=2, dropout=0.0)
    model = RNNSearchModel(config, 50, 50).cuda()
    source = Tokens.of(torch.randint(50, (9, 13)).cuda(), torch.randint(1, 14, (9,)).cuda())
    target = Tokens.of(torch.randint(50, (9, 11)).cuda(), torch.randint(1, 12, (9,)).cuda())
    return model, source, target


def loss(model, source, target, half):
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        hidden, extra = model.decode(model.encode(source), target)
    return (hidden.float() * target.real[..., None]).square().sum(), extra


def gradients(model, total):
    return torch.autograd.grad(total, [p for n, p in model.named_parameters() if not n.startswith("readout")])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("half", "tolerance"), [(False, 1e-3), (True, 0.15)])
@pytest.mark.usefixtures("without_tf32")
def test_it_is_the_loop(cell, half, tolerance):
    model, source, target = drawn(cell)
    found, extra = loss(model, source, target, half)
    assert extra["weights"].shape == (9, 11, 13)
    assert model.gives_weights
    hook = model.attention.register_forward_hook(lambda *_: None)
    wanted, extra = loss(model, source, target, False)
    hook.remove()
    assert not extra
    torch.testing.assert_close(found, wanted, rtol=tolerance / 5, atol=0)
    for one, other in zip(gradients(model, found), gradients(model, wanted), strict=True):
        assert (one - other).norm() <= tolerance * other.norm().clamp(min=1e-6)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_replayed_step_is_the_eager_one(cell):
    model, source, target = drawn(cell)

    def step():
        total, _ = loss(model, source, target, True)
        return total.detach(), gradients(model, total)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total, found = step()
    source.ids.copy_(torch.randint(50, source.ids.shape))
    source.lengths.copy_(torch.randint(1, 14, (9,)))
    graph.replay()
    wanted, expected = step()
    torch.testing.assert_close(total, wanted, rtol=1e-6, atol=0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
