"""Edit distances against the quadratic table, and error rates worked by hand."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.edits import distance, error_rate, measure_errors
from regard.evaluation.text import exact

few = st.text("ab", max_size=12)
long = st.text("abc", min_size=55, max_size=140)  # past a machine word
any_text = st.text(max_size=30)


def table(one, other):
    """Wagner and Fischer 1974, cell by cell."""
    above = list(range(len(other) + 1))
    for i, x in enumerate(one, 1):
        row = [i]
        for j, y in enumerate(other, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


@given(st.one_of(st.tuples(few, few), st.tuples(long, long), st.tuples(few, long), st.tuples(any_text, any_text)))
def test_distance_is_the_tables(pair):
    assert distance(*pair) == table(*pair)


@given(
    st.lists(st.sampled_from(["a", "b", "cc", "a b"]), max_size=9), st.lists(st.sampled_from(["a", "cc"]), max_size=9)
)
def test_distance_of_lists(one, other):
    assert distance(one, other) == table(one, other) == distance(other, one)
    assert distance(one, one) == 0


def test_ten_thousand_pairs_in_a_moment():
    import random

    draw = random.Random(0)
    rows = [[draw.randrange(500) for _ in range(30)] for _ in range(10_000)]
    others = [[word if draw.random() < 0.6 else draw.randrange(500) for word in row] for row in rows]
    start = time.process_time()
    for row, other in zip(rows, others, strict=True):
        distance(row, other)
    assert time.process_time() - start < 3


def test_phonemes_with_several_pronunciations():
    """Three words, by hand: the second way to say the first; one phoneme of four is wrong; one is too much."""
    references = [("T AH M EY T OW", "T AH M AA T OW"), ("K AE T S",), ("R EH D", "R IY D")]
    outputs = ["T AH M AA T OW", "K AH T S", "R IY D Z"]
    score = error_rate(outputs, references)
    assert score.value == (0 + 1 + 1) / (6 + 4 + 3)
    assert (score.name, score.unit, str(score)) == ("token error rate", "share", "15.38%")
    assert score.signature.startswith("nrefs:var|case:mixed|unit:token|regard:")
    assert exact(outputs, references) == 1 / 3  # the word error rate is 2/3


def test_the_nearest_is_the_longest_of_those_with_the_fewest_edits():
    measured = measure_errors(["a b c"], [("a b", "a b c d", "x y z a b c")])
    assert measured.rows.tolist() == [[1, 4]]


def test_characters_with_their_spaces():
    assert error_rate(["ab  cd "], ["ab cd"], "character").value == 0
    assert error_rate(["abcd", ""], ["ab cd", "xyz"], "character").value == (1 + 3) / (5 + 3)
    assert error_rate(["Über"], ["über"], "character").value == 0.25
    assert error_rate(["Über"], ["über"], "character", lowercase=True).value == 0


def test_a_rate_can_exceed_one_and_nothing_is_no_error():
    assert error_rate(["a b c"], ["x"]).value == 3
    assert error_rate([""], [""]).value == 0
    assert error_rate(["a"], [""]).value == 1
    assert error_rate([], []).value == 0


def test_as_many_references_as_outputs():
    with pytest.raises(ValueError, match="shorter"):
        error_rate(["a", "b"], ["a"])
