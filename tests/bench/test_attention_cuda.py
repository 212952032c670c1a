"""The GPU's benchmark of attention: the formula beside which it stands is additive attention."""

import pytest
import torch

from regard.attention import Additive, Attention
from regard.errors import RegardError
from regard_bench import attention_cuda


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 7)])
def test_the_formula_is_additive_attention(n, m):
    torch.manual_seed(0)
    attention = Attention(Additive(5, 6, hidden=4)).double()
    query, keys, values = (torch.randn(2, *shape, dtype=torch.float64) for shape in ((n, 5), (m, 6), (m, 3)))
    projected, prepared = attention.score.ask(query), attention.prepare(keys, values)
    made = attention_cuda.plain(projected, prepared.keys, values, attention.score.vector)
    torch.testing.assert_close(made, attention(query, keys, values))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_without_a_gpu_nothing_is_measured():
    with pytest.raises(RegardError, match="torch finds no CUDA device"):
        next(attention_cuda.run())
