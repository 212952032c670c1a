"""Outputs as they stand in a file: one line each, whatever is in them."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.io.formats import OutputFormat, format_pharaoh, json_number, parse_pharaoh, sample_line
from regard.run import Translation

FIRST = Translation("der Hund", -1.25, -2.5, ("▁der", "▁Hund"), True, ((0, 0), (1, 1)))
SECOND = Translation("ein Hund", -1.5, -3.0, ("▁ein", "▁Hund"), False)


def test_forms():
    both = [FIRST, SECOND]
    assert OutputFormat().lines(4, "the dog", both) == "der Hund\n"
    assert OutputFormat(scores=True).lines(4, "the dog", both) == "der Hund\t-1.2500\n"
    assert OutputFormat(alignment=True).lines(4, "the dog", both) == "der Hund\t0-0 1-1\n"
    assert OutputFormat(scores=True, alignment=True).lines(4, "the dog", both) == "der Hund\t-1.2500\t0-0 1-1\n"
    assert (
        OutputFormat(nbest=True).lines(4, "the dog", both) == "4 ||| der Hund ||| -1.2500\n4 ||| ein Hund ||| -1.5000\n"
    )
    assert OutputFormat(nbest=True, alignment=True).lines(0, "", [SECOND]) == "0 ||| ein Hund ||| -1.5000 ||| \n"
    assert json.loads(OutputFormat(as_json=True).lines(4, "the dog", [SECOND])) == {
        "source": "the dog",
        "translations": [
            {
                "text": "ein Hund",
                "score": -1.5,
                "log_prob": -3.0,
                "tokens": ["▁ein", "▁Hund"],
                "finished": False,
                "alignment": None,
            }
        ],
    }
    assert sample_line(SECOND) == "ein Hund\n"
    assert sample_line(SECOND, scores=True) == "ein Hund\t-3.0000\n"
    assert json.loads(sample_line(SECOND, as_json=True)) == {
        "text": "ein Hund",
        "log_prob": -3.0,
        "tokens": ["▁ein", "▁Hund"],
        "finished": False,
    }


@given(st.text(), st.booleans(), st.booleans(), st.booleans())
def test_an_output_is_one_line(text, scores, nbest, as_json):
    output = Translation(text, -math.inf, math.nan, (text,), True)
    line = OutputFormat(scores, False, nbest, as_json).lines(0, text, [output])
    assert line.count("\n") == 1
    assert line.endswith("\n")
    if as_json:
        row = json.loads(line)
        assert row["source"] == row["translations"][0]["text"] == text
        assert row["translations"][0]["score"] is row["translations"][0]["log_prob"] is None
    else:
        assert line.count("\t") == (scores and not nbest)
        assert "\r" not in line


def test_numbers_are_what_json_has():
    assert [json_number(each) for each in (0.12345678, -math.inf, math.nan)] == [0.123457, None, None]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=20))
def test_there_and_back(links):
    line = format_pharaoh(links)
    assert parse_pharaoh(line) == links
    assert line.count("-") == len(links)


def test_source_comes_first():
    assert format_pharaoh([(0, 0), (2, 1)]) == "0-0 2-1"
    assert parse_pharaoh("  0-0\t2-1\n") == [(0, 0), (2, 1)]


@pytest.mark.parametrize("text", ["1", "1-", "-1", "a-b", "0:1", "0-0 1–2", "1-2-3", "0-1 2", "1.0-2", "--1", "²-1"])
def test_what_is_not_is_named(text):
    with pytest.raises(DataError, match=r"expected source-target"):
        parse_pharaoh(text)
