"""The study of layer costs: its three measures against layers with known answers, and its findings."""

import pytest
import torch
from torch import nn

from regard_studies import parallel
from regard_studies.parallel import FORMULAS, LAYERS, PATHS, Recurrent, depth, operations, path


def test_operations_are_those_of_the_products():
    assert operations(nn.Linear(6, 10), 7, 6) == 7 * 6 * 10
    assert operations(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)), 5, 6) == 2 * 5 * 36
    assert operations(nn.ReLU(), 5, 6) == 0


def test_depth_is_the_longest_chain():
    class Chain(nn.Module):
        def __init__(self, times):
            super().__init__()
            self.times = times

        def forward(self, x):
            y = x
            for _ in range(self.times):
                y = y * 2
            return y + x  # a short path beside the long one

    assert depth(Chain(7), 3, 2) == depth(Chain(6), 3, 2) + 1
    assert depth(Chain(5000), 3, 2) > 5000  # longer than Python's recursion limit


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_keeps_its_shape_and_its_cost(name):
    layer = LAYERS[name](12)
    assert layer(torch.randn(40, 12)).shape == (40, 12)
    found = operations(layer, 40, 12)
    if name == "window":  # slices that several queries share are a little wider
        assert FORMULAS[name][1](40, 12) * 0.7 < found < FORMULAS[name][1](40, 12) * 3
    else:
        assert found == FORMULAS[name][1](40, 12)


def test_the_recurrence_is_torchs():
    layer, other = Recurrent(5), nn.RNN(5, 5, batch_first=True)
    with torch.no_grad():
        other.weight_ih_l0.copy_(layer.read.weight)
        other.bias_ih_l0.copy_(layer.read.bias)
        other.weight_hh_l0.copy_(layer.keep.weight)
        other.bias_hh_l0.zero_()
        x = torch.randn(9, 5)
        torch.testing.assert_close(layer(x), other(x[None])[0][0])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n", [2, 9, 25])
def test_paths_are_as_long_as_expected(name, n):
    assert path(name, n) == PATHS[name][1](n)


@pytest.mark.parametrize(("ratio", "agrees"), [(1.19, False), (1.6, True), (2.0, True), (2.6, True), (4.0, False)])
def test_a_window_is_linear_within_limits_on_either_side(ratio, agrees):
    counted = {name: [FORMULAS[name][1](n, 64) for n in parallel.COUNTED] for name in LAYERS}
    steps = {name: [9, 9, 9] for name in LAYERS}
    paths = {name: [PATHS[name][1](n) for n in (16, 32)] for name in LAYERS}
    seconds = {name: [1.0, ratio] for name in LAYERS}
    assert parallel.verdicts(counted, steps, paths, seconds, (1024, 2048))[-1].agrees == agrees


def test_the_claims_hold():
    page = parallel.run(quick=True)
    timed = [
        each for each in page.verdicts if each.claim.startswith(("self-attention is the faster", "a window makes"))
    ]
    assert len(timed) == 2  # on a busy machine the times may be anything
    for verdict in page.verdicts:
        assert verdict.agrees or verdict in timed, verdict.evidence
