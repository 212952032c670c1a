"""Word alignments read off attention weights: which head to read, and what its weights say.

Settings: `AlignmentSettings`, and the module of where they are kept. Links out of weights: `extraction`. Two directions
made one: `symmetrise` and its `METHODS`, `flip_links`. Which head to read: `selection`; which heads see syntax:
`dependencies`.
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
