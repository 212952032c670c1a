"""Reports on corpora: samples of any size, and their counts."""

import gzip
import random
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from regard.data.builtin import generate
from regard.data.check import (
    READ,
    SCRIPTS,
    check_documents,
    check_pairs,
    check_texts,
    find_foreign,
    find_shift,
    scripts_of,
    take_sample,
)


def rows(count: int) -> list[tuple[str, str]]:
    draw = random.Random(count)
    return [(f"source {draw.random()}", f"target {i}") for i in range(count)]


def test_a_sample_has_stretches_from_everywhere():
    sample = take_sample(rows(20_000), most=4_000)
    assert 2_000 <= len(sample) <= 4_000
    assert sample.rows == 20_000
    assert sample.lines[0] == 1
    assert sample.lines[-1] > 16_000
    assert [sample.seconds[i] for i in (0, 600, -1)] == [f"target {sample.lines[i] - 1}" for i in (0, 600, -1)]
    assert len(take_sample(rows(300))) == 300
    assert len(take_sample(iter(()))) == 0


def test_repetitions_are_counted_in_all_rows():
    once = rows(8_000)
    report = check_pairs(once + once[:2_000])
    (finding,) = report.findings
    assert (finding.name, finding.count, finding.line) == ("duplicates", 2_000, 8_001)
    assert take_sample(once + once[:2_000], most=1_500).repeated == [*range(8_001, 10_001)]


def test_no_more_than_a_million_rows_are_read():
    def endless():
        while True:
            yield "", ""

    assert take_sample(endless(), most=10, read=5_000).rows == 5_000
    assert READ == 1_000_000


def test_counts_are_those_of_the_corpus():
    pairs = [(f"{one} word", f"{two} wort") for one, two in rows(3_000)]
    for i in range(0, 3_000, 10):
        pairs[i] = (pairs[i][0], pairs[i][0])
    (finding,) = check_pairs(pairs).findings
    assert (finding.name, finding.count, finding.line, finding.fatal) == ("copies", 300, 1, False)


def test_labels_of_few_documents_are_labels():
    assert check_documents([(f"text {i}", str(i)) for i in range(5)]).fatal is None
    report = check_documents([(f"text {i}", str(i)) for i in range(50)])
    assert report.fatal is not None
    assert (report.fatal.name, report.fatal.count) == ("labels", 50)


def test_texts_alone():
    report = check_texts(["a &lt; b", "c", "c", "Fish & chips; AT&T"])
    assert [(each.name, each.count, each.line) for each in report.findings] == [
        ("duplicates", 1, 3),
        ("entities", 1, 1),
    ]


def test_a_large_corpus_takes_seconds():
    pairs = [(f"{one} " * 5, f"{two} " * 5) for one, two in rows(100_000)]
    began = time.process_time()
    check_pairs(pairs)
    assert time.process_time() - began < 5


# ---- scripts: lines in another script than the rest of their side


def test_letters_are_counted_by_script():
    texts = ["abc äß", "", "Да, yes", "日本語のテキスト", "한국어", "שלום", "123 ×÷ 😀"]
    counts = scripts_of(texts)
    found = [{SCRIPTS[i]: int(n) for i, n in enumerate(row) if n} for row in counts]
    assert found == [
        {"Latin": 5}, {}, {"Cyrillic": 2, "Latin": 3}, {"Chinese and Japanese": 8}, {"Korean": 3}, {"Hebrew": 4}, {},
    ]  # fmt: skip


def test_names_of_characters_agree():
    """Each letter that Unicode assigns to a script is counted as that script's."""
    words = {name.split()[0].upper(): name for name in SCRIPTS}
    words |= {"CJK": "Chinese and Japanese", "HIRAGANA": "Chinese and Japanese", "KATAKANA": "Chinese and Japanese"}
    words |= {"HANGUL": "Korean", "MYANMAR": "Burmese"}
    for code in range(0x20, 0x10000):
        character = chr(code)
        if unicodedata.category(character) not in ("Lu", "Ll", "Lo"):
            continue
        script = words.get(unicodedata.name(character, "").split(" ")[0])
        counts = scripts_of([character])[0]
        mine = [SCRIPTS[i] for i, n in enumerate(counts) if n]
        if script is not None and mine:
            assert mine == [script], hex(code)


def test_lines_of_another_script_are_found():
    few = ["Ein Satz.", "Это предложение", "noch einer" * 4, "и", "Ω = 5", "Ελληνικά λόγια"]
    assert find_foreign(few)[:2] == (["Latin", "Cyrillic"], [5])
    many = ["Ein Satz."] * 20 + ["Это предложение", "и так", "Да"]
    assert find_foreign(many) == (["Latin"], [20, 21], ["Cyrillic"])
    assert find_foreign([])[1] == find_foreign(["", "12"])[1] == []
    assert find_foreign(["Москва Moskva"] * 10)[1] == []  # a side with two scripts may use both


# ---- shifts


SHARED = Path(__file__).parents[3] / "shared" / "data"
SETS = {"multi30k": ("train.en.gz", "train.de.gz"), "europarl": ("train.en.gz", "train.de.gz")}
BUILT_IN = ("phrasebook", "numbers", "dates", "reverse", "sort", "copy")


def read(name: str, most: int = 30_000) -> tuple[list[str], list[str]]:
    """Read both sides of a real corpus; skip the test if it is missing."""
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
    """Each line answers the previous one."""
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
    """Of 60 lines one shift in twenty may be missed, of 200 and more none; no real corpus is called shifted."""
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
