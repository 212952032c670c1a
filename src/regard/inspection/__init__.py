"""Inspection of what a model looked at, for people: pages and pictures of it.

    from regard import inspection, load
    exhibit = inspection.exhibit_of(load("runs/demo"), "I ate pizza yesterday .", beam=5)
    inspection.page(exhibit).save("look.html")

`page` and `picture` are functions here; the files of the same names are found by importing from them.
"""

import typing as _typing

from regard.inspection.draw.heatmap import bars, heatmap, save, svg
from regard.inspection.draw.page import Page, page
from regard.inspection.draw.picture import picture

if _typing.TYPE_CHECKING:
    from regard.inspection.collect.from_run import Which, exhibit_of

__all__ = ["Page", "Which", "bars", "exhibit_of", "heatmap", "page", "picture", "save", "svg"]


def __getattr__(name: str) -> _typing.Any:
    """Load what asks a model when it is first used: pictures of a look need no model."""
    if name not in ("Which", "exhibit_of"):
        raise AttributeError(f"module 'regard.inspection' has no attribute {name!r}")
    from regard.inspection.collect import from_run

    return getattr(from_run, name)
