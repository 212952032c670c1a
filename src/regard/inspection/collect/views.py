"""Views: every attention of a pass, with its weights, entropy, windows and picks, and a title in words."""

# h heads · n rows · m columns · s sentences
import re
from collections import Counter
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Attention,
    Cosine,
    Dot,
    General,
    GridSelfAttention,
    Heads,
    Location,
    Monotonic,
    PerHead,
    Predictive,
    Score,
    Span,
    Weighting,
)
from regard.inspection.collect.exhibit import Side, View
from regard.inspection.collect.memory_heads import memory_views
from regard.inspection.collect.teacher_forcing import ForcedExample, ForwardPass, span_of
from regard.models import KINDS, Documents, kinds

LAYER = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)\.")


@torch.no_grad()
def views_of(forward: ForwardPass, kind: str) -> tuple[View, ...]:
    """List a view of every attention that was called, in the order of the calls."""
    layers = Counter[str]()
    views = []
    for name in forward.looks:
        look, weights = forward.looks[name], weights_of(forward, name)
        title = fit_title(title_of(name, kind, forward.forced, weights.shape[1]), name, weights, forward.sides)
        module, span = forward.module(name), span_of(forward.calls(name)[0])
        own = module.span if isinstance(module, Attention) else None
        if title.columns in forward.sides:
            # A tape that grows has one entry less than there are words, as its last one is not looked at any more.
            weights = F.pad(weights, (0, len(forward.sides[title.columns].pieces) - weights.shape[-1]))
        views.append(
            View(
                name,
                title.text,
                title.role,
                layers[title.role],
                title.rows,
                title.columns,
                weights,
                entropy_of(look.entropy, by_sentence(forward, name)),
                heads_first(look.centre),
                window_radius(own, span),
                picked_of(look.picked),
                describe_attention(module, span),
            )
        )
        layers[title.role] += 1
    source = forward.forced.sides.get("source")
    return (*views, *memory_views(forward.head_steps, 0 if source is None else len(source.pieces)))


def weights_of(forward: ForwardPass, name: str) -> Float[Tensor, "h n m"]:
    """Return the weights of the only row of the batch."""
    look, source = forward.looks[name], forward.forced.source
    weights = look.weights.float().cpu()
    if look.grid == "both":
        weights = weights.flatten(-2).flatten(-3, -2)
    if by_sentence(forward, name):  # side by side
        assert isinstance(source, Documents)
        lengths = source.words.lengths.tolist()
        return torch.cat([row[0, :length] for row, length in zip(weights, lengths, strict=True)])[None, None]
    return weights[0] if weights.ndim == 4 else weights


def by_sentence(forward: ForwardPass, name: str) -> bool:
    """Return whether an attention looks at each sentence of a document by itself: its batch has a row per sentence."""
    several = len(forward.looks[name].weights) > 1
    return isinstance(forward.forced.source, Documents) and (several or name == "words")


def heads_first(numbers: Tensor | None) -> Float[Tensor, "h n"] | None:
    """Return [b (h) n] of one row, with its heads."""
    if numbers is None:
        return None
    return (numbers[0] if numbers.ndim == 3 else numbers[:1]).float().cpu()


def entropy_of(entropy: Tensor | None, sentences: bool) -> Float[Tensor, "h n"] | None:
    """Compute the entropy of every row; where a row of the batch is a sentence, the mean over sentences."""
    if entropy is None or not sentences:
        return heads_first(entropy)
    return entropy.float().mean().cpu().reshape(1, 1)


def picked_of(picked: Tensor | None) -> Int[Tensor, "h n"] | None:
    """Return the keys that hard attention picked, [h n]."""
    if picked is None:
        return None
    return (picked[0] if picked.ndim == 3 else picked[:1]).cpu()


# ---- in words


def title_of(name: str, kind: str, forced: ForcedExample, queries: int) -> kinds.Title:
    """Return the title of an attention of a model of some kind, in an example where it had so many queries."""
    own = KINDS[kind].titles
    if name in own:
        return own[name]
    layer, reads = LAYER.search(name), forced.reads
    number = f", layer {int(layer[1]) + 1}" if layer else ""
    if forced.target is None and queries == 1:
        if reads == "picture":
            return kinds.Title(f"the label{number}, to the picture", "places", "label", "places")
        return kinds.Title(f"the document{number}, to its words", "words", "document", "source")
    if forced.target is None and reads == "picture":
        return kinds.Title(f"every place{number}, to all places", "places", "places", "places")
    if forced.target is not None and (name == "attention" or name.endswith(".cross")):
        columns = "places" if reads == "picture" else "source"
        return kinds.Title(f"decoder{number}, to the {reads or 'source'}", "cross", "written", columns)
    alone = reads is None  # a language model has no source
    part = "decoder" if name.startswith("decoder") and not alone else "encoder"
    text = number.removeprefix(", ") if alone and number else f"{part}{number}"
    if name.endswith(".intra"):
        text += ", back at its own states"
    return (
        kinds.Title(text, "decoder", "read", "read")
        if alone or name.startswith("decoder")
        else kinds.Title(text, "encoder", "source", "source")
    )


def fit_title(title: kinds.Title, name: str, weights: Float[Tensor, "h n m"], sides: Mapping[str, Side]) -> kinds.Title:
    """Return the title, if its sides are as long as the weights say; else one whose rows and columns are numbers.

    What a model of one's own attends to may be something that nobody else knows.
    """
    rows, columns = (len(sides[side].pieces) if side in sides else -1 for side in (title.rows, title.columns))
    if rows == weights.shape[1] and columns - 1 <= weights.shape[2] <= columns:
        return title
    return kinds.Title(name, "memory", title.rows if rows == weights.shape[1] else f"{name}: rows", f"{name}: columns")


def describe_attention(module: nn.Module, span: Span | None = None) -> str:
    """Describe an attention's score, span and weighting in words."""
    inner = module.attention if isinstance(module, Heads | GridSelfAttention) else module
    if not isinstance(inner, Attention):
        return ""
    heads = f"{module.heads} heads" if isinstance(module, Heads) else ""
    local = [local_words(part) for each in (inner.span, span) if each is not None for part in each.parts]
    parts = [heads, score_words(inner.score), *local, weighting_words(inner.weighting)]
    return " · ".join(filter(None, parts))


def score_words(score: Score) -> str:
    """Describe a score by its name and formula."""
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
    """Name a weighting."""
    return {"hard": "hard: one key", "gumbel": "Gumbel: one key"}.get(weighting.name, weighting.name)


def local_words(span: Span) -> str:
    """Describe a window in words; other spans are left out."""
    match span:
        case Monotonic():
            return f"local-m, D = {span.radius}"
        case Predictive():
            return f"local-p, D = {span.radius}"
    return ""


def window_radius(*spans: Span | None) -> float | None:
    """Return D, the radius of local attention's window."""
    for span in spans:
        for part in () if span is None else span.parts:
            if isinstance(part, Monotonic | Predictive):
                return float(part.radius)
    return None
