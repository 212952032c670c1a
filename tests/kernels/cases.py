"""Random calls for the tests of backends, and a record of the backends that ran."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

import torch
from hypothesis import strategies as st

from regard.attention import (
    Additive,
    Attention,
    Causal,
    Cosine,
    Dot,
    General,
    Lengths,
    Mask,
    Monotonic,
    Predictive,
    Softmax,
    join,
)
from regard.kernels import backends, reference
from regard.kernels.reference import Call
from regard.kernels.span_limits import SpanLimits

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


@contextmanager
def recorded():
    """Yield the list of the backends that run."""
    ran = []

    def spy(backend):
        def attend(call):
            ran.append(backend.name)
            return backend.attend(call)

        return replace(backend, attend=attend)

    with mock.patch.object(backends.BACKENDS, "rows", tuple(map(spy, backends.BACKENDS))):
        yield ran


SCORES = {
    "dot": lambda d: Dot(),
    "scaled": lambda d: Dot(scaled=True),
    "general": lambda d: General(d, d),
    "additive": lambda d: Additive(d, d, hidden=5),
    "cosine": lambda d: Cosine(3.0),
}
SPANS = {
    "lengths": lambda b, n, m, d: Lengths(torch.randint(0, m + 1, b)),
    "causal": lambda b, n, m, d: Causal(),
    "causal from": lambda b, n, m, d: Causal(int(torch.randint(0, m, ()))),
    "causal rows": lambda b, n, m, d: Causal(torch.randint(-2, m, b)),
    "monotonic": lambda b, n, m, d: Monotonic(int(torch.randint(0, 6, ()))),
    "monotonic from": lambda b, n, m, d: Monotonic(2, start=int(torch.randint(-3, m + 3, ()))),
    "monotonic rows": lambda b, n, m, d: Monotonic(1, start=torch.randint(0, m, b)),
    "predictive": lambda b, n, m, d: Predictive(d, int(torch.randint(1, 5, ()))),
    "mask": lambda b, n, m, d: Mask(torch.rand(*b, n, m) > 0.4),
}


@dataclass(frozen=True)
class Drawn:
    """A call in plain data, which Hypothesis draws and shrinks; `build` makes its tensors."""

    batch: list[int]
    n: int
    m: int
    d: int
    dtype: torch.dtype
    score: str
    spans: list[str]
    temperature: float
    seed: int

    def build(self):
        """Return the attention, its inputs and its span."""
        torch.manual_seed(self.seed)
        # A cosine of one number is a sign: its gradient is zero, and a computed one is rounding divided by the number.
        width = max(2, self.d) if self.score == "cosine" else self.d
        span = join(*(SPANS[name](tuple(self.batch), self.n, self.m, width) for name in self.spans))
        for part in span.parts if span else ():
            if isinstance(part, torch.nn.Module):
                part.to(self.dtype)
        attention = Attention(SCORES[self.score](width), weighting=Softmax(self.temperature)).to(self.dtype)
        sizes = (self.n, width), (self.m, width), (self.m, width + 1)
        inputs = [torch.randn(*self.batch, *size, dtype=self.dtype, requires_grad=True) for size in sizes]
        return attention, inputs, span


def calls(*dtypes):
    """Return a strategy that draws calls."""
    return st.builds(
        Drawn,
        batch=st.lists(st.integers(1, 3), max_size=2),
        n=st.sampled_from([1, 2, 7, 33, 65]),
        m=st.sampled_from([1, 3, 7, 31, 63]),
        d=st.sampled_from([1, 4, 7]),
        dtype=st.sampled_from(dtypes),
        score=st.sampled_from(sorted(SCORES)),
        spans=st.lists(st.sampled_from(sorted(SPANS)), max_size=3, unique=True),
        temperature=st.sampled_from([1.0, 0.5]),
        seed=st.integers(0, 2**31),
    )


def evaluate(attention, inputs, span, cotangent, gradients=True):
    """Return the context and the gradients of inputs and parameters."""
    context = attention(*inputs, span=span)
    if not gradients:
        return [context]
    learned = [
        p for part in (span.parts if span else ()) if isinstance(part, torch.nn.Module) for p in part.parameters()
    ]
    wanted = [*inputs, *attention.parameters(), *learned]
    found = torch.autograd.grad(context, wanted, cotangent, allow_unused=True)
    return [context, *(torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True))]


# ---- a kernel against the reference in float64


def call_of(query, keys, values, vector=None, *, scale=1.0, temperature=1.0, **limits):
    """Return a call as the table receives it: its score is additive with a vector, and bilinear without."""
    batch = torch.broadcast_shapes(query.shape[:-2], keys.shape[:-2])

    def compare(asked, projected):
        if vector is None:
            return reference.bilinear_scores(asked, projected, scale)
        return reference.additive_scores(asked, projected, vector)

    return Call(
        query,
        keys,
        values,
        SpanLimits(query.shape[-2], keys.shape[-2], query.device, tuple(batch), **limits),
        compare=compare,
        weigh=lambda scores, mask: reference.softmax(scores, mask, temperature),
        scale=scale,
        vector=vector,
        temperature=temperature,
    )


def results(call, attend, inputs, cotangent=None, **options):
    """Return the context and the gradients of all inputs; `call` makes a call of them."""
    context = attend(call(inputs, **options))
    if cotangent is None:
        torch.manual_seed(len(inputs))
        cotangent = torch.randn(context.shape, device=context.device)
    return context, *torch.autograd.grad(context, inputs, cotangent.to(context.dtype), materialize_grads=True)


def error(found, exact):
    """Return the relative error; for numbers near zero, relative to a tenth each."""
    return ((found.double() - exact).norm() / exact.norm().clamp_min(0.1 * exact.numel() ** 0.5)).item()


def check(call, attend, inputs, tolerance, **options):
    """Check a kernel's context and gradients against the reference; unwritten memory is NaN."""
    exact = results(call, reference.attend, [x.detach().double().requires_grad_() for x in inputs], **options)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        found = results(call, attend, inputs, **options)
    finally:
        torch.use_deterministic_algorithms(False)
    for number, (one, wanted) in enumerate(zip(found, exact, strict=True)):  # the context, and then the gradients
        assert error(one, wanted) <= tolerance, f"result {number}: {error(one, wanted)}"


# ---- random inputs for RNNsearch's recurrence


def draw_recurrence(gates, b, n, m, d, h, dv, lengths=None):
    """Draw all tensors but `exists`, in float64 with gradients, and the key counts. A GRU has 3 gates, an LSTM 4."""
    g = gates * d
    shapes = [(b, n, g), (b, gates - 2, d), (b, m, h), (b, m, dv), (h, d), (h,), (g, dv), (g, d), (g,)]
    inputs = [torch.randn(*shape, dtype=torch.float64) / 2 for shape in shapes]
    if lengths is None:
        lengths = torch.randint(0, m + 1, (b,))
        lengths[0] = m
    return [x.requires_grad_() for x in inputs], torch.as_tensor(lengths)


def recur_plainly(recur, inputs, lengths):
    """Run the recurrence of `reference` or `cpu`."""
    exists = torch.arange(inputs[2].shape[1]) < lengths[:, None]
    return recur(*inputs[:4], exists, *inputs[4:])
