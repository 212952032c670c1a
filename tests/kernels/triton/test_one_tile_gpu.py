"""On a CUDA device: the backend of short sequences, real sizes and dtypes, graphs and the compiler."""

import pytest
import torch
from kernels.cases import recorded

from regard.attention import Attention, Causal, Dot, Heads, Lengths, Mask, Monotonic, Packed, use_backend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context"),  # torch's own
]
DEVICE = torch.device("cuda")
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3}  # relative, of the norm


def lengths_of(count):
    """Return sentence lengths as in translation: a few are long, one is empty."""
    drawn = (24 * torch.randn(count).mul(0.5).exp()).round().clamp(1, 128).long()
    drawn[count // 2] = 0
    return drawn


def offsets_of(lengths):
    return torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).to(DEVICE, torch.int32)


def close(found, expected, dtype):
    for one, other in zip(found, expected, strict=True):
        assert torch.isfinite(one).all()
        difference = (one.detach().double() - other.detach().double()).norm()
        assert difference <= TOLERANCE[dtype] * other.detach().double().norm(), float(difference)


def twins(dtype, **options):
    heads = Heads(512, heads=8, **options).to(DEVICE)
    made = [Heads(512, heads=8, **options).to(DEVICE, kind) for kind in (dtype, torch.float64)]
    for one in made:
        one.load_state_dict(heads.state_dict())
    return made


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_heads_over_packed_sentences_equal_dense(dtype, causal, across):
    target, source = lengths_of(60), lengths_of(60)
    span = Packed(offsets_of(target), offsets_of(source)) if across else Packed(offsets_of(target))
    span = span & Causal() if causal else span
    half, exact = twins(dtype)
    inputs = [
        torch.randn(int(n.sum()), 512, device=DEVICE, dtype=dtype) for n in ((target, source) if across else (target,))
    ]
    answers, grad = [], torch.randn(int(target.sum()), 512, device=DEVICE, dtype=dtype)
    for module, kind, name in ((half, dtype, None), (exact, torch.float64, "dense")):
        given = [x.to(kind).requires_grad_() for x in inputs]
        with recorded() as ran:
            if name:
                with use_backend(name):
                    out = module(*given, span=span)
            else:
                out = module(*given, span=span)
        assert ran == [name or "one-tile"]
        answers.append([out, *torch.autograd.grad(out, [*given, *module.parameters()], grad.to(kind))])
    close(
        [x for x in answers[0] if x.ndim > 1], [x for x in answers[1] if x.ndim > 1], dtype
    )  # it is 0 for a key's bias


SERVED = {
    "none": (lambda: None, "one-tile"),
    "causal": (lambda: Causal(), "one-tile"),
    "lengths": (lambda: Lengths(torch.tensor([[64], [0], [13], [1]], device=DEVICE)), "one-tile"),
    "causal lengths": (lambda: Causal() & Lengths(torch.tensor([[64], [0], [13], [1]], device=DEVICE)), "one-tile"),
    "mask": (lambda: Mask(torch.ones(64, 64, dtype=torch.bool, device=DEVICE)), "sdpa"),
    "causal from 3": (lambda: Causal(3), "sdpa"),
    "monotonic": (lambda: Monotonic(20), "flex"),
}


@pytest.mark.parametrize("span", SERVED)
def test_who_serves_short_padded_rows(span):
    make, name = SERVED[span]
    span, attention = make(), Attention(Dot(scaled=True))
    inputs = [torch.randn(4, 16, 64, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    assert attention.backend(*inputs, span=span) == name
    if name != "one-tile":
        return
    found = attention(*inputs, span=span)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    with use_backend("dense"):
        expected = attention(*exact, span=span)
    grad = torch.randn_like(found)
    close(
        [found, *torch.autograd.grad(found, inputs, grad)],
        [expected, *torch.autograd.grad(expected, exact, grad.double())],
        torch.bfloat16,
    )


def test_what_is_long_wide_or_single_goes_elsewhere():
    attention = Attention(Dot())
    for shape, dtype in (((2, 129, 64), torch.bfloat16), ((2, 40, 160), torch.float16), ((2, 40, 64), torch.float32)):
        x = torch.randn(*shape, device=DEVICE, dtype=dtype, requires_grad=True)
        assert attention.backend(x, x) == "sdpa"
    x = torch.randn(300, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    assert attention.backend(x, x, span=Packed([0, 129, 300])) == "varlen"


def test_a_graph_draws_anew_at_every_replay():
    from regard.kernels.triton import one_tile

    offsets = offsets_of(lengths_of(40))
    given = torch.randn(int(offsets[-1]), 3 * 512, device=DEVICE, dtype=torch.bfloat16)

    def step(dropout):
        qkv = given.detach().requires_grad_()
        out = one_tile.self_attention(qkv, offsets, 128, 8, scale=0.125, causal=True, dropout=dropout)
        return out, *torch.autograd.grad(out, qkv, torch.ones_like(out))

    for dropout in (0.0, 0.3):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            eager = step(dropout)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step(dropout)
        replays = []
        for _ in range(2):
            graph.replay()
            replays.append([x.detach().clone() for x in captured])
        same = [torch.equal(a, b) for a, b in zip(*replays, strict=True)]
        assert same == [not dropout] * 2
        assert [torch.equal(a, b) for a, b in zip(replays[0], eager, strict=True)] == [not dropout] * 2


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own warning
def test_compiled_whole():
    torch.compiler.reset()
    heads = Heads(128, heads=4).to(DEVICE, torch.bfloat16)
    x = torch.randn(3, 40, 128, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    span = Lengths(torch.tensor([40, 3, 11], device=DEVICE))
    assert heads.backend(x, span=span) == "one-tile"
    answers = []
    for module in (torch.compile(heads, fullgraph=True), heads):
        out = module(x, span=span)
        answers.append([out, *torch.autograd.grad(out.sum(), x)])
    close(*answers, torch.bfloat16)
