"""Benchmarks of attention: heads against torch's, additive scores against the plain expression, windows, watching.

On a GPU, additive attention is compared with the plain expression, eager and compiled (B 32, N = M = 512, hidden 256,
values 256, a size for which public code has no fused kernel), and short sequences with torch's kernels (B 256, 16 heads
of 64, N 64, typical of translation). GPU times come from CUDA events around captured graphs, which training and search
also use; times of calls from Python are listed too. Results are compared with float64 before any of them is printed.
"""

# b batch · n queries · m keys · h hidden · d width
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention import (
    Additive,
    Attention,
    Causal,
    Dot,
    Heads,
    Monotonic,
    Predictive,
    Prepared,
    use_backend,
    watch,
)
from regard.errors import RegardError
from regard.machine import pause_garbage_collection
from regard_bench.measure import (
    MIB,
    Result,
    agree,
    ceilings,
    compare_memory,
    compare_times,
    peak_memory,
    time_call,
    time_interleaved,
)

# On a GPU.
ROWS, LENGTH, HIDDEN = 32, 512, 256
GOALS = {"forward": 0.45e-3, "backward": 2.5e-3}  # seconds
MEMORY = 256 * MIB
CLOSE = 2e-3
TIMES = 10  # calls in a row
SHORT = (256, 16, 64, 64)  # rows, heads, positions, width
FUSED = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def run(rounds: int = 9, seed: int = 0, device: str = "cpu") -> Iterator[Result]:
    """Run every comparison on this machine's CPU in float32, or those for a GPU."""
    if device == "cuda":
        yield from run_cuda(rounds, seed)
        return
    torch.manual_seed(seed)
    yield heads_beside_torch(rounds)
    yield from additive_beside_plain(rounds)
    yield from windows_beside_global(rounds)
    yield from watching(rounds)


def heads_beside_torch(rounds: int) -> Result:
    """Compare Heads with nn.MultiheadAttention with the same weights, forward and backward."""
    ours, peer = Heads(512, heads=8), nn.MultiheadAttention(512, 8, batch_first=True)
    assert ours.projection is not None
    assert ours.output is not None
    with torch.no_grad():
        ours.projection.weight.copy_(peer.in_proj_weight)
        ours.output.weight.copy_(peer.out_proj.weight)
    x, gradient = torch.randn(8, 512, 512, requires_grad=True), torch.randn(8, 512, 512)
    agree("Heads", ours(x), peer(x, x, x, need_weights=False)[0], 1e-5)

    calls = [lambda: ours(x).backward(gradient), lambda: peer(x, x, x, need_weights=False)[0].backward(gradient)]
    what, names = "Heads(512, heads=8) on [8, 512, 512], forward and backward", ("Heads", "nn.MultiheadAttention")
    return compare_times(what, names, time_interleaved(calls, rounds), "at most 1.05 × its time", most=1.05)


def additive_inputs() -> tuple[Attention, list[Tensor]]:
    """Create additive attention and its inputs: B 4, N = M = 512, hidden 256."""
    torch.manual_seed(0)
    return Attention(Additive(256, 256, hidden=256)), [torch.randn(4, 512, 256, requires_grad=True) for _ in range(3)]


def train_chunked() -> None:
    """Run one forward and backward pass in chunks."""
    attention, inputs = additive_inputs()
    attention(*inputs).sum().backward()


def train_plain() -> None:
    """Run one forward and backward pass with the plain expression."""
    with use_backend("dense"):
        train_chunked()


def additive_beside_plain(rounds: int) -> Iterator[Result]:
    """Compare additive attention in chunks with its plain formula, forward and backward."""
    attention, inputs = additive_inputs()

    def train() -> list[Tensor]:
        context = attention(*inputs)
        return [context, *torch.autograd.grad(context.sum(), inputs)]

    def train_densely() -> list[Tensor]:
        with use_backend("dense"):
            return train()

    query, keys, values = inputs
    assert attention.backend(query, keys, values) == "chunked"
    for ours, plain in zip(train(), train_densely(), strict=True):
        agree("additive", ours, plain, 1e-4)
    what = "additive, B 4, N = M 512, hidden 256, forward and backward"
    timings = time_interleaved([train, train_densely], max(3, rounds // 3))
    yield compare_times(f"{what}: time", ("in chunks", "plain"), timings, "at most its time", most=1)
    peaks = peak_memory(train_chunked), peak_memory(train_plain)
    what = f"{what}: peak extra memory"
    yield compare_memory(what, ("in chunks", "plain"), peaks, "at most 1/8 of it", 1 / 8)


def windows_beside_global(rounds: int) -> Iterator[Result]:
    """Compare a window of radius 10 with all 2,048 keys: for all queries at once, and for one, as in decoding."""
    m, d = 2048, 256
    whole = Attention(Dot(scaled=True))
    spans = {"local-m": Monotonic(10, start=0), "local-p": Predictive(d, 10)}
    for name, b, n, backward in (
        ("local-m", 4, m, False),
        ("local-m", 4, m, True),
        ("local-p", 4, m, False),
        ("local-p", 4, m, True),
        ("local-m", 64, 1, False),
        ("local-p", 64, 1, False),
    ):
        local = Attention(Dot(scaled=True), span=spans[name])
        query, keys, values = (torch.randn(b, count, d, requires_grad=backward) for count in (n, m, m))
        assert local.backend(query, keys, values) == "window"
        context = local(query, keys, values)
        with use_backend("dense"):
            agree(name, context, local(query, keys, values), 1e-4)

        gradient = torch.randn_like(context) if backward else None
        calls = [partial(attend, model, [query, keys, values], gradient) for model in (local, whole)]
        passes = "forward and backward" if backward else "forward"
        what = f"{name}, radius 10, scaled dot, B {b}, N {n}, M {m}, width {d}, {passes}"
        timed = time_interleaved(calls, rounds)
        yield compare_times(what, ("window", "global"), timed, "at least 5 × faster", least=5)


def attend(model: Attention, inputs: list[Tensor], gradient: Tensor | None) -> None:
    """Run a forward pass, and with a gradient also a backward pass."""
    with torch.set_grad_enabled(gradient is not None):
        context = model(*inputs)
    if gradient is not None:
        torch.autograd.grad(context, inputs, gradient)


def watching(rounds: int) -> Iterator[Result]:
    """Compare a watched model, and one that is no longer watched, with one that never was."""
    heads, fresh = Heads(256, heads=4), Heads(256, heads=4)
    fresh.load_state_dict(heads.state_dict())
    x = torch.randn(8, 256, 256)
    with watch(heads):
        heads(x)

    def watched(ask: bool = False) -> None:
        with watch(heads) as looks:
            heads(x)
        if ask:
            _ = looks[""].weights

    calls: list[Callable[[], object]] = [lambda: heads(x), lambda: fresh(x), watched, partial(watched, ask=True)]
    with torch.no_grad():
        agree("watch", heads(x), fresh(x), 1e-6)
        off, never, on, weighed = time_interleaved(calls, 3 * rounds)
    seconds = {"off_s": off.median, "never_s": never.median, "on_s": on.median, "asked_s": weighed.median}
    asked = f"watch on, nothing asked for (asked for: {weighed.median / never.median:.2f} ×)"
    for what, each, most in (("watch off, after having been on", off, 1.05), (asked, on, 1.25)):
        ratio = each.median / never.median
        yield Result(what, f"{each}", f"never watched {never}", ratio, f"within {most}", ratio <= most, seconds)


# ---- on a GPU


def run_cuda(rounds: int, seed: int) -> Iterator[Result]:
    """Run every comparison on a GPU."""
    if not torch.cuda.is_available():
        raise RegardError("bench: --device cuda given, but torch finds no CUDA device")
    torch.manual_seed(seed)
    for dtype in (torch.float32, torch.bfloat16):
        yield from additive(rounds, dtype)
    for causal in (False, True):
        yield from short(rounds, causal)


class Sides:
    """An additive attention with its inputs in one dtype: projected queries and keys, values, and v."""

    def __init__(self, dtype: torch.dtype):
        self.attention = Attention(Additive(HIDDEN, HIDDEN, hidden=HIDDEN)).to("cuda", dtype)
        self.inputs = [
            torch.randn(ROWS, LENGTH, HIDDEN, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)
        ]
        self.gradient = torch.randn(ROWS, LENGTH, HIDDEN, device="cuda", dtype=dtype)
        with torch.no_grad():
            projected = self.attention.score.project_query(self.inputs[0])
            self.prepared = self.attention.prepare(*self.inputs[1:])
        self.leaves = [x.detach().requires_grad_() for x in (projected, self.prepared.keys, self.inputs[2])]
        vector = self.attention.score.vector
        assert vector is not None
        self.leaves.append(vector)

    def ours(self) -> Tensor:
        """Compute the attention after the projections, the part that backends compute."""
        projected, keys, values, _ = self.leaves
        return self.attention.attend_projected(projected, Prepared(keys, values, self.attention), self.inputs[0], None)


def plain(projected: Tensor, keys: Tensor, values: Tensor, vector: Tensor) -> Tensor:
    """Compute additive attention by its formula."""
    scores = torch.tanh(projected[:, :, None] + keys[:, None]) @ vector
    return scores.softmax(-1) @ values


def additive(rounds: int, dtype: torch.dtype) -> Iterator[Result]:
    """Compare additive attention's forward and backward passes and its memory with the formula, eager and compiled."""
    products, copies = ceilings()
    card = f"card: {products:.0f} TFLOP/s, {copies:.2f} TB/s"
    what = f"additive attention, [{ROWS}, {LENGTH}, {LENGTH}], hidden {HIDDEN}, values {HIDDEN}"
    what = f"{what}, {str(dtype).removeprefix('torch.')}"
    sides = Sides(dtype)
    error = errors(sides.ours, sides.leaves, sides.gradient)
    bound = CLOSE
    if dtype != torch.float32:  # the error must not exceed the formula's in the same precision
        bound = errors(partial(plain, *sides.leaves), sides.leaves, sides.gradient)
    if not error <= bound:
        raise RegardError(f"bench: {what}: an error of {error:.1e}, expected {bound:.1e}, so no speed is compared")
    backend = sides.attention.plan_projected(sides.leaves[0], sides.prepared, sides.inputs[0], None).name
    called = both(sides.ours, sides, rounds)
    ours = time_call(capture_graph(torch.no_grad()(sides.ours)).replay, rounds) / TIMES, called[1]
    peers = {"eager": partial(plain, *sides.leaves), "compiled": partial(torch.compile(plain), *sides.leaves)}
    theirs = {name: both(call, sides, 3) for name, call in peers.items()}
    for i, direction in enumerate(("forward", "backward")):
        text = f"Regard ({backend}) {ours[i] * 1e3:.3f} ms, error {error:.1e}"
        if i == 0:
            text += f" ({called[i] * 1e3:.3f} ms called by Python)"
        beside = ", ".join(f"{key} {value[i] * 1e3:.2f} ms" for key, value in theirs.items()) + f" ({card})"
        goal = GOALS[direction]
        details = {"ours_s": ours[i], "called_s": called[i], "error": error}
        details |= {f"{key}_s": value[i] for key, value in theirs.items()}
        ratio, limit = ours[i] / theirs["compiled"][i], f"at most {goal * 1e3:g} ms"
        yield Result(f"{what}, {direction}", text, beside, ratio, limit, ours[i] <= goal, details)
    peak = memory(sides.ours, sides.gradient)
    other = memory(peers["compiled"], sides.gradient)
    what, goal_text = f"{what}, peak extra memory, forward and backward", f"at most {MEMORY // MIB} MiB"
    texts = f"Regard {peak / MIB:,.0f} MiB", f"compiled {other / MIB:,.0f} MiB"
    details = {"ours_bytes": float(peak), "compiled_bytes": float(other)}
    yield Result(what, *texts, peak / other, goal_text, peak <= MEMORY, details)


def errors(call: Callable[[], Tensor], leaves: list[Tensor], gradient: Tensor, rows: int = 2) -> float:
    """Return the largest relative error (of norms) of the result and all gradients but v's, against float64."""
    outputs = call()
    gradients = torch.autograd.grad(outputs, leaves[:3], gradient)
    wide = [leaf.detach()[:rows].double().requires_grad_() for leaf in leaves[:3]]
    exact = plain(wide[0], wide[1], wide[2], leaves[3].detach().double())
    expected = torch.autograd.grad(exact, wide, gradient[:rows].double())
    pairs = zip((outputs, *gradients), (exact, *expected), strict=True)
    return max(float((one[:rows].double() - other).norm() / other.norm()) for one, other in pairs)


def both(call: Callable[[], Tensor], sides: Sides, rounds: int) -> tuple[float, float]:
    """Time a forward pass without gradients, and a backward pass, in seconds, each over several calls in a row."""
    ahead = time_in_a_row(torch.no_grad()(call), rounds)
    outputs = call()
    backward = partial(torch.autograd.grad, outputs, sides.leaves, sides.gradient, retain_graph=True)
    return ahead, time_in_a_row(backward, rounds)


def time_in_a_row(call: Callable[[], object], rounds: int) -> float:
    """Time a call in seconds, from several in a row, so that the host's work overlaps with the GPU's."""

    def several() -> None:
        for _ in range(TIMES):
            call()

    return time_call(several, rounds) / TIMES


def capture_graph(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Capture several calls as a CUDA graph, which takes only the GPU's time, without the host's."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    for last in (False, True):
        graph = torch.cuda.CUDAGraph()
        try:
            with pause_garbage_collection(), torch.cuda.graph(graph):
                for _ in range(TIMES):
                    call()
        except RuntimeError:  # the first capture of a process sometimes failed, for an unknown reason
            if last:
                raise
            torch.cuda.synchronize()
            continue
        break
    return graph


def memory(call: Callable[[], Tensor], gradient: Tensor) -> int:
    """Measure the peak of memory in bytes of a forward and a backward pass, beyond the memory in use before."""
    for _ in range(2):  # the first may compile
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        output = call()
        output.backward(gradient)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del output
    return int(peak)


def short(rounds: int, causal: bool) -> Iterator[Result]:
    """Compare scaled dot-product attention over few positions with torch's kernels."""
    rows, heads, n, d = SHORT
    attention = Attention(Dot(scaled=True))
    query, keys, values = (
        torch.randn(rows, heads, n, d, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    gradient = torch.randn_like(query)
    span = Causal() if causal else None

    def ours() -> Tensor:
        return attention.attend_projected(query, Prepared(keys, values, attention), query, span)

    wide = [x.detach()[:4].double() for x in (query, keys, values)]
    exact = F.scaled_dot_product_attention(wide[0], wide[1], wide[2], is_causal=causal)
    error = float((ours()[:4].double() - exact).norm() / exact.norm())
    backend = attention.plan_projected(query, Prepared(keys, values, attention), query, span).name
    times = {f"Regard ({backend})": timings(ours, (query, keys, values), gradient, rounds)}
    errors_of = {}
    for name, kernel in FUSED.items():

        def theirs(kernel: Any = kernel) -> Tensor:
            with sdpa_kernel(kernel):
                return F.scaled_dot_product_attention(query, keys, values, is_causal=causal)

        errors_of[name] = float((theirs()[:4].double() - exact).norm() / exact.norm())
        times[name] = timings(theirs, (query, keys, values), gradient, rounds)
    if not error <= 1.5 * max(errors_of.values()):
        raise RegardError(f"bench: short sequences: an error of {error:.1e}, so no speed is compared")
    work = 4 * rows * heads * n * n * d * (0.5 if causal else 1.0)
    mine, *others = times
    for i, (direction, factor) in enumerate((("forward", 1.0), ("backward", 2.5))):
        rates = {name: work * factor / seconds[i] / 1e12 for name, seconds in times.items()}
        best = max(rates[name] for name in others)
        what = f"B {rows}, {heads} heads of {d}, N {n}{', causal' if causal else ''}, bf16, {direction}"
        text = f"{mine} {rates[mine]:.0f} TFLOP/s, error {error:.1e}"
        beside = ", ".join(f"{name} {rates[name]:.0f}" for name in others) + " TFLOP/s"
        goal, details = "above the best of torch's", {f"{name}_tflops": rates[name] for name in others}
        details = {"ours_tflops": rates[mine], **details}
        yield Result(what, text, beside, rates[mine] / best, goal, rates[mine] > best, details)


def timings(
    call: Callable[[], Tensor], leaves: tuple[Tensor, ...], gradient: Tensor, rounds: int
) -> tuple[float, float]:
    """Time a forward and a backward pass, in seconds, with CUDA graphs, as the host would be slower than the GPU."""
    forward, whole = (
        time_call(capture_graph(each).replay, rounds) / TIMES
        for each in (torch.no_grad()(call), lambda: torch.autograd.grad(call(), leaves, gradient))
    )
    return forward, whole - forward
