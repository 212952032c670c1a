"""Views: every attention of a pass, with its weights, entropy, windows and picks, and a title in words.

The numbers behind a view are q, k and v of every head, the mask, and all else that its weights are computed from. A
page holds them in half precision and computes any row of any head from them, without the model.
"""

# b rows of a batch: sentences of a document, otherwise one · h heads · n rows · m columns · s sentences · d width
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor, nn

from regard.alignment import extraction
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
)
from regard.inspection.collect.exhibit import Addressing, Numbers, View
from regard.inspection.collect.forward_pass import ForwardPass
from regard.inspection.collect.memory_heads import MEMORY_VIEWS, memory_numbers, memory_views
from regard.inspection.collect.stages import ResolvedCall, projections, resolve_call, weighting_words
from regard.models import KINDS, Documents, kinds
from regard.tasks import ForcedExample, Side

SCORES: dict[type[Score], str] = {
    General: "general qᵀWk",
    Additive: "additive vᵀtanh(Wq + Uk + b)",
    Cosine: "cosine β cos(q, k)",
    Location: "location Wq",
}


@torch.no_grad()
def views_of(forward: ForwardPass, kind: str) -> tuple[View, ...]:
    """List a view of every attention that was called, in the order of the calls."""
    layers = Counter[str]()
    views = []
    for name in forward.looks:
        look, weights = forward.looks[name], weights_of(forward, name)
        title = fit_title(title_of(name, kind, forward.forced, weights.shape[1]), name, weights, forward.sides)
        entropy = look.entropy
        if entropy is not None and by_sentence(forward, name):  # a row of the batch is a sentence: the mean over them
            entropy = entropy.float().mean().reshape(1, 1)
        module, call = forward.looks.modules[name], forward.looks.calls[name][0]
        span = next((each for each in (*call.args, *call.kwargs.values()) if isinstance(each, Span)), None)
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
                heads_first(entropy),
                heads_first(look.centre),
                next((float(part.radius) for part in windows(own, span)), None),
                heads_first(look.picked),
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


def heads_first(numbers: Tensor | None) -> Num[Tensor, "h n"] | None:
    """Return [b (h) n] of one row, with its heads; what is no whole number in float32."""
    if numbers is None:
        return None
    row = (numbers[0] if numbers.ndim == 3 else numbers[:1]).cpu()
    return row.float() if row.is_floating_point() else row


# ---- in words


def title_of(name: str, kind: str, forced: ForcedExample, queries: int) -> kinds.Title:
    """Return the title of an attention of a model of some kind, in an example where it had so many queries."""
    own = KINDS[kind].titles
    if name in own:
        return own[name]
    layer, reads = extraction.LAYER.search(name), forced.reads
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
    local = [
        f"local-{'m' if isinstance(each, Monotonic) else 'p'}, D = {each.radius}" for each in windows(inner.span, span)
    ]
    score = inner.score.head_scores[0] if isinstance(inner.score, PerHead) else inner.score
    words = next((words for kind, words in SCORES.items() if isinstance(score, kind)), type(score).__name__)
    if isinstance(score, Dot):
        words = "scaled dot product q·k/√d" if score.scaled else "dot product q·k"
    parts = [heads, words, *local, weighting_words(inner.weighting)]
    return " · ".join(filter(None, parts))


def windows(*spans: Span | None) -> list[Monotonic | Predictive]:
    """List the windows of local attention among spans."""
    parts = (part for span in spans if span is not None for part in span.parts)
    return [part for part in parts if isinstance(part, Monotonic | Predictive)]


def numbers_of(forward: ForwardPass, view: View) -> Numbers | Addressing | None:
    """Return the numbers that a view's weights are computed from; None where it is no attention over known keys."""
    if view.name in MEMORY_VIEWS:
        return memory_numbers(forward.head_steps, view.name, view.weights.shape[1])
    module, records = forward.looks.modules[view.name], forward.looks.calls[view.name]
    if not isinstance(module, Attention | Heads | GridSelfAttention):
        return None
    own = projections(forward.recording, view.name) if len(records) == 1 else None
    resolved = [resolve_call(module, record, own) for record in records]
    formulas = {symbol: formula for symbol, (formula, _) in forward.model.notation.of(view.name).items() if formula}
    if by_sentence(forward, view.name):
        assert isinstance(forward.forced.source, Documents)
        return joined_numbers(resolved, 0, formulas, forward.forced.source.words.lengths.tolist())
    return joined_numbers(resolved, view.weights.shape[-1], formulas)


def joined_numbers(
    calls: Sequence[ResolvedCall], columns: int, formulas: dict[str, str], lengths: Sequence[int] | None = None
) -> Numbers:
    """Collect the numbers of one call, or of calls that follow one another, as in a recurrent decoder.

    With `lengths` they are those of a learned query that looks at each sentence by itself, with the keys side by side.
    """
    first = calls[0].call

    def beside(tensor: Tensor) -> Float[Tensor, "1 m c"]:
        assert lengths is not None
        return torch.cat([calls[0].row(tensor, at)[:, :length] for at, length in enumerate(lengths)], 1)

    def table(tensors: Sequence[Tensor | None], default: float = 0.0) -> Float[Tensor, "h n m"] | None:
        if lengths is None or tensors[0] is None:
            return stack_tables(calls, columns, tensors, default)
        return beside(tensors[0].mT).mT

    if lengths is None:
        keys, values = (
            shared_keys(calls, [each.row(tensor) for each, tensor in zip(calls, tensors, strict=True)], columns)
            for tensors in ([each.call.keys for each in calls], [each.call.values for each in calls])
        )
    else:
        keys, values = beside(first.keys), beside(first.values)
    alike = keys is not None and all((each.call.score, each.call.scale) == (first.score, first.scale) for each in calls)
    form = {"bilinear": "dot", "additive": "additive"}.get(first.score, "stored") if alike else "stored"
    projected, vector = form != "stored", first.vector if form == "additive" else None
    if vector is not None:  # a row per head, or one for all
        vector = vector.reshape(-1, vector.shape[-1]).float().cpu()
    softmax = all(each.call.weighting == "softmax" and each.look.picked is None for each in calls)
    masks = [each.call.limits.mask() if lengths is None else None for each in calls]
    if lengths is None and any(each.look.weights.shape[-1] < columns for each in calls):  # a tape that grows
        masks = [torch.ones(1) if mask is None else mask for mask in masks]
    mask = table(masks, 1.0)
    return Numbers(
        score=cast(Literal["dot", "additive", "stored"], form),
        scale=float(first.scale),
        temperature=float(first.temperature) if softmax else 1.0,
        query=torch.cat([each.row(each.call.query) for each in calls], 1) if projected else None,
        keys=keys if projected else None,
        values=values,
        vector=vector,
        scores=None if projected else table([each.look.scores for each in calls]),
        bias=table([each.call.limits.bias() for each in calls]),
        gate=table([each.call.limits.gate() for each in calls], 1.0),
        mask=None if mask is None else mask > 0,
        weights=None if softmax else table([each.look.weights for each in calls]),
        groups=None if lengths is None else tuple(at for at, length in enumerate(lengths) for _ in range(length)),
        formulas=formulas,
    )


def shared_keys(
    calls: Sequence[ResolvedCall], tensors: Sequence[Float[Tensor, "h _ c"]], columns: int
) -> Float[Tensor, "h m c"] | None:
    """Return the keys of the longest call, if those of every other call are a prefix of them; else None."""
    last = max(reversed(tensors), key=lambda each: each.shape[1])
    for resolved, tensor in zip(calls, tensors, strict=True):
        has_weight = resolved.row(resolved.look.weights).ne(0).any(1)  # [h m]; nothing stands on an empty tape
        beginning = last[:, : tensor.shape[1]]
        # Projected in a batch of another size, the same numbers may differ in their last digit.
        if not torch.allclose(tensor[has_weight], beginning[has_weight], rtol=1e-4, atol=1e-6):
            return None
    return F.pad(last, (0, 0, 0, columns - last.shape[1]))


def stack_tables(
    calls: Sequence[ResolvedCall], columns: int, tensors: Sequence[Tensor | None], default: float = 0.0
) -> Float[Tensor, "h n m"] | None:
    """Stack the tables [h n m] of all calls, with zeros for keys that a call does not have.

    The `default` stands for None where only some of them are; where all are, the result is None.
    """
    if all(tensor is None for tensor in tensors):
        return None
    rows = []
    for resolved, tensor in zip(calls, tensors, strict=True):
        shape = resolved.look.weights.shape
        whole = torch.full(shape, default) if tensor is None else tensor.expand(shape)
        rows.append(F.pad(resolved.row(whole), (0, columns - shape[-1])))
    joined = torch.cat(rows, 1)
    same = len(joined) > 1 and bool((joined == joined[:1]).all())
    return joined[:1] if same else joined
