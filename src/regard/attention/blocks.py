"""Stacks of blocks: an encoder, and a decoder that runs all steps at once or one at a time; plans of a model.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.1. With `norm="pre"` a stack ends with an additional norm.

A single attention reports the plan of a call (`attention.plan(…)`, `heads.plan(…)`). For a model, `plan_calls` collects
the plans of all stacks and attentions during a forward, so that a slow path has a name and a reason.
"""

# b batch · n positions of x · m positions of memory · d width
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import fused_stack, fused_step
from regard.attention.block import Block, BlockOptions, MixingBlock, Stack
from regard.attention.cache import State
from regard.attention.call_records import find_outermost, stay_eager
from regard.attention.span import Causal, Lengths, Mask, Shared, Span, Start, is_exactly, join, parts_of, share, unshare
from regard.errors import ArgumentError, ShapeError
from regard.kernels import Plan, planning

# Options of `Block` that a block without attention does not use.
OF_ATTENTION = {"attention_dropout", "rotary", "depth", "score", "split"}


class Encoder(Stack):
    """A stack of self-attention blocks; the span `Causal()` makes it a language model's.

    `options` are those of `Block`: norm, dropouts, positions, score and the others.

    `mixing` makes a module for each block, which replaces its self-attention.
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
        """Run all steps at once, with teacher forcing; each step attends to itself and the earlier ones."""
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
        """Return the state before the first step, with room for `size` steps of `rows` hypotheses per sentence."""
        if memory.ndim != 3:
            raise ShapeError(f"memory: {list(memory.shape)} given, expected [sentences m width]")
        sentence: dict[str, Any] = {}
        for part in parts_of(memory_span):  # as tensors, so that sentences can be added and removed
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
        """Run the next step (or the next few) of every row, each at its own position; the state is updated in place."""
        length = state.row["past.0"].length
        if x.ndim != 3 or len(x) != len(length):
            raise ShapeError(f"x: {list(x.shape)} given, expected [rows n width] of the state's {len(length)} rows")
        if (fused := fused_step.find_step(self, x, state, span)) is not None:
            return fused.run(x, state)
        start = self.position(state)
        if x.shape[-2] > 1:  # a single query sees all keys in its cache
            span = join(Causal(start), span)
        shared, across = self.share(span), state.across
        if across is None:
            lengths, mask = state.sentence.get("lengths"), state.sentence.get("mask")
            across = share(join(None if lengths is None else Lengths(lengths), None if mask is None else Mask(mask)))
            if x.device.type == "cpu" and not torch.compiler.is_compiling():  # graphs read changing lengths
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
        """Return the next step's position: a number if all rows share it and the host knows it, else a tensor."""
        past = state.row["past.0"]
        bounds = past.length_range()
        return bounds[0] if bounds is not None and bounds[0] == bounds[1] else past.length.clone()


# ---- plans


class ModelPlan(dict[str, Plan]):
    """The plan of each attention of a model, by its dotted name, and of each stack; it prints a line for each."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks: dict[str, Plan] = {}

    def __str__(self) -> str:
        lines = [line for name, plan in self.stacks.items() for line in f"{name}: {plan}".splitlines()]
        for name, plan in self.items():
            inside = any(name.startswith(f"{stack}.") for stack, whole in self.stacks.items() if whole.name == "fused")
            first, *rest = str(plan).splitlines()
            lines += [f"{name}: in the fused stack"] if inside else [f"{name}: {first}", *rest]
        return "\n".join(lines)


@contextmanager
def plan_calls(model: nn.Module) -> Iterator[ModelPlan]:
    """Record the plan of every stack and attention called inside the block; only the last call of each counts."""
    found = ModelPlan()
    stacks = {name: module for name, module in model.named_modules() if isinstance(module, Stack)}

    def note(name: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not isinstance(module, Stack):
            found[name] = module.plan(*args, **kwargs)
            return
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        span = given.get("span")
        if isinstance(module, Decoder):
            span = join(Causal(), span)
        request = fused_stack.describe(module, given["x"], span, given.get("memory"), given.get("memory_span"))
        needs = tuple(each for each in request.features if each != planning.HOOKS)  # plan_calls' own hooks
        found.stacks[name] = fused_stack.STACK.plan(request._replace(features=needs))

    attentions = {name: module for name, module in find_outermost(model).items() if hasattr(module, "plan")}
    handles = [
        module.register_forward_pre_hook(partial(note, name), with_kwargs=True)
        for name, module in (*stacks.items(), *attentions.items())
    ]
    try:
        with stay_eager():  # compiled code would not call the hooks
            yield found
    finally:
        for handle in handles:
            handle.remove()


def stack_features(model: nn.Module) -> tuple[str, ...]:
    """Return the properties of a model's stacks that rule out the fused stack, whatever the inputs."""
    blocks = [block for module in model.modules() if isinstance(module, Stack) for block in module.blocks]
    return tuple(dict.fromkeys(feature for block in blocks for feature in fused_stack.block_features(block)))
