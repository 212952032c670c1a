"""Measurements of positions: how far a function is from equivariance, and how far a system copies."""

import math
import statistics
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Causal,
    Cosine,
    Dot,
    Embedded,
    Encoder,
    General,
    Heads,
    Learned,
    Location,
    Monotonic,
    Predictive,
    Rotary,
    Sinusoidal,
)
from regard.data import Example
from regard.run import Run
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.systems import TrainedSystem
from regard_studies.translation import log_probs

__all__ = [
    "BLIND",
    "LENGTH",
    "SEEING",
    "WIDTH",
    "Function",
    "LengthFigures",
    "correct_prefix",
    "distance_spread",
    "equivariance_error",
    "invariance",
    "measure_copies",
    "measure_length",
    "observe",
    "product_by_distance",
    "self_attention",
    "shift_error",
    "shift_residual",
    "with_positions",
    "with_span",
]

LENGTH, WIDTH, HEADS = 24, 64, 4
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LengthFigures:
    """The figures of a system on sequences of one length, a value per seed."""

    prefix: SeedStatistics  # % of the symbols that are right before the first mistake
    exact: SeedStatistics  # % of the sequences
    perplexity: SeedStatistics  # a symbol of the true output


def measure_length(systems: Sequence[TrainedSystem], tests: Sequence[Example]) -> LengthFigures:
    """Measure systems that differ in their seed on sequences of one length."""
    figures = [measure_copies(each.run, tests) for each in systems]
    return LengthFigures(*(SeedStatistics(values) for values in zip(*figures, strict=True)))


def measure_copies(run: Run, tests: Sequence[Example]) -> tuple[float, float, float]:
    """Measure how much is copied before the first mistake and how many copies are exact, in percent; and perplexity."""
    sources, targets = [each.source for each in tests], [each.target for each in tests]
    outputs = run.translate(sources, beam=1)
    totals, tokens = log_probs(run, sources, targets)
    right = [correct_prefix(output.split(), target.split()) for output, target in zip(outputs, targets, strict=True)]
    exact = [output == target for output, target in zip(outputs, targets, strict=True)]
    return 100 * statistics.fmean(right), 100 * statistics.fmean(exact), math.exp(-sum(totals) / sum(tokens))


def correct_prefix(output: Sequence[str], target: Sequence[str]) -> float:
    """Return the share of the target that is right before the output's first mistake."""
    wrong = (i for i, word in enumerate(target) if i >= len(output) or output[i] != word)
    return next(wrong, len(target)) / len(target)


def self_attention(attention: Attention) -> Function:
    """Compute the attention of a sequence to itself."""
    return lambda x: attention(x, x)


def with_positions(positions: nn.Module, heads: Heads) -> Function:
    """Compute multi-head attention after positions have been added to the input."""
    return lambda x: heads(positions(x))


def with_span(span: typing.Any) -> Function:
    """Compute multi-head attention within a span."""
    heads = Heads(WIDTH, heads=HEADS)
    return lambda x: heads(x, span=span)


# Nothing in these knows where a vector stands.
BLIND: dict[str, Callable[[], Function]] = {
    "dot": lambda: self_attention(Attention(Dot())),
    "scaled dot": lambda: self_attention(Attention(Dot(scaled=True))),
    "general": lambda: self_attention(Attention(General(WIDTH, WIDTH))),
    "additive": lambda: self_attention(Attention(Additive(WIDTH, WIDTH, hidden=WIDTH))),
    "cosine": lambda: self_attention(Attention(Cosine(8.0))),
    "heads": lambda: Heads(WIDTH, heads=HEADS),
    "encoder, 2 blocks": lambda: Encoder(WIDTH, heads=HEADS, layers=2),
}


# And in these something does.
SEEING: dict[str, Callable[[], Function]] = {
    "heads + sinusoidal, added": lambda: with_positions(Sinusoidal(WIDTH), Heads(WIDTH, heads=HEADS)),
    "heads + sinusoidal, concatenated": lambda: with_positions(
        Sinusoidal(WIDTH, join="concatenate"), Heads(2 * WIDTH, heads=HEADS)
    ),
    "heads + learned, added": lambda: with_positions(Embedded(WIDTH, length=LENGTH), Heads(WIDTH, heads=HEADS)),
    "heads + rotary": lambda: Heads(WIDTH, heads=HEADS, rotary=Rotary(WIDTH // HEADS)),
    "heads + ALiBi": lambda: with_span(Alibi(HEADS)),
    "heads + causal mask": lambda: with_span(Causal()),
    "heads + local window (local-m, radius 4)": lambda: with_span(Monotonic(4)),
    "general + predicted window (local-p, radius 4)": lambda: self_attention(
        Attention(General(WIDTH, WIDTH), span=Predictive(WIDTH, radius=4))
    ),
    "location score": lambda: self_attention(Attention(Location(WIDTH, length=LENGTH))),
}


def equivariance_error(function: Function, x: Float[Tensor, "n d"], order: Tensor) -> float:
    """Compute ‖f(Px) − P f(x)‖/‖f(x)‖ for the permutation P that puts row order[i] at i."""
    plain = function(x)
    return ((function(x[order]) - plain[order]).norm() / plain.norm()).item()


def observe(build: Callable[[], Function], draws: int) -> list[float]:
    """Measure modules with inputs and permutations drawn anew each time."""
    return [equivariance_error(build(), torch.randn(LENGTH, WIDTH), torch.randperm(LENGTH)) for _ in range(draws)]


def invariance(draws: int) -> float:
    """Compute the largest ‖f(Px) − f(x)‖/‖f(x)‖ of pooling by a learned query, whose output has no order to permute."""
    worst = 0.0
    for _ in range(draws):
        pool, x = Attention(Dot(), query=Learned(1, WIDTH)), torch.randn(LENGTH, WIDTH)
        plain = pool(None, x)
        worst = max(worst, ((pool(None, x[torch.randperm(LENGTH)]) - plain).norm() / plain.norm()).item())
    return worst


def shift_error(draws: int) -> float:
    """Measure how much the scores of rotated queries and keys change when both start 100 positions later."""
    rotary, worst = Rotary(WIDTH), 0.0
    for _ in range(draws):
        query, keys = torch.randn(LENGTH, WIDTH), torch.randn(LENGTH, WIDTH)
        here = rotary(query) @ rotary(keys).mT
        there = rotary(query, start=100) @ rotary(keys, start=100).mT
        worst = max(worst, ((here - there).norm() / here.norm()).item())
    return worst


def product_by_distance(waves: Tensor) -> list[float]:
    """Compute the dot product of two codes by their distance, from 1 at distance 0."""
    products = waves @ waves.mT
    return [(products.diagonal(k).mean() / products[0, 0]).item() for k in range(len(waves))]


def distance_spread(waves: Tensor) -> float:
    """Measure how much, at most, the dot product varies among pairs at the same distance."""
    products = waves @ waves.mT / waves[0].square().sum()
    return max((products.diagonal(k).max() - products.diagonal(k).min()).item() for k in range(len(waves)))


def shift_residual(waves: Tensor, k: int) -> float:
    """Measure what is left of the code of p + k after the best linear function of the code of p."""
    before, after = waves[:-k], waves[k:]
    # A rotation of each (sin, cos) pair, the same for all p: found by least squares here, not taken from the formula.
    residual = 0.0
    for pair in range(0, waves.shape[1], 2):
        here, there = before[:, pair : pair + 2], after[:, pair : pair + 2]
        # Pairs that hardly move are nearly of rank one; any solution will do.
        solution = torch.linalg.lstsq(here, there, driver="gelsd").solution
        residual = max(residual, ((here @ solution - there).norm() / there.norm()).item())
    return residual
