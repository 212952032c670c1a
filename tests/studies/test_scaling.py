"""The scaling study against closed forms."""

import math

import pytest
import torch

from regard_studies.scaling import jacobian_norm, observe, observe_diagonal, run


def test_the_jacobian_norm_is_autograds():
    for m in (1, 2, 7):
        scores = torch.randn(m, dtype=torch.float64) * 3
        full = torch.autograd.functional.jacobian(lambda e: e.softmax(-1), scores)
        weights = scores.softmax(-1)
        torch.testing.assert_close(full, weights.diag() - torch.outer(weights, weights))
        torch.testing.assert_close(jacobian_norm(weights), full.norm())


def test_the_jacobian_norm_keeps_its_digits_where_one_key_has_won():
    # Two keys: J is p(1-p) times [[1, -1], [-1, 1]], of norm 2p(1-p).
    small = 1e-30
    weights = torch.tensor([1.0, small], dtype=torch.float64)
    assert jacobian_norm(weights).item() == pytest.approx(2 * small, rel=1e-12)


@pytest.mark.parametrize("d", [1, 16, 256])
def test_scores_spread_as_the_root_of_the_width(d):
    raw, scaled = observe(d, scaled=False, draws=16), observe(d, scaled=True, draws=16)
    assert raw.spread == pytest.approx(math.sqrt(d), rel=0.06)
    assert scaled.spread == pytest.approx(1.0, rel=0.06)
    assert abs(raw.mean) < 0.1 * math.sqrt(d)


def test_the_spread_does_not_depend_on_the_length():
    few, many = (observe(64, scaled=True, draws=16, m=m) for m in (4, 512))
    assert few.spread == pytest.approx(many.spread, rel=0.05)
    assert few.largest > 3 * many.largest  # the softmax depends on it


def test_the_diagonals_share_is_what_its_expectation_says():
    # E|R_ii| = d and E|R_ij| = √(2d/π): a row's share is near d / (d + (n-1)√(2d/π)).
    d, n = 256, 16
    seen = observe_diagonal(d, n, draws=2)
    assert seen.absolute == pytest.approx(d / (d + (n - 1) * math.sqrt(2 * d / math.pi)), rel=0.05)
    assert seen.projected == pytest.approx(1 / n, rel=0.4)
    assert seen.scaled > 0.99
    assert seen.tied > 0.99


def test_the_verdicts_follow_the_numbers():
    verdicts = {verdict.claim: verdict.agrees for verdict in run(seed=2, quick=True).verdicts}
    assert verdicts["without scaling, scores have standard deviation √d"]
    assert verdicts["it is √d, the width, and not √n, the length"]
    assert verdicts["its gradient then becomes extremely small"]
    assert not verdicts["1/√d alone takes the weight off the diagonal"]
