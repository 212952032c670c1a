"""Functions of both searches: score formulas as numbers and as tensors; the best tokens; tensors of tokens."""

import math

import pytest
import torch
from decoding.cases import small

from regard.data import END, PAD
from regard.decoding.scoring import (
    MANY,
    add_log_probs,
    candidate_count,
    check_finite,
    coverage_penalty,
    documents_of,
    is_settled,
    length_penalty,
    log_sum,
    source_of,
    tokens_of,
    top_tokens,
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
    # A position without attention costs much but does not hide the others.
    assert coverage_penalty(coverage, torch.tensor([3, 1]))[0, 0] == pytest.approx(math.log(0.5) + math.log(1e-6))


def test_sums_are_log_probabilities():
    logits, total = torch.randn(2, 3, 7).double(), torch.randn(2, 3).double()
    expected = total[..., None] + logits.log_softmax(-1)
    torch.testing.assert_close(add_log_probs(logits, total, logits.logsumexp(-1)), expected)


def test_of_several_rows_all_may_end_at_one_step():
    assert [candidate_count(rows) for rows in (1, 2, 5)] == [1, 4, 10]


def test_when_a_sentence_is_done():
    assert is_settled(-1.0, -2.0, 1)  # greedy search is done once it has ended
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


# ---- the folded search for the largest scores against sorting, and the sum against torch's


@pytest.mark.parametrize("size", [5, MANY - 1, MANY, MANY + 1, MANY + 7, 1001, 8000])
@pytest.mark.parametrize("count", [1, 2, 5, 63])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_are_found(size, count, dtype):
    count = min(count, size)
    scores = torch.randn(3, 4, size, dtype=dtype)
    if size > 63:  # all of the best in one block, and at the end
        scores[0, 0, -40:] += 50
        scores[1, 1, :: size // 8] += 50
        scores[2, 2] = -torch.inf
        scores[2, 2, [1, -1]] = torch.tensor([2.0, 3.0], dtype=dtype)
    values, tokens = top_tokens(scores, count)
    wanted, _ = scores.sort(-1, descending=True)
    assert torch.equal(values, wanted[..., :count])
    assert torch.equal(scores.gather(-1, tokens), values)
    assert all(len(set(row)) == count for row in tokens.flatten(0, 1).tolist())


@pytest.mark.parametrize("size", [5, MANY, 1001])
def test_the_sum(size):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        scores = 30 * torch.randn(70, 2, size, dtype=dtype)
        torch.testing.assert_close(log_sum(scores), scores.logsumexp(-1), atol=tolerance, rtol=tolerance)


# ---- token numbers become the models' input tensors


def test_rows_become_sentences():
    rows = [[5, 6, END, 7, END], [], [8, END], [9, 9, 9, END, 4, END, 4, 5, END]]
    found = documents_of(rows)
    assert found.sentences.tolist() == [2, 0, 1, 3]
    assert found.words.lengths.tolist() == [2, 1, 1, 3, 1, 2]
    assert found.words.ids.tolist() == [
        [5, 6, PAD],
        [7, PAD, PAD],
        [8, PAD, PAD],
        [9, 9, 9],
        [4, PAD, PAD],
        [4, 5, PAD],
    ]
    flat = source_of(rows, "text")
    assert flat.lengths.tolist() == [5, 0, 2, 9]
    assert flat.ids[0].tolist() == [5, 6, END, 7, END, PAD, PAD, PAD, PAD]
    nothing = documents_of([])
    assert (nothing.words.ids.shape, nothing.sentences.shape) == ((0, 1), (0,))


def test_padded_rows():
    tokens = tokens_of([[4, 5, 6], [7]])
    assert tokens.ids.tolist() == [[4, 5, 6], [7, PAD, PAD]]
    assert tokens.lengths.tolist() == [3, 1]
