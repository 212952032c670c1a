"""Look: it reports the weights that the forward used."""

import oracles
import pytest
import torch
from attention.cases import (
    SCORES,
    SPANS,
    WEIGHTINGS,
    attention_of,
    draw_inputs,
    leading,
    normal,
    number,
    pairs,
    scrambled,
)
from oracles import agree

from regard.attention import Attention, Heads, Learned, watch
from regard.attention.grid import GridSelfAttention
from regard.attention.score import Additive, Dot, General
from regard.attention.span import Causal, Lengths, Packed, Predictive
from regard.attention.weighting import Gumbel, Hard, Plain, Softmax, Sparsemax
from regard.errors import WatchError


@pytest.mark.parametrize(("score_name", "span_name"), pairs(SCORES, SPANS))
def test_look_equals_the_forward_in_evaluation(score_name, span_name):
    lead, n, m = leading(1), number(1, 5), number(1, 7)
    score = SCORES[score_name](m)
    span, inputs = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    leaves = [*inputs, *score.score.parameters(), *span.parameters]
    for build in [*(build for build, _ in WEIGHTINGS.values()), Hard, Gumbel]:
        attention = attention_of(score, weighting=build())
        look = attention.look(*inputs, span=span.span)
        agree(look.context, attention(*inputs, span=span.span), leaves)
        agree(look.context, look.weights @ inputs.values)


@pytest.mark.parametrize("span_name", SPANS)
@pytest.mark.parametrize("weighting_name", WEIGHTINGS)
def test_look_weights_equal_the_loop(span_name, weighting_name):
    lead, n, m = leading(2), number(1, 4), number(1, 6)
    score, (build, weighting) = SCORES["scaled"](m), WEIGHTINGS[weighting_name]
    span, inputs = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    expected = oracles.over_rows(*inputs, score.oracle, span=span.oracle, weighting=weighting).weights
    look = attention_of(score, weighting=build()).look(*inputs, span=span.span)
    agree(look.weights, expected, [inputs.query, inputs.keys, *span.parameters])


@pytest.mark.parametrize("name", SCORES)
def test_look_scores_are_the_scores(name):
    score = SCORES[name](6)
    query, keys, values = draw_inputs(score, leading(), 3, 6)
    look = attention_of(score).look(query, keys, values)
    agree(look.scores, score.score(query, score.score.project_keys(keys)), [query, keys])


def test_look_entropy_is_that_of_the_weights():
    query, keys = normal(2, 3, 5), normal(2, 6, 5)
    chances = (query @ keys.mT).softmax(-1)
    expected = torch.stack(
        [torch.stack([-oracles.sum_of(a * a.log() for a in line) for line in row]) for row in chances]
    )
    agree(Attention(Dot()).look(query, keys).entropy, expected, [query, keys])


def test_look_entropy_of_a_hard_choice_is_that_of_what_it_was_drawn_from():
    """Xu et al.'s entropy term needs the entropy of the distribution, not the sample's zero."""
    query, keys = normal(2, 3, 5), normal(2, 6, 5)
    soft = Attention(Dot()).look(query, keys).entropy
    agree(Attention(Dot(), weighting=Hard()).train().look(query, keys).entropy, soft, [query, keys])


def test_look_entropy_with_zero_weights_is_finite():
    query, keys = normal(2, 3, 5), normal(2, 6, 5)
    look = Attention(Dot()).look(query, keys, span=Lengths([0, 1]))
    agree(look.entropy, torch.zeros(2, 3, dtype=torch.float64))
    gradients = oracles.gradients(look.entropy, [query, keys], torch.ones_like(look.entropy))
    assert all(torch.isfinite(one).all() for one in gradients)


def test_look_centre_is_the_predicted_place():
    span, query, keys, lengths = scrambled(Predictive(5, 2)), normal(2, 3, 5), normal(2, 7, 5), [4, 7]
    look = Attention(Dot(), span=span).look(query, keys, span=Lengths(lengths))
    expected = torch.stack(
        [
            torch.stack([oracles.centre_p(q, span.hidden.weight, span.v, length) for q in row])
            for row, length in zip(query, lengths, strict=True)
        ]
    )
    agree(look.centre, expected, [query, *span.parameters()])


def test_what_has_no_meaning_is_none():
    look = Attention(Dot()).look(normal(3, 5), normal(6, 5))
    assert look.picked is None
    assert look.log_prob is None
    assert look.centre is None


@pytest.mark.parametrize("build", [Hard, Gumbel])
def test_one_look_is_one_draw(build):
    """Weights, picked and context come from the same draw."""
    query, keys, values = normal(500, 1, 3), normal(500, 7, 3), normal(500, 7, 4)
    look = Attention(Dot(), weighting=build()).train().look(query, keys, values)
    agree(look.context, look.weights @ values)
    assert torch.equal(look.picked, look.weights.argmax(-1))
    assert len(set(look.picked.flatten().tolist())) > 1


def test_look_is_differentiable():
    query, keys, values = normal(3, 5), normal(6, 3), normal(6, 4)
    attention = scrambled(Attention(Additive(5, 3, hidden=7)))
    look = attention.look(query, keys, values)
    for part in (look.context, look.scores, look.weights, look.entropy):
        (gradient,) = torch.autograd.grad(part.pow(2).sum(), query, retain_graph=True)
        assert gradient.abs().sum() > 0


EXPLAINED = {
    "soft": lambda: Attention(General(5, 5)),
    "hard": lambda: Attention(General(5, 5), weighting=Hard()),
    "local-p": lambda: Attention(General(5, 5), span=Predictive(5, 2)),
    "causal": lambda: Attention(Dot(), span=Causal()),
    "temperature": lambda: Attention(Dot(), weighting=Softmax(0.5)),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_explain_names_every_stage_with_its_shape(name):
    look = EXPLAINED[name]().look(torch.randn(2, 3, 5), torch.randn(2, 7, 5), torch.randn(2, 7, 4))
    text = look.explain()
    for symbol in "qkeac":
        assert any(symbol in line.split() for line in text.splitlines()), f"{symbol} is missing from:\n{text}"
    for sizes in [(2, 3, 5), (2, 7, 5), (2, 3, 7), (2, 3, 4)]:
        assert any(all(str(size) in line for size in sizes) for line in text.splitlines()), f"{sizes} missing:\n{text}"


def test_explain_of_heads_and_of_a_learned_query():
    assert "2" in Heads(6, heads=2).look(torch.randn(3, 6), torch.randn(5, 6)).explain()
    assert Attention(Dot(), query=Learned(2, 5)).look(None, torch.randn(7, 5)).explain()


@pytest.mark.parametrize("weighting", [Softmax, Hard])
def test_look_of_heads_has_a_head_axis(weighting):
    heads = Heads(6, heads=3, weighting=weighting()).eval()
    look = heads.look(torch.randn(2, 4, 6), torch.randn(2, 5, 6))
    assert look.weights.shape == (2, 3, 4, 5)
    assert look.scores.shape == (2, 3, 4, 5)
    assert look.entropy.shape == (2, 3, 4)
    assert look.context.shape == (2, 4, 6)


@pytest.mark.parametrize("build", [Softmax, Sparsemax, Plain, Hard])
def test_look_of_packed_sequences_is_one_matrix_with_nothing_between_them(build):
    x, span = normal(7, 6), Packed([0, 3, 7]) & Causal()
    for module, lead in ((Attention(Dot(), weighting=build()), ()), (Heads(6, heads=2, weighting=build()), (2,))):
        module = module.double().eval()
        look = module.look(x, x, span=span)
        assert look.weights.shape == (*lead, 7, 7)
        assert not look.weights[..., 3:, :3].any()
        assert not look.weights[..., :3, 3:].any()
        agree(look.context, module(x, x, span=span), [x])


def test_maps_are_not_joined_along_their_places():
    layer, x = GridSelfAttention(8), torch.randn(2, 8, 3, 4)
    with watch(layer) as looks:
        layer(layer(x))
    with pytest.raises(WatchError, match="2 calls.*cannot be joined"):
        looks[""]


def test_the_shapes_of_joined_looks_are_joined():
    attention, x = Attention(Dot()), torch.randn(2, 5, 4)
    with watch(attention) as looks:
        for i in range(3):
            attention(x[:, i : i + 1], x)
    assert "q  [2, 3, 4]" in looks[""].explain()
