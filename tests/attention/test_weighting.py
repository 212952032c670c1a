"""Each weighting against its formula; with identity keys and values, queries are scores and contexts are weights."""

import oracles
import pytest
import torch
from attention.cases import WEIGHTINGS, normal, number
from oracles import agree

from regard.attention import Attention, watch
from regard.attention.score import Dot
from regard.attention.span import Lengths, Mask
from regard.attention.weighting import Gumbel, Hard, Plain, Softmax, Sparsemax, Weighed, Weighting

STOCHASTIC = {"hard": Hard, "gumbel": Gumbel}


def weigh(weighting, scores, span=None, training=False):
    """Return the weights of the given scores [*b n m]."""
    eye = torch.eye(scores.shape[-1], dtype=scores.dtype).expand(*scores.shape[:-2], -1, -1)
    attention = Attention(Dot(), weighting=weighting).train(training)
    return attention(scores, eye, eye, span=span)


def rows(weighting, scores):
    return torch.stack([weighting(row) for row in scores])


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_weighting_equals_the_formula(name):
    build, oracle = WEIGHTINGS[name]
    for m in (1, 2, 7, 13):
        scores = normal(5, m)
        agree(weigh(build(), scores), rows(oracle, scores), [scores])


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_sparsemax_is_the_projection_on_the_simplex(spread):
    scores = normal(7, number(1, 13), grad=False) * spread
    agree(weigh(Sparsemax(), scores), rows(oracles.simplex_projection, scores), atol=1e-12)


def test_sparsemax_gives_exact_zeros():
    assert weigh(Sparsemax(), torch.tensor([[0.0, 0.1, 3.0]])).tolist() == [[0.0, 0.0, 1.0]]


def test_sparsemax_of_equal_scores_is_uniform():
    agree(
        weigh(Sparsemax(), torch.full((2, 7), 5.0, dtype=torch.float64)), torch.full((2, 7), 1 / 7, dtype=torch.float64)
    )


def test_sparsemax_within_a_mask_is_the_sparsemax_of_what_is_left():
    scores, allowed = normal(1, 7), torch.tensor([True, False, True, True, False, True, False])
    weights = weigh(Sparsemax(), scores, Mask(allowed[None]))
    agree(weights[:, allowed], oracles.sparsemax(scores[0, allowed])[None], [scores])
    assert not weights[:, ~allowed].any()


@pytest.mark.parametrize("build", [Softmax, Sparsemax, *STOCHASTIC.values()])
@pytest.mark.parametrize("training", [True, False])
def test_weights_are_shares_of_one(build, training):
    weights = weigh(build(), normal(3, 5, 7), Lengths([3, 7, 1]), training)
    assert (weights >= 0).all()
    agree(weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))
    assert not weights[0, :, 3:].any()
    assert not weights[2, :, 1:].any()


def test_temperature_divides_the_scores():
    scores = normal(3, 7)
    agree(weigh(Softmax(temperature=2.0), scores), weigh(Softmax(), scores / 2), [scores])


def test_plain_is_the_scores_themselves():
    s = normal(2, 7, 4)
    raw = Attention(Dot(), weighting=Plain())
    agree(raw(s, s, s), s @ s.mT @ s, [s])
    agree(raw.look(s, s, s).weights, s @ s.mT, [s])


@pytest.mark.parametrize("build", STOCHASTIC.values())
def test_evaluation_takes_the_best_key(build):
    scores = normal(4, 3, 7)
    weights = weigh(build(), scores)
    assert torch.equal(weights, torch.nn.functional.one_hot(scores.argmax(-1), 7).double())


@pytest.mark.parametrize("build", STOCHASTIC.values())
def test_training_draws_one_key_with_the_probability_of_the_softmax(build):
    """40,000 draws in one call: each key's share within 5 standard errors of its probability."""
    scores, draws = normal(4, grad=False), 40_000
    picked = weigh(build(), scores.expand(draws, 1, 4), training=True).reshape(draws, 4)
    assert ((picked == 0) | (picked == 1)).all()
    assert (picked.sum(-1) == 1).all()
    chances = scores.softmax(-1)
    errors = (chances * (1 - chances) / draws).sqrt()
    assert ((picked.mean(0) - chances).abs() < 5 * errors).all()


def test_hard_gradient_through_log_prob_is_the_exact_gradient_of_the_expectation():
    """REINFORCE: the mean of f(k) ∇ log p(k) against ∇ Σ p(k) f(k), within 5 standard errors, all in one call."""
    samples, keys, values = 50_000, normal(4, 3, grad=False), normal(4, 2, grad=False)
    query, reward = normal(1, 3), normal(2, grad=False)
    exact = torch.autograd.grad(((query @ keys.mT).softmax(-1) @ values @ reward).sum(), query)[0][0]

    attention = Attention(Dot(), weighting=Hard()).train()
    each = query.detach().expand(samples, 1, 3).clone().requires_grad_()
    look = attention.look(each, keys.expand(samples, 4, 3), values.expand(samples, 4, 2))
    assert look.log_prob.shape == (samples, 1)
    cost = (look.context @ reward).detach()
    estimates = torch.autograd.grad((cost * look.log_prob).sum(), each)[0][:, 0]
    error = estimates.std(0) / samples**0.5
    assert ((estimates.mean(0) - exact).abs() < 5 * error).all(), (estimates.mean(0), exact, error)


def test_hard_context_is_the_value_of_the_key_that_was_picked():
    query, keys, values = normal(2, 5, 3), normal(2, 7, 3), normal(2, 7, 4)
    attention = Attention(Dot(), weighting=Hard()).train()
    for look in (attention.look(query, keys, values), attention.eval().look(query, keys, values)):
        assert look.picked.shape == (2, 5)
        agree(look.context, values.gather(1, look.picked[..., None].expand(-1, -1, 4)))
        agree(look.weights, torch.nn.functional.one_hot(look.picked, 7).double())
        chances = (query @ keys.mT).log_softmax(-1)
        agree(look.log_prob, chances.gather(-1, look.picked[..., None])[..., 0], [query, keys])


def test_hard_choice_within_a_span():
    """Draw among the visible keys, with their probability there; a row without visible keys draws none."""
    query, keys = normal(3, 2, 5), normal(3, 7, 5)
    look = Attention(Dot(), weighting=Hard()).train().look(query, keys, span=Lengths([0, 3, 7]))
    for row, length in ((1, 3), (2, 7)):
        assert (look.picked[row] < length).all()
        chances = (query[row] @ keys[row, :length].mT).log_softmax(-1)
        agree(look.log_prob[row], chances.gather(-1, look.picked[row][:, None])[:, 0], [query, keys])
    gradients = oracles.gradients(look.log_prob, [query, keys], torch.randn(3, 2).double())
    assert all(torch.isfinite(one).all() and not one[0].any() for one in gradients)


def test_hard_values_get_their_gradient_through_the_pick():
    values = normal(7, 4)
    look = Attention(Dot(), weighting=Hard()).train().look(normal(1, 3), normal(7, 3), values)
    (got,) = torch.autograd.grad(look.context.sum(), values)
    agree(got, torch.nn.functional.one_hot(look.picked[0], 7)[:, None].expand(7, 4).double())


def gumbel_jacobian(scores, tau, seed):
    """Return the weights drawn for scores [m] and their derivatives by the scores [m m]."""
    torch.manual_seed(seed)
    weights = weigh(Gumbel(tau), scores[None], training=True)[0]
    lines = [torch.autograd.grad(weights[j], scores, retain_graph=True)[0] for j in range(len(scores))]
    return weights.detach(), torch.stack(lines)


def soft_sample(jacobian, tau):
    """Recover the softmax y whose derivative (diag(y) - y yᵀ)/τ this is: y₀² = -τ J₀₁ J₀₂ / J₁₂, and cyclically."""
    m = len(jacobian)
    others = [((i + 1) % m, (i + 2) % m) for i in range(m)]
    return torch.stack(
        [(-tau * jacobian[i, a] * jacobian[i, b] / jacobian[a, b]).sqrt() for i, (a, b) in enumerate(others)]
    )


@pytest.mark.parametrize("tau", [0.7, 1.0, 3.0])
def test_gumbel_is_one_hot_forward_and_soft_backward(tau):
    """The test reads the noise back from the derivative, so it does not depend on how the noise is drawn."""
    seed, scores = number(0, 1 << 30), normal(5)
    weights, jacobian = gumbel_jacobian(scores, tau, seed)
    soft = soft_sample(jacobian, tau)
    agree(soft.sum(), torch.tensor(1.0, dtype=torch.float64), rtol=1e-6)
    agree(jacobian, (torch.diag(soft) - soft[:, None] * soft[None]) / tau, rtol=1e-6, atol=1e-9)
    assert torch.equal(weights, torch.nn.functional.one_hot(soft.argmax(), 5).double())


def test_gumbel_noise_does_not_hang_on_the_scores():
    seed, one, other = number(0, 1 << 30), normal(5), normal(5)
    noises = []
    for scores in (one, other):
        noise = soft_sample(gumbel_jacobian(scores, 1.0, seed)[1], 1.0).log() - scores.detach()
        noises.append(noise - noise[0])
    agree(noises[0], noises[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("build", [Softmax, Sparsemax, Plain, *STOCHASTIC.values()])
@pytest.mark.parametrize("training", [True, False])
def test_a_query_with_nothing_to_look_at_gives_zeros_and_finite_gradients(build, training):
    query, keys, values = normal(3, 2, 5), normal(3, 7, 5), normal(3, 7, 4)
    attention = Attention(Dot(), weighting=build()).train(training)
    context = attention(query, keys, values, span=Lengths([0, 7, 0]))
    assert not context[0].any()
    assert not context[2].any()
    assert context[1].any()
    for gradient in oracles.gradients(context, [query, keys, values], torch.randn_like(context)):
        assert torch.isfinite(gradient).all()
        assert not gradient[0].any()
        assert not gradient[2].any()


def test_a_weighting_that_says_it_draws_is_looked_at_with_the_same_draw():
    class Noisy(Weighting):
        draws = True

        def weigh(self, scores, mask=None):
            return Weighed(torch.softmax(scores + torch.randn_like(scores), -1))

    attention, x = Attention(Dot(), weighting=Noisy()), torch.randn(2, 5, 4)
    with watch(attention) as looks:
        called = attention(x, x)
    torch.testing.assert_close(looks[""].context, called)
