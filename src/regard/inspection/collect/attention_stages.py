"""The stages inside an attention, from its own score, span and weighting: e, ÷ √d, mask, a, Σ, concatenation."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Causal,
    Cosine,
    Dot,
    General,
    Lengths,
    Location,
    Mask,
    Monotonic,
    Packed,
    PerHead,
    Predictive,
    Prepared,
    Score,
    Softmax,
    Span,
    Weighting,
    join,
    parts_of,
)

FORMULAS: dict[type[Score], str] = {
    Dot: "q_i · k_j",
    General: "q_iᵀ W k_j",
    Additive: "vᵀ tanh(W q_i + U k_j)",
    Cosine: "β cos(q_i, k_j)",
    Location: "(W q_i)_j",
}
SPANS: dict[type[Span], str] = {  # what the library's own spans forbid or add; others are named by their class
    Alibi: "ALiBi, by distance",
    Causal: "what comes later",
    Lengths: "padding",
    Monotonic: "|j − i| > {radius}",
    Predictive: "|j − p_i| > {radius}",
    Mask: "what a mask forbids",
    Packed: "other sentences",
}
Name = Literal["score", "scale", "centre", "bias", "mask", "weights", "gate", "sum", "concatenate"]
Source = Literal["q", "k", "v", "x"]  # projected query, keys and values; x, the query before its projection


@dataclass(frozen=True)
class AttentionStage:
    """One stage of a call: its inputs beside the stage before, the part whose parameters it uses, and words for it."""

    name: Name
    shape: tuple[int, ...]
    note: str = ""
    reads: tuple[Source, ...] = ()
    part: str = ""  # the attention's attribute: score, span or weighting
    follows: bool = True  # it reads the stage before
    pairs: bool = True  # its last axis counts keys, and is no width


def stages_of(
    attention: Attention,
    projected_query: Tensor,
    prepared: Prepared,
    query: Tensor,
    span: Span | None,
    heads: bool,
    context: tuple[int, ...],
) -> list[AttentionStage]:
    """List the stages of one call, from its parts; shapes are those of the tensors that its look computes."""
    look = attention.look_projected(projected_query, prepared, query, span, heads)
    pairs = tuple(look.scores.shape)
    score = attention.score.first_score if isinstance(attention.score, PerHead) else attention.score
    reads: tuple[Source, ...] = ("q",) if isinstance(score, Location) else ("q", "k")
    stages = [
        AttentionStage("score", pairs, FORMULAS.get(type(score), type(score).__name__), reads, "score", follows=False)
    ]
    if isinstance(score, Dot) and score.scaled and score.fused_form == "bilinear":
        stages.append(AttentionStage("scale", pairs, f"√{projected_query.shape[-1]}"))
    joined = join(attention.span, span)
    parts = parts_of(joined)
    if any(isinstance(part, Packed) for part in parts):
        masked, biased, gated = True, False, False
    else:
        limits = attention.resolve_call(projected_query, prepared, query, joined, heads).limits
        masked, biased, gated = (each is not None for each in (limits.mask(), limits.bias(), limits.gate()))
    if prepared.length is not None and not bool(prepared.length.any()):
        masked = False  # there is nothing yet to look at, and nothing to choose from
    if biased:
        stages.append(AttentionStage("bias", pairs, list_words(parts, biases=True)))
    if masked:
        words = list_words(parts, biases=False)
        if prepared.length is not None and "padding" not in words:
            words = ", ".join(filter(None, [words, "padding"]))
        learned = any(isinstance(part, nn.Module) for part in parts)
        stages.append(AttentionStage("mask", pairs, words, ("x",) if learned else (), "span"))
    stages.append(
        AttentionStage("weights", tuple(look.weights.shape), weighting_of(attention.weighting), (), "weighting")
    )
    if gated:
        stages.append(AttentionStage("gate", tuple(look.weights.shape), gate_words(parts)))
    # Where the values are the identity, the sum is the weights themselves.
    values, width = prepared.values, prepared.values.shape[-1]
    own = values.shape[-2] == width and bool(
        (values == torch.eye(width, dtype=values.dtype, device=values.device)).all()
    )
    stages.append(AttentionStage("sum", context, "each key is its own value" if own else "", ("v",), pairs=own))
    if heads:
        *batch, count, queries, width = context
        stages.append(AttentionStage("concatenate", (*batch, queries, count * width), f"{count} heads", pairs=False))
    return stages


def weighting_of(weighting: Weighting) -> str:
    """Name a weighting."""
    if isinstance(weighting, Softmax) and weighting.temperature != 1.0:
        return f"softmax, T = {weighting.temperature:g}"
    names = {"hard": "hard: one key", "gumbel": "Gumbel: one key", "plain": "the scores themselves"}
    return type(weighting).__name__ if weighting.name == "other" else names.get(weighting.name, weighting.name)


def list_words(parts: tuple[Span, ...], biases: bool) -> str:
    """Describe what the spans of a call forbid, or what they add to scores."""
    named = [part for part in parts if type(part) not in SPANS or isinstance(part, Alibi) is biases]
    words = (SPANS.get(type(part), type(part).__name__).format(radius=getattr(part, "radius", "")) for part in named)
    return ", ".join(dict.fromkeys(words))


def gate_words(parts: tuple[Span, ...]) -> str:
    """Describe what weights are multiplied by after the softmax."""
    if any(isinstance(part, Predictive) for part in parts):
        return "exp(−(j − p_i)² / 2σ²)"
    return ", ".join(type(part).__name__ for part in parts if type(part) not in SPANS)
