"""Drawing scenes at random: shapes that do not touch and whose relations are clear to see."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from regard.data.builtin.scenes.scene import COLOURS, KINDS, RADII, Scene, Shape, relation

__all__ = ["for_caption", "for_question", "places"]

T = TypeVar("T")
Random = Callable[[], float]

APART = 3  # between two shapes
THIRDS = ((0, 34), (43, 57), (66, 100))  # where a shape is at the left, in the middle, at the right; gaps between
FAR = 50  # between the two places of a question, along one axis at least
TRIES = 30


def for_caption(random: Random, most: int) -> Scene | None:
    """One to `most` shapes, in the order of their caption; None where they found no room."""
    count = 1 + int(random() * most)
    looks = list[tuple[str, str, str]]()
    while len(looks) < count:  # no two look alike, so that each word speaks of one
        look = (choice(random, tuple(RADII)), choice(random, COLOURS), choice(random, KINDS))
        if look not in looks:
            looks.append(look)
    if count == 1:
        across, down = choice(random, THIRDS), choice(random, THIRDS)
        return Scene((placed(random, looks[0], across, down),))
    shapes = fill(random, [], looks, lambda one, other: relation(one, other) is not None)
    return None if shapes is None else Scene(ordered(shapes))


def for_question(random: Random, question: str, most: int) -> Scene | None:
    """A ringed shape, one far from it that shares its colour (or kind), and one to `most` others that do not.

    What is asked, the kind (or colour) of the second, is different for all but the ringed one.
    """
    shared, asked = (COLOURS, KINDS) if question == "which-shape" else (KINDS, COLOURS)
    common, ringed = choice(random, shared), choice(random, asked)
    pairs = [(common, ringed), (common, choice(random, asked))]
    for _ in range(1 + int(random() * most)):
        other = choice(random, [each for each in shared if each != common])
        pairs.append((other, choice(random, [each for each in asked if all(each != pair[1] for pair in pairs[1:])])))
    looks = [("large", *(pair if question == "which-shape" else pair[::-1])) for pair in pairs]
    first = fill(random, [], looks[:1], far, ringed=True)
    two = first and fill(random, first, looks[1:2], far)
    shapes = two and fill(random, two, looks[2:], lambda one, other: True)
    return Scene(tuple(shapes), question) if shapes else None


def fill(
    random: Random,
    shapes: list[Shape],
    looks: Sequence[tuple[str, str, str]],
    fits: Callable[[Shape, Shape], bool],
    ringed: bool = False,
) -> list[Shape] | None:
    """The shapes and further ones, each in a place that fits all before; None where there is no room."""
    found = list(shapes)
    for look in looks:
        for _ in range(TRIES):
            shape = placed(random, look, (0, 100), (0, 100), ringed)
            if all(clear_of(shape, each) and fits(shape, each) for each in found):
                found.append(shape)
                break
        else:
            return None
    return found


def placed(
    random: Random, look: tuple[str, str, str], across: tuple[int, int], down: tuple[int, int], ringed: bool = False
) -> Shape:
    """A shape somewhere in a range, whole inside the picture."""
    margin = int(Shape(*look, 0, 0, ringed).reach) + 1

    def within(low: int, high: int) -> int:
        low, high = max(low, margin), min(high, 100 - margin)
        return low + int(random() * (high - low + 1))

    return Shape(*look, within(*across), within(*down), ringed)


def clear_of(one: Shape, other: Shape) -> bool:
    """Whether two shapes do not touch."""
    least = one.reach + other.reach + APART
    return (one.x - other.x) ** 2 + (one.y - other.y) ** 2 >= least**2


def far(one: Shape, other: Shape) -> bool:
    """Whether no window of a little more than half of the picture's side sees both."""
    return max(abs(one.x - other.x), abs(one.y - other.y)) >= FAR


def ordered(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The order of a caption: the only large shape first, if there is one; then from the top left to the bottom right.

    Where every two shapes stand clearly above or beside each other, the one above or on the left has the smaller x + y.
    """
    rising = sorted(shapes, key=lambda shape: shape.x + shape.y)
    large = [shape for shape in rising if shape.size == "large"]
    if len(large) == 1:
        rising.remove(large[0])
        rising.insert(0, large[0])
    return tuple(rising)


def places(shape: Shape) -> tuple[int, int]:
    """The third of the picture that a shape is in, across and down: 0, 1 or 2."""
    across, down = (next(i for i, (low, high) in enumerate(THIRDS) if low <= at <= high) for at in (shape.x, shape.y))
    return across, down


def choice(random: Random, among: Sequence[T]) -> T:
    return among[int(random() * len(among))]
