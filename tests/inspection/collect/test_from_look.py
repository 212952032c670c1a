"""A look by itself as an exhibit: one example, its words, a side a kind of key."""

import pytest
import torch

from regard.attention import Attention, Dot, GridAttention, GridSelfAttention
from regard.errors import ArgumentError, ShapeError
from regard.inspection.collect.exhibit import as_exhibit, exhibit_of_look


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
