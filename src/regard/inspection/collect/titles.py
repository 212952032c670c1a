"""What the attentions of a model are called: from the dotted name that `watch` has to words for people."""

import re
from typing import Literal

from torch import nn

from regard.attention.attention import Attention
from regard.attention.grid import GridSelfAttention
from regard.attention.heads import Heads, PerHead
from regard.attention.score import Additive, Cosine, Dot, General, Location, Score
from regard.attention.span import Monotonic, Predictive, Span
from regard.attention.weighting import Weighting
from regard.models.kinds import KINDS, Title

__all__ = ["Title", "describe_attention", "title_of", "window_radius"]

LAYER = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)\.")


def title_of(name: str, kind: str, reads: Literal["source", "picture"] | None) -> Title:
    """The title of an attention of a model of some kind, and of what it reads; a language model has no source."""
    own = KINDS[kind].titles
    if name in own:
        return own[name]
    layer = LAYER.search(name)
    number = f", layer {int(layer[1]) + 1}" if layer else ""
    if name == "attention" or name.endswith(".cross"):
        columns = "places" if reads == "picture" else "source"
        return Title(f"decoder{number}, to the {reads or 'source'}", "cross", "written", columns)
    alone = reads is None
    part = "decoder" if name.startswith("decoder") and not alone else "encoder"
    text = number.removeprefix(", ") if alone and number else f"{part}{number}"
    if name.endswith(".intra"):
        text += ", back at its own states"
    return (
        Title(text, "decoder", "read", "read")
        if alone or name.startswith("decoder")
        else Title(text, "encoder", "source", "source")
    )


def describe_attention(module: nn.Module, span: Span | None = None) -> str:
    """An attention's score, span and weighting in words."""
    inner = module.attention if isinstance(module, Heads | GridSelfAttention) else module
    if not isinstance(inner, Attention):
        return ""
    heads = f"{module.heads} heads" if isinstance(module, Heads) else ""
    local = [local_words(part) for each in (inner.span, span) if each is not None for part in each.parts]
    parts = [heads, score_words(inner.score), *local, weighting_words(inner.weighting)]
    return " · ".join(filter(None, parts))


def score_words(score: Score) -> str:
    """A score by its name and formula."""
    score = score.first_score if isinstance(score, PerHead) else score
    match score:
        case Dot(scaled=True):
            return "scaled dot product q·k/√d"
        case Dot():
            return "dot product q·k"
        case General():
            return "general qᵀWk"
        case Additive():
            return "additive vᵀtanh(Wq + Uk + b)"
        case Cosine():
            return "cosine β cos(q, k)"
        case Location():
            return "location Wq"
    return type(score).__name__


def weighting_words(weighting: Weighting) -> str:
    """A weighting by its name."""
    return {"hard": "hard: one key", "gumbel": "Gumbel: one key"}.get(weighting.name, weighting.name)


def local_words(span: Span) -> str:
    """A window in words; other spans are not worth a word."""
    match span:
        case Monotonic():
            return f"local-m, D = {span.radius}"
        case Predictive():
            return f"local-p, D = {span.radius}"
    return ""


def window_radius(*spans: Span | None) -> float | None:
    """D of local attention."""
    for span in spans:
        for part in () if span is None else span.parts:
            if isinstance(part, Monotonic | Predictive):
                return float(part.radius)
    return None
