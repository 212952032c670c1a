"""From rows to encoded pairs: which are dropped, and what is said of it."""

from collections import Counter

import pytest

from regard.data.rows import Reading, Rows, content
from regard.data.settings import DataSettings, TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train
from regard.errors import DataError
from regard.io import LONGEST

TEXTS = ["a b c d", "d c b a"]


@pytest.fixture(scope="module")
def tokenizers():
    return Tokenizers(train(TEXTS, "word"))


def reading(**data):
    return Reading(DataSettings(source=("a",), target=("b",), **data), TokenizerSettings(kind="word"))


def test_rows_that_are_blank_or_long_are_counted(tokenizers):
    counts = Counter()
    rows = [("a b", "b a"), ("", "a"), ("a", ""), ("a b c", "a"), ("a", "d c b"), ("c", "d")]
    made = reading(longest=2).encode(rows, None, tokenizers, counts)
    assert made.texts == [("a b", "b a"), ("c", "d")]
    assert [tokenizers.source.decode(ids) for ids in made.sources] == ["a b", "c"]
    assert [tokenizers.target.decode(ids) for ids in made.targets] == ["b a", "d"]
    assert counts == {"blank": 2, "long": 2}


def test_a_line_that_was_cut_is_no_pair(tokenizers):
    counts = Counter()
    assert reading().encode([("x" * LONGEST, "a")], None, tokenizers, counts).texts == []
    assert counts["long"] == 1


def test_a_tag_stands_before_the_source():
    tokenizers = Tokenizers(train([*TEXTS, "<to-b> a"], "word", tags=["<to-b>"]))
    made = reading().encode([("a", "b")], "<to-b>", tokenizers, Counter())
    assert made.texts == [("<to-b> a", "b")]
    assert len(made.sources[0]) == 2


def test_only_keeps_all_parts_together():
    rows = Rows([("a", "b"), ("c", "d"), ("e", "f")], [[1], [2], [3]], [[4], [5], [6]], [[], [(0, 0)], []])
    assert rows.only([False, True, False]) == Rows([("c", "d")], [[2]], [[5]], [[(0, 0)]])
    assert rows.only([True] * 3) == rows


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({"pairs": 1200, "valid": 0}, "1,200 pairs; none for validation"),
        (
            {"pairs": 5, "valid": 2, "blank": 1, "long": 3, "repeated": 0},
            "5 pairs; dropped 1 blank, 3 longer than 2 tokens; 2 held out for validation (by hash; give "
            "--valid-source and --valid-target to choose them)",
        ),
    ],
)
def test_the_summary_counts_what_was_dropped(counts, line):
    assert reading(longest=2).summary(counts, {}) == line


def test_a_file_is_known_by_its_bytes(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a\n")
    other.write_text("a\n")
    assert content(str(one)) == content(str(other))
    other.write_text("b\n")
    assert content(str(one)) != content(str(other))
    with pytest.raises(DataError, match="missing"):
        content(str(tmp_path / "missing"))
