"""Documents in pictures: each word in the colour of what it counts, punctuation by itself."""

from dataclasses import replace

import pytest
import torch
from inspection import exhibits

from regard.inspection import picture
from regard.inspection.collect.exhibit import Side
from regard.inspection.draw.colours import SEQUENTIAL
from regard.inspection.draw.picture import units_of


def shades(figure):
    """The colour behind each word."""
    return [
        (text.get_text(), patch.get_facecolor())
        for text, patch in zip(
            (text for text in figure.axes[0].texts if text.get_fontsize() == 9.5),
            (patch for patch in figure.axes[0].patches if str(patch.get_gid()).startswith("shade-")),
            strict=True,
        )
    ]


@pytest.mark.parametrize("most", [0.2, 0.7])
def test_a_word_has_the_colour_of_its_weight_and_a_full_stop_its_own(most):
    side = Side(("▁not", "▁b", "ad", "."), (0, 1, 1, 1), ("not", "bad."))
    weights = torch.tensor([[[0.1, 0.05, 0.05, most]]])
    view = exhibits.view("words", "words", "words", 0, "document", "source", weights, entropy=None)
    exhibit = replace(exhibits.han(), sides={"source": side}, views=(view,))
    drawn = shades(picture(exhibit))
    assert [word for word, _ in drawn] == ["not", "bad", "."]
    for (_, colour), share in zip(drawn, (0.1, 0.1, most), strict=True):
        assert colour == pytest.approx(SEQUENTIAL(share), abs=0.02)
    stretched = shades(picture(exhibit, stretch=True))
    assert stretched[-1][1] == pytest.approx(SEQUENTIAL(1.0), abs=0.02)
    assert stretched[0][1] == pytest.approx(SEQUENTIAL(0.1 / most), abs=0.02)


def test_units_keep_what_is_no_word_where_a_row_is_shown_whole():
    side = Side(("<s>", "▁b", "ad", ".", "</s>"), (None, 0, 0, 0, None), ("bad.",))
    assert units_of(side, 5, False) == ((None, 0, 0, 1, None), ["bad", "."])
    assert units_of(side, 5, False, whole=True) == ((0, 1, 1, 2, 3), ["<s>", "bad", ".", "</s>"])
    assert list(units_of(side, 5, True)[1]) == list(side.pieces)
