"""What recurrent models share: maxout, rows side by side, first parameters, and when other code may stand in."""

import pytest
import torch
from models.cases import model_of, pair
from torch import nn

from regard.attention import Additive, Attention, Causal, Cosine, Dot, General, Hard, Softmax, Sparsemax, use_backend
from regard.models.layers.recurrent import (
    attend_rows,
    can_bypass,
    is_standard,
    make_linear,
    make_readout,
    maxout,
    repeat_rows,
    to_autocast_dtype,
)


def test_maxout_takes_the_larger_of_each_pair():
    assert maxout(torch.tensor([1.0, 5.0, 3.0, 2.0])).tolist() == [3.0, 5.0]


@pytest.mark.parametrize("rows", [1, 3])
def test_repeated_rows_are_a_tensor_of_their_own(rows):
    x = torch.randn(2, 3, requires_grad=True)
    copy = repeat_rows(x, rows)
    assert torch.equal(copy.view(2, rows, 3), x[:, None].expand(-1, rows, -1))
    assert not copy.requires_grad
    copy.zero_()
    assert x.detach().all()


def test_first_parameters():
    torch.manual_seed(0)
    layer, out = make_linear(30, 50), make_readout(400, 500, scale=3.0)
    bound = (6 / 80) ** 0.5
    assert layer.weight.abs().max() <= bound
    assert layer.weight.abs().max() > 0.95 * bound
    assert out.weight.std().item() == pytest.approx(3 / 20, rel=0.02)
    assert not layer.bias.any()
    assert not out.bias.any()
    assert make_linear(3, 4, bias=False).bias is None


def test_nothing_is_cast_without_autocast_on_a_gpu():
    x = torch.randn(3)
    assert to_autocast_dtype(x) is x
    with torch.autocast("cpu", torch.bfloat16):
        assert to_autocast_dtype(x) is x


def test_hooks_and_forced_backends_are_not_bypassed():
    attention, layer = Attention(Additive(3, 3, 4)), nn.Linear(2, 2)
    parts = nn.ModuleList([attention, layer])
    assert can_bypass(attention, layer)
    for register in (
        layer.register_forward_hook,
        layer.register_forward_pre_hook,
        attention.score.query.register_full_backward_hook,
    ):
        hook = register(lambda *_: None)
        assert not can_bypass(parts)
        hook.remove()
        assert can_bypass(parts)
    with use_backend("dense"):
        assert not can_bypass(parts)


@pytest.mark.parametrize(
    ("attention", "standard"),
    [
        (Attention(Additive(3, 3, 4)), True),
        (Attention(Dot()), True),
        (Attention(Dot(), weighting=Hard()), False),
        (Attention(Dot(scaled=True)), False),
        (Attention(Dot(), weighting=Softmax(temperature=2.0)), False),
        (Attention(Dot(), weighting=Sparsemax()), False),
        (Attention(Cosine(1.0)), False),
        (Attention(Dot(), span=Causal()), False),
        (Attention(Dot(), dropout=0.1), False),
        (type("Own", (Attention,), {})(Dot()), False),
        (Attention(type("Mine", (Dot,), {})()), False),
    ],
)
def test_attentions_with_other_parts_are_called_themselves(attention, standard):
    assert is_standard(attention, (Additive, Dot, General)) == standard
    assert can_bypass(attention) == standard


def test_code_that_knows_one_score_and_one_weighting_serves_no_other():
    assert can_bypass(Attention(Dot(), weighting=Hard()), weightings=(Hard,))
    assert not can_bypass(Attention(Dot()), weightings=(Hard,))
    assert not can_bypass(Attention(Dot()), scores=(Additive,))
    assert not can_bypass(Attention(Additive(3, 3, 4)), scores=(Dot, General))


@torch.no_grad()
def test_rows_of_a_sentence_attend_in_one_call_and_cover():
    model, (source, _) = model_of("rnnsearch"), pair()
    state = model.start(model.encode(source), rows=2, size=4, coverage=True)
    query, keys = torch.randn(6, 5, dtype=torch.float64), state.sentence["memory"]
    context = attend_rows(model.attention, query, state)
    for row in range(6):
        look = model.attention.look(query[row, None, None].expand(3, 1, -1), keys)
        torch.testing.assert_close(context[row], look.context[row // 2, 0])
        torch.testing.assert_close(state.coverage[row], look.weights[row // 2, 0])
