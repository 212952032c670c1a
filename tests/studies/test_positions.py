"""The positions study: the measure, and its findings."""

import math

import pytest
import torch

from regard.attention import Sinusoidal
from regard_studies.page import precision
from regard_studies.positions import BLIND, LENGTH, SEEING, WIDTH, equivariance_error, observe, product_by_distance


def test_the_measure_knows_the_two_ends():
    x, order = torch.randn(9, 4), torch.randperm(9)
    assert equivariance_error(lambda x: x * 2, x, order) == 0
    assert equivariance_error(lambda x: x.cumsum(0), x, torch.arange(9).flip(0)) > 0.1
    assert equivariance_error(lambda x: x.cumsum(0), x, torch.arange(9)) == 0


@pytest.mark.parametrize("name", BLIND)
def test_without_positions_order_changes_nothing(name):
    with precision(torch.float64), torch.no_grad():
        assert max(observe(BLIND[name], draws=3)) < 1e-12


@pytest.mark.parametrize("name", SEEING)
def test_with_positions_it_does(name):
    with precision(torch.float64), torch.no_grad():
        assert min(observe(SEEING[name], draws=3)) > 1e-3


@pytest.mark.parametrize("name", SEEING)
def test_without_a_permutation_there_is_no_error(name):
    with precision(torch.float64), torch.no_grad():
        assert equivariance_error(SEEING[name](), torch.randn(LENGTH, WIDTH), torch.arange(LENGTH)) == 0


def test_the_curve_is_the_sum_of_cosines():
    # PE(p)·PE(p + k) = Σ cos(ω_i k), with d/2 frequencies 10000^(-2i/d).
    d = 128
    curve = product_by_distance(Sinusoidal(d)(torch.zeros(64, d, dtype=torch.float64)))
    for k in (0, 1, 5, 40):
        expected = sum(math.cos(k * 10000 ** (-2 * i / d)) for i in range(d // 2)) / (d // 2)
        assert curve[k] == pytest.approx(expected, abs=1e-6)
