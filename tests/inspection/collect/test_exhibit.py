"""A view of an exhibit is found by its name or its title."""

import pytest
import torch

from regard.attention import Attention, Dot, GridAttention, GridSelfAttention
from regard.errors import ArgumentError, ShapeError
from regard.inspection.collect.exhibit import View, as_exhibit, exhibit_of_look, find_view


def view(name, role, title=""):
    return View(name, title or name, role, 0, "written", "source", torch.ones(1, 1, 1))


VIEWS = [view("a", "encoder"), view("b", "cross", "Decoder, layer 1"), view("c", "cross"), view("d", "decoder")]


def test_by_its_name_or_its_title():
    assert find_view(VIEWS, "a") is VIEWS[0]
    assert find_view(VIEWS, "decoder, LAYER 1") is VIEWS[1]


def test_by_default_it_is_the_last_to_the_source_or_to_a_memory():
    assert find_view(VIEWS, None) is VIEWS[2]
    assert find_view([*VIEWS, view("e", "memory")], None).name == "e"
    assert find_view([VIEWS[0], VIEWS[3]], None) is VIEWS[0]


def test_another_name_is_refused_with_those_there_are():
    with pytest.raises(ArgumentError, match="view: 'A' given, expected one of: Decoder, layer 1; c; d"):
        find_view(VIEWS[1:], "A")


def look(n=2, m=3, batch=(1,)):
    return Attention(Dot()).look(torch.randn(*batch, n, 4), torch.randn(*batch, m, 4), torch.randn(*batch, m, 4))


def test_words_name_rows_and_columns():
    seen = look()
    exhibit = exhibit_of_look(seen, ["a", "b", "c"], ["x", "y"])
    (view,) = exhibit.views
    assert (view.role, view.rows, view.columns) == ("cross", "written", "source")
    torch.testing.assert_close(view.weights, seen.weights)
    assert exhibit.sides["source"].texts == ("a", "b", "c")
    assert (exhibit.title, exhibit.output) == ("a b c", "x y")


def test_without_words_positions_are_counted():
    sides = exhibit_of_look(look()).sides
    assert sides["source"].texts == ("1", "2", "3")
    assert sides["written"].texts == ("1", "2")


def test_a_square_look_with_one_text_is_at_itself():
    exhibit = exhibit_of_look(look(3, 3), ["a", "b", "c"])
    assert exhibit.views[0].rows == exhibit.views[0].columns == "source"
    assert exhibit.views[0].role == "encoder"
    assert list(exhibit.sides) == ["source"]


def test_an_exhibit_is_taken_as_it_is():
    exhibit = exhibit_of_look(look())
    assert as_exhibit(exhibit, None, None) is exhibit
    with pytest.raises(ArgumentError, match="given with an exhibit, which has its own words"):
        as_exhibit(exhibit, ["a"], None)
    with pytest.raises(ArgumentError, match="str given, expected an Exhibit or a Look"):
        as_exhibit("look", None, None)


@pytest.mark.parametrize(
    ("make", "words", "error", "message"),
    [
        (lambda: look(batch=(2, 1)), None, ShapeError, r"got weights of \[2, 1, 2, 3\]"),
        (look, ["a"], ShapeError, "source: 3 words were expected, one for each source position, got 1"),
        (look, "abc", ArgumentError, "source: a sequence of words was expected, got one string"),
    ],
)
def test_what_cannot_be_shown_is_refused(make, words, error, message):
    with pytest.raises(error, match=message):
        exhibit_of_look(make(), words)


def test_places_of_a_grid_are_the_columns():
    seen = GridAttention(Attention(Dot())).look(torch.randn(1, 2, 4), torch.randn(1, 4, 3, 5))
    exhibit = exhibit_of_look(seen)
    assert exhibit.sides["places"].grid == (3, 5)
    torch.testing.assert_close(exhibit.views[0].weights, seen.weights.flatten(-2))
    own = exhibit_of_look(GridSelfAttention(8).look(torch.randn(1, 8, 3, 5)))
    assert own.views[0].role == "places"
    assert own.views[0].weights.shape == (1, 15, 15)
