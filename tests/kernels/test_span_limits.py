"""Limits: their structure and their dense tensors agree."""

import pytest
import torch

from regard.kernels.span_limits import SpanLimits, Window

CPU = torch.device("cpu")


def limits(**options):
    return SpanLimits(queries=5, keys=7, device=CPU, batch=(2,), **options)


def test_nothing_given_is_no_limit():
    assert limits().mask() is None
    assert limits().bias() is None
    assert limits().gate() is None
    assert not limits().maybe_empty


LIMITED = {
    "lengths": (limits(lengths=torch.tensor([0, 4])), lambda b, i, j: j < (0, 4)[b]),
    "causal": (limits(causal=1), lambda b, i, j: j <= i + 1),
    "causal rows": (limits(causal=torch.tensor([0, 2])), lambda b, i, j: j <= i + (0, 2)[b]),
    "window": (limits(window=Window(2, start=1)), lambda b, i, j: abs(j - i - 1) <= 2),
    "centre": (limits(window=Window(1, centre=torch.full((2, 5), 2.5))), lambda b, i, j: abs(j - 2.5) <= 1),
    "mask": (limits(masks=(torch.ones(1, 7).bool(),)), lambda b, i, j: True),
}


@pytest.mark.parametrize("name", LIMITED)
def test_the_dense_mask_is_the_limit(name):
    limited, allowed = LIMITED[name]
    expected = torch.tensor([[[allowed(b, i, j) for j in range(7)] for i in range(5)] for b in range(2)])
    assert torch.equal(limited.mask().expand(2, 5, 7), expected)
    parts = [limited.mask(first, last).expand(2, 5, last - first) for first, last in ((0, 3), (3, 4), (4, 7))]
    assert torch.equal(torch.cat(parts, dim=-1), expected), "blocks of keys say the same as all of them"


def test_narrowing_twice_is_narrowing_by_both():
    twice = limits().with_causal(0).with_causal(2).with_lengths(torch.tensor([3, 7]), 3)
    twice = (
        twice.with_lengths(torch.tensor([7, 2]), 2).with_window(Window(1)).with_window(Window(3, start=1, sigma=1.0))
    )
    i, j = torch.arange(5)[:, None], torch.arange(7)
    expected = (j <= i) & ((j - i).abs() <= 1) & ((j - i - 1).abs() <= 3)
    expected = expected & (j < torch.tensor([3, 2])[:, None, None])
    assert torch.equal(twice.mask(), expected)
    torch.testing.assert_close(twice.gate(), torch.exp(-((j - i - 1) ** 2) / 2.0))


def test_what_the_host_knows_of_empty_rows():
    assert not limits(lengths=torch.tensor([1, 2]), min_length=1, causal=0).maybe_empty
    assert limits(lengths=torch.tensor([1, 2])).maybe_empty, "unknown on a GPU"
    assert limits(lengths=torch.tensor([0, 2]), min_length=0).maybe_empty
    assert limits(causal=-1).maybe_empty
    assert limits(window=Window(3)).maybe_empty


def test_a_head_axis_comes_before_the_queries():
    mask = torch.rand(2, 5, 7) > 0.5
    per_head = torch.rand(2, 3, 5, 7) > 0.5
    over = limits(
        lengths=torch.tensor([3, 7]), causal=torch.tensor([0, 2]), masks=(mask, per_head, mask[0]),
        window=Window(2, centre=torch.rand(2, 5) * 7),
    )  # fmt: skip
    wide = over.over_heads().mask()
    assert wide.shape == (2, 3, 5, 7)
    for head in range(3):
        alone = limits(
            lengths=over.lengths, causal=over.causal, masks=(mask, per_head[:, head], mask[0]), window=over.window
        )
        assert torch.equal(wide[:, head], alone.mask())
