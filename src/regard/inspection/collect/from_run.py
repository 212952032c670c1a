"""An exhibit from a run: a search, then one teacher-forced pass under `watch`, for a model of any kind.

from regard import load, inspection
exhibit = inspection.exhibit_of(load("runs/demo"), "I ate pizza yesterday.", beam=5)
inspection.page(exhibit).save("look.html")

Ablation measures the log-probability of the output with one head silenced, for every head of every attention. A
silenced head's slice is zero before the output projection; for an attention without heads, the context is zero. Each
row of a batch silences another head, so that one pass tries many heads.

A view is an attention of the pass, with its weights, entropy, windows and picks, and a title in words. Its numbers are
q, k and v of every head, the mask, and all other inputs of the weights. A page stores them in half precision and
computes any row of any head from them, without the model.
"""

# r rows, each with a silenced head · b batch rows: sentences of a document, otherwise one · h heads
# n rows or positions · m columns · s sentences · d width
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor, nn

from regard.alignment import AlignmentSettings, extraction
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
    call_records,
)
from regard.decoding import first_model
from regard.errors import ArgumentError, DataError
from regard.inspection.collect.attention_stages import ResolvedCall, projections, resolve_call, weighting_words
from regard.inspection.collect.dependency_trees import ParsedTree, dependencies_of
from regard.inspection.collect.exhibit import Ablation, Addressing, Exhibit, Numbers, View
from regard.inspection.collect.forward_pass import (
    MEMORY_VIEWS,
    ForwardPass,
    force,
    memory_numbers,
    memory_views,
    silence_memory_heads,
    watch_forward,
)
from regard.inspection.collect.graph import graph_of
from regard.inspection.collect.walk import Which, vocabulary_of, walk_of
from regard.models import KINDS, Documents, Model, kinds
from regard.tasks import ForcedExample, Item, TrainedRun

BUDGET = 2048  # maximum number of positions in a batch, source and target together
SCORES: dict[type[Score], str] = {
    General: "general qᵀWk",
    Additive: "additive vᵀtanh(Wq + Uk + b)",
    Cosine: "cosine β cos(q, k)",
    Location: "location Wq",
}
Rows = Sequence[tuple[int | slice, int]]  # (row, head): the head to silence in a row or in several rows


@torch.no_grad()
def exhibit_of(
    run: TrainedRun,
    item: Item,
    *,
    target: str | None = None,
    tree: bool = True,
    walk: Which | bool = False,
    ablate: bool = False,
    graph: bool = False,
    dependencies: ParsedTree | None = None,
    **options: Any,
) -> Exhibit:
    """Collect all data that a page shows of one item: a text or, for a run that reads pictures, a file or its pixels.

    The output is `target`, a text or a label, or the result of a search with `options` such as beam=5; `tree` keeps the
    search tree. `walk` includes all numbers of one word, which `Which(…)` chooses. `ablate` measures the effect of
    silencing each head. `graph` includes the model's computational graph. `dependencies` is the dependency tree of the
    text, as read by `read_trees`.
    """
    forced = force(run, item, target=target, tree=tree, **options)
    kind, task, model = run.settings.kind, run.settings.task, first_model(run.model)
    forward = watch_forward(model, forced, record=walk is not False)
    views = views_of(forward, kind)
    aligned, head, offset = alignment_of(run, views)
    which = Which() if isinstance(walk, bool) else walk
    if which.view is None and aligned is not None:  # walk through the view with which the page opens
        which = replace(which, view=aligned, head=head if which.head is None else which.head)
    return Exhibit(
        kind=kind,
        task=task,
        title=forced.title,
        run=f"{run.folder.name}, step {run.step:,}",
        sides=forward.sides,
        views=tuple(replace(view, numbers=numbers_of(forward, view)) for view in views),
        output=forced.output,
        log_prob=float(forward.log_probs.cpu().double().sum()) if model is run.model else forced.log_prob(run.model),
        labels=forced.labels,
        aligned=aligned,
        head=head,
        offset=offset,
        picture=forced.picture,
        tree=forced.tree,
        walk=walk_of(forward, views, which, vocabulary_of(run)) if walk else None,
        ablation=ablation_of(model, forced, views) if ablate else None,
        graph=graph_of(model) if graph else None,
        dependencies=None if dependencies is None else dependencies_of(dependencies, forward.sides, views),
    )


def alignment_of(run: TrainedRun, views: Sequence[View]) -> tuple[str | None, int | None, Literal[0, 1]]:
    """Choose the view, head and offset nearest to an alignment; the view is None without attention to the source."""
    heads_of = {view.name: len(view.weights) for view in views if view.role == "cross"}
    if not heads_of.keys() & set(first_model(run.model).cross_attentions):
        return None, None, 0
    settings = AlignmentSettings.of(run.folder, first_model(run.model))
    if settings.view not in heads_of:
        return None, None, 0
    heads = heads_of[settings.view]
    if settings.head is not None and settings.head >= heads:
        raise DataError(
            f"{run.folder / extraction.ALIGNMENT_FILE}: head {settings.head}, expected 0 to {heads - 1} of "
            f"{settings.view}, counted from 0"
        )
    return settings.view, settings.head, settings.offset


@torch.no_grad()
def ablation_of(model: Model, forced: ForcedExample, views: Sequence[View]) -> Ablation:
    """Measure how the log-probability of a forced output changes with each head of its views silenced."""
    if model.points:
        raise ArgumentError("ablate: a pointer network cannot be ablated, because its attention is its output")
    if not views:
        raise ArgumentError("ablate: the model has no attention to silence")
    heads = [(view.name, head) for view in views for head in range(len(view.weights))]
    size = sum(len(side.pieces) for name, side in forced.sides.items() if name in ("source", "read"))
    count, whole = max(1, BUDGET // max(1, size)), float(forced.log_probs(model).cpu().double().sum())
    changes: dict[str, list[float]] = {view.name: [] for view in views}
    modules = call_records.find_outermost(model)
    for first in range(0, len(heads), count):
        chunk = heads[first : first + count]
        with ExitStack() as hooks:
            for name in dict(chunk):  # head i is silenced in row i of the batch
                rows = [(row, head) for row, (each, head) in enumerate(chunk) if each == name]
                if name in MEMORY_VIEWS:
                    handles = silence_memory_heads(model, name, rows, len(forced.sides["source"].pieces))
                else:
                    handles = [silence_head(modules[name], rows, len(chunk))]
                for handle in handles:
                    hooks.callback(handle.remove)
            log_probs = forced.log_probs(model, len(chunk)).cpu().double().sum(-1).tolist()
        for (name, _), log_prob in zip(chunk, log_probs, strict=True):
            changes[name].append(log_prob - whole)
    return Ablation(whole, {name: tuple(each) for name, each in changes.items()})


def ablation_table(ablation: Ablation, views: Sequence[View]) -> str:
    """Format the changes as a text table with a row per view and a column per head."""
    most = max(map(len, ablation.changes.values()))
    titles = {view.name: view.title for view in views}
    width = max(len(titles[name]) for name in ablation.changes)
    lines = [f"log-probability {ablation.log_prob:.3f}; without a head it changes by"]
    lines.append(" " * width + "".join(f"{f'head {head + 1}':>10}" for head in range(most)))
    for name, changes in ablation.changes.items():
        lines.append(f"{titles[name]:<{width}}" + "".join(f"{change:>+10.3f}" for change in changes))
    return "\n".join(lines)


def silence_head(module: nn.Module, rows: Rows, count: int) -> Any:
    """Register a hook that zeroes heads' outputs, given as (row, head), in a batch of `count` copies of an example."""
    if isinstance(module, Heads):
        width = module.value_size // module.heads

        def quiet(x: Tensor) -> Tensor:
            x = x.clone()
            for row, head in rows:
                x[row, ..., head * width : (head + 1) * width] = 0
            return x

        if module.output is None:
            return module.register_forward_hook(lambda module, inputs, output: quiet(output))
        return module.output.register_forward_pre_hook(lambda module, inputs: (quiet(inputs[0]), *inputs[1:]))

    def quiet_rows(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        output = output.clone()
        each = output.unflatten(0, (count, -1))  # a document has a row per sentence
        for row, _ in rows:
            each[row] = 0
        return output

    inner = module.attention if isinstance(module, GridSelfAttention) else module
    return inner.register_forward_hook(quiet_rows)


# ---- views


@torch.no_grad()
def views_of(forward: ForwardPass, kind: str) -> tuple[View, ...]:
    """Return a view of every attention that was called, in the order of the calls."""
    layers, views = Counter[str](), list[View]()
    sizes = {name: len(side.pieces) for name, side in forward.sides.items()}
    for name in forward.looks:
        look, weights = forward.looks[name], weights_of(forward, name)
        title = title_of(name, kind, forward.forced, weights.shape[1])
        # A user's own model may attend to unknown things; the positions of such sides are numbered.
        rows, columns = sizes.get(title.rows, -1), sizes.get(title.columns, -1)
        if rows != weights.shape[1] or not columns - 1 <= weights.shape[2] <= columns:
            numbered = title.rows if rows == weights.shape[1] else f"{name}: rows"
            title = kinds.Title(name, "memory", numbered, f"{name}: columns")
        entropy = look.entropy
        if entropy is not None and forward.by_sentence(name):  # average over sentences, which are batch rows
            entropy = entropy.float().mean().reshape(1, 1)
        module, call = forward.looks.modules[name], forward.looks.calls[name][0]
        span = next((each for each in (*call.args, *call.kwargs.values()) if isinstance(each, Span)), None)
        own = module.span if isinstance(module, Attention) else None
        if title.columns in forward.sides:
            # A growing tape has one column less than there are words, because no step reads the last entry.
            weights = F.pad(weights, (0, sizes[title.columns] - weights.shape[-1]))
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
    return (*views, *memory_views(forward.head_steps, sizes.get("source", 0)))


def weights_of(forward: ForwardPass, name: str) -> Float[Tensor, "h n m"]:
    """Return an attention's weights in the only example of the batch."""
    look, source = forward.looks[name], forward.forced.source
    weights = look.weights.float().cpu()
    if look.grid == "both":
        weights = weights.flatten(-2).flatten(-3, -2)
    if forward.by_sentence(name):  # concatenate the sentences' weights
        assert isinstance(source, Documents)
        lengths = source.words.lengths.tolist()
        return torch.cat([row[0, :length] for row, length in zip(weights, lengths, strict=True)])[None, None]
    return weights[0] if weights.ndim == 4 else weights


def heads_first(numbers: Tensor | None) -> Num[Tensor, "h n"] | None:
    """Return the first batch row of [b (h) n] with a head axis; floating-point numbers as float32."""
    if numbers is None:
        return None
    row = (numbers[0] if numbers.ndim == 3 else numbers[:1]).cpu()
    return row.float() if row.is_floating_point() else row


# ---- in words


def title_of(name: str, kind: str, forced: ForcedExample, queries: int) -> kinds.Title:
    """Return the title of an attention, given the model's kind, the example and the number of queries."""
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
    return " · ".join(filter(None, [heads, words, *local, weighting_words(inner.weighting)]))


def windows(*spans: Span | None) -> list[Monotonic | Predictive]:
    """List the windows of local attention among spans."""
    parts = (part for span in spans if span is not None for part in span.parts)
    return [part for part in parts if isinstance(part, Monotonic | Predictive)]


def numbers_of(forward: ForwardPass, view: View) -> Numbers | Addressing | None:
    """Return the numbers from which a view's weights are computed; None for attention of an unknown class."""
    if view.name in MEMORY_VIEWS:
        return memory_numbers(forward.head_steps, view.name, view.weights.shape[1])
    module, records = forward.looks.modules[view.name], forward.looks.calls[view.name]
    if not isinstance(module, Attention | Heads | GridSelfAttention):
        return None
    own = projections(forward.recording, view.name) if len(records) == 1 else None
    resolved = [resolve_call(module, record, own) for record in records]
    formulas = {symbol: formula for symbol, (formula, _) in forward.model.notation.of(view.name).items() if formula}
    if forward.by_sentence(view.name):
        assert isinstance(forward.forced.source, Documents)
        return joined_numbers(resolved, 0, formulas, forward.forced.source.words.lengths.tolist())
    return joined_numbers(resolved, view.weights.shape[-1], formulas)


def joined_numbers(
    calls: Sequence[ResolvedCall], columns: int, formulas: dict[str, str], lengths: Sequence[int] | None = None
) -> Numbers:
    """Collect the numbers of one call, or of consecutive calls, as in a recurrent decoder.

    With `lengths`, a learned query attends to each sentence separately, and the sentences' keys are concatenated.
    """
    first = calls[0].call

    def beside(tensor: Tensor) -> Float[Tensor, "1 m c"]:
        assert lengths is not None
        return torch.cat([calls[0].row(tensor, at)[:, :length] for at, length in enumerate(lengths)], 1)

    def table(tensors: Sequence[Tensor | None], default: float = 0.0) -> Float[Tensor, "h n m"] | None:
        """Stack the tables of all calls, padded with zeros; a None among them becomes a table of `default`."""
        if all(tensor is None for tensor in tensors):
            return None
        if lengths is not None and tensors[0] is not None:
            return beside(tensors[0].mT).mT
        rows = []
        for resolved, tensor in zip(calls, tensors, strict=True):
            shape = resolved.look.weights.shape
            whole = torch.full(shape, default) if tensor is None else tensor.expand(shape)
            rows.append(F.pad(resolved.row(whole), (0, columns - shape[-1])))
        joined = torch.cat(rows, 1)
        same = len(joined) > 1 and bool((joined == joined[:1]).all())
        return joined[:1] if same else joined

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
    if vector is not None:  # one row per head, or one for all heads
        vector = vector.reshape(-1, vector.shape[-1]).float().cpu()
    softmax = all(each.call.weighting == "softmax" and each.look.picked is None for each in calls)
    masks = [each.call.limits.mask() if lengths is None else None for each in calls]
    if lengths is None and any(each.look.weights.shape[-1] < columns for each in calls):  # a growing tape
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
    """Return the keys of the longest call if the keys of every other call are a prefix of them; otherwise None."""
    last = max(reversed(tensors), key=lambda each: each.shape[1])
    for resolved, tensor in zip(calls, tensors, strict=True):
        has_weight = resolved.row(resolved.look.weights).ne(0).any(1)  # [h m]; all False for an empty tape
        beginning = last[:, : tensor.shape[1]]
        # The same projection in a batch of another size may differ in the last digit.
        if not torch.allclose(tensor[has_weight], beginning[has_weight], rtol=1e-4, atol=1e-6):
            return None
    return F.pad(last, (0, 0, 0, columns - last.shape[1]))
