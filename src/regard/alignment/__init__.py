"""Word alignments from attention weights.

`AlignmentSettings` say which attention to read, and how. `extraction` turns weights into links, and `selection` chooses
the head to read. `symmetrise` joins the links of two directions by one of `METHODS`, after `flip_links` has reversed
one. `dependencies` measures which heads follow syntax.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.alignment import dependencies, extraction, selection
    from regard.alignment.extraction import AlignmentSettings
    from regard.alignment.symmetrisation import METHODS, flip_links, symmetrise

__all__ = [
    "AlignmentSettings",
    "METHODS",
    "dependencies",
    "extraction",
    "flip_links",
    "selection",
    "symmetrise",
]

__getattr__, __dir__ = door(__name__)
