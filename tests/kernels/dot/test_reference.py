"""The specification of bilinear scores, against a loop."""

import torch

from regard.kernels import reference


def test_it_is_a_product_of_each_pair():
    query, keys = torch.randn(2, 3, 5).double(), torch.randn(2, 4, 5).double()
    found = reference.bilinear_scores(query, keys, 0.3)
    for b in range(2):
        for i in range(3):
            for j in range(4):
                torch.testing.assert_close(found[b, i, j], 0.3 * sum(query[b, i] * keys[b, j]))
    torch.testing.assert_close(reference.bilinear_scores(query, keys), found / 0.3)


def test_half_precision_is_scored_in_single():
    huge = torch.full((1, 8), 200.0, dtype=torch.float16)
    assert reference.bilinear_scores(huge, huge).item() == 320_000
