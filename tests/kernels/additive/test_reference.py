"""The specification of additive scores, against a loop."""

import torch

from regard.kernels import reference


def test_it_is_the_formula_for_each_pair():
    query, keys = torch.randn(2, 3, 5).double(), torch.randn(2, 4, 5).double()
    vector, heads = torch.randn(5).double(), torch.randn(2, 5).double()
    found, apart = reference.additive_scores(query, keys, vector), reference.additive_scores(query, keys, heads)
    for b in range(2):
        for i in range(3):
            for j in range(4):
                hidden = torch.tanh(query[b, i] + keys[b, j])
                torch.testing.assert_close(found[b, i, j], sum(vector * hidden))
                torch.testing.assert_close(apart[b, i, j], sum(heads[b] * hidden))
