"""Views: every attention of a pass, with its weights, entropy, windows and picks, named for people."""

# h heads · n rows · m columns · s sentences
from collections import Counter
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.attention import Attention
from regard.attention.look import Look
from regard.inspection.collect.exhibit import Side, View
from regard.inspection.collect.forward_pass import ForwardPass, span_of
from regard.inspection.collect.titles import describe_attention, title_of, window_radius
from regard.models.contract import Documents
from regard.models.ntm.model import NTMModel

__all__ = ["SLOTS", "views_of"]

# Of a Turing machine: by name, the pass through source or target, and the heads that read or write.
SLOTS = {
    "heads.source.write": ("reading the source: where it writes", "source", "write"),
    "heads.source.read": ("reading the source: where it reads", "source", "read"),
    "heads.target.write": ("writing: where it writes", "written", "write"),
    "heads.target.read": ("writing: where it reads", "written", "read"),
}


@torch.no_grad()
def views_of(forward: ForwardPass, kind: str) -> tuple[View, ...]:
    """Every attention that was called, in the order of the calls."""
    counted = Counter[str]()
    found = []
    for name in forward.looks:
        title, look = title_of(name, kind, forward.forced.reads), forward.looks[name]
        module, span = forward.module(name), span_of(forward.calls(name)[0])
        own = module.span if isinstance(module, Attention) else None
        weights, entropy = weights_of(look, forward, forward.sides[title.columns], name), heads_first(look.entropy)
        found.append(
            View(
                name,
                title.text,
                title.role,
                counted[title.role],
                title.rows,
                title.columns,
                weights,
                None if name == "words" else entropy,
                heads_first(look.centre),
                window_radius(own, span),
                picked_of(look.picked),
                describe_attention(module, span),
            )
        )
        counted[title.role] += 1
    return (*found, *slot_views(forward))


def weights_of(look: Look, forward: ForwardPass, columns: Side, name: str) -> Float[Tensor, "h n m"]:
    """The weights of the only row of the batch."""
    weights, source = look.weights.float().cpu(), forward.forced.source
    if look.grid == "both":
        weights = weights.flatten(-2).flatten(-3, -2)
    if isinstance(source, Documents) and name == "words":  # a sentence a row: side by side
        lengths = source.words.lengths.tolist()
        return torch.cat([row[0, :length] for row, length in zip(weights, lengths, strict=True)])[None, None]
    weights = weights[0] if weights.ndim == 4 else weights
    # A tape that grows has one entry less than there are words, as its last one is not looked at any more.
    return F.pad(weights, (0, len(columns.pieces) - weights.shape[-1]))


def heads_first(numbers: Tensor | None) -> Float[Tensor, "h n"] | None:
    """[b (h) n] of one row, with its heads."""
    if numbers is None:
        return None
    return (numbers[0] if numbers.ndim == 3 else numbers[:1]).float().cpu()


def picked_of(picked: Tensor | None) -> Int[Tensor, "h n"] | None:
    """The same for what was taken."""
    if picked is None:
        return None
    return (picked[0] if picked.ndim == 3 else picked[:1]).cpu()


def slot_views(forward: ForwardPass) -> Iterator[View]:
    """Where the heads of a Turing machine stood in its memory, step by step."""
    if not isinstance(forward.model, NTMModel):
        return
    weights = torch.stack([turn.weights[0] for turn in forward.turns], 1).float().cpu()  # [hh n m]
    steps = len(forward.forced.sides["source"].pieces)
    for layer, (name, (title, rows, way)) in enumerate(SLOTS.items()):
        heads = weights.chunk(2)[way == "write"]
        part = heads[:, :steps] if rows == "source" else heads[:, steps:]
        entropy = -torch.xlogy(part, part.clamp(min=torch.finfo(part.dtype).tiny)).sum(-1)
        how = "content β cos(k, M) · gate · shift · sharpen"
        yield View(name, title, "memory", layer, rows, "memory", part, entropy, how=how)
