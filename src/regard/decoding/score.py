"""Scoring: what a model thinks of a translation that is given."""

# b sentences · n target positions
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import Batch, collate
from regard.data.tokenizer import PAD
from regard.decoding.ensemble import Ensemble
from regard.decoding.finite import check_finite
from regard.errors import ArgumentError
from regard.models.contract import Model, Tokens

__all__ = ["Scored", "score"]

BUDGET = 2048  # tokens of a batch a side: scores of all words are held for each


class Scored(NamedTuple):
    """The log-probability of a target given its source, END among it, and that of each token, END last."""

    log_prob: float
    tokens: list[float]


@torch.no_grad()
def score(
    model: Model,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    device: torch.device | str = "cpu",
    budget: int = BUDGET,
) -> list[Scored]:
    """What the model thinks of each pair of token sequences, in the order given."""
    if len(sources) != len(targets):
        raise ArgumentError(f"targets: {len(targets)} given, expected one for each of {len(sources)} sources")
    sizes = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted(range(len(sources)), key=lambda i: -sizes[i])
    if model.limit is not None and order and max(map(len, targets)) >= model.limit:
        raise ArgumentError(
            f"target: {max(map(len, targets))} tokens given, expected fewer than {model.limit}, the model's length"
        )
    answers: list[Scored] = [Scored(0.0, [])] * len(sources)
    while order:
        count = max(1, budget // sizes[order[0]])
        chunk, order = order[:count], order[count:]
        batch = collate([(sources[i], targets[i]) for i in chunk]).to(device)
        for i, row in zip(chunk, log_probs(model, batch).cpu(), strict=True):
            tokens = row[: len(targets[i]) + 1].double()
            check_finite(model, tokens)
            answers[i] = Scored(float(tokens.sum()), tokens.tolist())
    return answers


def log_probs(model: Model, batch: Batch) -> Float[Tensor, "b n"]:
    """The log-probability of every target token; of an ensemble, of the mean probability."""
    if isinstance(model, Ensemble):
        return torch.stack([log_probs(each, batch) for each in model.each]).logsumexp(0) - math.log(len(model.each))
    ids = batch.source if batch.source.shape[1] else F.pad(batch.source, (0, 1), value=PAD)  # nothing but empty ones
    source = Tokens.of(ids, batch.source_lengths)
    read = Tokens.of(batch.target[:, :-1], batch.target_lengths)  # START first, without END
    hidden, _ = model.decode(model.encode(source), read)
    logits = model.output(hidden)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return -F.cross_entropy(logits.transpose(1, 2), batch.target[:, 1:], reduction="none")
