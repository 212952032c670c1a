"""The folded search for the largest scores against sorting, and the sum against torch's."""

import pytest
import torch

from regard.decoding.scoring import MANY, log_sum, top_tokens


@pytest.mark.parametrize("size", [5, MANY - 1, MANY, MANY + 1, MANY + 7, 1001, 8000])
@pytest.mark.parametrize("count", [1, 2, 5, 63])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_are_found(size, count, dtype):
    count = min(count, size)
    scores = torch.randn(3, 4, size, dtype=dtype)
    if size > 63:  # all of the best in one place, and at the end
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
