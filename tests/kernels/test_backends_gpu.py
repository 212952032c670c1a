"""On a CUDA device: every backend that claims a combination equals dense, and the table chooses as designed."""

import pytest
import torch
from kernels.cases import recorded

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Causal,
    Decoder,
    Dot,
    Encoder,
    Gumbel,
    Hard,
    Heads,
    Lengths,
    Monotonic,
    Packed,
    Rotary,
    Sparsemax,
    use_backend,
    watch,
)
from regard.errors import BackendError, WatchError

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda")
# The largest difference allowed, relative to the largest number; TF32 is off by default for matrix products.
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 3e-2, torch.float16: 5e-3}


def compare(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        assert torch.isfinite(one).all()
        difference = float((one.detach().double() - other.detach().double()).abs().max())
        assert difference <= tolerance * max(1.0, float(other.detach().abs().max())), difference


def both(run, inputs, dtype, name=None):
    """Return results and gradients of `run` in this dtype by the (chosen) backend, and in float64 by the reference."""
    cotangent = None
    answers = []
    for forced, kind in ((name, dtype), ("dense", torch.float64)):
        given = [x.detach().to(kind).requires_grad_() for x in inputs]
        if forced:
            with use_backend(forced):
                out = run(kind, *given)
        else:
            out = run(kind, *given)
        cotangent = torch.randn_like(out) if cotangent is None else cotangent
        answers.append([out, *torch.autograd.grad(out, given, cotangent.to(kind))])
    return answers


FLEX = {
    "monotonic": lambda: Monotonic(10),
    "monotonic from": lambda: Monotonic(3, start=5) & Causal(5),
    "monotonic lengths": lambda: Monotonic(20) & Lengths(torch.tensor([200, 0, 77], device=DEVICE)),
    "alibi": lambda: Alibi(4),
    "alibi causal": lambda: Alibi(4) & Causal(),
    "alibi lengths": lambda: Alibi(4) & Lengths(torch.tensor([200, 13, 77], device=DEVICE)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FLEX)
def test_flex_equals_dense_with_gradients(name, dtype):
    span = FLEX[name]()
    inputs = [torch.randn(3, 4, 200, 64, device=DEVICE) for _ in range(3)]
    if name == "monotonic lengths":
        span = Monotonic(20) & Lengths(torch.tensor([[200], [0], [77]], device=DEVICE))
    if name == "alibi lengths":
        span = Alibi(4) & Lengths(torch.tensor([[200], [13], [77]], device=DEVICE))
    attention = Attention(Dot(scaled=True))
    assert attention.backend(*[x.to(dtype).requires_grad_() for x in inputs], span=span) == "flex"
    found, expected = both(lambda _, q, k, v: attention(q, k, v, span=span), inputs, dtype)
    compare(found, expected, TOLERANCE[dtype])


def test_flex_stays_fused_over_many_sizes_and_radii():
    """No length, radius or start is compiled in: a dozen of each do not exceed the recompilation limit."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    attention = Attention(Dot(scaled=True))
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for size in range(100, 1000, 75):
            x = torch.randn(2, 4, size, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
            ragged = Lengths(torch.tensor([[size], [3]], device=DEVICE))
            for span in (Monotonic(size // 50, start=size % 7), Alibi(4, start=size % 5), Monotonic(5) & ragged):
                attention(x, x, span=span).sum().backward()
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert compiled <= 12, f"{compiled} graphs for three spans"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_varlen_equals_dense_with_gradients(dtype, causal, scaled):
    packed = Packed(torch.tensor([0, 3, 3 + 64, 67 + 1, 200], device=DEVICE))
    span = packed & Causal() if causal else packed
    inputs = [torch.randn(200, 64, device=DEVICE) * 0.5 for _ in range(3)]
    attention = Attention(Dot(scaled=scaled))
    assert attention.backend(*[x.to(dtype) for x in inputs], span=span) == "varlen"
    with recorded() as ran:
        found, expected = both(lambda _, q, k, v: attention(q, k, v, span=span), inputs, dtype)
    assert ran == ["varlen", "dense"]
    compare(found, expected, TOLERANCE[dtype])


def test_packed_that_varlen_refuses_is_padded():
    packed = Packed(torch.tensor([0, 3, 67, 200], device=DEVICE))
    attention, x = Attention(Dot()), torch.randn(200, 64, device=DEVICE)
    assert attention.backend(x, x, span=packed) == "sdpa", "float32"
    assert attention.backend(x.half(), x.half(), span=packed & Monotonic(3)) in ("flex", "window", "sdpa")
    with use_backend("varlen"), pytest.raises(BackendError, match="float16 and bfloat16"):
        attention(x, x, span=packed)
    found = attention(x, x, span=packed)
    with use_backend("dense"):
        compare([found], [attention(x.double(), x.double(), span=packed)], 2e-3)


@pytest.mark.parametrize("keys", [33, 128, 129, 700])
@pytest.mark.parametrize("width", [8, 64, 256, 320])
def test_sdpa_at_every_width_and_number_of_keys(keys, width):
    attention = Attention(Dot(scaled=True))
    inputs = [torch.randn(2, 3, n, width, device=DEVICE) for n in (17, keys, keys)]
    found, expected = both(lambda _, q, k, v: attention(q, k, v), inputs, torch.bfloat16, "sdpa")
    compare(found, expected, TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("weighting", [Hard(), Gumbel(), Sparsemax()])
def test_what_has_no_kernel_is_dense_and_right(weighting):
    x = torch.randn(2, 9, 16, device=DEVICE)
    attention = Attention(Dot(), weighting=weighting).eval()
    assert attention.backend(x, x, span=Lengths([9, 0])) == "dense"
    torch.testing.assert_close(
        attention(x, x, span=Lengths([9, 0])).cpu(),
        attention(x.cpu(), x.cpu(), span=Lengths([9, 0])),
        rtol=1e-4,
        atol=1e-4,
    )
    look = attention.train().look(x, x, span=Lengths([9, 0]))
    assert torch.isfinite(look.context).all()
    assert not look.weights[1].any()


def test_autocast():
    heads, x = Heads(128, heads=4).to(DEVICE), torch.randn(3, 40, 128, device=DEVICE)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = heads(x, span=Causal())
    assert found.dtype == torch.bfloat16
    with use_backend("dense"):
        compare([found], [heads(x, span=Causal())], 3e-2)


@pytest.mark.parametrize("compiled", ["heads", "additive"])
def test_compiled_whole(compiled):
    torch.compiler.reset()
    model = Heads(128, heads=4) if compiled == "heads" else Attention(Additive(128, 128, hidden=64))
    model, x = model.to(DEVICE), torch.randn(3, 40, 128, device=DEVICE)
    span = Lengths(torch.tensor([40, 3, 11], device=DEVICE))
    compare([torch.compile(model, fullgraph=True)(x, x, span=span)], [model(x, x, span=span)], 2e-3)


def test_a_step_is_captured_once_and_replayed():
    """No shape in a step depends on the data, and no value is read back to the host."""
    decoder = Decoder(64, heads=2, layers=2, rotary=True).to(DEVICE).eval()
    memory, words = torch.randn(3, 11, 64, device=DEVICE), torch.randn(3, 8, 64, device=DEVICE)
    span = Lengths(torch.tensor([11, 4, 7], device=DEVICE))
    with torch.no_grad():
        expected = decoder(words, memory, memory_span=span)
        state = decoder.start(memory, 8, memory_span=span)
        given = words[:, :1].clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # kernels load outside the capture
            decoder.step(given, decoder.start(memory, 8, memory_span=span))
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = decoder.step(given, state)
        for cache in state.row.values():
            cache.length.zero_()
        for step in range(8):
            given.copy_(words[:, step : step + 1])
            graph.replay()
            compare([out], [expected[:, step : step + 1]], 2e-3)


def test_a_capture_cannot_be_watched():
    encoder, x = Encoder(64, heads=2, layers=1).to(DEVICE), torch.randn(2, 5, 64, device=DEVICE)
    with torch.no_grad():
        encoder(x)
        with watch(encoder) as looks:
            encoder(x)
        assert looks["blocks.0.attention"].weights.shape == (2, 2, 5, 5)
        graph = torch.cuda.CUDAGraph()
        with watch(encoder), pytest.raises(WatchError, match="captured"), torch.cuda.graph(graph):
            encoder(x)


def test_causal_packed_sequences_across_lengths_are_not_given_to_varlen():
    """With more keys than queries varlen counts from the end; Causal counts from the beginning."""
    query, keys = (torch.randn(n, 64, device=DEVICE, dtype=torch.bfloat16) for n in (5, 9))
    span = Packed([0, 2, 5], [0, 4, 9]) & Causal()
    attention = Attention(Dot(scaled=True))
    assert attention.backend(query, keys, span=span) != "varlen"
    with use_backend("dense"):
        expected = attention(query.double(), keys.double(), span=span)
    compare([attention(query, keys, span=span)], [expected], 3e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_given_from_the_host_is_moved(dtype):
    encoder = Encoder(64, heads=2, layers=1, rotary=True).to(DEVICE, dtype)
    x, span = torch.randn(7, 64, device=DEVICE, dtype=dtype), Packed([0, 3, 7])
    found = encoder(x, span=span & Causal())
    alone = torch.cat([encoder(x[:3], span=Causal()), encoder(x[3:], span=Causal())])
    compare([found], [alone], 3e-2)
    assert Heads(64, heads=2).to(DEVICE, dtype).look(x, span=span).weights.shape == (2, 7, 7)
    assert Rotary(64)(x[None].expand(2, -1, -1), start=torch.tensor([1, 2])).shape == (2, 7, 64)


def test_windows_after_inference_and_in_double():
    attention = Attention(Dot())
    x = torch.randn(2, 150, 64, device=DEVICE, requires_grad=True)
    with torch.inference_mode():
        attention(x, x, span=Monotonic(7))
    attention(x, x, span=Monotonic(7)).sum().backward()
    assert torch.isfinite(x.grad).all()
    wide = x.detach().double()
    assert attention.backend(wide, wide, span=Monotonic(7)) != "flex"
    with use_backend("dense"):
        expected = attention(wide, wide, span=Monotonic(7))
    torch.testing.assert_close(attention(wide, wide, span=Monotonic(7)), expected)
