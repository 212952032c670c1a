"""Scenes: drawn shapes with captions, or with questions that need two distant places of the picture.

    for example in generate("scenes", 3):
        print(example.target)             # a small red star above a large blue square
        example.picture()                 # its pixels, drawn on demand
        example.speaks_of, example.boxes  # the shape that each word refers to, and the shapes' bounding boxes

The source is the scene in words and numbers, which determines the picture. A caption is complete: it names the size,
colour and kind of every shape, and the position of a single shape or the relations of the first shape to the others.
Every relation is true and clearly visible. Options: `size`, the side of the picture in pixels; `shapes`, the maximum
number of shapes; and `question`, which is "none" for captions.

With a question, one shape has a ring, and another, at least half of the picture away, has the same colour. The target
is the other shape's size ("which-size") or kind ("which-shape"); or its colour, if the two share their kind
("which-colour"). The picture has one to `shapes` further shapes of other colours, equally far from the ring. So neither
a single place of the picture nor a list of all its shapes gives the answer: a model has to look at the ringed shape to
know which of the others is meant.

Shapes do not touch. The module `drawing` draws the pixels.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from regard.data import Example, builtin

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, UInt8

__all__ = ["Options", "Pictured", "Scene", "Shape", "draw", "every"]

KINDS = ("circle", "square", "triangle", "star", "cross")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
RADII = {"small": 8.5, "large": 15.0}  # in hundredths of the picture's side, like all lengths here
CLEAR = 1.6  # minimum ratio of two shapes' distances along the two axes for a clear relation

Relation = Literal["above", "below", "on the left of", "on the right of"]

T = TypeVar("T")
Random = Callable[[], float]

APART = 3  # minimum gap between two shapes
THIRDS = ((0, 34), (43, 57), (66, 100))  # coordinates of left, middle and right, with gaps between them
VALUES = {"size": tuple(RADII), "colour": COLOURS, "kind": KINDS}
ASKED = {  # the attribute that a question asks for, and the one that the two shapes share
    "which-size": ("size", "colour"),
    "which-shape": ("kind", "colour"),
    "which-colour": ("colour", "kind"),
}
QUESTIONS = ("none", *ASKED)
FAR = 50  # minimum distance from the ringed shape, along at least one axis
TRIES = 30
PLACES = (  # one row per vertical third, from the top
    ("in the top left corner", "at the top", "in the top right corner"),
    ("on the left", "in the middle", "on the right"),
    ("in the bottom left corner", "at the bottom", "in the bottom right corner"),
)
NOBODY = -1  # the shape of a word that refers to none, such as "above"


class Shape(NamedTuple):
    """One shape; x increases to the right and y downwards."""

    size: str
    colour: str
    kind: str
    x: int
    y: int
    ringed: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that describe the shape."""
        return (*(("ringed",) if self.ringed else ()), *self[:3], str(self.x), str(self.y))

    @property
    def radius(self) -> float:
        """Return the approximate distance of the outline from the centre."""
        return RADII[self.size]

    @property
    def reach(self) -> float:
        """The maximum distance of the shape's pixels from its centre, including corners, random scaling and ring."""
        return self.radius * 1.13 * 1.08 + (3.0 if self.ringed else 0.0)


class Scene(NamedTuple):
    """Shapes in the order of the caption; for a question, the ringed shape, the one it asks about, and the others."""

    shapes: tuple[Shape, ...]
    question: str = "none"

    @property
    def description(self) -> str:
        """The scene in words and numbers, which determines the drawing and is equal for equal scenes."""
        prefix = "" if self.question == "none" else f"{self.question} : "
        return prefix + " , ".join(" ".join(shape.words) for shape in self.shapes)


def relation(one: Shape, other: Shape) -> Relation | None:
    """Return where one shape is relative to another; None if it is diagonal to it."""
    dx, dy = one.x - other.x, one.y - other.y
    if abs(dy) >= CLEAR * abs(dx):
        return "above" if dy < 0 else "below"
    if abs(dx) >= CLEAR * abs(dy):
        return "on the left of" if dx < 0 else "on the right of"
    return None


def for_caption(random: Random, most: int) -> Scene | None:
    """Draw one to `most` shapes in the order of their caption; return None if they do not fit into the picture."""
    count = 1 + int(random() * most)
    looks = list[tuple[str, str, str]]()
    while len(looks) < count:  # all look different, so that each word refers to one shape
        look = (choice(random, tuple(RADII)), choice(random, COLOURS), choice(random, KINDS))
        if look not in looks:
            looks.append(look)
    if count == 1:
        across, down = choice(random, THIRDS), choice(random, THIRDS)
        return Scene((place_shape(random, looks[0], across, down),))
    shapes = fill(random, [], looks, lambda one, other: relation(one, other) is not None)
    return None if shapes is None else Scene(sort_for_caption(shapes))


def for_question(random: Random, question: str, most: int) -> Scene | None:
    """Draw a ringed shape, one far from it that shares its colour (or kind), and one to `most` others that do not.

    The attribute that the question asks for is drawn from the same distribution for all shapes; kinds and colours
    differ between all shapes without a ring. All of these are far from the ring, so positions reveal nothing.
    """
    attribute, shared = ASKED[question]
    common = choice(random, VALUES[shared])
    others = [value for value in VALUES[shared] if value != common]
    looks, used = list[tuple[str, str, str]](), set[str]()
    for i in range(3 + int(random() * most)):
        look = {name: choice(random, values) for name, values in VALUES.items()}
        look[shared] = common if i < 2 else choice(random, others)
        if attribute != "size" and i > 0:
            look[attribute] = choice(random, [value for value in VALUES[attribute] if value not in used])
            used.add(look[attribute])
        looks.append((look["size"], look["colour"], look["kind"]))
    ringed = place_shape(random, looks[0], (0, 100), (0, 100), True)
    shapes = fill(random, [ringed], looks[1:], lambda one, other: other is not ringed or far(one, other))
    return None if shapes is None else Scene(tuple(shapes), question)


def far(one: Shape, other: Shape) -> bool:
    """Return whether two shapes are at least FAR apart, horizontally or vertically."""
    return max(abs(one.x - other.x), abs(one.y - other.y)) >= FAR


def fill(
    random: Random, shapes: list[Shape], looks: Sequence[tuple[str, str, str]], fits: Callable[[Shape, Shape], bool]
) -> list[Shape] | None:
    """Add further shapes, each at a position that fits all earlier ones; return None if there is no room."""
    arranged = list(shapes)
    for look in looks:
        for _ in range(TRIES):
            shape = place_shape(random, look, (0, 100), (0, 100))
            if all(clear_of(shape, each) and fits(shape, each) for each in arranged):
                arranged.append(shape)
                break
        else:
            return None
    return arranged


def place_shape(
    random: Random, look: tuple[str, str, str], across: tuple[int, int], down: tuple[int, int], ringed: bool = False
) -> Shape:
    """Place a shape randomly in a range, completely inside the picture."""
    edge = int(Shape(*look, 0, 0, ringed).reach) + 1  # minimum distance of the centre from the edge of the picture
    x, y = (choice(random, range(max(low, edge), min(high, 100 - edge) + 1)) for low, high in (across, down))
    return Shape(*look, x, y, ringed)


def clear_of(one: Shape, other: Shape) -> bool:
    """Return whether two shapes are at least APART from each other."""
    least = one.reach + other.reach + APART
    return (one.x - other.x) ** 2 + (one.y - other.y) ** 2 >= least**2


def sort_for_caption(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """Sort shapes for a caption: first a large one if it is the only one, then from top left to bottom right.

    If one of two shapes is clearly above or to the left of the other, it has the smaller x + y.
    """
    rising = sorted(shapes, key=lambda shape: shape.x + shape.y)
    large = [shape for shape in rising if shape.size == "large"]
    if len(large) == 1:
        rising.remove(large[0])
        rising.insert(0, large[0])
    return tuple(rising)


def find_third(at: int) -> int:
    """Return the third of the picture that contains a coordinate: 0, 1 or 2."""
    return next(i for i, (low, high) in enumerate(THIRDS) if low <= at <= high)


def choice(random: Random, among: Sequence[T]) -> T:
    return among[int(random() * len(among))]


def caption(scene: Scene) -> tuple[list[str], list[int]]:
    """Return the words of a caption, and the index of the shape that each refers to, which only attributes have.

    The caption of a single shape gives its position; that of several gives the relations of the first to the others.
    """
    words, speaks_of = list[str](), list[int]()

    def say(text: str) -> None:
        words.extend(text.split())
        speaks_of.extend([NOBODY] * (len(words) - len(speaks_of)))

    def name(i: int) -> None:
        size, colour, kind = scene.shapes[i][:3]
        say("a")
        words.extend((size, colour, kind))
        speaks_of.extend([i] * 3)

    first, *others = scene.shapes
    name(0)
    if not others:
        say(PLACES[find_third(first.y)][find_third(first.x)])
    before = None
    for i, other in enumerate(others, 1):
        stands = str(relation(first, other))
        say(("and " if i > 1 else "") + (stands if stands != before else ""))
        name(i)
        before = stands
    return words, speaks_of


def answer(scene: Scene) -> str:
    """Return the size, kind or colour, as the question asks, of the shape that shares something with the ringed one."""
    return str(getattr(scene.shapes[1], ASKED[scene.question][0]))


def links(scene: Scene, words: list[str], speaks_of: list[int]) -> tuple[tuple[int, int], ...]:
    """Link the words of the scene's description to those of its caption."""
    starts, at = [], 0
    for shape in scene.shapes:
        starts.append(at)
        at += len(shape.words) + 1  # one for the comma
    pairs = []
    for j, (word, i) in enumerate(zip(words, speaks_of, strict=True)):
        if i != NOBODY:
            pairs.append((starts[i] + scene.shapes[i].words[:-2].index(word), j))
    return tuple(sorted(pairs))


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
        """Return each shape's box in pixels: left, top, right, bottom, the last two just outside."""
        from regard_corpora import drawing

        return tuple(drawing.box_of(self.scene, i, self.size) for i in range(len(self.scene.shapes)))

    def picture(self) -> "UInt8[np.ndarray, 'h w 3']":
        """Draw the picture, as pixels in red, green and blue."""
        from regard_corpora import drawing

        return drawing.draw(self.scene, self.size)

    def mask(self, i: int) -> "Bool[np.ndarray, 'h w']":
        """Return the mask of shape i's pixels."""
        from regard_corpora import drawing

        return drawing.mask_of(self.scene, i, self.size)


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw scenes endlessly; yield None for one that `accept` refuses, or whose shapes do not fit."""
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
