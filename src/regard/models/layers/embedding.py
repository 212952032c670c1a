"""Token embeddings with their positions; of a stack of blocks, options, first parameters, and weights of calls."""

# b sentences · n positions · m source positions · d width · r rows · a heads
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    Block,
    Decoder,
    Embedded,
    Heads,
    Sines,
    Sinusoidal,
    SlicedProjection,
    Span,
    Start,
    State,
    call_records,
    split_packed,
)
from regard.kernels import dropout, features, table
from regard.models.config import BlocksConfig


class Embedding(nn.Module):
    """Token embeddings times √d, or as they are, with their positions, and dropout on the sum."""

    def __init__(
        self,
        vocabulary: int,
        size: int,
        positions: str,
        join: str,
        length: int,
        dropout: float,
        *,
        sines: Sines = "interleaved",
        first: int | None = None,
        scaled: bool = True,
    ):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.scale, self.dropout = math.sqrt(size) if scaled else 1.0, dropout
        self.positions: nn.Module | None = None
        if positions == "sinusoidal":
            self.positions = Sinusoidal(size, join=join, sines=sines, first=first)  # type: ignore[arg-type]
        elif positions == "learned":
            self.positions = Embedded(size, length, join=join)  # type: ignore[arg-type]
        self.mix = nn.Linear(2 * size, size) if join == "concatenate" else None
        nn.init.normal_(self.tokens.weight, std=size**-0.5)

    def forward(self, ids: Int[Tensor, "*b n"], span: Span | None = None, start: Start = 0) -> Float[Tensor, "*b n d"]:
        """Embeddings and positions, as blocks read them."""
        if ids.is_cuda and (embedded := self.embed_fused(ids, span, start)) is not None:
            return embedded
        x: Tensor = self.tokens(ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = self.positions(x, start=start, span=span)
        if self.mix is not None:
            x = self.mix(x)
        return dropout(x, self.dropout) if self.training else x

    def embed_fused(self, ids: Int[Tensor, "*b n"], span: Span | None, start: Start) -> Float[Tensor, "*b n d"] | None:
        """Embed packed sequences on a GPU under autocast in one kernel, in its dtype; None where that cannot serve."""
        packed, positions = split_packed(span)[0], self.positions
        if EMBEDDING.choose(self.describe(span, start, ids.device.type)).name != "fused":
            return None
        assert packed is not None
        assert isinstance(positions, Sinusoidal)
        from regard.kernels import dropout_triton

        dropout = self.dropout if self.training else 0.0
        waves = positions.table(packed.longest, ids.device).float()
        seed = dropout_triton.draw_seed(ids.device) if dropout else None
        half, place = torch.get_autocast_dtype("cuda"), packed.to(ids.device).queries[1]
        return dropout_triton.embed(ids, self.tokens.weight, self.scale, place, dropout, seed, table=waves, dtype=half)

    def describe(self, span: Span | None, start: Start, device: str) -> table.Request:
        """Put a call into plain data."""
        if torch.compiler.is_compiling():  # the rest is nothing to trace
            return table.Request(device, (), table.compiling())
        packed, rest = split_packed(span)
        needs = ["padded sequences" if packed is None or rest else features.PACKED]
        needs.append(table.AUTOCAST if torch.is_autocast_enabled(device) else "single precision")
        if not (isinstance(start, int) and start == 0):
            needs.append("a start")
        if type(self.positions) is not Sinusoidal or self.mix is not None:
            needs.append("positions that are not added sines (model.positions)")
        if type(self.tokens) is not nn.Embedding or self.tokens.padding_idx is not None:
            needs.append("embeddings of one's own")
        if call_records.has_hooks(self):
            needs.append(table.HOOKS)
        return table.Request(device, (), tuple(needs))


EMBEDDING = table.Table(
    "embedding",
    table.Row(
        name="fused",
        devices=("cuda",),
        features=frozenset({features.PACKED, table.AUTOCAST}),
        conditions=(table.NEEDS_TRITON,),
    ),
    table.Row(name="torch", features=None),
)


def block_options(config: BlocksConfig) -> dict[str, Any]:
    """Return the options of a kind's blocks."""
    own = ("norm", "dropout", "attention_dropout", "residual", "feed_forward", "activation")
    each = {name: getattr(config, name) for name in own}
    return {**each, "feed_dropout": config.dropout, "rotary": config.positions == "rotary"}


def initialise(model: nn.Module) -> None:
    """Initialise linear layers after Glorot and Bengio, with biases of zero.

    Embeddings have their own scale already, and so have recurrent cells. A model without memory has no numbers to set.
    """
    if all(parameter.is_meta for parameter in model.parameters()):
        return
    sliced = {id(module.weight) for module in model.modules() if isinstance(module, SlicedProjection)}
    for name, parameter in model.named_parameters():
        if ".both." in name:
            continue
        if id(parameter) in sliced:
            for matrix in parameter.data:
                nn.init.xavier_uniform_(matrix)
        elif parameter.ndim > 1 and "tokens" not in name and "vectors" not in name:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def cross_attentions(decoder: Decoder) -> list[Heads]:
    """Return the attentions to the source, the first block's first."""
    return [cast(Heads, cast(Block, block).cross) for block in decoder.blocks]


@contextmanager
def collect_weights(attentions: Sequence[Heads]) -> Iterator[list[Float[Tensor, "b a n m"]]]:
    """Collect the weights of these attentions' calls, with their graph, while the context is open."""
    weights: list[Tensor] = []
    mine = threading.get_ident()

    def keep(module: Heads, arguments: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        if threading.get_ident() == mine:  # another thread may search with the same model
            weights.append(module.look(*arguments, **options).weights)

    hooks = [each.register_forward_hook(keep, with_kwargs=True) for each in attentions]
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()


def step_with_coverage(
    decoder: Decoder, x: Float[Tensor, "r 1 d"], state: State, span: Span | None = None
) -> Float[Tensor, "r 1 d"]:
    """Take a step that adds the weights of the last block to coverage, the mean of its heads."""
    with collect_weights(cross_attentions(decoder)[-1:]) as weights:
        x = decoder.step(x, state, span)
    state.row["coverage"].add_(weights[0].detach().mean(1).flatten(0, 1))
    return x
