"""RNNsearch's recurrence on a GPU: equal to the plain loop, with every gradient."""

import interpreted  # noqa: F401
import pytest
import torch
from kernels.cases import draw_recurrence, recur_plainly

pytest.importorskip("triton")
from regard.kernels import reference
from regard.kernels.triton import rnnsearch as triton
from regard.models import RNNSearchConfig, Tokens
from regard.models.rnnsearch import RNNSearchModel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLOSE = {"rtol": 5e-3, "atol": 5e-3} if torch.cuda.is_available() else {"rtol": 2e-4, "atol": 2e-5}


def draw(gates, *sizes):
    inputs, lengths = draw_recurrence(gates, *sizes)
    if gates == 4:
        inputs[-1].data.zero_()  # an LSTM's bias is in the words' projection
    return inputs, lengths


def fused(inputs, lengths):
    projected, *others = inputs
    return triton.recur(projected.transpose(0, 1), *others[:3], lengths, *others[3:])


@pytest.mark.parametrize("gates", [3, 4])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (3, 4, 7, 5, 3, 6), (2, 2, 33, 17, 65, 34)])
def test_equals_the_plain_loop(gates, sizes):
    inputs, lengths = draw(gates, *sizes)
    wanted = recur_plainly(reference.recur, inputs, lengths)
    cotangents = [torch.randn_like(x) for x in wanted]
    single = [x.detach().float().to(DEVICE).requires_grad_() for x in inputs]
    found = fused(single, lengths.to(DEVICE))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, **CLOSE)
    last = len(inputs) - (gates == 4)
    for some in ([0, 1, 2], [0], [1], [2]):  # of the three results
        exact = torch.autograd.grad(
            [wanted[i] for i in some],
            inputs[:last],
            [cotangents[i] for i in some],
            retain_graph=True,
            materialize_grads=True,
        )
        got = torch.autograd.grad(
            [found[i] for i in some],
            single[:last],
            [cotangents[i].float().to(DEVICE) for i in some],
            retain_graph=True,
        )
        for one, other in zip(got, exact, strict=True):
            torch.testing.assert_close(one.double().cpu(), other, **CLOSE)


def test_what_is_beyond_a_length_is_never_read():
    inputs, lengths = draw(4, 3, 2, 5, 4, 6, 8)
    single = [x.detach().float().to(DEVICE).requires_grad_() for x in inputs]
    wanted = fused(single, lengths.to(DEVICE))[1]
    behind = (torch.arange(5) >= lengths[:, None]).to(DEVICE)[..., None]
    poisoned = [x.masked_fill(behind, torch.nan) if i in (2, 3) else x for i, x in enumerate(single)]
    assert torch.equal(fused(poisoned, lengths.to(DEVICE))[1], wanted)


def test_the_matrix_of_a_gru_keeps_state_and_context_apart():
    recurrent, read = torch.randn(6, 2), torch.randn(6, 3)
    both = triton.join_matrices(recurrent, read)
    s, c = torch.randn(2), torch.randn(3)
    r, z, inner, proposed = (both @ torch.cat([s, c])).split(2)
    torch.testing.assert_close(torch.cat([r, z]), (recurrent @ s + read @ c)[:4])
    torch.testing.assert_close(inner, (recurrent @ s)[4:])
    torch.testing.assert_close(proposed, (read @ c)[4:])


# ---- a model trained by it has the loop's loss and gradients, eager and replayed


def build(cell):
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


@pytest.mark.gpu
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("half", "tolerance"), [(False, 1e-3), (True, 0.15)])
@pytest.mark.usefixtures("without_tf32")
def test_it_is_the_loop(cell, half, tolerance):
    model, source, target = build(cell)
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


@pytest.mark.gpu
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_replayed_step_is_the_eager_one(cell):
    model, source, target = build(cell)

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
