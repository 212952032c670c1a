"""What the recurrent models share: padded rows, first parameters, maxout, and one look of all rows."""

# b sentences · n positions · d width · s sentences · r rows, hypotheses of all sentences · m source positions
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.attention.cache import Prepared
from regard.attention.score import Additive, Dot, General
from regard.attention.span import Packed, Span
from regard.attention.state import State
from regard.attention.weighting import Gumbel, Hard, Softmax
from regard.kernels.backends import forced_backend
from regard.kernels.linear import Linear
from regard.models.contract import Memory, Tokens

__all__ = [
    "embedding",
    "halved",
    "kept",
    "linear",
    "looked",
    "maxout",
    "padded_ids",
    "prepared",
    "readout",
    "repeated",
    "unpadded",
    "unwatched",
    "whole",
]


def embedding(count: int, size: int) -> nn.Embedding:
    """Word vectors of unit-normal numbers: what words differ in must be seen in the first states and annotations.

    With a deviation of 0.1, as small numbers are often advised, attention took five times as many steps to begin.
    """
    return nn.Embedding(count, size)


def linear(inputs: int, size: int, bias: bool = True) -> nn.Linear:
    """A layer between states, after Glorot and Bengio 2010."""
    made = Linear(inputs, size, bias)
    nn.init.xavier_uniform_(made.weight)
    if bias:
        nn.init.zeros_(made.bias)
    return made


def readout(size: int, count: int, scale: float = 1.0) -> nn.Linear:
    """An output projection of normal numbers of deviation scale/√size: larger where what it reads is small."""
    made = Linear(size, count)
    nn.init.normal_(made.weight, std=scale * size**-0.5)
    nn.init.zeros_(made.bias)
    return made


def padded_ids(tokens: Tokens) -> Int[Tensor, "b n"]:
    """A row a sentence: recurrence goes step by step through all of them."""
    if isinstance(tokens.span, Packed):
        return tokens.span.to(tokens.ids.device).pad_queries(tokens.ids[:, None])[..., 0]
    return tokens.ids


def unpadded(x: Float[Tensor, "b n d"], tokens: Tokens) -> Float[Tensor, "*t d"]:
    """Rows back in the layout of the tokens."""
    return tokens.span.to(x.device).unpad(x) if isinstance(tokens.span, Packed) else x


def unwatched(*parts: nn.Module) -> bool:
    """Whether nobody waits for these modules to be called, and no backend is forced: other code may do their work.

    That code knows attentions as models make them: with a part of one's own in them, they do their work themselves.
    """
    return forced_backend() is None and not any(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or (isinstance(module, Attention) and not as_made(module))
        for part in parts
        for module in part.modules()
    )


def as_made(attention: Attention) -> bool:
    """Whether an attention has a score and a weighting of the library's, as a recurrence written by hand knows them."""
    score, weighting = attention.score, attention.weighting
    return (
        type(attention) is Attention
        and type(score) in (Additive, Dot, General)
        and score.fused_form == score.form
        and (type(weighting) in (Gumbel, Hard) or (type(weighting) is Softmax and weighting.temperature == 1.0))
        and attention.span is None
        and not attention.dropout
    )


def halved(x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Under autocast on a GPU the same in its dtype at once: what reads it would cast it, each for itself."""
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        return x.to(torch.get_autocast_dtype("cuda"))
    return x


def maxout(x: Float[Tensor, "*b dd"]) -> Float[Tensor, "*b d"]:
    """The larger of numbers j and j + d (Goodfellow et al. 2013, arXiv:1302.4389).

    Papers pair neighbours, 2j and 2j + 1; halves are the same function of a matrix with its rows in another order.
    """
    return torch.maximum(*x.chunk(2, -1))


def repeated(x: Tensor, rows: int) -> Tensor:
    """A tensor of its own with `rows` of each row side by side."""
    return x.detach().repeat_interleave(rows, 0) if rows > 1 else x.detach().clone()


def prepared(attention: Attention, memory: Memory) -> Prepared:
    """A memory's annotations projected once, a row a sentence, with the number of them that exist.

    The number goes with them as a tensor and not as `Lengths`, which reads it where it lies on the host.
    """
    padded = memory.padded()
    keys = attention.prepare(padded.states)
    return Prepared(keys.keys, keys.values, attention, padded.lengths.to(keys.keys.device))


def whole(memory: Prepared) -> Prepared:
    """The same in float32, for steps that are too small for half precision: every cast is one more kernel."""
    return Prepared(memory.keys.float(), memory.values.float(), memory.owner, memory.length)


def kept(memory: Prepared) -> Prepared:
    """The same in tensors that a state may write."""
    assert memory.length is not None
    keys, values, length = (x.detach().clone() for x in (memory.keys, memory.values, memory.length))
    return Prepared(keys, values, memory.owner, length)


def looked(
    attention: Attention, query: Float[Tensor, "r d"], state: State, span: Span | None = None
) -> Float[Tensor, "r dv"]:
    """The context of every row; queries of one sentence's rows look together, and coverage grows where it is kept."""
    memory, together = state.sentence["memory"], state.together(query[:, None])
    if state.coverage is None:
        return attention(together, memory, span=span).flatten(0, 1)
    look = attention.look(together, memory, span=span)
    state.coverage.add_(look.weights.flatten(0, 1).to(state.coverage.dtype))
    if attention._forward_hooks:  # a watcher notes calls
        return attention(together, memory, span=span).flatten(0, 1)
    return look.context.flatten(0, 1)
