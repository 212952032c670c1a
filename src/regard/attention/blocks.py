"""Blocks: self-attention, residual, layer norm, feed-forward; stacked, an encoder or a decoder.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.1. `norm="post"` is the paper's LayerNorm(x + f(x)); `norm="pre"` is
x + f(LayerNorm(x)), with one more norm at the end of a stack, which trains without a warm-up (arXiv:2002.04745).
"""

# b batch · n positions of x · m positions of memory · d width
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import Cache, Prepared
from regard.attention.checks import check_dropout, positive
from regard.attention.heads import Heads
from regard.attention.positions import Rotary
from regard.attention.span import Causal, Span, Start, join
from regard.errors import ArgumentError, ShapeError

__all__ = ["Block", "Decoder", "DecoderState", "Encoder"]

Norm = Literal["pre", "post"]


class Block(nn.Module):
    """Self-attention, then (with `cross`) attention to a memory, then a feed-forward net, each with its residual.

    `hidden` is the feed-forward net's width, by default 4 × size. Dropout falls on each part's output, before the
    residual; `attention_dropout` on the attention weights.
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
        rotary: bool = False,
        memory_size: int | None = None,
    ):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ArgumentError(f"norm: {norm!r} given, expected 'pre' or 'post'")
        self.norm = norm
        self.dropout = check_dropout(dropout)
        size, heads = positive(size=size, heads=heads)
        hidden = 4 * size if hidden is None else positive(hidden=hidden)[0]
        self.attention = Heads(size, heads, dropout=attention_dropout, rotary=Rotary(size // heads) if rotary else None)
        self.attention_norm = nn.LayerNorm(size)
        self.cross = Heads(size, heads, dropout=attention_dropout, memory_size=memory_size) if cross else None
        self.cross_norm = nn.LayerNorm(size) if cross else None
        self.feed = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, size))
        self.feed_norm = nn.LayerNorm(size)

    def forward(
        self,
        x: Float[Tensor, "*b n d"],
        memory: Float[Tensor, "*bm m e"] | Prepared | None = None,
        *,
        span: Span | None = None,
        memory_span: Span | None = None,
        start: Start = 0,
        past: Cache | None = None,
    ) -> Float[Tensor, "*b n d"]:
        """x, having looked at itself (or at `past`, which it joins), at the memory, and thought about it."""
        if (memory is None) != (self.cross is None):
            given, expected = ("none", "one") if memory is None else ("one", "none")
            raise ArgumentError(
                f"memory: {given} given, expected {expected}: this Block has cross={self.cross is not None}"
            )

        def look_at_itself(y: Tensor) -> Tensor:
            if past is not None:
                past.extend(self.attention.prepare(y, start))
            attended: Tensor = self.attention(y, past, span=span, start=start)
            return attended

        def look_at_memory(y: Tensor) -> Tensor:
            assert self.cross is not None
            attended: Tensor = self.cross(y, memory, span=memory_span)
            return attended

        x = self.residual(x, look_at_itself, self.attention_norm)
        if self.cross is not None:
            assert self.cross_norm is not None
            x = self.residual(x, look_at_memory, self.cross_norm)
        return self.residual(x, self.feed, self.feed_norm)

    def residual(self, x: Tensor, part, norm: nn.LayerNorm) -> Tensor:  # type: ignore[no-untyped-def]
        """One part with its residual and its norm, before or after."""
        if self.norm == "pre":
            return x + self.dropped(part(norm(x)))
        return norm(x + self.dropped(part(x)))

    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x


class Stack(nn.Module):
    """Blocks one on the other."""

    def __init__(self, size: int, layers: int, norm: Norm, blocks: list[Block]):
        super().__init__()
        positive(layers=layers)
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = nn.LayerNorm(size) if norm == "pre" else nn.Identity()


class Encoder(Stack):
    """A stack of blocks that look at themselves. `Causal()` makes it a language model's."""

    def __init__(
        self,
        size: int,
        heads: int,
        layers: int,
        hidden: int | None = None,
        *,
        norm: Norm = "pre",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        rotary: bool = False,
    ):
        options: dict[str, Any] = {"norm": norm, "dropout": dropout, "attention_dropout": attention_dropout}
        options["rotary"] = rotary
        super().__init__(size, layers, norm, [Block(size, heads, hidden, **options) for _ in range(layers)])

    def forward(
        self, x: Float[Tensor, "*b n d"], span: Span | None = None, start: Start = 0
    ) -> Float[Tensor, "*b n d"]:
        """The sequence, re-read by every block."""
        for block in self.blocks:
            x = block(x, span=span, start=start)
        return self.final_norm(x)


@dataclass(eq=False)
class DecoderState:
    """What a decoder keeps between steps: the memory, projected once, and what each row has said so far."""

    memory: list[Prepared]
    memory_span: Span | None
    past: list[Cache]

    @property
    def length(self) -> Int[Tensor, " rows"]:
        """Steps taken, a row each."""
        length = self.past[0].length
        assert length is not None
        return length


class Decoder(Stack):
    """A stack of blocks that look at what was said so far, and at a memory."""

    def __init__(
        self,
        size: int,
        heads: int,
        layers: int,
        hidden: int | None = None,
        *,
        norm: Norm = "pre",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        rotary: bool = False,
        memory_size: int | None = None,
    ):
        options: dict[str, Any] = {"norm": norm, "dropout": dropout, "attention_dropout": attention_dropout}
        options |= {"rotary": rotary, "cross": True, "memory_size": memory_size}
        super().__init__(size, layers, norm, [Block(size, heads, hidden, **options) for _ in range(layers)])

    def forward(
        self,
        x: Float[Tensor, "*b n d"],
        memory: Float[Tensor, "*bm m e"],
        span: Span | None = None,
        memory_span: Span | None = None,
        start: Start = 0,
    ) -> Float[Tensor, "*b n d"]:
        """All steps at once, teacher forced; each sees itself and those before."""
        span = join(Causal(), span)
        for block in self.blocks:
            x = block(x, memory, span=span, memory_span=memory_span, start=start)
        return self.final_norm(x)

    def start(self, memory: Float[Tensor, "rows m e"], size: int, memory_span: Span | None = None) -> DecoderState:
        """The state before the first step, with room for `size` steps."""
        if memory.ndim != 3:
            raise ShapeError(f"memory: {list(memory.shape)} given, expected [rows m width]")
        blocks = cast(list[Block], list(self.blocks))
        prepared = [block.cross.prepare(memory) for block in blocks if block.cross is not None]
        past = [block.attention.cache(memory.shape[0], size) for block in blocks]
        return DecoderState(prepared, memory_span, past)

    def step(self, x: Float[Tensor, "rows n d"], state: DecoderState) -> Float[Tensor, "rows n d"]:
        """The next step (or the next few) of every row, each at its own position; the state moves on in place."""
        if x.ndim != 3 or len(x) != len(state.length):
            raise ShapeError(
                f"x: {list(x.shape)} given, expected [rows n width] of the state's {len(state.length)} rows"
            )
        start = state.length.clone()
        span = Causal(start) if x.shape[-2] > 1 else None  # one query sees all that its cache holds
        for block, memory, past in zip(self.blocks, state.memory, state.past, strict=True):
            x = block(x, memory, span=span, memory_span=state.memory_span, start=start, past=past)
        return self.final_norm(x)
