"""Each score alone against its paper's formula, and easy mistakes in the papers' formulas."""

import math

import oracles
import pytest
import torch
from attention.cases import CONTENT_SCORES, SCORES, draw_inputs, leading, normal, number, scrambled
from oracles import agree

from regard.attention import Attention
from regard.attention.score import Additive, Cosine, Dot, General, Location


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


def test_scaled_divides_by_the_root_of_the_width_not_of_the_number_of_keys():
    query, keys = normal(3, 16), normal(7, 16)
    agree(Dot(scaled=True)(query, keys), query @ keys.mT / 4)


def test_unscaled_scores_of_unit_normal_vectors_spread_as_the_root_of_the_width():
    width, samples = 64, 256
    scores = Dot()(normal(samples, width, grad=False), normal(samples, width, grad=False))
    assert abs(scores.std().item() / math.sqrt(width) - 1) < 0.05
    scores = Dot(scaled=True)(normal(samples, width, grad=False), normal(samples, width, grad=False))
    assert abs(scores.std().item() - 1) < 0.05


def test_general_is_not_symmetric():
    score, one, other = scrambled(General(5, 5)), normal(1, 5), normal(1, 5)
    there, back = (score(q, score.project_keys(k)) for q, k in [(one, other), (other, one)])
    agree(there, one @ score.weight @ other.mT)
    assert not torch.allclose(there, back)


def test_general_has_one_weight_and_no_bias():
    assert {name: tuple(p.shape) for name, p in General(5, 3).named_parameters()} == {"weight": (5, 3)}


def test_concat_is_additive_with_one_matrix():
    """Luong's concat against the oracle of his own formula: W and U side by side, no bias."""
    score, query, keys = scrambled(Additive(5, 3, hidden=7)), normal(2, 5), normal(6, 3)
    torch.nn.init.zeros_(score.key.bias)
    joined = oracles.concat(torch.cat([score.query.weight, score.key.weight], dim=1), score.v)
    agree(score(query, score.project_keys(keys)), scores_by_loop(query, keys, joined), [query, keys])


def test_additive_projects_keys_once_with_the_bias():
    score, keys = scrambled(Additive(5, 3, hidden=7)), normal(6, 3)
    agree(score.project_keys(keys), keys @ score.key.weight.mT + score.key.bias, [keys, *score.key.parameters()])


def test_cosine_is_blind_to_length():
    score, query, keys = Cosine(3.0), normal(2, 5), normal(6, 5)
    agree(score(query * 100, score.project_keys(keys * 0.01)), score(query, score.project_keys(keys)))


def test_cosine_lies_between_plus_and_minus_its_sharpness():
    score, query, keys = Cosine(3.0), normal(2, 5), normal(6, 5)
    scores = score(query, score.project_keys(torch.cat([keys, query, -query])))
    assert scores.abs().max() <= 3 + 1e-12
    agree(scores[:, 6:8].diagonal(), torch.full((2,), 3.0, dtype=torch.float64))
    agree(scores[:, 8:].diagonal(), torch.full((2,), -3.0, dtype=torch.float64))


def test_cosine_of_a_zero_vector_is_finite_with_finite_gradients():
    score, query, keys = Cosine("query"), normal(2, 6), torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
    scores = score(query, score.project_keys(keys))
    agree(scores, torch.zeros(2, 3, dtype=torch.float64))
    assert all(torch.isfinite(g).all() for g in oracles.gradients(scores, [query, keys], torch.ones_like(scores)))


def test_learned_sharpness_starts_at_one():
    agree(Cosine("learned").log_sharpness.exp().detach(), torch.tensor(1.0))


def test_location_comes_from_the_query_alone():
    score, query = scrambled(Location(5, length=9)), normal(2, 5)
    one, other = (score(query, score.project_keys(normal(6, 3))) for _ in range(2))
    agree(one, other)
    agree(one, query @ score.weight[:6].mT)


@pytest.mark.parametrize("name", CONTENT_SCORES)
def test_a_content_score_sees_one_query_and_one_key(name):
    """e_ij depends only on q_i and k_j: the score of a slice is the slice of the scores."""
    case = SCORES[name](7)
    query, keys, _ = draw_inputs(case, (2,), 5, 7)
    whole = case.score(query, case.score.project_keys(keys))
    part = case.score(query[:, 1:3], case.score.project_keys(keys[:, 4:]))
    agree(part, whole[:, 1:3, 4:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_zero_key_has_a_finite_gradient(dtype):
    keys = torch.zeros(1, 3, 4, dtype=dtype, requires_grad=True)
    Attention(Cosine())(torch.randn(1, 2, 4, dtype=dtype), keys, torch.randn(1, 3, 4, dtype=dtype)).sum().backward()
    assert keys.grad.abs().max() < 1e3
