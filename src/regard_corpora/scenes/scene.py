"""A scene: shapes of a size, a colour and a kind, each at a place, and how they stand to each other."""

from typing import Literal, NamedTuple

__all__ = ["COLOURS", "KINDS", "RADII", "Scene", "Shape", "relation"]

KINDS = ("circle", "square", "triangle", "star", "cross")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
RADII = {"small": 8.5, "large": 15.0}  # in hundredths of the picture's side, as all lengths here
CLEAR = 1.6  # how much further apart two shapes are along one axis than along the other

Relation = Literal["above", "below", "on the left of", "on the right of"]


class Shape(NamedTuple):
    """One shape; x goes to the right and y down."""

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
    def reach(self) -> float:
        """The distance from the centre up to which a shape may be seen: corners, a somewhat larger drawing, and the
        ring.
        """
        return RADII[self.size] * 1.13 * 1.08 + (3.0 if self.ringed else 0.0)


class Scene(NamedTuple):
    """Shapes in the order in which a caption names them, or the two that a question asks about and the others."""

    shapes: tuple[Shape, ...]
    question: str = "none"

    @property
    def description(self) -> str:
        """The scene in words and numbers: equal for equal scenes, and all that the drawing depends on."""
        prefix = "" if self.question == "none" else f"{self.question} : "
        return prefix + " , ".join(" ".join(shape.words) for shape in self.shapes)


def relation(one: Shape, other: Shape) -> Relation | None:
    """Return where one shape stands, seen from the other; None where it stands aslant."""
    dx, dy = one.x - other.x, one.y - other.y
    if abs(dy) >= CLEAR * abs(dx):
        return "above" if dy < 0 else "below"
    if abs(dx) >= CLEAR * abs(dy):
        return "on the left of" if dx < 0 else "on the right of"
    return None
