"""A block: self-attention, residual, layer norm, feed-forward, and cross-attention in a decoder; and a stack of blocks.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.1. `norm="post"` is the paper's LayerNorm(x + f(x)); `norm="pre"` is
x + f(LayerNorm(x)), which trains without a warm-up (arXiv:2002.04745). Everything besides attention can be removed for
a study: `norm="none"`, `residual=False`, `feed_forward=False`.
"""

# b batch · n positions of x · m positions of memory · d width
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from regard.attention.cache import Cache, Prepared, SharedBeamCache
from regard.attention.checks import check_dropout, check_positive
from regard.attention.heads import Heads
from regard.attention.positions import Rotary
from regard.attention.score import Score
from regard.attention.span import Shared, Span, Start, share, unshare
from regard.errors import ArgumentError
from regard.kernels import Linear, dropout, dropout_add, gelu_dropout, relu_dropout, silu_dropout

Activation = Literal["relu", "gelu", "silu"]
Norm = Literal["pre", "post", "none"]
Split = Literal["projection", "input"]


class BlockOptions(TypedDict, total=False):
    """Options of all blocks of a stack; their meanings and defaults are those of `Block`."""

    norm: Norm
    dropout: float
    attention_dropout: float
    feed_dropout: float
    rotary: bool
    depth: int | None
    score: Callable[[int], Score] | None
    split: Split
    residual: bool
    feed_forward: bool
    activation: Activation


class Residual(nn.Module):
    """The base of all blocks: each sub-layer has a residual, a norm and dropout."""

    norm: Norm
    dropout: float
    has_residual: bool = True


def replace_dropped(x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return the sub-layer's output after dropout, without a residual: it replaces the input."""
    return dropout(y, p)


class Block(Residual):
    """Self-attention, with `cross` attention to a memory, and a feed-forward net, each with its residual.

    `hidden` is the feed-forward net's width, by default 4 × size. `dropout` applies to each part's output, before the
    residual; `attention_dropout` to the attention weights; `feed_dropout` inside the feed-forward net, after its
    `activation`: "relu" (the paper's), "gelu" or "silu". `depth` is the width of a head's queries and keys (by default
    size / heads); `score` and `split` are those of Heads. Without `residual`, each part's output replaces its input;
    without `feed_forward`, a block ends with its attention.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        hidden: int | None = None,
        *,
        cross: bool = False,
        norm: Norm = "pre",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        feed_dropout: float = 0.0,
        rotary: bool = False,
        memory_size: int | None = None,
        depth: int | None = None,
        score: Callable[[int], Score] | None = None,
        split: Split = "projection",
        residual: bool = True,
        feed_forward: bool = True,
        activation: Activation = "relu",
    ):
        super().__init__()
        check_options(norm, activation)
        self.norm, self.has_residual = norm, residual
        self.dropout = check_dropout(dropout)
        size, heads = check_positive(size=size, heads=heads)
        hidden = 4 * size if hidden is None else check_positive(hidden=hidden)[0]
        depth = None if depth is None else check_positive(depth=depth)[0]
        options: dict[str, Any] = {"dropout": attention_dropout, "score": score, "split": split}
        options["query_size"] = None if depth is None else heads * depth
        self.attention = Heads(size, heads, **options, rotary=Rotary(depth or size // heads) if rotary else None)
        self.attention_norm = make_norm(norm, size)
        self.cross = Heads(size, heads, **options, memory_size=memory_size) if cross else None
        self.cross_norm = make_norm(norm, size) if cross else None
        self.feed = make_feed_forward(size, hidden, activation, feed_dropout) if feed_forward else None
        self.feed_norm = make_norm(norm, size) if feed_forward else None

    def forward(
        self,
        x: Float[Tensor, "*b n d"],
        memory: Float[Tensor, "*bm m e"] | Prepared | None = None,
        *,
        span: Span | None = None,
        memory_span: Span | None = None,
        start: Start = 0,
        past: Cache | None = None,
        rows: int = 1,
    ) -> Float[Tensor, "*b n d"]:
        """Return x after self-attention (over `past` too, which x extends), cross-attention and feed-forward net.

        Each row of the memory has `rows` adjacent rows of x, as in a beam.
        """
        if (memory is None) != (self.cross is None):
            actual, expected = ("none", "one") if memory is None else ("one", "none")
            raise ArgumentError(
                f"memory: {actual} given, expected {expected}: this Block has cross={self.cross is not None}"
            )

        pre, p = self.norm == "pre", self.dropout if self.training else 0.0
        add = dropout_add if self.has_residual else replace_dropped
        # A module with hooks, or one that replaces a Heads, gets the original span.
        itself, across = self.attention, self.cross
        free = isinstance(itself, Heads) and not itself._forward_hooks and not itself._forward_pre_hooks
        plain = span if free and type(itself) is Heads else unshare(span)
        y = self.attention_norm(x) if pre else x
        # If a Heads has no hooks, `step` may replace its forward.
        if isinstance(past, SharedBeamCache) or (past is not None and y.shape[-2] == 1 and free):
            y = itself.step(y, past, plain, start)
        else:
            if past is not None:
                past.extend(itself.prepare(y, start))
            y = itself(y, past, span=plain, start=start)
        x = add(x, y, p) if pre else self.attention_norm(add(x, y, p))
        if across is not None:
            assert self.cross_norm is not None
            y = self.cross_norm(x) if pre else x
            free = type(across) is Heads and not across._forward_hooks and not across._forward_pre_hooks
            together = y if rows == 1 else y.reshape(-1, rows * y.shape[-2], y.shape[-1])
            attended = across(together, memory, span=memory_span if free else unshare(memory_span))
            x = add(x, attended if rows == 1 else attended.reshape(y.shape), p)
            x = x if pre else self.cross_norm(x)
        feed, norm = self.feed, self.feed_norm
        if feed is not None:
            assert norm is not None
            x = add(x, feed(norm(x)), p) if pre else norm(add(x, feed(x), p))
        return x


class MixingBlock(Residual):
    """A block that connects words by `mixing(x, span)` instead of attention, followed by a feed-forward net.

    The mixing is, for example, a convolution or a recurrence, for comparisons with self-attention.
    """

    def __init__(
        self,
        size: int,
        mixing: nn.Module,
        hidden: int | None = None,
        *,
        norm: Norm = "pre",
        dropout: float = 0.0,
        feed_dropout: float = 0.0,
        residual: bool = True,
        feed_forward: bool = True,
        activation: Activation = "relu",
    ):
        super().__init__()
        check_options(norm, activation)
        self.norm, self.dropout, self.has_residual = norm, check_dropout(dropout), residual
        hidden = 4 * size if hidden is None else check_positive(hidden=hidden)[0]
        self.mixing, self.mixing_norm = mixing, make_norm(norm, size)
        self.feed = make_feed_forward(size, hidden, activation, feed_dropout) if feed_forward else None
        self.feed_norm = make_norm(norm, size) if feed_forward else None

    def forward(
        self, x: Float[Tensor, "*b n d"], *, span: Span | None = None, start: Start = 0
    ) -> Float[Tensor, "*b n d"]:
        """Return x after mixing and feed-forward net; only padding and packing in the span matter."""
        pre, p, span = self.norm == "pre", self.dropout if self.training else 0.0, unshare(span)
        add = dropout_add if self.has_residual else replace_dropped
        mixed = self.mixing(self.mixing_norm(x) if pre else x, span)
        x = add(x, mixed, p) if pre else self.mixing_norm(add(x, mixed, p))
        if self.feed is not None:
            assert self.feed_norm is not None
            x = add(x, self.feed(self.feed_norm(x)), p) if pre else self.feed_norm(add(x, self.feed(x), p))
        return x


def check_options(norm: str, activation: str) -> None:
    """Raise ArgumentError for an unknown norm or activation."""
    if norm not in ("pre", "post", "none"):
        raise ArgumentError(f"norm: {norm!r} given, expected 'pre', 'post' or 'none'")
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"activation: {activation!r} given, expected 'relu', 'gelu' or 'silu'")


def make_norm(norm: Norm, size: int) -> nn.Module:
    """Return a layer norm, or an identity for "none"."""
    return nn.Identity() if norm == "none" else nn.LayerNorm(size)


def make_feed_forward(size: int, hidden: int, activation: Activation, dropout: float) -> nn.Sequential:
    """Return max(0, x W₁ + b₁) W₂ + b₂, or another activation instead of the maximum."""
    return nn.Sequential(Linear(size, hidden), ACTIVATIONS[activation](dropout), Linear(hidden, size))


class ActivationDropout(nn.Module):
    """An activation, followed by dropout in training."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.dropout = check_dropout(dropout)

    def forward(self, x: Float[Tensor, "*b n h"]) -> Float[Tensor, "*b n h"]:
        """Return the activation of every element."""
        if self.dropout and self.training:
            return self.compute(x, self.dropout)
        active: Tensor = super().forward(x)  # the activation's own forward, next in the method resolution order
        return active

    @staticmethod
    def compute(x: Tensor, p: float) -> Tensor:
        """Compute dropout(activation(x))."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


class ReLUDropout(ActivationDropout, nn.ReLU):
    """max(0, x), followed by dropout in training."""

    compute = staticmethod(relu_dropout)


class GELUDropout(ActivationDropout, nn.GELU):
    """x · Φ(x), Φ the normal distribution function, followed by dropout in training."""

    compute = staticmethod(gelu_dropout)


class SiLUDropout(ActivationDropout, nn.SiLU):
    """x · σ(x), followed by dropout in training."""

    compute = staticmethod(silu_dropout)


ACTIVATIONS: dict[str, type[ActivationDropout]] = {"relu": ReLUDropout, "gelu": GELUDropout, "silu": SiLUDropout}


class Stack(nn.Module):
    """A stack of blocks."""

    def __init__(self, size: int, layers: int, norm: Norm, blocks: Sequence[nn.Module]):
        super().__init__()
        check_positive(layers=layers)
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = nn.LayerNorm(size) if norm == "pre" else nn.Identity()

    # ---- for other parts of Regard

    def share(self, span: Span | None) -> Span | None:
        """Return the span for all blocks, resolved once for all of them.

        Unknown kinds of blocks, and blocks with hooks, get the original span.
        """
        if _has_any_global_hook():
            return span
        for block in self.blocks:
            if type(block) not in (Block, MixingBlock) or block._forward_hooks or block._forward_pre_hooks:
                return span
        return Shared(None) if span is None else share(span)
