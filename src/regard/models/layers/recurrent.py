"""Parts that recurrent models share: states for the contract, initial parameters, maxout, attention of all rows.

Word embeddings are unit-normal, as torch makes them: what words differ in must be seen in the first states and
annotations. With a deviation of 0.1, as small numbers are often advised, attention took five times as many steps to
begin.
"""

# b sentences · n positions · d width · s sentences · r rows, hypotheses of all sentences · m source positions
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Additive, Attention, Dot, General, Score, Softmax, Span, State, Weighting
from regard.kernels import Linear, backends, table
from regard.models.contract import Memory, Model

OWN = "parts of one's own, or with hooks"


class RecurrentModel(Model):
    """A model with a recurrent decoder, and mostly a recurrent encoder, too.

    The decoder's is `state` in the state of a search.
    """

    def source_states(self, memory: Memory) -> Float[Tensor, "*b m d"] | None:
        """Return the encoder's states, which are its memory; None where it is not recurrent."""
        return memory.states if getattr(self.config, "has_recurrent_encoder", True) else None

    def hidden_state(self, state: State) -> Float[Tensor, "r d"]:
        """Return h of the decoder's top layer, from a stack [r l p d] or one cell [r p d]."""
        states: Tensor = state.row["state"]
        return states[:, -1, 0] if states.ndim == 4 else states[:, 0]

    @property
    def reads_backwards(self) -> bool:
        """Return whether the option `reverse` is set, where the kind has one."""
        return bool(getattr(self.config, "reverse", False))


def make_linear(inputs: int, size: int, bias: bool = True) -> nn.Linear:
    """Make a linear layer between states, its weights after Glorot and Bengio 2010."""
    layer = Linear(inputs, size, bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def make_readout(size: int, count: int, scale: float = 1.0) -> nn.Linear:
    """Make an output projection of normal weights of deviation scale/√size: larger where its inputs are small."""
    layer = Linear(size, count)
    nn.init.normal_(layer.weight, std=scale * size**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


def can_bypass(
    *parts: nn.Module,
    scores: Sequence[type[Score]] = (Additive, Dot, General),
    weightings: Sequence[type[Weighting]] = (Softmax,),
) -> bool:
    """Return whether faster code may stand in for these modules: none has a hook, and no backend is forced.

    That code knows attentions with these scores and weightings of the library's; one that was given others is called
    itself.
    """
    return backends.forced_backend() is None and not any(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or (isinstance(module, Attention) and not is_standard(module, scores, weightings))
        for part in parts
        for module in part.modules()
    )


def describe_recurrence(x: Tensor, *parts: nn.Module, scores: Sequence[type[Score]] = (Additive,)) -> table.Request:
    """Put a recurrence over x by these parts into plain data, for the tables of those that stand in for them."""
    needs, device = [*table.compiling()], x.device.type
    if torch.is_autocast_enabled(device):
        needs.append(table.AUTOCAST)
    if table.COMPILING not in needs and not can_bypass(*parts, scores=scores):
        needs.append(OWN)
    return table.Request(device, (x.dtype,), tuple(needs))


def is_standard(
    attention: Attention, scores: Sequence[type[Score]], weightings: Sequence[type[Weighting]] = (Softmax,)
) -> bool:
    """Return whether an attention has one of these scores, not scaled, one of these weightings, and nothing else."""
    score, weighting = attention.score, attention.weighting
    return (
        type(attention) is Attention
        and type(score) in scores
        and score.fused_form == score.form
        and score.scale(64) == 1.0
        and type(weighting) in weightings
        and (not isinstance(weighting, Softmax) or weighting.temperature == 1.0)
        and attention.span is None
        and not attention.dropout
    )


def to_autocast_dtype(x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Cast to autocast's dtype on a GPU, once: each module that reads it would cast it for itself."""
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        return x.to(torch.get_autocast_dtype("cuda"))
    return x


def maxout(x: Float[Tensor, "*b dd"]) -> Float[Tensor, "*b d"]:
    """Take the larger of numbers j and j + d (Goodfellow et al. 2013, arXiv:1302.4389).

    Papers pair neighbours, 2j and 2j + 1; halves are the same function of a matrix with its rows in another order.
    """
    return torch.maximum(*x.chunk(2, -1))


def repeat_rows(x: Tensor, rows: int) -> Tensor:
    """Repeat each row `rows` times side by side, in a tensor of its own without a gradient."""
    return x.detach().repeat_interleave(rows, 0) if rows > 1 else x.detach().clone()


def attend_rows(
    attention: Attention, query: Float[Tensor, "r d"], state: State, span: Span | None = None
) -> Float[Tensor, "r dv"]:
    """Attend from every row: rows of one sentence are queries of one call; their weights are added to coverage."""
    memory, together = state.sentence["memory"], state.group_rows(query[:, None])
    if state.coverage is None:
        return attention(together, memory, span=span).flatten(0, 1)
    look = attention.look(together, memory, span=span)
    state.coverage.add_(look.weights.flatten(0, 1).to(state.coverage.dtype))
    if attention._forward_hooks:  # a watcher notes calls
        return attention(together, memory, span=span).flatten(0, 1)
    return look.context.flatten(0, 1)
