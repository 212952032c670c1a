"""Measurements of scaling: scores and weights of random vectors, and the softmax of a trained model."""

import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention, Block, Dot, watch
from regard.data import collate
from regard.models import Model, Tokens, build
from regard_studies.corpora.pairs import Pairs
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.systems import TrainedSystem
from regard_studies.translation import TranslationFigures

__all__ = [
    "KEYS",
    "LENGTHS",
    "LOOKED",
    "Diagonal",
    "ScalingFigures",
    "Scores",
    "SoftmaxSharpness",
    "attentions",
    "before_and_after",
    "diagonal_share",
    "gradient_norm",
    "jacobian_norm",
    "observe",
    "observe_diagonal",
    "observe_softmax",
    "sharpness",
    "tokens_of",
]

KEYS = 64
LENGTHS = (4, 16, 64)

LOOKED = 32  # sentences whose weights are looked at


class Scores(typing.NamedTuple):
    """The scores and weights at one width, scaled or not."""

    mean: float
    spread: float
    largest: float
    entropy: float
    jacobian: tuple[float, float, float]
    average: float


class Diagonal(typing.NamedTuple):
    """The diagonal's share of a row: of |R|, and of the softmax of R with and without scaling or projections."""

    absolute: float
    softmax: float
    scaled: float
    projected: float
    tied: float


def jacobian_norm(weights: Float[Tensor, "*b m"]) -> Float[Tensor, "*b"]:
    r"""Compute the Frobenius norm of the softmax's Jacobian $\mathrm{diag}(a) - a a^\top$, from its weights a.

    $\sum_i a_i^2 - 2 \sum_i a_i^3 + (\sum_i a_i^2)^2$ is its square; written as a sum of squares here, so that
    nothing cancels when one weight is nearly 1.
    """
    rest = weights.flip(-1).cumsum(-1).flip(-1)[..., 1:]  # to the right of each weight
    below = weights.cumsum(-1)[..., :-1]
    zero = torch.zeros_like(weights[..., :1])
    other = torch.cat([zero, below], -1) + torch.cat([rest, zero], -1)  # 1 - a_i without a subtraction
    squares = weights.square()
    off = squares * (torch.cat([zero, squares.cumsum(-1)[..., :-1]], -1) * 2)
    return ((weights * other).square() + off).sum(-1).sqrt()


def observe(d: int, *, scaled: bool, draws: int, n: int = KEYS, m: int = KEYS) -> Scores:
    """Draw queries and keys of width d, and measure their scores; narrow vectors need more draws to be as precise."""
    draws *= max(1, 16 // d)
    query, keys = torch.randn(draws, n, d), torch.randn(draws, m, d)
    look = Attention(Dot(scaled=scaled)).look(query, keys)
    scores, weights = look.scores.double(), look.weights.double()
    norms = jacobian_norm(weights).flatten()
    low, middle, high = norms.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=norms.dtype)).tolist()
    return Scores(
        mean=scores.mean().item(),
        spread=scores.std().item(),
        largest=weights.amax(-1).mean().item(),
        entropy=torch.special.entr(weights).sum(-1).mean().item() / math.log(m),
        jacobian=(low, middle, high),
        average=norms.mean().item(),
    )


def observe_diagonal(d: int, n: int, draws: int) -> Diagonal:
    """Draw sequences s [n, d], sixteen for each pair of projections, and measure the diagonal of R = s sᵀ."""
    s = torch.randn(draws, 16, n, d)
    to_query, to_key = torch.randn(2, draws, 1, d, d) / math.sqrt(d)
    plain, scaled = Attention(Dot()), Attention(Dot(scaled=True))
    look = plain.look(s, s)
    return Diagonal(
        absolute=diagonal_share(look.scores.abs()),
        softmax=diagonal_share(look.weights),
        scaled=diagonal_share(scaled.look(s, s).weights),
        projected=diagonal_share(scaled.look(s @ to_query, s @ to_key).weights),
        tied=diagonal_share(scaled.look(s @ to_query, s @ to_query).weights),
    )


def diagonal_share(rows: Tensor) -> float:
    """Compute the mean share of a row that lies on its diagonal."""
    return (rows.diagonal(dim1=-2, dim2=-1) / rows.sum(-1)).mean().item()


@dataclass(frozen=True)
class SoftmaxSharpness:
    """The sharpness of a model's attention: means over its queries, the Jacobian's norm in the median."""

    entropy: float  # as a share of the logarithm of the number of keys
    jacobian: float
    gradient: float  # the norm of that of the query projections


@dataclass(frozen=True)
class ScalingFigures:
    """The figures of a system: its translations, and its softmax before and after training, a value per seed."""

    translation: TranslationFigures
    before: Sequence[SoftmaxSharpness]
    after: Sequence[SoftmaxSharpness]

    def spread(self, when: str, name: str) -> SeedStatistics:
        """Collect a figure of `before` or `after` over the seeds."""
        return SeedStatistics(tuple(getattr(each, name) for each in getattr(self, when)))


def before_and_after(system: TrainedSystem, corpus: Pairs) -> tuple[SoftmaxSharpness, SoftmaxSharpness]:
    """Measure the softmax of a model when initialised and when trained, on the same sentences."""
    run = system.run
    tokenizers, settings = run.tokenizers, run.settings
    torch.manual_seed(system.seed)
    fresh = build(settings.kind, settings.model, len(tokenizers.source), len(tokenizers.target)).to(run.device).eval()
    pairs = list(
        zip(
            tokenizers.source.encode_batch(corpus.sources[:LOOKED]),
            tokenizers.target.encode_batch(corpus.references[:LOOKED]),
            strict=True,
        )
    )
    return observe_softmax(fresh, pairs, run.device), observe_softmax(run.model, pairs, run.device)


def observe_softmax(
    model: Model, pairs: Sequence[tuple[list[int], list[int]]], device: torch.device | str = "cpu"
) -> SoftmaxSharpness:
    """Measure every attention of a model on some pairs of sentences, one at a time, so that nothing is padded."""
    shares, norms = [], []
    for pair in pairs:
        with torch.no_grad(), watch(model) as looks:
            source, target = tokens_of([pair], device)
            model.decode(model.encode(source), target)
            for name, look in looks.items():
                causal = name.startswith("decoder") and not name.endswith("cross")
                for share, norm in sharpness(look.weights.cpu().double(), causal):
                    shares.append(share)
                    norms.append(norm)
    entropy, jacobian = torch.cat(shares), torch.cat(norms)
    return SoftmaxSharpness(float(entropy.mean()), float(jacobian.median()), gradient_norm(model, pairs, device))


def sharpness(weights: Tensor, causal: bool) -> list[tuple[Tensor, Tensor]]:
    """Compute the entropy of each query's weights and the norm of its Jacobian, for queries with more than one key."""
    weights = weights.flatten(0, -3)  # rows and heads
    n, m = weights.shape[-2:]
    counts = [min(i + 1, m) for i in range(n)] if causal else [m] * n
    return [
        (
            torch.special.entr(weights[:, i, :count]).sum(-1) / math.log(count),
            jacobian_norm(weights[:, i, :count]),
        )
        for i, count in enumerate(counts)
        if count > 1
    ]


def gradient_norm(model: Model, pairs: Sequence[tuple[list[int], list[int]]], device: torch.device | str) -> float:
    """Compute the norm of the loss's gradient with respect to all query projections."""
    source, target = tokens_of(pairs, device)
    ids = collate(pairs).to(device).target[:, 1:]
    logits = model.output(model.decode(model.encode(source), target)[0])
    real = torch.arange(ids.shape[1], device=ids.device) < target.lengths[:, None]
    loss = F.cross_entropy(logits[real].float(), ids[real])
    projections = [heads for block in model.modules() if isinstance(block, Block) for heads in attentions(block)]
    gradients = torch.autograd.grad(loss, [heads.projection.weight for heads in projections])
    rows = [each[: heads.query_size] for each, heads in zip(gradients, projections, strict=True)]
    return math.sqrt(sum(float(each.double().square().sum()) for each in rows))


def attentions(block: Block) -> list[Any]:
    """List the attentions of a block."""
    return [block.attention] if block.cross is None else [block.attention, block.cross]


def tokens_of(pairs: Sequence[tuple[list[int], list[int]]], device: torch.device | str) -> tuple[Tokens, Tokens]:
    """Return sources, and targets as they are read: START first, without END."""
    batch = collate(pairs).to(device)
    return Tokens.of(batch.source, batch.source_lengths), Tokens.of(batch.target[:, :-1], batch.target_lengths)
