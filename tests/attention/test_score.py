"""Each score alone against its paper's formula, and what the papers' formulas make easy to get wrong."""

import math

import oracles
import pytest
import torch
from attention.cases import SCORES, draw_inputs, leading, normal, number, scrambled
from oracles import agree

from regard.attention import Attention
from regard.attention.score import Additive, Cosine, Dot, General


def scores_by_loop(query, keys, score):
    lead = query.shape[:-2]
    rows = [
        torch.stack([torch.stack([score(q, k, j) for j, k in enumerate(keys[row])]) for q in query[row]])
        for row in oracles.rows_of(lead)
    ]
    return oracles.rows_again(rows, lead)


@pytest.mark.parametrize("repeat", range(3))
@pytest.mark.parametrize("name", SCORES)
def test_score_equals_the_formula(name, repeat):
    n, m = number(1, 4), number(1, 7)
    case = SCORES[name](m)
    query, keys, _ = draw_inputs(case, leading(), n, m)
    actual = case.score(query, case.score.project_keys(keys))
    agree(actual, scores_by_loop(query, keys, case.oracle), [query, keys, *case.score.parameters()])


def test_unscaled_scores_of_unit_normal_vectors_spread_as_the_root_of_the_width():
    width, samples = 64, 256
    scores = Dot()(normal(samples, width, grad=False), normal(samples, width, grad=False))
    assert abs(scores.std().item() / math.sqrt(width) - 1) < 0.05
    scores = Dot(scaled=True)(normal(samples, width, grad=False), normal(samples, width, grad=False))
    assert abs(scores.std().item() - 1) < 0.05


def test_general_has_one_weight_and_no_bias():
    assert {name: tuple(p.shape) for name, p in General(5, 3).named_parameters()} == {"weight": (5, 3)}


def test_concat_is_additive_with_one_matrix():
    """Luong's concat, the oracle of his own formula: W and U side by side, no bias."""
    score, query, keys = scrambled(Additive(5, 3, hidden=7)), normal(2, 5), normal(6, 3)
    torch.nn.init.zeros_(score.key.bias)
    joined = oracles.concat(torch.cat([score.query.weight, score.key.weight], dim=1), score.v)
    agree(score(query, score.project_keys(keys)), scores_by_loop(query, keys, joined), [query, keys])


def test_cosine_of_a_zero_vector_is_finite_with_finite_gradients():
    score, query, keys = Cosine("query"), normal(2, 6), torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
    scores = score(query, score.project_keys(keys))
    agree(scores, torch.zeros(2, 3, dtype=torch.float64))
    assert all(torch.isfinite(g).all() for g in oracles.gradients(scores, [query, keys], torch.ones_like(scores)))


def test_learned_sharpness_starts_at_one():
    agree(Cosine("learned").log_sharpness.exp().detach(), torch.tensor(1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_zero_key_has_a_finite_gradient(dtype):
    keys = torch.zeros(1, 3, 4, dtype=dtype, requires_grad=True)
    Attention(Cosine())(torch.randn(1, 2, 4, dtype=dtype), keys, torch.randn(1, 3, 4, dtype=dtype)).sum().backward()
    assert keys.grad.abs().max() < 1e3
