"""Drawn scenes: the pixels alone confirm the captions, and a question needs two places."""

import colorsys
import itertools
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from regard.data import builtin, generate
from regard.errors import ArgumentError
from regard_corpora.drawing import RGB
from regard_corpora.scenes import FAR

SHAPE = r"a (small|large) (red|green|blue|yellow|purple|orange) (circle|square|triangle|star|cross)"
WHERE = r"in the (?:top|bottom) (?:left|right) corner|at the (?:top|bottom)|on the (?:left|right)|in the middle"
SIDE = r"above|below|on the left of|on the right of"
SENTENCE = re.compile(rf"{SHAPE}(?: ({WHERE})|(?: ({SIDE}) {SHAPE}(?: and (?:({SIDE}) )?{SHAPE})?))")


def seen(picture):
    """Find a picture's coloured shapes by colour alone; return each as the coordinates (y, x) of its pixels."""
    high, low = picture.max(2).astype(int), picture.min(2).astype(int)
    coloured = (high - low) > 0.35 * high.clip(100)
    left, found = set(zip(*map(np.ndarray.tolist, np.nonzero(coloured)), strict=True)), []
    while left:
        thing, edge = set(), [left.pop()]
        while edge:
            y, x = edge.pop()
            thing.add((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            edge += near
        if len(thing) > 8:  # a few noisy pixels are not a shape
            found.append(np.array(sorted(thing)))
    return found


def hue(rgb):
    return colorsys.rgb_to_hsv(*(float(value) / 255 for value in rgb))[0]


def colour_of(picture, pixels):
    """The name of the nearest hue."""
    mean = np.median(picture[pixels[:, 0], pixels[:, 1]], 0)
    away = {name: abs((hue(mean) - hue(rgb) + 0.5) % 1 - 0.5) for name, rgb in RGB.items()}
    return min(away, key=away.get)


def thing_at(things, box):
    """Return the shape whose centre is in a box."""
    left, top, right, bottom = box
    middles = [(thing.min(0) + thing.max(0)) / 2 for thing in things]
    (found,) = [t for t, (y, x) in zip(things, middles, strict=True) if left <= x < right and top <= y < bottom]
    return found


@pytest.mark.parametrize("size", [64, 97])
def test_captions_are_true_in_the_pixels(size):
    for example in generate("scenes", 30, seed=11, size=size):
        picture, words = example.picture(), example.target.split()
        assert picture.shape == (size, size, 3)
        assert picture.dtype == np.uint8
        things = seen(picture)
        assert len(things) == len(example.boxes)
        middles = []
        for i, box in enumerate(example.boxes):
            thing = thing_at(things, box)
            low, high = thing.min(0), thing.max(0) + 1
            assert np.abs(np.array([low[1], low[0], high[1], high[0]]) - box).max() <= 2
            middles.append((low + high) / 2)
            spoken = [word for word, of in zip(words, example.speaks_of, strict=True) if of == i]
            assert len(spoken) == 3
            assert spoken[0] == ("large" if (high - low).max() > 0.213 * size else "small")
            assert spoken[1] == colour_of(picture, thing)
            assert example.mask(i)[thing[:, 0], thing[:, 1]].mean() > 0.6
        check_relations(example.target, np.array(middles) / size)


def check_relations(caption, middles):
    """Check that every "above" is above by far more than its horizontal distance."""
    found = SENTENCE.fullmatch(caption)
    assert found, caption
    place, side, again = found[4], found[5], found[9] or found[5]
    if len(middles) == 1:
        y, x = middles[0]
        assert ("top" in place) == (y < 0.38)
        assert ("bottom" in place) == (y > 0.62)
        assert ("left" in place) == (x < 0.38)
        assert ("right" in place) == (x > 0.62)
        return
    for other, relation in zip(middles[1:], (side, again), strict=False):
        dy, dx = middles[0] - other
        upright = {"above": -dy, "below": dy, "on the left of": -dx, "on the right of": dx}[relation]
        assert upright > 1.2 * min(abs(dy), abs(dx)) > 0 or min(abs(dy), abs(dx)) < 0.06
        assert upright > 0.15


def test_kinds_differ_in_how_they_fill_their_box():
    """A circle fills π/4 of its box, a square all, a triangle half, a star and a cross less than a circle."""
    shares = {}
    for example in generate("scenes", 60, seed=4, size=128, shapes=1):
        (left, top, right, bottom), kind = example.boxes[0], example.scene.shapes[0].kind
        shares.setdefault(kind, []).append(example.mask(0).sum() / ((right - left) * (bottom - top)))
    middle = {kind: float(np.median(each)) for kind, each in shares.items()}
    assert middle["circle"] == pytest.approx(np.pi / 4, abs=0.03)
    assert middle["square"] > 0.97
    assert middle["triangle"] == pytest.approx(0.5, abs=0.05)
    assert middle["star"] < 0.45
    assert middle["cross"] == pytest.approx(5 / 9, abs=0.04)


def test_shapes_do_not_touch_and_no_two_look_alike():
    for example in generate("scenes", 60, seed=9):
        masks = [example.mask(i) for i in range(len(example.scene.shapes))]
        for one, other in itertools.combinations(masks, 2):
            near = np.zeros_like(one)
            for dy, dx in itertools.product((-1, 0, 1), repeat=2):
                near |= np.roll(one, (dy, dx), (0, 1))
            assert not (near & other).any()
        looks = [shape[:3] for shape in example.scene.shapes]
        assert len(set(looks)) == len(looks)


def test_all_words_come_about_and_no_caption_is_common():
    examples = list(generate("scenes", 250))
    words = Counter(word for example in examples for word in example.target.split())
    assert " ".join(sorted(words)) == (
        "a above and at below blue bottom circle corner cross green in large left middle of on orange purple red right "
        "small square star the top triangle yellow"
    )
    counts = Counter(len(example.scene.shapes) for example in examples)
    assert set(counts) == {1, 2, 3}
    assert min(counts.values()) > 50
    assert max(Counter(example.target for example in examples).values()) < 10


def test_the_source_is_all_that_the_picture_hangs_on():
    one, other = (next(generate("scenes", 1, seed=seed, shapes=3)) for seed in (5, 5))
    assert one == other
    assert np.array_equal(one.picture(), other.picture())
    pictures = {example.picture().tobytes() for example in generate("scenes", 30)}
    assert len(pictures) == 30


def test_other_processes_draw_the_same():
    code = (
        "import sys, hashlib\nfrom regard.data.builtin import generate\nexamples = list(generate('scenes', 4))\n"
        "assert 'numpy' not in sys.modules and 'PIL' not in sys.modules  # drawn when asked for\n"
        "print([(e.target, hashlib.sha256(e.picture().tobytes()).hexdigest()) for e in examples])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": s}, capture_output=True, check=True).stdout
        for s in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_these_are_the_scenes_of_seed_nought():
    """Pin the first scenes: a change of them changes every user's corpus."""
    assert [example.target for example in generate("scenes", 3)] == FIRST


FIRST = [
    "a large blue star on the left of a large blue square and a small blue triangle",
    "a small blue star above a large purple triangle and a large green star",
    "a small purple star above a small blue cross and on the left of a small green cross",
]


@pytest.mark.parametrize(
    ("question", "asked", "shared"), [("which-size", 0, 1), ("which-shape", 2, 1), ("which-colour", 1, 2)]
)
def test_a_question_needs_two_distant_places(question, asked, shared):
    examples = list(generate("scenes", 120, seed=1, question=question))
    for example in examples:
        shapes, ringed = example.scene.shapes, [shape.ringed for shape in example.scene.shapes]
        assert ringed == [True] + [False] * (len(shapes) - 1)
        assert 3 <= len(shapes) <= 5
        assert example.target == shapes[1][asked]
        assert [shape[shared] == shapes[0][shared] for shape in shapes[1:]] == [True] + [False] * (len(shapes) - 2)
        assert max(abs(shapes[0].x - shapes[1].x), abs(shapes[0].y - shapes[1].y)) >= FAR
        if question != "which-size":
            assert len({shape[asked] for shape in shapes[1:]}) == len(shapes) - 1
    counts = Counter(example.target for example in examples)
    share = 1 / len(counts)
    assert all(abs(n / 120 - share) < 4 * (share * (1 - share) / 120) ** 0.5 for n in counts.values())


def test_what_is_there_does_not_tell_the_answer():
    """With one small and one large shape beside the ringed one, both answers are equally frequent."""
    split = []
    for example in generate("scenes", 300, seed=8, question="which-size", shapes=1):
        _, one, other = example.scene.shapes
        if one.size != other.size:
            split.append(example.target == "large")
    assert len(split) > 100
    assert abs(np.mean(split) - 0.5) < 4 * 0.5 / len(split) ** 0.5


def test_where_a_shape_stands_does_not_tell_the_answer():
    """The shape in question is as far from the middle as the other: a network sees where the edge is."""
    gaps = []
    for example in generate("scenes", 300, seed=5, question="which-size", shapes=1):
        _, meant, other = example.scene.shapes
        off = [max(abs(shape.x - 50), abs(shape.y - 50)) for shape in (meant, other)]
        gaps.append(off[0] - off[1])
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / len(gaps) ** 0.5


def test_the_ring_is_seen():
    for example in generate("scenes", 20, question="which-size"):
        shape, picture = example.scene.shapes[0], example.picture().astype(int)
        turns, radius = np.linspace(0, 2 * np.pi, 40), (shape.reach - 1.5) * 0.64
        ring = picture[
            (shape.y * 0.64 + radius * np.sin(turns)).astype(int), (shape.x * 0.64 + radius * np.cos(turns)).astype(int)
        ]
        assert np.abs(ring.mean() - np.median(picture)) > 90


def test_splits_hang_on_the_scene():
    for split in ("train", "valid", "test"):
        sources = [example.source for example in generate("scenes", 3, split=split)]
        assert {builtin.choose_split(builtin.hash_source(source)) for source in sources} == {split}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 16}, "size: 16 given, expected a whole number of at least 32"),
        ({"size": 5000}, "size: 5000 given, expected at most 1024"),
        ({"shapes": 4}, "shapes: 4 given, expected at most 3"),
        ({"shapes": 0}, "shapes: 0 given"),
        (
            {"question": "how-many"},
            'question: "how-many" given, expected one of none, which-size, which-shape, which-colour',
        ),
    ],
)
@pytest.mark.unchecked
def test_wrong_options_are_named(options, said):
    with pytest.raises(ArgumentError, match=said):
        generate("scenes", 1, **options)
