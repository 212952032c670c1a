"""The caption of a scene: one sentence that describes it all, and for each word the shape that it is about."""

from regard_corpora.scenes.placing import ASKED, find_third
from regard_corpora.scenes.scene import Scene, Shape, relation

__all__ = ["answer", "caption"]

PLACES = {
    (0, 0): "in the top left corner",
    (1, 0): "at the top",
    (2, 0): "in the top right corner",
    (0, 1): "on the left",
    (1, 1): "in the middle",
    (2, 1): "on the right",
    (0, 2): "in the bottom left corner",
    (1, 2): "at the bottom",
    (2, 2): "in the bottom right corner",
}
NOBODY = -1  # of which shape a word like "above" speaks


def caption(scene: Scene) -> tuple[list[str], list[int]]:
    """Return the words, and the index of the shape that each is about: only sizes, colours and kinds are about one.

    One shape is said to be where it is in the picture; of several, the first stands in relations to the others.
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
        say(PLACES[find_third(first)])
    before = None
    for i, other in enumerate(others, 1):
        stands = str(relation(first, other))
        say(("and " if i > 1 else "") + (stands if stands != before else ""))
        name(i)
        before = stands
    return words, speaks_of


def answer(scene: Scene) -> str:
    """Return the size, kind or colour of the shape that shares something with the ringed one, as the question asks."""
    return str(getattr(scene.shapes[1], ASKED[scene.question][0]))


def links(scene: Scene, words: list[str], speaks_of: list[int]) -> tuple[tuple[int, int], ...]:
    """Link the words of the scene's description to the words of its caption."""
    starts, at = [], 0
    for shape in scene.shapes:
        starts.append(at)
        at += len(shape.words) + 1  # a comma
    pairs = []
    for j, (word, i) in enumerate(zip(words, speaks_of, strict=True)):
        if i != NOBODY:
            pairs.append((starts[i] + attributes(scene.shapes[i]).index(word), j))
    return tuple(sorted(pairs))


def attributes(shape: Shape) -> list[str]:
    return list(shape.words[:-2])
