"""Half-precision gradients are summed over queries in float32 and rounded once, for any number of queries per key."""

import pytest
import torch
from draws import SEED
from kernels.combinations import agree, forced, look
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention import Additive, Attention, Cosine, Monotonic, Predictive, use_backend

WAYS = {name: forced(name) for name in ("dense", "sdpa", "window", "chunked")} | {"look": look}
# Operations that add several numbers into one place. A GPU adds in the input dtype, by successive atomic additions; a
# CPU does not, so its results alone would not show it. (`index_put` lays out packed sequences: each row has its own
# place.)
ADDING = ("index_add", "scatter_add", "scatter_reduce", "embedding_dense_backward", "unfold_backward")


class Additions(TorchDispatchMode):
    """Records the dtypes in which rows are added into rows, by operation."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.removeprefix("aten::").rstrip("_")
        if name in ADDING:
            self.dtypes.update(
                (name, each.dtype) for each in args if torch.is_tensor(each) and each.is_floating_point()
            )
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", WAYS)
def test_rows_are_added_into_rows_in_float32(name, dtype):
    with Additions() as additions:
        scores = ["additive"] if name == "chunked" else ["dot", "general", "cosine", "additive"]
        spans = ["lengths", "causal", "monotonic", "predictive"]
        # Other tests compare half-precision numbers; here the calls only run.
        agree(WAYS[name], {"gradients"}, count=30, seed=SEED, dtype=dtype, scores=scores, spans=spans, tolerance=1.0)
    assert {each for each in additions.dtypes if each[1] in (torch.bfloat16, torch.float16)} == set()
    if name == "window":
        assert {kind for kind, _ in additions.dtypes} >= {"index_add", "unfold_backward"}


SPANS = {"predictive": lambda: Predictive(8, 2), "monotonic": lambda: Monotonic(3, start=-3)}


@pytest.mark.parametrize("queries", [65, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("score", ["cosine", "additive"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_many_queries_of_one_key(device, score, span, queries):
    """The gradients of a key and of its value equal those of float64 up to bfloat16 rounding."""

    def gradients(dtype):
        torch.manual_seed(SEED)
        attention = Attention(Cosine(3.0) if score == "cosine" else Additive(8, 8, hidden=5), span=SPANS[span]())
        attention.requires_grad_(False)
        shapes = (queries, 8), (3, 8), (3, 8)
        given = [torch.randn(1, *shape).bfloat16().to(device, dtype).requires_grad_() for shape in shapes]
        with torch.no_grad():
            for parameter in attention.parameters():
                parameter.copy_(parameter.bfloat16())
        with use_backend("window" if dtype == torch.bfloat16 else "dense"):
            context = attention.to(device, dtype)(*given)
        return torch.autograd.grad(context.sum(), given[1:])

    for found, expected in zip(gradients(torch.bfloat16), gradients(torch.float64), strict=True):
        assert float((found.double() - expected).abs().max()) <= 0.02 * max(1.0, float(expected.abs().max()))
