"""Benchmarks of attention: heads beside torch's own, additive scores beside the plain expression, windows, watching."""

# b batch · n queries · m keys
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention import Additive, Attention, Dot, Heads, Monotonic, Predictive, use_backend, watch
from regard_bench.measure import Result, agree, peak_memory, time_interleaved

MIB = 1024 * 1024


def run(rounds: int = 9, seed: int = 0, device: str = "cpu") -> Iterator[Result]:
    """Every comparison, one after the other, on this machine's CPU in float32, or those of a GPU."""
    if device == "cuda":
        from regard_bench import attention_cuda

        yield from attention_cuda.run(rounds, seed)
        return
    torch.manual_seed(seed)
    yield heads_beside_torch(rounds)
    yield from additive_beside_plain(rounds)
    yield from windows_beside_global(rounds)
    yield from watching(rounds)


def heads_beside_torch(rounds: int) -> Result:
    """Heads and nn.MultiheadAttention with the same weights, forward and backward."""
    ours, peer = Heads(512, heads=8), nn.MultiheadAttention(512, 8, batch_first=True)
    assert ours.projection is not None
    assert ours.output is not None
    with torch.no_grad():
        ours.projection.weight.copy_(peer.in_proj_weight)
        ours.output.weight.copy_(peer.out_proj.weight)
    x, gradient = torch.randn(8, 512, 512, requires_grad=True), torch.randn(8, 512, 512)
    agree("Heads", ours(x), peer(x, x, x, need_weights=False)[0], 1e-5)

    def train_ours() -> None:
        ours(x).backward(gradient)

    def train_peer() -> None:
        peer(x, x, x, need_weights=False)[0].backward(gradient)

    mine, theirs = time_interleaved([train_ours, train_peer], rounds)
    ratio = mine.median / theirs.median
    return Result(
        "Heads(512, heads=8) on [8, 512, 512], forward and backward",
        f"Heads {mine}",
        f"nn.MultiheadAttention {theirs}",
        ratio,
        "at most 1.05 × its time",
        ratio <= 1.05,
        {"ours_s": mine.median, "peer_s": theirs.median},
    )


def additive_inputs() -> tuple[Attention, list[Tensor]]:
    """B 4, N = M 512, hidden 256."""
    torch.manual_seed(0)
    return Attention(Additive(256, 256, hidden=256)), [torch.randn(4, 512, 256, requires_grad=True) for _ in range(3)]


def train_chunked() -> None:
    """One forward and backward pass, in chunks."""
    attention, inputs = additive_inputs()
    attention(*inputs).sum().backward()


def train_plain() -> None:
    """Run one pass forward and backward by the plain expression."""
    with use_backend("dense"):
        train_chunked()


def additive_beside_plain(rounds: int) -> Iterator[Result]:
    """Additive attention in chunks and as its formula says, forward and backward."""
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
    mine, theirs = time_interleaved([train, train_densely], max(3, rounds // 3))
    what, ratio = "additive, B 4, N = M 512, hidden 256, forward and backward", mine.median / theirs.median
    seconds = {"ours_s": mine.median, "peer_s": theirs.median}
    yield Result(
        f"{what}: time", f"in chunks {mine}", f"plain {theirs}", ratio, "at most its time", ratio <= 1, seconds
    )
    small, large = peak_memory(train_chunked), peak_memory(train_plain)
    ratio = small / large
    yield Result(
        f"{what}: peak extra memory",
        f"in chunks {small / MIB:.0f} MiB",
        f"plain {large / MIB:.0f} MiB",
        ratio,
        "at most 1/8 of it",
        ratio <= 1 / 8,
        {"ours_bytes": small, "peer_bytes": large},
    )


def windows_beside_global(rounds: int) -> Iterator[Result]:
    """A window of radius 10 over 2,048 keys beside all of them: for all queries at once, and for one, as in a step."""
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
        mine, theirs = time_interleaved(calls, rounds)
        ratio = theirs.median / mine.median
        passes = "forward and backward" if backward else "forward"
        yield Result(
            f"{name}, radius 10, scaled dot, B {b}, N {n}, M {m}, width {d}, {passes}",
            f"window {mine}",
            f"global {theirs}",
            ratio,
            "at least 5 × faster",
            ratio >= 5,
            {"ours_s": mine.median, "peer_s": theirs.median},
        )


def attend(model: Attention, inputs: list[Tensor], gradient: Tensor | None) -> None:
    """One forward pass, and a backward pass where a gradient is given."""
    with torch.set_grad_enabled(gradient is not None):
        context = model(*inputs)
    if gradient is not None:
        torch.autograd.grad(context, inputs, gradient)


def watching(rounds: int) -> Iterator[Result]:
    """A model that is watched, and one that is not or no longer is."""
    heads, fresh = Heads(256, heads=4), Heads(256, heads=4)
    fresh.load_state_dict(heads.state_dict())
    x = torch.randn(8, 256, 256)
    with watch(heads):
        heads(x)

    def watched() -> None:
        with watch(heads):
            heads(x)

    def ask_weights() -> None:
        with watch(heads) as looks:
            heads(x)
        _ = looks[""].weights

    with torch.no_grad():
        agree("watch", heads(x), fresh(x), 1e-6)
        off, never, on, weighed = time_interleaved(
            [lambda: heads(x), lambda: fresh(x), watched, ask_weights], 3 * rounds
        )
    ratio = off.median / never.median
    seconds = {"off_s": off.median, "never_s": never.median, "on_s": on.median, "asked_s": weighed.median}
    yield Result(
        "watch off, after having been on",
        f"{off}",
        f"never watched {never}",
        ratio,
        "within 1.05",
        ratio <= 1.05,
        seconds,
    )
    ratio = on.median / never.median
    what = "watch on, nothing asked for (asked for: " + f"{weighed.median / never.median:.2f} ×)"
    yield Result(what, f"{on}", f"never watched {never}", ratio, "within 1.25", ratio <= 1.25, seconds)
