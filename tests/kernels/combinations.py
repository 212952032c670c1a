"""Random calls with every feature of score, span and weighting together, and each way to compute them.

`agree` draws calls until one way (a backend, `look`, `fold`) has served a given number, covering all features that it
should serve, and compares each with dense: contexts, and gradients if the way has them. A way refuses a call with an
error; one that refuses too many fails.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from kernels.cases import TOLERANCE, recorded
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Causal,
    Cosine,
    Dot,
    General,
    Gumbel,
    Hard,
    Heads,
    Lengths,
    Location,
    Mask,
    Monotonic,
    Packed,
    Plain,
    Predictive,
    Prepared,
    Score,
    Softmax,
    Span,
    Sparsemax,
    join,
    split_packed,
    use_backend,
)
from regard.errors import ArgumentError, BackendError
from regard.kernels import backends, describe

# ---- the features


class Distance(Score):
    """A custom score: minus the squared distance."""

    def compare(self, asked, projected, first=0):
        return -(asked.unsqueeze(-2) - projected.unsqueeze(-3)).square().sum(-1)


class Waves(nn.Module, Span):
    """A custom span that adds to the scores; its size may be learned."""

    def __init__(self, learned=False):
        super().__init__()
        size = torch.tensor(1.5)
        if learned:
            self.size = nn.Parameter(size)
        else:
            self.register_buffer("size", size)

    def values(self, limits):
        i, j = (torch.arange(count, device=limits.device) for count in (limits.queries, limits.keys))
        return torch.sin(1.3 * i[:, None] + 0.7 * j).to(self.size.dtype)

    def narrow(self, limits, query):
        return limits.with_bias(self.size * self.values(limits))


class Dimmed(Waves):
    """A custom span that multiplies the weights."""

    def narrow(self, limits, query):
        return limits.with_gate(self.size * self.values(limits).square())


SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": lambda d, m: Dot(),
    "scaled": lambda d, m: Dot(scaled=True),
    "general": lambda d, m: General(d, d),
    "additive": lambda d, m: Additive(d, d, hidden=5),
    "cosine": lambda d, m: Cosine(3.0),
    "cosine learned": lambda d, m: Cosine("learned"),
    "cosine query": lambda d, m: Cosine("query"),
    "location": lambda d, m: Location(d, m + 2),
    "own": lambda d, m: Distance(),
}
# from [*b], n queries, m keys, the width of a query and heads
SPANS: dict[str, Callable[..., Span]] = {
    "lengths": lambda b, n, m, d, a: Lengths(torch.randint(0, m + 1, b)),
    "causal": lambda b, n, m, d, a: Causal(),
    "causal from": lambda b, n, m, d, a: Causal(int(torch.randint(-2, m, ()))),
    "causal rows": lambda b, n, m, d, a: Causal(torch.randint(-2, m, b)),
    "monotonic": lambda b, n, m, d, a: Monotonic(int(torch.randint(0, 6, ()))),
    "monotonic from": lambda b, n, m, d, a: Monotonic(2, start=int(torch.randint(-3, m + 3, ()))),
    "monotonic rows": lambda b, n, m, d, a: Monotonic(1, start=torch.randint(0, m, b)),
    "predictive": lambda b, n, m, d, a: Predictive(d, int(torch.randint(1, 5, ()))),
    "mask": lambda b, n, m, d, a: Mask(torch.rand(*b, n, m) > 0.4),
    "alibi": lambda b, n, m, d, a: Alibi(a),
    "alibi from": lambda b, n, m, d, a: Alibi(a, start=int(torch.randint(0, m, ()))),
    "alibi rows": lambda b, n, m, d, a: Alibi(a, start=torch.randint(0, m, (*b[:-1], 1) if len(b) > 1 else b)),
    "bias": lambda b, n, m, d, a: Waves(),
    "bias learned": lambda b, n, m, d, a: Waves(learned=True),
    "gate": lambda b, n, m, d, a: Dimmed(),
}
WEIGHTINGS = {
    "softmax": Softmax,
    "warm": lambda: Softmax(temperature=2.0),
    "cold": lambda: Softmax(temperature=0.4),
    "hard": Hard,
    "gumbel": lambda: Gumbel(0.7),
    "sparsemax": Sparsemax,
    "plain": Plain,
}
SOFT = ("softmax", "warm", "cold")
BIASES = ("alibi", "alibi from", "bias")
WINDOWS = {"monotonic", "monotonic from", "monotonic rows", "predictive"}
KINDS = {"attention", "prepared", "heads", "packed", "packed heads"}
DOTS = {"dot", "scaled", "general", "cosine", "cosine learned", "cosine query"}
LIMITS = {"lengths", "causal", "causal from", "causal rows"}


@dataclass(frozen=True)
class Combination:
    """A call in plain data; `build` makes its tensors."""

    seed: int
    kind: str  # "attention", "prepared", "heads", "packed" or "packed heads"
    score: str
    spans: tuple[str, ...]
    weighting: str
    batch: tuple[int, ...]
    n: int
    m: int
    d: int

    def possible(self) -> bool:
        """Return whether the library supports such a call."""
        biased = any("alibi" in name for name in self.spans)
        if self.score == "location" and any(name in WINDOWS for name in self.spans):
            return False
        if self.kind == "packed" and biased:  # no head axis
            return False
        if self.kind.startswith("packed") and "lengths" in self.spans:
            return False
        if "heads" in self.kind and self.score == "cosine query":
            return False
        return not (biased and self.kind in ("attention", "prepared") and not self.batch)

    def build(self, dtype: torch.dtype, device: str = "cpu") -> "Built":
        torch.manual_seed(self.seed)
        heads, wide = 3, self.d
        if "heads" in self.kind:
            wide, batch = heads * self.d, self.batch[:1]
            module: nn.Module = Heads(wide, heads, score=lambda d: scrambled(SCORES[self.score](d, self.m)))
            module.attention.weighting = WEIGHTINGS[self.weighting]()
        else:
            batch = self.batch
            module = Attention(scrambled(SCORES[self.score](wide, self.m)), weighting=WEIGHTINGS[self.weighting]())
            heads = batch[-1] if batch else 1
        sizes, lead, packed = (self.n, self.m), batch, None
        if self.kind.startswith("packed"):
            own, other = [[0, self.n], [0, self.m]] if self.n % 2 else [[1, self.n, 0], [2, 1, self.m]]
            offsets = [list(accumulate(each, initial=0)) for each in (own, other)]
            packed = Packed(*(torch.tensor(each) for each in offsets))
            sizes, lead, batch = (offsets[0][-1], offsets[1][-1]), (), (len(own),)
        query = wide + (self.score == "cosine query")
        inputs = [torch.randn(*lead, sizes[0], query), torch.randn(*lead, sizes[1], wide)]
        if "heads" not in self.kind:
            inputs.append(torch.randn(*lead, sizes[1], wide + 1 if self.seed % 2 else wide))
        # A mask of packed sequences covers all tokens of all of them; other spans count within each.
        parts = [
            SPANS[name]((), *sizes, query, heads)
            if packed and name == "mask"
            else SPANS[name](batch, self.n, self.m, query, heads)
            for name in self.spans
        ]
        parts = [part if isinstance(part, nn.Module) else moved(part, device) for part in parts]
        span = join(*parts, packed)
        module, learned = module.to(device, dtype).eval(), [p for p in parts if isinstance(p, nn.Module)]
        for part in learned:
            part.to(device, dtype)
        leaves = [x.to(device, dtype).requires_grad_() for x in inputs]
        return Built(self, module, leaves, span, [p for part in learned for p in part.parameters()])


@dataclass
class Built:
    """A call with its tensors."""

    words: Combination
    module: nn.Module
    inputs: list[Tensor]
    span: Span | None
    learned: list[Tensor]

    def arguments(self) -> tuple:
        if self.words.kind != "prepared":
            return tuple(self.inputs)
        query, keys, values = self.inputs
        return query, self.module.prepare(keys, values)

    def forward(self) -> Tensor:
        return self.module(*self.arguments(), span=self.span)

    def backend(self) -> str:
        return self.module.backend(*self.arguments(), span=self.span)

    def attend(self, name: str) -> Tensor:
        """Run a backend for CUDA as `Attention.attend_projected` does, on the inputs' device."""
        heads = isinstance(self.module, Heads)
        inner, whole = (self.module.attention if heads else self.module), self.inputs[0]
        if heads:
            projected_query, prepared = self.module.project_inputs(*self.inputs, self.span, 0)
        else:
            query, keys, values = (*self.arguments(), None)[:3]
            _, prepared = inner.check_inputs(query, keys, values)
            projected_query = inner.score.project_query(query)
        packed, rest = split_packed(self.span)
        native = packed is not None and name in backends.NATIVE
        if packed is None:
            call = inner.resolve_call(projected_query, prepared, whole, self.span, heads)
        elif native:
            call = inner.resolve_packed_call(projected_query, prepared, packed, rest)
        else:
            call = inner.resolve_call(*inner.pad_packed(projected_query, prepared, whole, packed, rest, heads), heads)
        context = backends.BACKENDS.ask(describe(call)._replace(device="cuda"), name).attend(call)
        if packed is not None and not native:
            context = packed.unpad(context, heads)
        return self.module.merge_heads(context) if heads else context

    def results(self, run: Callable[[], Tensor], gradients: bool) -> list[Tensor]:
        """Return the context and, if wanted, the gradients of inputs and parameters."""
        if not gradients:
            with torch.no_grad():
                return [run()]
        context = run()
        wanted = [*self.inputs, *self.module.parameters(), *self.learned]
        cotangent = torch.sin(torch.arange(context.numel(), device=context.device) * 1.7).view(context.shape)
        found = torch.autograd.grad(context, wanted, cotangent.to(context.dtype), allow_unused=True)
        return [context, *(torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True))]


def scrambled(score: Score) -> Score:
    """Draw parameters large enough for every one to matter."""
    for parameter in score.parameters():
        nn.init.normal_(parameter, std=0.5)
    return score


def moved(span: Span, device: str) -> Span:
    """Move the span's tensors to the inputs' device."""
    for name, value in vars(span).items():
        if isinstance(value, Tensor) and name in ("mask", "start", "lengths"):
            setattr(span, name, value.to(device))
    return span


def draw(
    rng: random.Random, sizes: Sequence[int], widths: Sequence[int], scores: Sequence[str], spans: Sequence[str]
) -> Combination:
    """Draw a possible call; most have soft weightings, where kernels have most to do."""
    while True:
        soft = rng.random() < 0.6
        found = Combination(
            seed=rng.randrange(2**31),
            kind=rng.choice(["attention", "attention", "prepared", "heads", "packed", "packed heads"]),
            score=rng.choice(scores),
            spans=tuple(rng.sample(spans, min(len(spans), rng.choice([0, 1, 1, 2, 2, 3])))),
            weighting=rng.choice(SOFT if soft else list(WEIGHTINGS)),
            batch=tuple(rng.choice([1, 2, 3]) for _ in range(rng.choice([0, 1, 1, 2]))),
            n=rng.choice(sizes),
            m=rng.choice(sizes),
            d=rng.choice(widths),
        )
        if found.possible():
            return found


# ---- the ways


def forced(name: str) -> Callable[[Built, bool], list[Tensor]]:
    """Return a way that forces a backend of the table and checks that it ran."""

    def run(built: Built, gradients: bool) -> list[Tensor]:
        with use_backend(name), recorded() as ran:
            found = built.results(built.forward, gradients)
            with torch.set_grad_enabled(gradients):
                assert built.backend() == name
        assert ran == [name]
        return found

    return run


def interpreted(name: str) -> Callable[[Built, bool], list[Tensor]]:
    """Return a way that runs the kernel of a CUDA backend in Triton's interpreter."""
    return lambda built, gradients: built.results(lambda: built.attend(name), gradients)


def look(built: Built, gradients: bool) -> list[Tensor]:
    return built.results(lambda: built.module.look(*built.arguments(), span=built.span).context, gradients)


def fold(built: Built, gradients: bool) -> list[Tensor]:
    """Fold over blocks of the keys; unmergeable parts raise an ArgumentError."""
    if not isinstance(built.module, Attention) or {"bias", "bias learned", "gate"} & {*built.words.spans}:
        raise BackendError("it has no number of keys for a span of one's own, and Heads has no fold")

    def run() -> Tensor:
        query, keys, values = built.inputs
        m = keys.shape[-2]
        edges = sorted({0, m // 3, m // 2, m})
        parts = [(keys[..., a:b, :], values[..., a:b, :]) for a, b in pairwise(edges)]
        if built.words.kind == "prepared":
            whole = built.module.prepare(keys, values)
            parts = [
                (Prepared(whole.keys[..., a:b, :], whole.values[..., a:b, :], built.module), None)
                for a, b in pairwise(edges)
            ]
        return built.module.fold(query, parts, span=built.span)

    try:
        return built.results(run, gradients)
    except ArgumentError as error:
        if not str(error).startswith("fold:"):
            raise
        raise BackendError(str(error)) from error


# ---- comparing


def agree(
    way: Callable[[Built, bool], list[Tensor]],
    features: Set[str],
    *,
    count: int,
    seed: int,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    sizes: Sequence[int] = (1, 2, 7, 17, 33),
    widths: Sequence[int] = (1, 4, 7),
    scores: Sequence[str] = tuple(SCORES),
    spans: Sequence[str] = tuple(SPANS),
    tolerance: float | None = None,
    change: Callable[["Built"], None] = lambda built: None,
    forward_only: bool = False,
    most: int = 4000,
) -> None:
    """Compare at least `count` calls that the way serves with dense, covering each of these features.

    `change` may give a call other numbers.
    """
    rng, served = random.Random(seed), Counter[str]()
    tolerance = TOLERANCE[dtype] if tolerance is None else tolerance
    for _ in range(most):
        words = draw(rng, sizes, widths, scores, spans)
        built = words.build(dtype, device)
        change(built)
        for gradients in (False,) if forward_only else (True, False):
            with contextlib.suppress(BackendError):
                found = way(built, gradients)
                break
        else:
            continue
        with use_backend("dense"):
            expected = built.results(built.forward, gradients)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype, words
            if one.numel():
                assert torch.isfinite(other).all(), words
                error = float((one.detach().double() - other.detach().double()).abs().max())
                assert error <= tolerance * max(1.0, float(other.detach().abs().max())), (error, words)
        served.update(["all", words.kind, words.score, words.weighting, *words.spans])
        served["gradients"] += gradients
        served["bias with temperature"] += words.weighting in ("warm", "cold") and any(
            name in BIASES for name in words.spans
        )
        if served["all"] >= count and all(served[feature] for feature in features):
            return
    missing = {feature for feature in features if not served[feature]}
    raise AssertionError(f"{served['all']} of {most} calls were served, expected {count}; never with {missing}")
