"""Attention over a feature grid, and self-attention inside a ConvNet."""

# b batch · c channels · h w height and width of the grid · n queries · dq query width
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.cache import Prepared
from regard.attention.checks import check_positive, check_type
from regard.attention.look import Attentive, Look
from regard.attention.score import Dot
from regard.attention.span import Span
from regard.errors import ArgumentError, ShapeError

__all__ = ["GridAttention", "GridSelfAttention"]


class GridSelfAttention(Attentive):
    r"""Self-attention over the places of a feature map: $y = \gamma \cdot W_v \sum_j a_{ij} (W_h x_j) + x_i$.

    Zhang et al. 2018 (arXiv:1805.08318), section 3: queries, keys and values are 1×1 convolutions to C/8 channels, the
    score is an unscaled dot product, a 1×1 convolution maps the sum back to C channels, and γ is initialised to 0, so
    that the layer starts as the identity. Departures: the convolutions have biases and no spectral normalisation.
    """

    def __init__(self, channels: int, reduction: int = 8):
        super().__init__()
        channels, reduction = check_positive(channels=channels, reduction=reduction)
        if channels % reduction:
            raise ArgumentError(f"channels: {channels} is not divisible by a reduction of {reduction}")
        inner = channels // reduction
        self.channels = channels
        self.query = nn.Conv2d(channels, inner, 1)
        self.key = nn.Conv2d(channels, inner, 1)
        self.value = nn.Conv2d(channels, inner, 1)
        self.output = nn.Conv2d(inner, channels, 1)
        self.gamma = nn.Parameter(torch.zeros(()))
        self.attention = Attention(Dot())

    def forward(self, x: Float[Tensor, "*b c h w"]) -> Float[Tensor, "*b c h w"]:
        """Return the feature map after each place has attended to all places."""
        return self.add_to_map(x, self.attention(*self.project(self.flatten_batch(x))))

    def look(self, x: Float[Tensor, "*b c h w"]) -> Look:
        """Return a look at what each place attends to: weights [*b h w h w]."""
        query, keys, values = self.project(self.flatten_batch(x))
        look = self.attention.look(query, keys, values)
        grid = x.shape[-2:]
        return replace(
            look,
            context=self.add_to_map(x, look.context),
            scores=look.scores.reshape(*x.shape[:-3], *grid, *grid),
            weights=look.weights.reshape(*x.shape[:-3], *grid, *grid),
            grid="both",
        )

    # ---- for other parts of Regard

    def flatten_batch(self, x: Tensor) -> Tensor:
        """Flatten [*b c h w] to [B c h w] for a convolution."""
        check_features("x", x, self.channels)
        return x.reshape(-1, *x.shape[-3:])

    def project(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values as sequences, [B h·w c/8]."""
        return [conv(x).flatten(-2).mT for conv in (self.query, self.key, self.value)]

    def add_to_map(self, x: Tensor, context: Tensor) -> Tensor:
        """Turn the context back into a map: apply the last convolution, multiply by γ, add x."""
        mapped = self.output(context.mT.unflatten(-1, x.shape[-2:]))
        return self.gamma * mapped.reshape(x.shape) + x

    def extra_repr(self) -> str:
        return f"{self.channels}"


class GridAttention(Attentive):
    """Any attention over the places of a feature grid, as in captioning: Xu et al. 2015 (arXiv:1502.03044).

    `grid(query, features)` takes features [*b c h w] as keys and values; looks have weights [*b n h w].
    """

    def __init__(self, attention: Attention):
        super().__init__()
        self.attention = check_type("attention", attention, Attention)

    def forward(
        self,
        query: Float[Tensor, "*bq n dq"] | None,
        features: Float[Tensor, "*bf c h w"] | Prepared,
        span: Span | None = None,
    ) -> Float[Tensor, "*b n c"]:
        """Return the context of every query over all places."""
        return self.attention(query, flatten_grid(features), span=span)

    def prepare(self, features: Float[Tensor, "*b c h w"]) -> Prepared:
        """Project the places once for all words."""
        prepared = self.attention.prepare(flatten_grid(features))
        return GridPrepared(
            prepared.keys, prepared.values, prepared.owner, grid=(features.shape[-2], features.shape[-1])
        )

    def look(
        self,
        query: Float[Tensor, "*bq n dq"] | None,
        features: Float[Tensor, "*bf c h w"] | Prepared,
        span: Span | None = None,
    ) -> Look:
        """Return a look at what each query attends to: scores and weights [*b n h w]."""
        look = self.attention.look(query, flatten_grid(features), span=span)
        grid = features.shape[-2:] if isinstance(features, Tensor) else cast(GridPrepared, features).grid
        return replace(
            look, scores=look.scores.unflatten(-1, grid), weights=look.weights.unflatten(-1, grid), grid="keys"
        )

    # ---- for other parts of Regard

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Return whether a training forward draws places at random."""
        return self.attention.draws


class GridPrepared(Prepared):
    """Prepared places with the height and width of their grid."""

    def __init__(self, keys: Tensor, values: Tensor, owner: nn.Module, grid: tuple[int, int]):
        super().__init__(keys, values, owner)
        self.grid = grid


def flatten_grid(features: Tensor | Prepared) -> Tensor | Prepared:
    """Flatten [*b c h w] to [*b h·w c]."""
    if isinstance(features, GridPrepared):
        return features
    if isinstance(features, Prepared):
        raise ArgumentError(
            "features: a Prepared without its grid given, expected one from GridAttention's own prepare()"
        )
    check_features("features", features, None)
    return features.flatten(-2).mT


def check_features(name: str, x: Tensor, channels: int | None) -> None:
    """Raise ShapeError unless the tensor is [*b c h w]."""
    if x.ndim < 3 or 0 in x.shape[-2:] or (channels is not None and x.shape[-3] != channels):
        raise ShapeError(f"{name}: {list(x.shape)} given, expected [*b {channels or 'c'} h w] with at least one place")
