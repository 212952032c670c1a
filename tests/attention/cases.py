"""Every mechanism of the library beside its oracle, with random parameters and sizes.

`SCORES`, `SPANS` and `WEIGHTINGS` map a name to a function that draws one case, so that one test can run for all of
them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import oracles
import torch
from torch import Tensor, nn

from regard.attention import Attention, use_backend
from regard.attention.score import Additive, Cosine, Dot, General, Location, Score
from regard.attention.span import Causal, Lengths, Mask, Monotonic, Predictive
from regard.attention.weighting import Plain, Softmax, Sparsemax
from regard.errors import BackendError

AnyModule = TypeVar("AnyModule", bound=nn.Module)
BACKENDS = ["dense", "sdpa", "window", "chunked"]  # backends that run on a CPU; "flex" and "varlen" are gpu tests


# --- drawing --------------------------------------------------------------------------------------------------------


def number(low: int, high: int) -> int:
    """Draw an integer from low to high, both included."""
    return int(torch.randint(low, high + 1, ()))


def leading(most: int = 3) -> tuple[int, ...]:
    """Draw up to `most` leading dimensions, each of size 1 or 2."""
    return tuple(number(1, 2) for _ in range(number(0, most)))


def normal(*shape: int, grad: bool = True) -> Tensor:
    """Draw unit-normal float64."""
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def scrambled(module: AnyModule) -> AnyModule:
    """Return the module in float64 with random normal parameters, so that no test depends on initial values."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


# --- scores ---------------------------------------------------------------------------------------------------------


@dataclass
class ScoreCase:
    """A score, its oracle, and the widths of its queries and keys."""

    score: Score
    oracle: oracles.Score
    query_size: int
    key_size: int


def draw_dot(keys: int) -> ScoreCase:
    return ScoreCase(Dot(), oracles.dot, 5, 5)


def draw_scaled(keys: int) -> ScoreCase:
    return ScoreCase(Dot(scaled=True), oracles.scaled, 5, 5)


def draw_general(keys: int) -> ScoreCase:
    score = scrambled(General(5, 3))
    return ScoreCase(score, oracles.general(score.weight), 5, 3)


def draw_additive(keys: int) -> ScoreCase:
    score = scrambled(Additive(5, 3, hidden=7))
    oracle = oracles.additive(score.query.weight, score.key.weight, score.key.bias, score.v)
    return ScoreCase(score, oracle, 5, 3)


def draw_cosine(keys: int) -> ScoreCase:
    return ScoreCase(Cosine(2.5), oracles.cosine(2.5), 5, 5)


def draw_cosine_learned(keys: int) -> ScoreCase:
    score = scrambled(Cosine("learned"))
    return ScoreCase(score, oracles.cosine(score.log_sharpness.exp()), 5, 5)


def draw_cosine_query(keys: int) -> ScoreCase:
    return ScoreCase(Cosine("query"), oracles.cosine_from_query, 6, 5)


def draw_location(keys: int) -> ScoreCase:
    score = scrambled(Location(5, length=keys + 2))
    return ScoreCase(score, oracles.location(score.weight), 5, 3)


SCORES: dict[str, Callable[[int], ScoreCase]] = {
    "dot": draw_dot,
    "scaled": draw_scaled,
    "general": draw_general,
    "additive": draw_additive,
    "cosine": draw_cosine,
    "cosine-learned": draw_cosine_learned,
    "cosine-query": draw_cosine_query,
    "location": draw_location,
}
CONTENT_SCORES = [name for name in SCORES if name != "location"]


# --- spans ----------------------------------------------------------------------------------------------------------


@dataclass
class SpanCase:
    """A span (None: everywhere), its oracle, and its parameters."""

    span: object
    oracle: oracles.Span
    parameters: list[Tensor]


def draw_lengths(lead: Sequence[int], low: int, high: int) -> Tensor:
    return torch.randint(low, high + 1, tuple(lead))


def span_none(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    return SpanCase(None, oracles.everywhere, [])


def span_lengths(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    lengths = draw_lengths(lead, 1, m)
    return SpanCase(Lengths(lengths), oracles.lengths(lengths), [])


def span_lengths_list(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    lengths = draw_lengths(lead, 0, m)
    return SpanCase(Lengths(lengths.tolist() if lead else lengths), oracles.lengths(lengths), [])


def span_causal(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    return SpanCase(Causal(), oracles.causal(), [])


def span_causal_start(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    start = number(0, m)
    return SpanCase(Causal(start), oracles.causal(start), [])


def span_causal_starts(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    starts = draw_lengths(lead, 0, m)
    return SpanCase(Causal(starts), oracles.causal(starts), [])


def span_monotonic(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    radius = number(0, 3)
    return SpanCase(Monotonic(radius), oracles.local_m(radius), [])


def span_monotonic_starts(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    radius, starts = number(0, 3), draw_lengths(lead, 0, m)
    return SpanCase(Monotonic(radius, starts), oracles.local_m(radius, starts), [])


def span_predictive(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    radius = number(1, 3)
    span = scrambled(Predictive(width, radius))
    return SpanCase(span, oracles.local_p(span.hidden.weight, span.v, radius), list(span.parameters()))


def span_predictive_lengths(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    radius, lengths = number(1, 3), draw_lengths(lead, 0, m)
    span = scrambled(Predictive(width, radius))
    oracle = oracles.join(oracles.local_p(span.hidden.weight, span.v, radius, lengths), oracles.lengths(lengths))
    return SpanCase(span & Lengths(lengths), oracle, list(span.parameters()))


def span_mask(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    mask = torch.rand(*lead, n, m) < 0.6
    return SpanCase(Mask(mask), oracles.mask(mask), [])


def span_mask_shared(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    mask = torch.rand(1, m) < 0.7
    return SpanCase(Mask(mask), oracles.mask(mask.expand(*lead, n, m)), [])


def span_lengths_causal(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    lengths = draw_lengths(lead, 0, m)
    return SpanCase(Lengths(lengths) & Causal(), oracles.join(oracles.lengths(lengths), oracles.causal()), [])


def span_lengths_monotonic_mask(lead: Sequence[int], n: int, m: int, width: int) -> SpanCase:
    lengths, mask = draw_lengths(lead, 0, m), torch.rand(*lead, n, m) < 0.7
    oracle = oracles.join(oracles.lengths(lengths), oracles.local_m(2), oracles.mask(mask))
    return SpanCase(Lengths(lengths) & Monotonic(2) & Mask(mask), oracle, [])


SPANS: dict[str, Callable[[Sequence[int], int, int, int], SpanCase]] = {
    "none": span_none,
    "lengths": span_lengths,
    "lengths-list": span_lengths_list,
    "causal": span_causal,
    "causal-start": span_causal_start,
    "causal-starts": span_causal_starts,
    "monotonic": span_monotonic,
    "monotonic-starts": span_monotonic_starts,
    "predictive": span_predictive,
    "predictive-lengths": span_predictive_lengths,
    "mask": span_mask,
    "mask-shared": span_mask_shared,
    "lengths-causal": span_lengths_causal,
    "lengths-monotonic-mask": span_lengths_monotonic_mask,
}


def pairs(scores: Iterable[str], spans: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names of every score with every span; Luong's location score is global only."""
    local = ("monotonic", "predictive")
    return [(a, b) for a in scores for b in spans if a != "location" or not any(word in b for word in local)]


# --- weightings -----------------------------------------------------------------------------------------------------

WEIGHTINGS: dict[str, tuple[Callable[[], nn.Module], oracles.Weighting]] = {
    "softmax": (Softmax, oracles.softmax),
    "cool": (partial(Softmax, temperature=0.6), partial(oracles.softmax, temperature=0.6)),
    "sparsemax": (Sparsemax, oracles.sparsemax),
    "plain": (Plain, oracles.plain),
}


# --- running --------------------------------------------------------------------------------------------------------


@dataclass
class Inputs:
    """Queries, keys and values; iterate to pass them as arguments."""

    query: Tensor
    keys: Tensor
    values: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.query, self.keys, self.values))


def draw_inputs(case: ScoreCase, lead: Sequence[int], n: int, m: int, value_size: int = 4) -> Inputs:
    return Inputs(normal(*lead, n, case.query_size), normal(*lead, m, case.key_size), normal(*lead, m, value_size))


def each_backend(module: nn.Module, *arguments: object, **named: object) -> Iterator[tuple[str, Tensor]]:
    """Yield the result of the chosen backend, then of every backend that can be forced; dense serves everything."""
    yield "chosen", module(*arguments, **named)
    served = []
    for backend in BACKENDS:
        try:
            with use_backend(backend):
                result = module(*arguments, **named)
                assert module.backend(*arguments, **named) == backend
        except BackendError:
            continue
        served.append(backend)
        yield backend, result
    assert "dense" in served


def dense_blocks(keys: Tensor, values: Tensor, cuts: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Split keys and values along the keys into blocks at the given positions."""
    edges = [0, *sorted(cuts), keys.shape[-2]]
    return [(keys[..., a:b, :], values[..., a:b, :]) for a, b in pairwise(edges) if b > a]


def attention_of(case: ScoreCase, **options: object) -> Attention:
    """Return an Attention with the case's score, in float64 and evaluation mode."""
    return Attention(case.score, **options).double().eval()
