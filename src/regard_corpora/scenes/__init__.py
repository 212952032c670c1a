"""Scenes: drawn shapes and their captions, or a question that needs two distant places of the picture.

    for example in generate("scenes", 3):
        print(example.target)             # a small red star above a large blue square
        example.picture()                 # its pixels, drawn when asked for
        example.speaks_of, example.boxes  # which shape each word speaks of, and where that is

The source is the scene in words and numbers, all that the picture depends on. Every relation in a caption is true and
clear to see, and the caption says all there is: sizes, colours, kinds, and where one shape is or how one stands to the
others. Options: `size`, pixels of a side; `shapes`, the most there are; and `question`, which is "none" for captions.

With a question, one shape wears a ring and another, at least half of the picture away, shares its colour. The target
is that one's size ("which-size") or kind ("which-shape"); or its colour, where the two share their kind
("which-colour"). One to `shapes` others stand about, of other colours, as far from the ring. So no place of the
picture tells the answer, nor does a list of all that is there: it takes the ringed shape's place to know which of the
others is meant.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from regard.data import Example, builtin
from regard_corpora.scenes.scene import ASKED, Scene, Shape, answer, caption, for_caption, for_question, links

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, UInt8

__all__ = ["Options", "Pictured", "Scene", "Shape", "draw", "every"]

QUESTIONS = ("none", *ASKED)


@dataclasses.dataclass(frozen=True)
class Options:
    size: int = 64
    shapes: int = 3
    question: str = "none"

    def __post_init__(self) -> None:
        builtin.check_whole("size", self.size, 32, 1024)
        builtin.check_whole("shapes", self.shapes, 1, 3)
        builtin.check_name("question", self.question, QUESTIONS)


@dataclasses.dataclass(frozen=True, slots=True)
class Pictured(Example):
    """An example with its picture. The target is a caption, or the answer to a question."""

    scene: Scene = Scene(())
    size: int = 64
    speaks_of: tuple[int, ...] = ()  # captions: for each word the index of a shape, -1 for none

    @property
    def boxes(self) -> tuple[tuple[int, int, int, int], ...]:
        """Return each shape's left, top, right and bottom edge in pixels; right and bottom are just outside."""
        from regard_corpora.scenes.drawing import box_of

        return tuple(box_of(self.scene, i, self.size) for i in range(len(self.scene.shapes)))

    def picture(self) -> "UInt8[np.ndarray, 'h w 3']":
        """Draw the picture's pixels: red, green and blue."""
        from regard_corpora.scenes.drawing import draw

        return draw(self.scene, self.size)

    def mask(self, i: int) -> "Bool[np.ndarray, 'h w']":
        """Return the mask of shape i's pixels."""
        from regard_corpora.scenes.drawing import mask_of

        return mask_of(self.scene, i, self.size)


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw scenes without end; None for one that `accept` refuses, or whose shapes found no room."""
    while True:
        if options.question == "none":
            scene = for_caption(random, options.shapes)
        else:
            scene = for_question(random, options.question, options.shapes)
        yield example_of(scene, options) if scene and accept(scene.description) else None


def every(accept: builtin.SourceFilter, options: Options) -> None:
    """Return None: there are too many scenes to list."""


def example_of(scene: Scene, options: Options) -> Pictured:
    """Make an example of a scene with its caption, or with the answer to its question."""
    if options.question != "none":
        return Pictured(scene.description, answer(scene), scene=scene, size=options.size)
    words, speaks_of = caption(scene)
    return Pictured(
        scene.description,
        " ".join(words),
        links(scene, words, speaks_of),
        scene=scene,
        size=options.size,
        speaks_of=tuple(speaks_of),
    )
