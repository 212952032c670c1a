"""Values and names in messages: one line, printable, and of readable length."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from regard.messages import CUT, did_you_mean, nearest_word, no_such, show_name, show_value, suggestion, visible

TABLES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(TABLES)
def test_any_value_is_one_printable_line(value):
    shown = show_value(value)
    assert shown.isprintable()
    assert len(shown) <= CUT


@given(st.text())
def test_a_name_is_one_printable_line(name):
    shown = show_name(name)
    assert shown.isprintable()
    assert shown == name or not name.isprintable() or (len(name) > CUT and shown.endswith("…"))


def test_values_are_shown_as_toml_writes_them():
    assert show_value({"a": [1, True, None], "b": "x\ny"}) == r'{a = [1, true, null], b = "x\ny"}'
    assert show_value(datetime.date(2014, 9, 1)) == "2014-09-01"
    assert show_value(10**100) == "a number of 101 digits"
    assert show_value([[[[1]]]]) == "[[[[…]]]]"


def test_what_moves_a_cursor_is_escaped():
    assert visible("a\x1b[2Jb\u2028") == r"a\x1b[2Jb\u2028"


def test_a_wrong_word_gets_the_one_that_was_meant():
    names = ["transformer", "rnnsearch", "luong"]
    assert suggestion("transfomer", names) == "; did you mean 'transformer'?"
    assert suggestion("xyz", names) == "; expected one of transformer, rnnsearch, luong"
    assert suggestion("xyz", map(str, range(31))) == ""
    assert did_you_mean("xyz", names) == ""
    assert did_you_mean("--stesp", ["--steps"], quoted=False) == "; did you mean --steps?"
    assert [nearest_word(name, names) for name in ("luogn", "xyz", None, 3)] == ["luong", None, None, None]
    assert no_such("kind", "luogn", names) == "\"luogn\" given, no such kind; did you mean 'luong'?"
    assert no_such("kind", 3, names[:2]) == "3 given, no such kind; expected one of transformer, rnnsearch"
