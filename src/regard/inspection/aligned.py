"""Where a model looks for each word of a translation: teacher forced, so exact after any search."""

# n target pieces · m source pieces · i target words · j source words
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.watch import watch
from regard.data.batching import collate
from regard.data.tokenizer import Tokenizers
from regard.inspection.words import merge
from regard.models.contract import Model
from regard.training.objective import inputs

__all__ = ["looked_at"]

BUDGET = 4096  # pieces of a batch a side
Pair = tuple[Sequence[int], Sequence[int]]


@torch.no_grad()
def looked_at(model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair]) -> list[Float[Tensor, "i j"]]:
    """How much each target word of a pair of token sequences looked at each source word: the mean over the heads.

    Of many layers the last but one is taken, which is nearest to an alignment in a deep Transformer (Garg et al. 2019,
    arXiv:1909.02074), and of up to three the last. The model has at least one attention to its source.
    """
    crossings = model.crossings
    name = crossings[-2 if len(crossings) > 3 else -1]
    device = next(model.parameters()).device
    order = sorted(range(len(pairs)), key=lambda i: -max(map(len, pairs[i])))
    found: list[Tensor] = [torch.empty(0, 0)] * len(pairs)
    while order:
        count = max(1, BUDGET // (max(map(len, pairs[order[0]])) + 1))
        chunk, order = order[:count], order[count:]
        source, target = inputs(collate([pairs[i] for i in chunk]).to(device))
        with watch(model) as looks:
            model.decode(model.encode(source), target)
        weights = looks[name].weights
        weights = (weights.mean(1) if weights.ndim == 4 else weights).float().cpu()
        for i, each in zip(chunk, weights, strict=True):
            pieces, said = pairs[i]
            rows = tokenizers.target.words(said)
            found[i] = merge(each[: len(said), : len(pieces)], rows, tokenizers.source.words(pieces))
    return found
