"""Collecting an exhibit from a run: a search, then one teacher-forced pass under `watch`, for a model of any kind.

from regard import load, inspection
exhibit = inspection.exhibit_of(load("runs/demo"), "I ate pizza yesterday.", beam=5)
inspection.page(exhibit).save("look.html")
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from regard.decoding import first_model
from regard.errors import DataError
from regard.inspection.alignments.settings import FILE, AlignmentSettings
from regard.inspection.collect.ablation import ablation_of
from regard.inspection.collect.dependency_trees import ParsedTree, dependencies_of
from regard.inspection.collect.exhibit import Exhibit, View
from regard.inspection.collect.from_model import graph_of
from regard.inspection.collect.numbers import add_numbers
from regard.inspection.collect.open_run import OpenRun
from regard.inspection.collect.teacher_forcing import Item, force, watch_forward
from regard.inspection.collect.views import views_of
from regard.inspection.collect.walk import Which, vocabulary_of, walk_of


@torch.no_grad()
def exhibit_of(
    run: OpenRun,
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
    return Exhibit(
        kind=kind,
        task=task,
        title=forced.title,
        run=f"{run.folder.name}, step {run.step:,}",
        sides=forward.sides,
        views=add_numbers(forward, views),
        output=forced.output,
        log_prob=float(forward.log_probs.cpu().double().sum()) if model is run.model else forced.log_prob(run.model),
        labels=forced.labels,
        aligned=aligned,
        head=head,
        offset=offset,
        picture=forced.picture,
        tree=forced.tree,
        walk=walk_of(forward, views, choose_walk(walk, aligned, head), vocabulary_of(run)) if walk else None,
        ablation=ablation_of(model, forced, views) if ablate else None,
        graph=graph_of(model) if graph else None,
        dependencies=None if dependencies is None else dependencies_of(dependencies, forward.sides, views),
    )


def alignment_of(run: OpenRun, views: Sequence[View]) -> tuple[str | None, int | None, Literal[0, 1]]:
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
            f"{run.folder / FILE}: head {settings.head}, expected 0 to {heads - 1} of {settings.view}, counted from 0"
        )
    return settings.view, settings.head, settings.offset


def choose_walk(walk: Which | bool, aligned: str | None, head: int | None) -> Which:
    """Choose what to walk through: by default the view and the head that lines are drawn from."""
    which = Which() if isinstance(walk, bool) else walk
    if which.view is None and aligned is not None:
        return replace(which, view=aligned, head=head if which.head is None else which.head)
    return which
