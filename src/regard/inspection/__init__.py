"""Inspection of what a model looked at, for people: pages and pictures of it.

    from regard import inspection, load
    exhibit = inspection.exhibit_of(load("runs/demo"), "I ate pizza yesterday.", beam=5)
    inspection.page(exhibit).save("look.html")

`model_graph(model)` draws what runs in a model. `page` and `picture` are functions here; the files of the same names
are found by importing from them.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from regard.inspection.collect.from_run import Which, exhibit_of
    from regard.inspection.draw.graph import ModelGraph, model_graph
    from regard.inspection.draw.heatmap import bars, heatmap, save, svg
    from regard.inspection.draw.page import Page, page
    from regard.inspection.draw.picture import picture

__all__ = [
    "ModelGraph",
    "Page",
    "Which",
    "bars",
    "exhibit_of",
    "heatmap",
    "model_graph",
    "page",
    "picture",
    "save",
    "svg",
]

_FILES = {
    "collect.from_run": ("Which", "exhibit_of"),
    "draw.graph": ("ModelGraph", "model_graph"),
    "draw.heatmap": ("bars", "heatmap", "save", "svg"),
    "draw.page": ("Page", "page"),
    "draw.picture": ("picture",),
}


def __getattr__(name: str) -> _typing.Any:
    """Load each when it is first used: alignments need no Matplotlib, and pictures of a look no model."""
    for file, names in _FILES.items():
        if name in names:
            return getattr(_importlib.import_module(f"regard.inspection.{file}"), name)
    raise AttributeError(f"module 'regard.inspection' has no attribute {name!r}")
