"""Collecting an exhibit from a run: a search, then one teacher-forced pass under `watch`, for a model of any kind.

from regard import load, inspection
exhibit = inspection.exhibit_of(load("runs/demo"), "I ate pizza yesterday.", beam=5)
inspection.page(exhibit).save("look.html")

Ablation says how likely the output is when one head is silenced, for every head of every attention. A silenced head's
slice of what the heads give is zero before the output projection; of an attention without heads the context is zero.
Every row of a batch has another head silenced, so that many heads are tried in one pass.
"""

# r rows, a silenced head each · n positions · d width
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.alignment import AlignmentSettings, extraction
from regard.attention import GridSelfAttention, Heads, call_records
from regard.decoding import first_model
from regard.errors import ArgumentError, DataError
from regard.inspection.collect.dependency_trees import ParsedTree, dependencies_of
from regard.inspection.collect.exhibit import Ablation, Exhibit, View
from regard.inspection.collect.forward_pass import force, watch_forward
from regard.inspection.collect.from_model import graph_of
from regard.inspection.collect.memory_heads import MEMORY_VIEWS, silence_memory_heads
from regard.inspection.collect.views import numbers_of, views_of
from regard.inspection.collect.walk import Which, vocabulary_of, walk_of
from regard.models import Model
from regard.tasks import ForcedExample, Item, TrainedRun

BUDGET = 2048  # positions of a batch, source and target
Rows = Sequence[tuple[int | slice, int]]  # (row, head): which head is silenced in which row, or rows


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
    """Collect everything that a page shows of one item: a text or, for a run that reads pictures, a file or its pixels.

    The output is what the search finds that `options` ask for, such as beam=5, and its `tree` is kept; or it is
    `target`, a text or a label. `walk` takes one word through its attention in numbers, `Which(…)` says which
    one; `ablate` silences every head; `graph` draws what runs in the model; `dependencies` is the tree of the text's
    words, as `read_trees` reads it.
    """
    forced = force(run, item, target=target, tree=tree, **options)
    kind, task, model = run.settings.kind, run.settings.task, first_model(run.model)
    forward = watch_forward(model, forced, record=walk is not False)
    views = views_of(forward, kind)
    aligned, head, offset = alignment_of(run, views)
    which = Which() if isinstance(walk, bool) else walk
    if which.view is None and aligned is not None:  # what lines are drawn from
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
    """Choose the view, head and offset nearest to an alignment; None without an attention to the source."""
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
    """Measure how much each head contributes, for a forced output and its views."""
    if model.points:
        raise ArgumentError("ablate: a pointer network cannot be ablated, because its attention is its output")
    if not views:
        raise ArgumentError("ablate: the model has no attention to silence")
    heads = [(view.name, head) for view in views for head in range(len(view.weights))]
    size = sum(len(side.pieces) for name, side in forced.sides.items() if name in ("source", "read"))
    count, whole = max(1, BUDGET // max(1, size)), float(forced.log_probs(model).cpu().double().sum())
    changes: dict[str, list[float]] = {view.name: [] for view in views}
    for first in range(0, len(heads), count):
        chunk = heads[first : first + count]
        with silence_heads(model, chunk, forced):
            log_probs = forced.log_probs(model, len(chunk)).cpu().double().sum(-1).tolist()
        for (name, _), log_prob in zip(chunk, log_probs, strict=True):
            changes[name].append(log_prob - whole)
    return Ablation(whole, {name: tuple(each) for name, each in changes.items()})


def ablation_table(ablation: Ablation, views: Sequence[View]) -> str:
    """Format the changes as a text table, a view per row and a head per column."""
    most = max(map(len, ablation.changes.values()))
    titles = {view.name: view.title for view in views}
    width = max(len(titles[name]) for name in ablation.changes)
    lines = [f"log-probability {ablation.log_prob:.3f}; without a head it changes by"]
    lines.append(" " * width + "".join(f"{f'head {head + 1}':>10}" for head in range(most)))
    for name, changes in ablation.changes.items():
        lines.append(f"{titles[name]:<{width}}" + "".join(f"{change:>+10.3f}" for change in changes))
    return "\n".join(lines)


@contextmanager
def silence_heads(model: Model, heads: Sequence[tuple[str, int]], forced: ForcedExample) -> Iterator[None]:
    """Silence head i in row i of a batch, inside the block."""
    modules = call_records.find_outermost(model)
    with ExitStack() as hooks:
        for name in dict(heads):
            rows = [(row, head) for row, (each, head) in enumerate(heads) if each == name]
            if name in MEMORY_VIEWS:
                handles = silence_memory_heads(model, name, rows, len(forced.sides["source"].pieces))
            else:
                handles = [silence_head(modules[name], rows, len(heads))]
            for handle in handles:
                hooks.callback(handle.remove)
        yield


def silence_head(module: nn.Module, rows: Rows, count: int) -> Any:
    """Replace a head's output by zeros, in its row of `count`."""
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
