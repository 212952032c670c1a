"""Trees as arcs over words, and what a head looks at under them."""

import matplotlib.colors
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from regard.inspection import svg
from regard.inspection.draw.colours import FAINT, INK
from regard.inspection.draw.picture import LOOK, arc_levels, draw_dependencies

WORDS, HEADS, RELATIONS = ("She", "ate", "the", "pizza."), (1, -1, 3, 1), ("nsubj", "root", "det", "obj")


def looking(*at: int) -> torch.Tensor:
    weights = torch.full((len(at), len(at)), 0.1 / (len(at) - 1))
    for word, where in enumerate(at):
        weights[word, where] = 0.9
    return weights


def arcs_of(figure: Figure) -> list[tuple[str, str]]:
    """The colour and the dash of each arc, the tree's first."""
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]
    return [(matplotlib.colors.to_hex(patch.get_edgecolor()), patch.get_linestyle()) for patch in patches]


def test_arcs_that_meet_are_full_and_dark():
    figure = draw_dependencies(looking(1, 3, 0, 3), WORDS, HEADS, RELATIONS, "head 1")
    look = matplotlib.colors.to_hex(LOOK)
    # She at ate, as in the tree; ate at pizza, against the tree's arc; the at She, which is in no tree.
    tree, below = arcs_of(figure)[:3], arcs_of(figure)[3:]
    assert [colour for colour, _ in tree] == [INK, FAINT, INK]
    assert [colour for colour, _ in below] == [look] * 3
    assert [style == "solid" for _, style in below] == [True, True, False]
    written = [text.get_text() for text in figure.axes[0].texts]
    assert sorted(written) == sorted([*WORDS, "nsubj", "det", "obj", "root"])
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == list(WORDS)
    assert len([line for line in figure.axes[0].lines if line.get_markersize() == 4]) == 1  # pizza, at itself
    np.testing.assert_allclose(figure.axes[1].images[0].get_array(), looking(1, 3, 0, 3).numpy())
    assert svg(figure) == svg(draw_dependencies(looking(1, 3, 0, 3), WORDS, HEADS, RELATIONS, "head 1"))


@pytest.mark.parametrize("seed", range(20))
def test_arcs_never_run_along_one_another(seed):
    torch.manual_seed(seed)
    count = int(torch.randint(2, 12, ()))
    pairs = [(word, int(torch.randint(0, count, ()))) for word in range(count)]
    pairs = [(word, other) for word, other in pairs if word != other]
    levels = arc_levels(pairs)
    spans = [set(range(min(pair), max(pair))) for pair in pairs]
    for one in range(len(pairs)):
        for two in range(one):
            if spans[one] & spans[two]:
                assert levels[one] != levels[two], (seed, pairs[one], pairs[two])
            if spans[one] < spans[two]:
                assert levels[one] < levels[two], (seed, pairs[one], pairs[two])


def test_a_sentence_of_one_word():
    figure = draw_dependencies(torch.ones(1, 1), ["Go!"], [-1], [""], "head 1")
    assert [text.get_text() for text in figure.axes[0].texts] == ["Go!", "root"]
