"""Scores of hypotheses: the formulas of both searches, as numbers and as tensors."""

import math

import pytest
import torch
from decoding.cases import small

from regard.decoding.scoring import (
    add_log_probs,
    candidate_count,
    check_finite,
    coverage_penalty,
    is_settled,
    length_penalty,
)
from regard.errors import NotFiniteError


def test_the_length_penalty_is_gnmts():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(19, 0.0) == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lengths_in_a_tensor_are_penalised_alike(dtype):
    lengths, alpha = torch.arange(1, 200), torch.rand(1).item() * 2
    expected = torch.tensor([length_penalty(length, alpha) for length in lengths.tolist()], dtype=dtype)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(length_penalty(lengths.to(dtype), alpha), expected, rtol=tolerance, atol=0)


def test_coverage_is_of_real_positions_alone():
    coverage = torch.tensor([[[0.5, 3.0, 0.0], [1.0, 0.25, 9.0]], [[0.1, 0.0, 0.0], [2.0, 0.0, 0.0]]]).double()
    found = coverage_penalty(coverage, torch.tensor([2, 1]))
    expected = torch.tensor([[math.log(0.5), math.log(0.25)], [math.log(0.1), 0.0]]).double()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    # What was never looked at costs much, and does not hide the rest.
    assert coverage_penalty(coverage, torch.tensor([3, 1]))[0, 0] == pytest.approx(math.log(0.5) + math.log(1e-6))


def test_sums_are_log_probabilities():
    logits, total = torch.randn(2, 3, 7).double(), torch.randn(2, 3).double()
    expected = total[..., None] + logits.log_softmax(-1)
    torch.testing.assert_close(add_log_probs(logits, total, logits.logsumexp(-1)), expected)


def test_of_several_rows_all_may_end_at_one_step():
    assert [candidate_count(rows) for rows in (1, 2, 5)] == [1, 4, 10]


def test_when_a_sentence_is_done():
    assert is_settled(-1.0, -2.0, 1)  # greedy search is done when it has ended
    assert not is_settled(-1.0, -2.0, 2)
    assert is_settled(-2.0, -2.0, 2)
    assert is_settled(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-2.0, -2.0, -2.0]), 2).tolist() == [
        False,
        True,
        True,
    ]


def test_scores_that_are_no_numbers_are_refused():
    model = small("transformer")
    check_finite(model, torch.tensor([0.0, -math.inf]))
    for bad in (math.nan, math.inf):
        with pytest.raises(NotFiniteError, match="scores for this input are not finite"):
            check_finite(model, torch.tensor([0.0, bad]))
    with pytest.raises(NotFiniteError):
        check_finite(model, torch.tensor([-math.inf]), impossible=False)
