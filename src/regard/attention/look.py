"""Look: every stage of an attention, from one differentiable pass."""

# b batch · n queries · m keys
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Attentive(nn.Module):
    """A module that attends and can return a look at what it attends to; `watch` finds these."""

    draws = False  # whether its training forward samples, so that a look must repeat the samples

    def look(self, *args, **kwargs) -> "Look":  # type: ignore[no-untyped-def]
        """Run the forward and return every stage of it, without dropout."""
        raise TypeError(f"{type(self).__name__} cannot be looked at: override `look`")


@dataclass(frozen=True, eq=False)
class Look:
    """A record of one attention. Tensors keep their graph: a loss on the weights trains the modules that made them."""

    context: Float[Tensor, "..."]  # c [*b n dv]
    scores: Float[Tensor, "..."]  # e [*b n m], from the score, before span and weighting
    weights: Float[Tensor, "..."]  # a [*b n m], after span and weighting
    picked: Int[Tensor, "..."] | None = None  # [*b n], Hard and Gumbel: the chosen key, -1 for none
    log_prob: Float[Tensor, "..."] | None = None  # [*b n], Hard: log-probability of the chosen key
    centre: Float[Tensor, "..."] | None = None  # [*b n], local attention: the centre of the window
    probabilities: Float[Tensor, "..."] | None = None  # [*b n m]: the distribution, before sampling or a gate
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)  # of q, k and v
    how: str = field(default="", repr=False)  # score, span and weighting in words
    grid: Literal["", "keys", "both"] = ""  # axes of scores and weights that are height, width

    @property
    def entropy(self) -> Float[Tensor, "..."] | None:
        """The entropy -Σ p log p of each query's distribution, in nats; None if the weights are no distribution."""
        if self.probabilities is None:
            return None
        p = self.probabilities if self.probabilities.element_size() > 2 else self.probabilities.float()
        return -torch.xlogy(p, p.clamp(min=torch.finfo(p.dtype).tiny)).sum(-1)

    def explain(self) -> str:
        """Describe each stage with its symbol and shape."""
        stages = [
            ("q", "query", self.shapes.get("query")),
            ("k", "keys", self.shapes.get("keys")),
            ("v", "values", self.shapes.get("values")),
            ("e", "scores", tuple(self.scores.shape)),
            ("p", "centre of the window", None if self.centre is None else tuple(self.centre.shape)),
            ("a", "weights", tuple(self.weights.shape)),
            ("s", "picked key", None if self.picked is None else tuple(self.picked.shape)),
            ("c", "context, the sum of a v", tuple(self.context.shape)),
        ]
        rows = [(symbol, str(list(shape)), words) for symbol, words, shape in stages if shape is not None]
        width = max(len(shape) for _, shape, _ in rows)
        lines = [f"{symbol}  {shape:<{width}}  {words}" for symbol, shape, words in rows]
        entropy = self.entropy
        if entropy is not None and self.probabilities is not None and entropy.numel():
            mean, keys = float(entropy.detach().mean()), self.probabilities.shape[-1]
            lines.append(f"H  {mean:.3f} nats on average, of ln {keys} = {math.log(keys):.3f} at most")
        return "\n".join([self.how, *lines] if self.how else lines)


def concatenate(looks: Sequence[Look]) -> Look:
    """Concatenate the looks of repeated calls along the queries; pad missing keys with zeros."""
    if len(looks) == 1:
        return looks[0]
    if looks[0].grid == "both":
        raise RuntimeError("maps cannot be joined along their places")
    most = max(look.weights.shape[-1] for look in looks)

    def along(name: str, dim: int, keys: bool = False) -> Tensor | None:
        tensors = [getattr(look, name) for look in looks]
        if any(tensor is None for tensor in tensors):
            return None
        if keys and not looks[0].grid:
            tensors = [F.pad(tensor, (0, most - tensor.shape[-1])) for tensor in tensors]
        return torch.cat(tensors, dim=dim)

    queries = -3 if looks[0].grid else -2
    joined: dict[str, Any] = {name: along(name, queries, keys=True) for name in ("scores", "weights")}
    joined |= {name: along(name, -1) for name in ("picked", "log_prob", "centre")}
    joined |= {"context": along("context", -2), "probabilities": along("probabilities", -2, keys=True)}
    total = sum(look.shapes["query"][-2] for look in looks)
    shapes = looks[-1].shapes | {"query": (*looks[-1].shapes["query"][:-2], total, looks[-1].shapes["query"][-1])}
    return replace(looks[-1], shapes=shapes, **joined)
