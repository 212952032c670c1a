"""Blocks stacked: an encoder, and a decoder that runs all steps at once or one at a time.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.1. With `norm="pre"` a stack ends with one more norm.
"""

# b batch · n positions of x · m positions of memory · d width
from collections.abc import Callable
from typing import Any, Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import fused_stack, fused_step
from regard.attention.block import Block, BlockOptions, MixingBlock, Stack
from regard.attention.span import Causal, Lengths, Mask, Shared, Span, Start, is_exactly, join, parts_of, share, unshare
from regard.attention.state import State
from regard.errors import ArgumentError, ShapeError

# Options of `Block` that a block without attention has no use for.
OF_ATTENTION = {"attention_dropout", "rotary", "depth", "score", "split"}


class Encoder(Stack):
    """A stack of self-attention blocks; the span `Causal()` makes it a language model's.

    `options` are those of `Block`: norm, dropouts, positions, score and the others.

    With `mixing`, which makes a module for each block, words meet by that in place of attention.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        layers: int,
        hidden: int | None = None,
        *,
        mixing: Callable[[], nn.Module] | None = None,
        **options: Unpack[BlockOptions],
    ):
        if mixing is None:
            blocks: list[nn.Module] = [Block(size, heads, hidden, **options) for _ in range(layers)]
        else:
            own: dict[str, Any] = {name: value for name, value in options.items() if name not in OF_ATTENTION}
            blocks = [MixingBlock(size, mixing(), hidden, **own) for _ in range(layers)]
        super().__init__(size, layers, options.get("norm", "pre"), blocks)

    def forward(
        self, x: Float[Tensor, "*b n d"], span: Span | None = None, start: Start = 0
    ) -> Float[Tensor, "*b n d"]:
        """Pass the sequence through every block."""
        if x.is_cuda and isinstance(start, int) and start == 0 and fused_stack.serves(self, x, span):
            return fused_stack.run(self, x, span)
        shared = self.share(span)
        for block in self.blocks:
            x = block(x, span=shared, start=start)
        return self.final_norm(x)


class Decoder(Stack):
    """A stack of blocks that attend to the outputs so far and to a memory.

    `options` are those of `Block`: norm, dropouts, positions, score and the others.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        layers: int,
        hidden: int | None = None,
        *,
        memory_size: int | None = None,
        **options: Unpack[BlockOptions],
    ):
        blocks = [Block(size, heads, hidden, cross=True, memory_size=memory_size, **options) for _ in range(layers)]
        super().__init__(size, layers, options.get("norm", "pre"), blocks)

    def forward(
        self,
        x: Float[Tensor, "*b n d"],
        memory: Float[Tensor, "*bm m e"],
        span: Span | None = None,
        memory_span: Span | None = None,
        start: Start = 0,
    ) -> Float[Tensor, "*b n d"]:
        """Run all steps at once, teacher-forced; each step attends to itself and the earlier ones."""
        span = join(Causal(), span)
        first = isinstance(start, int) and start == 0
        if x.is_cuda and first and fused_stack.serves(self, x, span, memory, memory_span):
            return fused_stack.run(self, x, span, memory, memory_span)
        shared, across = self.share(span), self.share(memory_span)
        for block in self.blocks:
            x = block(x, memory, span=shared, memory_span=across, start=start)
        return self.final_norm(x)

    def start(
        self, memory: Float[Tensor, "s m e"], size: int, memory_span: Span | None = None, *, rows: int = 1
    ) -> State:
        """Make the state before the first step, with room for `size` steps of `rows` hypotheses per sentence."""
        if memory.ndim != 3:
            raise ShapeError(f"memory: {list(memory.shape)} given, expected [sentences m width]")
        sentence: dict[str, Any] = {}
        for part in parts_of(memory_span):  # as tensors, so that sentences can leave and join
            if isinstance(part, Lengths) and is_exactly(part, Lengths):
                sentence["lengths"] = part.lengths.to(memory.device).expand(len(memory)).clone()
            elif isinstance(part, Mask) and is_exactly(part, Mask):
                sentence["mask"] = part.mask.expand(len(memory), 1, memory.shape[1]).clone()
            else:
                raise ArgumentError(f"memory_span: {part!r} given, expected Lengths or Mask")
        row: dict[str, Any] = {}
        for i, block in enumerate(cast(list[Block], list(self.blocks))):
            assert block.cross is not None
            sentence[f"memory.{i}"] = block.cross.prepare(memory)
            row[f"past.{i}"] = block.attention.cache(len(memory) * rows, size)
        return State(sentence, row, rows)

    def step(self, x: Float[Tensor, "r n d"], state: State, span: Span | None = None) -> Float[Tensor, "r n d"]:
        """Run the next step (or the next few) of every row, each at its own position; the state advances in place."""
        length = state.row["past.0"].length
        if x.ndim != 3 or len(x) != len(length):
            raise ShapeError(f"x: {list(x.shape)} given, expected [rows n width] of the state's {len(length)} rows")
        if (fused := fused_step.find_step(self, x, state, span)) is not None:
            return fused.run(x, state)
        start = self.position(state)
        if x.shape[-2] > 1:  # one query sees all that its cache holds
            span = join(Causal(start), span)
        shared, across = self.share(span), state.across
        if across is None:
            lengths, mask = state.sentence.get("lengths"), state.sentence.get("mask")
            across = share(join(None if lengths is None else Lengths(lengths), None if mask is None else Mask(mask)))
            if x.device.type == "cpu" and not torch.compiler.is_compiling():  # a graph reads lengths that change
                state.across = across
        across = across if isinstance(shared, Shared) else unshare(across)
        for i, block in enumerate(self.blocks):
            x = block(
                x,
                state.sentence[f"memory.{i}"],
                span=shared,
                memory_span=across,
                start=start,
                past=state.row[f"past.{i}"],
                rows=state.rows,
            )
        return self.final_norm(x)

    # ---- for other parts of Regard

    def position(self, state: State) -> Start:
        """The position of the next step: a number where it is known on the host and the same for all rows."""
        past = state.row["past.0"]
        bounds = past.length_range()
        return bounds[0] if bounds is not None and bounds[0] == bounds[1] else past.length.clone()
