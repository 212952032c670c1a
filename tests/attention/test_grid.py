"""Attention over grids: Zhang's layer against the loop, and any attention over a feature grid."""

import copy
import pickle

import oracles
import pytest
import torch
from attention.cases import leading, normal, number, scrambled
from oracles import agree

from regard.attention import Attention
from regard.attention.grid import GridAttention, GridSelfAttention
from regard.attention.score import Additive, Dot
from regard.attention.weighting import Hard


def pointwise(convolution):
    """Return a 1×1 convolution as a projection of one position's vector."""
    assert tuple(convolution.kernel_size) == (1, 1)
    return oracles.linear(convolution.weight[:, :, 0, 0], convolution.bias)


def by_loop(layer, x):
    """Apply the oracle: Zhang's f maps the keys, g the queries, h the values, and v follows the sum."""
    lead = x.shape[:-3]
    parts = [pointwise(part) for part in (layer.key, layer.query, layer.value, layer.output)]
    seen = [oracles.zhang(x[row], *parts, layer.gamma) for row in oracles.rows_of(lead)]
    weights = oracles.rows_again([one.weights for one in seen], lead)
    return oracles.rows_again([one.context for one in seen], lead), weights


@pytest.mark.parametrize(("channels", "reduction"), [(8, 8), (16, 8), (6, 2)])
def test_zhangs_layer_equals_the_loop(channels, reduction):
    layer = scrambled(GridSelfAttention(channels, reduction=reduction))
    x = normal(*leading(2), channels, number(1, 3), number(1, 4))
    expected, weights = by_loop(layer, x)
    agree(layer(x), expected, [x, *layer.parameters()])
    look, grid = layer.look(x), x.shape[-2:]
    agree(look.context, expected, [x, *layer.parameters()])
    agree(look.weights, weights.unflatten(-1, grid).unflatten(-3, grid), [x])


def test_zhangs_gamma_starts_at_nought_so_that_the_layer_starts_as_the_identity():
    layer, x = GridSelfAttention(16).double(), normal(2, 16, 3, 5)
    assert layer.gamma.item() == 0
    assert torch.equal(layer(x), x)
    (gradient,) = torch.autograd.grad(layer(x).pow(2).sum(), layer.gamma)
    assert gradient != 0, "γ must be able to leave nought"


def test_zhangs_queries_and_keys_have_an_eighth_of_the_channels():
    layer = GridSelfAttention(32)
    assert layer.query.weight.shape[0] == layer.key.weight.shape[0] == 4


def test_zhangs_scores_are_not_scaled():
    layer, x = scrambled(GridSelfAttention(32)), normal(1, 32, 2, 3)
    q, k = (part(x).flatten(-2) for part in (layer.query, layer.key))
    weights = (q.mT @ k).softmax(-1)
    value = layer.value(x).flatten(-2)
    summed = (value @ weights.mT).unflatten(-1, (2, 3))
    agree(layer(x), layer.gamma * layer.output(summed) + x, [x])


def test_zhangs_convolution_comes_after_the_sum():
    """Its bias is then added once per position, whatever the weights."""
    layer, x = scrambled(GridSelfAttention(8)), normal(1, 8, 2, 3)
    assert layer.output.weight.shape == (8, layer.value.weight.shape[0], 1, 1)
    torch.nn.init.zeros_(layer.value.weight)
    torch.nn.init.zeros_(layer.value.bias)
    agree(layer(x), layer.gamma * layer.output.bias[:, None, None] + x, [x])


def test_zhangs_layer_follows_the_order_of_places():
    """The layer has no positions: flipping the picture flips the result."""
    layer, x = scrambled(GridSelfAttention(8)), normal(2, 8, 3, 4)
    agree(layer(x.flip(-1)), layer(x).flip(-1), [x])
    agree(layer(x.transpose(-1, -2)), layer(x).transpose(-1, -2), [x])


def test_attention_over_a_grid_equals_attention_over_its_places():
    lead, height, width = leading(), number(1, 3), number(1, 4)
    attention = scrambled(Attention(Additive(5, 6, hidden=7)))
    query, features = normal(*lead, 2, 5), normal(*lead, 6, height, width)
    score = attention.score
    oracle = oracles.additive(score.query.weight, score.key.weight, score.key.bias, score.v)
    places = torch.stack([features[..., r, c] for r in range(height) for c in range(width)], dim=-2)
    expected = oracles.over_rows(query, places, places, oracle)
    grid = GridAttention(attention)
    agree(grid(query, features), expected.context, [query, features, *attention.parameters()])
    look = grid.look(query, features)
    agree(look.weights, expected.weights.unflatten(-1, (height, width)), [query, features])
    agree(look.context, expected.context)


def test_prepared_places_equal_unprepared():
    grid = GridAttention(scrambled(Attention(Additive(5, 6, hidden=7))))
    query, features = normal(2, 3, 5), normal(2, 6, 3, 4)
    prepared = grid.prepare(features)
    agree(grid(query, prepared), grid(query, features), [query, features, *grid.parameters()])
    agree(grid.look(query, prepared).weights, grid.look(query, features).weights)


def test_a_hard_choice_over_a_grid():
    grid = GridAttention(Attention(Dot(), weighting=Hard())).eval()
    query, features = normal(2, 3, 5), normal(2, 5, 3, 4)
    look = grid.look(query, features)
    assert look.weights.shape == (2, 3, 3, 4)
    best = (query @ features.flatten(-2)).argmax(-1)
    agree(look.weights.flatten(-2), torch.nn.functional.one_hot(best, 12).double())


@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_kept_and_loaded_it_is_the_same(way):
    one, x = scrambled(GridSelfAttention(8)), normal(2, 8, 3, 4)
    if way == "state_dict":
        other = GridSelfAttention(8).double()
        other.load_state_dict(one.state_dict(), strict=True)
    else:
        other = copy.deepcopy(one) if way == "deepcopy" else pickle.loads(pickle.dumps(one))
    assert torch.equal(one(x), other(x))
