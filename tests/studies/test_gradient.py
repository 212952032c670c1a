"""The gradient study against slow, plain differentiation."""

import pytest
import torch

from regard_studies.gradient import NETWORKS, norms, observe
from regard_studies.page import precision, signed


@pytest.mark.parametrize("name", NETWORKS)
def test_norms_are_those_of_the_full_jacobian(name):
    with precision(torch.float64):
        network, x = NETWORKS[name].build(8), torch.randn(5, 8)
        full = torch.autograd.functional.jacobian(lambda x: network(x[None])[0, -1], x)  # [d, n, d]
        torch.testing.assert_close(norms(network, x), full.norm(dim=(0, 2)).flip(0))


def test_a_linear_recurrence_falls_by_its_own_factor():
    def halve(x):
        state, states = torch.zeros_like(x[:, 0]), []
        for step in x.unbind(1):
            state = 0.5 * state + step
            states.append(state)
        return torch.stack(states, 1)

    with precision(torch.float64):
        curve = observe(lambda d: halve, length=20, seeds=2)
    assert curve.factor == pytest.approx(0.5, rel=1e-9)


def test_recurrent_curves_fall_and_attention_is_flat():
    with signed(seed=int(torch.randint(2**31, ())), quick=True, dtype=""), precision(torch.float64):
        seen = {name: observe(kind.build, length=65, seeds=3) for name, kind in NETWORKS.items()}
    for name in ("tanh RNN", "ReLU RNN", "GRU", "LSTM"):
        assert seen[name].middle[64] < 1e-6 * seen[name].middle[1]
        assert seen[name].factor < 0.8
    assert seen["LSTM, forget bias 1"].factor > seen["LSTM"].factor
    for name in ("self-attention", "encoder, 2 blocks"):
        assert seen[name].factor == pytest.approx(1.0, abs=0.01)
        assert 0.3 < seen[name].middle[64] / seen[name].middle[1] < 3
