"""Pharaoh's format: there and back, and what it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.io.pharaoh import format_pharaoh, parse_pharaoh


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
