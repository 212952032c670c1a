"""Sums of columns in two stages: the reference's in float64, and the same bits each time."""

import pytest
import torch

pytest.importorskip("triton")
from regard.kernels.operations import reference
from regard.kernels.operations.sums import column_sums, share_rows, total

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(1, 1), (7, 63), (63, 7), (0, 5), (33, 300), (700, 16)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_the_references(shape, dtype):
    x = torch.randn(shape, device=DEVICE, dtype=dtype)
    found = column_sums(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found, reference.column_sums(x.double()).float(), rtol=1e-5, atol=1e-5 * max(1, shape[0]) ** 0.5
    )
    assert torch.equal(column_sums(x), found)


def test_strides():
    x = torch.randn(50, 40, device=DEVICE)
    for view in (x[:, 3:20], x[::3], x.t(), x[1:, ::2]):
        expected = reference.column_sums(view.double()).float()
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
