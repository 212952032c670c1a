r"""Weightings: how do scores become weights?"""

# b batch · n queries · m keys
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.kernels import softmax

__all__ = ["Gumbel", "Hard", "Plain", "Softmax", "Sparsemax", "Weighed", "Weighting"]


@dataclass(frozen=True)
class Weighed:
    """Weights; for weightings that choose one key, also the key and its log-probability."""

    weights: Tensor  # [*b n m]
    probabilities: Tensor | None = None  # [*b n m]: the distribution, if there is one
    picked: Tensor | None = None  # [*b n]; -1 if there was no key to choose
    log_prob: Tensor | None = None  # [*b n], differentiable


class Settling(nn.Module):
    """A module that caches a result in `settled` until one of its attributes is set or deleted."""

    settled: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.settled = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        vars(self)["settled"] = None

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        vars(self)["settled"] = None


class Weighting(Settling):
    """Scores to weights.

    A subclass overrides `weigh`, which returns a `Weighed`; keys that the mask forbids must get weight zero. It sets
    `draws = True` if it samples. Scores are float32 or wider.
    """

    name: ClassVar[str] = "other"
    draws: ClassVar[bool] = False  # whether it samples in training, so that a look must repeat the samples
    temperature: float = 1.0
    settled: tuple[str, float] | None

    def __init_subclass__(cls, **options: object) -> None:
        """Raise TypeError for overrides that some backends never call; a class with its own `weigh` is "other"."""
        super().__init_subclass__(**options)
        for name, kind in (("forward", Weighting), ("__call__", nn.Module), ("fused_name", Weighting)):
            if getattr(cls, name) is not getattr(kind, name):
                raise TypeError(
                    f"{cls.__name__} overrides `{name}`, which not every backend calls: override `weigh(scores, "
                    "mask)`, which returns a Weighed"
                )
        home = next(each for each in cls.__mro__ if "weigh" in each.__dict__)
        if cls.temperature is not Weighting.temperature and home.__module__ == __name__ and home is not Softmax:
            raise TypeError(f"{cls.__name__} has a `temperature`, which {home.__name__} does not use: override `weigh`")
        if "name" not in cls.__dict__ and "weigh" in cls.__dict__:
            cls.name = "other"

    @property
    def fused_name(self) -> str:
        """The name that kernels know: "other" for a softmax with its own `weigh` or a learned temperature."""
        if self.name != Softmax.name:
            return self.name
        plain = getattr(self.weigh, "__func__", None) is Softmax.weigh and isinstance(self.temperature, float | int)
        return self.name if plain else "other"

    def settle(self) -> tuple[str, float]:
        """Return the name that kernels know, and a softmax's temperature.

        A built-in weighting caches the result until one of its attributes changes; a user's computes it at every call.
        """
        name = self.fused_name
        settled = name, self.temperature if name == "softmax" else 1.0
        if type(self).__module__ == __name__ and not torch.compiler.is_compiling():
            vars(self)["settled"] = settled
        return settled

    def weigh(self, scores: Float[Tensor, "*b n m"], mask: Bool[Tensor, "..."] | None = None) -> Weighed:
        """Return the weights, and the chosen key if there is one."""
        raise TypeError(f"{type(self).__name__} does not say how to weigh: override `weigh`")

    def forward(
        self, scores: Float[Tensor, "*b n m"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*b n m"]:
        """Return only the weights."""
        return weigh_checked(self, scores, mask).weights


def weigh_checked(weighting: Weighting, scores: Tensor, mask: Tensor | None) -> Weighed:
    """Call a weighting; raise TypeError if it does not return a Weighed."""
    weighed: object = weighting.weigh(scores, mask)
    if not isinstance(weighed, Weighed):
        name, actual = type(weighting).__name__, type(weighed).__name__
        raise TypeError(f"{name}.weigh returned {actual}, expected a Weighed, such as Weighed(weights)")
    return weighed


class Softmax(Weighting):
    r"""Soft attention: $a_{ij} = \exp(e_{ij}/T) / \sum_k \exp(e_{ik}/T)$, over the keys in reach.

    A span's bias is part of e, so the temperature T divides it too.
    """

    name = "softmax"

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_above_zero(temperature=temperature)

    def weigh(self, scores: Float[Tensor, "*b n m"], mask: Bool[Tensor, "..."] | None = None) -> Weighed:
        weights = softmax(scores, mask, self.temperature)
        return Weighed(weights, probabilities=weights)

    def extra_repr(self) -> str:
        return "" if self.temperature == 1.0 else f"temperature={self.temperature}"


class Hard(Weighting):
    r"""Hard attention: one key, sampled from the softmax in training, the most likely one in evaluation.

    Xu et al. 2015 (arXiv:1502.03044), section 4.1. Sampling has no gradient; train through `look.log_prob` (REINFORCE).
    """

    name = "hard"
    draws = True

    def weigh(self, scores: Float[Tensor, "*b n m"], mask: Bool[Tensor, "..."] | None = None) -> Weighed:
        probabilities = softmax(scores, mask)
        picked = sample_key(probabilities) if self.training else probabilities.argmax(-1)
        weights, picked = one_hot(picked, probabilities)
        reachable = scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        log_prob = reachable.log_softmax(-1).gather(-1, picked.clamp(min=0)[..., None]).squeeze(-1)
        return Weighed(weights, probabilities, picked, log_prob.masked_fill(picked < 0, 0.0))


class Gumbel(Weighting):
    r"""Straight-through Gumbel-softmax: a one-hot weight forward, the gradient of softmax((e + g)/τ) backward.

    Jang et al. 2017 (arXiv:1611.01144), section 2.2. Evaluation adds no noise and takes the most likely key.
    """

    name = "gumbel"
    draws = True

    def __init__(self, tau: float = 1.0):
        super().__init__()
        self.tau = check_above_zero(tau=tau)

    def weigh(self, scores: Float[Tensor, "*b n m"], mask: Bool[Tensor, "..."] | None = None) -> Weighed:
        probabilities = softmax(scores, mask)
        noisy = scores - exponential_like(scores).log() if self.training else scores
        soft = softmax(noisy, mask, self.tau).to(scores.dtype)
        hard, picked = one_hot(soft.argmax(-1), soft)
        return Weighed(hard + (soft - soft.detach()), probabilities, picked)

    def extra_repr(self) -> str:
        return f"tau={self.tau}"


class Sparsemax(Weighting):
    r"""The Euclidean projection of the scores onto the simplex: $\mathrm{argmin}_p \|p - e\|^2$; many weights are zero.

    Martins and Astudillo 2016 (arXiv:1602.02068), algorithm 1.
    """

    name = "sparsemax"

    def weigh(self, scores: Float[Tensor, "*b n m"], mask: Bool[Tensor, "..."] | None = None) -> Weighed:
        wide = scores if scores.dtype == torch.float64 else scores.float()
        reachable = wide if mask is None else wide.masked_fill(~mask, torch.finfo(wide.dtype).min)
        # Only scores within 1 of the highest can have weight: after the shift, a floor of -2 keeps the rest from
        # overflowing.
        shifted = (reachable - reachable.amax(-1, keepdim=True).detach()).clamp(min=-2.0)
        ordered = shifted.sort(dim=-1, descending=True).values
        count = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=wide.dtype)
        total = ordered.cumsum(-1)
        support = (1 + count * ordered > total).sum(-1, keepdim=True)
        threshold = (total.gather(-1, support - 1) - 1) / support
        weights = (shifted - threshold).clamp(min=0.0)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        weights = weights.to(scores.dtype)
        return Weighed(weights, probabilities=weights)


class Plain(Weighting):
    r"""The scores themselves: with `Dot`, raw self-attention $R = s s^\top$, $c = R s$. Nothing is normalised.

    Scores and sums are in float32; a context above 65,504 becomes infinite in float16.
    """

    name = "plain"

    def weigh(self, scores: Float[Tensor, "*b n m"], mask: Bool[Tensor, "..."] | None = None) -> Weighed:
        return Weighed(scores if mask is None else scores.masked_fill(~mask, 0.0))


def sample_key(probabilities: Float[Tensor, "*b n m"]) -> Int[Tensor, "*b n"]:
    """Sample one key per query by its probability, as a race of exponential clocks, without a device sync."""
    clocks = exponential_like(probabilities)
    return (probabilities.to(clocks.dtype) / clocks).argmax(-1)


def exponential_like(scores: Tensor) -> Tensor:
    """Return exponential noise, never zero."""
    wide = torch.float64 if scores.dtype == torch.float64 else torch.float32
    noise = torch.empty(scores.shape, dtype=wide, device=scores.device).exponential_()
    return noise.clamp(min=torch.finfo(wide).tiny)


def one_hot(
    picked: Int[Tensor, "*b n"], like: Float[Tensor, "*b n m"]
) -> tuple[Float[Tensor, "*b n m"], Int[Tensor, "*b n"]]:
    """Return weight one on the chosen key; no weight, and -1, if every probability is zero."""
    nothing = ~(like > 0).any(-1)
    weights = torch.zeros_like(like).scatter(-1, picked[..., None], 1.0)
    return weights.masked_fill(nothing[..., None], 0.0), picked.masked_fill(nothing, -1)


def check_above_zero(**numbers: float) -> float:
    """Return the number; raise ArgumentError unless it is finite and above zero."""
    ((name, number),) = numbers.items()
    if not 0 < number < float("inf"):
        raise ArgumentError(f"{name}: {number!r} given, expected a number above 0")
    return float(number)
