"""The kernel's top tokens equal the reference's, with forbidden, forced or equal scores."""

import interpreted  # noqa: F401
import pytest
import torch

from regard.kernels import reference

triton = pytest.importorskip("regard.kernels.triton.top_tokens")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # interpreted
END = 2


def drawn(rows, size, dtype=torch.float32):
    scores = (4 * torch.randn(rows, size)).to(dtype)
    early = torch.rand(rows) < 0.4
    forced = torch.where(torch.rand(rows) < 0.3, torch.randint(0, size, (rows,)), -1)
    return scores.to(DEVICE), early.to(DEVICE), forced.to(DEVICE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "count"), [(3, 2), (7, 1), (63, 5), (1023, 10), (1025, 3), (2500, 16)])
def test_the_kernel_is_the_reference(size, count, dtype):
    scores, early, forced = drawn(5, size, dtype)
    found = triton.top_tokens(scores, count, (0, 1), END, early, forced)
    expected = reference.top_tokens(scores, count, (0, 1), END, early, forced)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    torch.testing.assert_close(found[2], expected[2])
    there = found[0] > -torch.inf
    assert torch.equal(scores.float().gather(1, found[1])[there], found[0][there])
    assert bool((found[1] >= 0).all())
    assert bool((found[1] < size).all())
    for row, some in zip(found[1], there, strict=True):  # no token twice
        assert len(set(row[some].tolist())) == int(some.sum())


def test_by_hand():
    scores = torch.tensor([[9.0, 8.0, 7.0, 1.0, 3.0, 2.0]] * 4, device=DEVICE)
    early = torch.tensor([False, True, True, True], device=DEVICE)
    forced = torch.tensor([-1, -1, 5, END], device=DEVICE)
    for each in (triton.top_tokens, reference.top_tokens):
        best, tokens, norm = each(scores, 3, (0, 1), END, early, forced)
        assert best.tolist() == [[7.0, 3.0, 2.0], [3.0, 2.0, 1.0], [2.0, *[-torch.inf] * 2], [7.0, *[-torch.inf] * 2]]
        assert tokens[:2].tolist() == [[2, 4, 5], [4, 5, 3]]
        assert tokens[2:, 0].tolist() == [5, END]
        torch.testing.assert_close(norm, scores.logsumexp(1))


def test_scores_that_are_nothing():
    scores = torch.full((2, 9), -torch.inf, device=DEVICE)
    scores[1, 4] = 0.0
    free = torch.full((2,), -1, device=DEVICE)
    best, tokens, norm = triton.top_tokens(scores, 2, (0, 1), END, free > 0, free)
    assert best.tolist() == [[-torch.inf] * 2, [0.0, -torch.inf]]
    assert tokens[1, 0] == 4
    assert norm.tolist() == [-torch.inf, 0.0]


def test_rows_may_lie_apart():
    scores, early, forced = drawn(4, 40)
    wide = torch.full((4, 64), 1e4, device=DEVICE)
    wide[:, :40] = scores
    for one, other in zip(
        triton.top_tokens(wide[:, :40], 3, (0, 1), END, early, forced),
        triton.top_tokens(scores, 3, (0, 1), END, early, forced),
        strict=True,
    ):
        assert torch.equal(one, other)
