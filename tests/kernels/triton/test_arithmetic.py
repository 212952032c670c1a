"""Sums of columns in two stages: equal to the reference in float64, and bitwise reproducible."""

import pytest
import torch

pytest.importorskip("triton")
from regard.kernels import reference
from regard.kernels.triton.arithmetic import column_sums, row_sums, share_rows, total

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(1, 1), (7, 63), (63, 7), (0, 5), (33, 300), (700, 16)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_the_references(shape, dtype):
    x = torch.randn(shape, device=DEVICE, dtype=dtype)
    found = column_sums(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, x.double().sum(0).float(), rtol=1e-5, atol=1e-5 * max(1, shape[0]) ** 0.5)
    assert torch.equal(column_sums(x), found)


def test_strides():
    x = torch.randn(50, 40, device=DEVICE)
    for view in (x[:, 3:20], x[::3], x.t(), x[1:, ::2]):
        expected = view.double().sum(0).float()
        torch.testing.assert_close(column_sums(view), expected, rtol=1e-5, atol=1e-4)


def test_the_second_stage_keeps_the_shape():
    partial = torch.randn(300, 3, 7, device=DEVICE)
    torch.testing.assert_close(total(partial), partial.double().sum(0).float(), rtol=1e-5, atol=1e-5 * 300**0.5)
    assert torch.equal(total(partial[:1]), partial[0])


@pytest.mark.gpu
@pytest.mark.parametrize("width", [512, 1536, 2048, 16_001])
def test_many_rows(width):
    x = torch.randn(25_000, width, device=DEVICE, dtype=torch.bfloat16)
    found = column_sums(x)
    torch.testing.assert_close(found, x.double().sum(0).float(), rtol=1e-5, atol=1e-3)
    assert torch.equal(column_sums(x), found)


@pytest.mark.parametrize("rows", [0, 1, 33, 25_000])
@pytest.mark.parametrize("width", [1, 16, 300, 16_001, 1_000_000])
def test_every_column_has_a_block_and_no_share_is_empty(rows, width):
    across, blocks, shares = share_rows(rows, width, 132)
    assert across * (blocks - 1) < width <= across * blocks
    assert 1 <= shares <= max(1, -(-rows // 32))
    assert shares * blocks <= max(4 * 132, blocks)


# ---- sums of rows by index: equal to the reference in float64 for any runs of an index, and bitwise reproducible


def compare(x, ids, count, factor=1.0):
    expected = reference.row_sums(x.double(), ids, count, factor)
    found = row_sums(x, ids, count, factor)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * max(1, len(x)) ** 0.5)
    assert torch.equal(row_sums(x, ids, count, factor), found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width", "count"), [(1, 1, 1), (7, 63, 3), (33, 16, 1), (100, 130, 50), (0, 5, 4)])
def test_it_is_the_reference(rows, width, count, dtype):
    compare(
        torch.randn(rows, width, device=DEVICE, dtype=dtype), torch.randint(count, (rows,), device=DEVICE), count, 3
    )


@pytest.mark.parametrize(
    "runs", [[32], [64], [31, 1, 33], [32, 32], [1, 63, 1], [700], [20, 600, 20], [5, 60, 60, 3], [64, 64, 1], [1] * 70]
)
def test_runs_of_any_length(runs):
    """A run may begin and end anywhere among the tiles, and span more tiles than are added at once."""
    ids = torch.repeat_interleave(torch.arange(len(runs)), torch.tensor(runs)).to(DEVICE)
    ids = ids[torch.randperm(len(ids), device=DEVICE)]
    compare(torch.randn(len(ids), 20, device=DEVICE), ids, len(runs))


def test_indices_outside_are_left_out():
    ids = torch.tensor([-1] * 40 + [2] * 3 + [5] * 70 + [0], device=DEVICE)
    compare(torch.randn(len(ids), 8, device=DEVICE), ids, 5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_rows_as_words_are_spread(dtype):
    odds = 1 / torch.arange(1.0, 16_001, device=DEVICE)
    ids = torch.multinomial(odds, 25_000, replacement=True)
    compare(torch.randn(25_000, 512, device=DEVICE, dtype=dtype), ids, 16_000, 22.6)
