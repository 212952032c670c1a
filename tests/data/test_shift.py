"""Shifts: found where they are, whatever side lost the line; never where there are none."""

import gzip
import random
from pathlib import Path

import numpy as np
import pytest

from regard.data.builtin import generate
from regard.data.check import find_shift

SHARED = Path(__file__).parents[3] / "shared" / "data"
SETS = {"multi30k": ("train.en.gz", "train.de.gz"), "europarl": ("train.en.gz", "train.de.gz")}
BUILT_IN = ("phrasebook", "numbers", "dates", "reverse", "sort", "copy")


def read(name: str, most: int = 30_000) -> tuple[list[str], list[str]]:
    """Both sides of a real corpus; skipped where it is missing."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip("the real data are not here")
    sides = []
    for file in SETS[name]:
        with gzip.open(folder / file, "rt", encoding="utf-8") as lines:
            sides.append([line.strip() for _, line in zip(range(most), lines, strict=False)])
    return sides[0], sides[1]


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("count", [60, 500, 5_000])
def test_built_in_corpora_are_not_shifted(name, count):
    rows = [(each.source, each.target) for each in generate(name, count)]
    sources, targets = [source for source, _ in rows], [target for _, target in rows]
    assert find_shift(sources, targets) is None
    assert find_shift(*zip(*sorted(rows), strict=True)) is None


def phrases(count: int) -> tuple[list[str], list[str]]:
    rows = list(generate("phrasebook", count))
    return [each.source for each in rows], [each.target for each in rows]


@pytest.mark.parametrize("by", [-3, -2, -1, 1, 2, 3])
def test_a_shift_is_found_with_its_distance_and_its_first_line(by):
    sources, targets = phrases(2_000)
    side = targets if by > 0 else sources
    del side[800 : 800 + abs(by)]
    count = min(len(sources), len(targets))
    shift = find_shift(sources[:count], targets[:count])
    assert shift is not None
    assert shift.by == by
    assert abs(shift.first - 800) <= 20
    assert shift.last >= count - 10


def test_a_stretch_in_the_middle_is_found():
    sources, targets = phrases(2_000)
    targets[500:1_500] = [*targets[501:1_500], targets[500]]
    shift = find_shift(sources, targets)
    assert shift is not None
    assert shift.by == 1
    assert abs(shift.first - 500) <= 20
    assert abs(shift.last - 1_499) <= 20


def test_pairs_of_a_sample_are_compared_only_where_their_lines_are_neighbours():
    sources, targets = phrases(2_000)
    assert find_shift(sources[1:], targets[:-1]) is not None
    assert find_shift(sources[1:], targets[:-1], np.arange(0, 3 * 1_999, 3)) is None  # every third line: no neighbours


def test_a_dialogue_is_not_shifted():
    """Each line answers the one before."""
    lines, _ = phrases(1_000)
    assert find_shift(lines[:-1], lines[1:]) is None


def test_sides_that_have_nothing_to_do_with_each_other_are_not_shifted():
    sources, targets = phrases(1_000)
    for seed in range(20):
        random.Random(seed).shuffle(targets)
        assert find_shift(sources, targets) is None


def test_few_or_equal_lines_say_nothing():
    assert find_shift([], []) is None
    assert find_shift(["a"] * 39, ["b"] * 39) is None
    assert find_shift(["a b"] * 500, ["c d"] * 500) is None
    assert find_shift([""] * 100, ["x"] * 100) is None


@pytest.mark.parametrize("name", SETS)
def test_real_corpora_are_told_from_shifted_ones(name):
    """Of 60 lines one shift in twenty may be missed, of 200 and more none; and no corpus is called shifted."""
    sources, targets = read(name)
    assert find_shift(sources, targets) is None
    draw = random.Random(0)
    missed = 0
    for count in (60, 200, 2_000):
        for _ in range(40 if count < 2_000 else 5):
            start, half = draw.randrange(len(sources) - count - 2), count // 2
            end = start + count
            assert find_shift(sources[start:end], targets[start:end]) is None
            shifted = find_shift(sources[start + 1 : end + 1], targets[start:end]) is not None
            missed += not shifted
            assert shifted or count == 60
            part = sources[start : start + half] + sources[start + half + 1 : end + 1]
            assert count == 60 or find_shift(part, targets[start:end]) is not None
    assert missed <= 4
