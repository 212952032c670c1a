"""The specification of the top tokens: sorted by hand, row by row."""

import math

import torch

from regard.kernels.operations import reference

END = 2


def test_what_may_come_in_order():
    scores = torch.tensor([[9.0, 8.0, 7.0, 1.0, 3.0]]).repeat(4, 1)
    early, forced = torch.tensor([False, True, False, True]), torch.tensor([-1, -1, 4, END])
    best, tokens, norm = reference.top_tokens(scores, 2, (0, 1), END, early, forced)
    assert tokens[0].tolist() == [2, 4]
    assert tokens[1].tolist() == [4, 3]  # END is too early
    assert (tokens[2, 0], tokens[3, 0]) == (4, END)  # whatever is forbidden otherwise
    assert best.tolist() == [[7.0, 3.0], [3.0, 1.0], [3.0, -math.inf], [7.0, -math.inf]]
    torch.testing.assert_close(norm, scores.logsumexp(-1))  # of all, forbidden ones too
