"""Pictures of exhibits: what each kind is drawn as, against the numbers it is drawn from."""

import itertools
from dataclasses import replace

import matplotlib.colors
import numpy as np
import pytest
import torch
from inspection import exhibits
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle

from regard.attention import Attention, Dot
from regard.errors import ArgumentError
from regard.inspection import picture, save, svg
from regard.inspection.collect.exhibit import merge
from regard.inspection.draw.picture import LOOK, arc_levels, draw_dependencies, units_of
from regard.inspection.draw.plot import FAINT, INK, SEQUENTIAL
from regard.tasks import Side

WORDS, HEADS, RELATIONS = ("She", "ate", "the", "pizza."), (1, -1, 3, 1), ("nsubj", "root", "det", "obj")


def drawn(axes):
    return torch.tensor(axes.images[0].get_array())


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()], [
        label.get_text() for label in axes.get_xticklabels()
    ]


def test_a_pair_is_drawn_between_words():
    exhibit = exhibits.transformer(layers=2, heads=3)
    figure = picture(exhibit)
    rows, columns = exhibit.sides["written"], exhibit.sides["source"]
    view = next(view for view in exhibit.views if view.name == exhibit.aligned)
    assert names(figure.axes[0]) == (list(rows.texts), list(columns.texts))
    assert torch.allclose(
        drawn(figure.axes[0]).float(), merge(view.weights.mean(0), rows.words, columns.words), atol=1e-6
    )
    assert names(picture(replace(exhibit, offset=1)).axes[0])[0] == list(exhibit.sides["read"].texts)


def test_a_view_is_drawn_with_all_heads_or_one():
    exhibit = exhibits.transformer(layers=1, heads=3)
    name = exhibit.views[0].name
    assert sum(bool(axes.images) for axes in picture(exhibit, view=name).axes[:3]) == 3
    one = picture(exhibit, view=name, head=2)
    words = exhibit.sides["source"].words
    assert torch.allclose(drawn(one.axes[0]).float(), merge(exhibit.views[0].weights[2], words, words), atol=1e-6)
    with pytest.raises(ArgumentError, match="head 4: "):
        picture(exhibit, view=name, head=3)
    with pytest.raises(ArgumentError, match="'else' is not one of"):
        picture(exhibit, view="else")


def overlap(figure, texts):
    """Whether any two of the texts lie over one another, as they are drawn."""
    boxes = [each.get_window_extent(figure.canvas.get_renderer()) for each in texts]
    return any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("words", [4, 15])
@pytest.mark.parametrize("heads", [2, 4, 8])
def test_heads_have_one_title_and_their_numbers(heads, words):
    exhibit = exhibits.transformer(exhibits.GERMAN[:words], exhibits.GERMAN[:words], layers=1, heads=heads, cut=())
    figure = picture(exhibit, view=exhibit.aligned)
    FigureCanvasAgg(figure).draw()
    panels = figure.axes[:heads]
    assert figure.get_suptitle() == "decoder, layer 1, to the source"
    assert [axes.get_xlabel() for axes in panels] == [f"head {k + 1}" for k in range(heads)]
    assert not overlap(figure, [axes.xaxis.label for axes in panels])
    if heads == 4:
        assert len({round(axes.get_position().x0, 3) for axes in panels}) == 2
        assert len({round(axes.get_position().y0, 3) for axes in panels}) == 2


def test_windows_and_picks_are_marked():
    exhibit = exhibits.luong()
    sides = {name: replace(side, words=(None,) * len(side.words)) for name, side in exhibit.sides.items()}  # as pieces
    lines = picture(replace(exhibit, sides=sides)).axes[0].lines
    centres = [float(line.get_xdata()[0]) for line in lines if line.get_marker() == "D"]
    last = len(exhibit.sides["source"].pieces) - 0.5
    assert centres == pytest.approx(exhibit.views[0].centre[0].clamp(max=last).tolist(), abs=1e-4)
    merged = [float(line.get_xdata()[0]) for line in picture(exhibit).axes[0].lines if line.get_marker() == "D"]
    assert all(-0.5 <= place <= len(exhibits.GERMAN) - 0.5 for place in merged)


def test_a_caption_is_a_film_strip():
    exhibit = exhibits.captioner()
    figure = picture(exhibit)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == list(exhibit.sides["written"].texts)
    assert (figure.axes[0].images[0].get_array() == exhibit.picture.movedim(0, -1).numpy()).all()
    veil = figure.axes[1].images[1].get_array()[..., 3]  # of the first word: clear where it looked most
    at = int(veil.argmin())
    assert at == int(exhibit.views[0].weights[0, 0].argmax())


def test_places_and_documents():
    assert len([axes for axes in picture(exhibits.convnet()).axes if len(axes.images) == 2]) == 5
    document = exhibits.han()
    axes, scale = picture(document).axes
    assert scale.get_xlabel() == "√(sentence) × word"
    said = [text.get_text() for text in axes.texts][: len(document.sides["source"].texts)]
    assert said == list(document.sides["source"].texts)
    assert sum(isinstance(patch, Rectangle) for patch in axes.patches) == len(said) + 2 * 6
    shares = exhibits.han().views[1].weights[0, 0]
    bars = [patch for patch in axes.patches if patch.get_x() == 0.1][1::2]  # each behind its frame
    assert [bar.get_width() for bar in bars] == pytest.approx((shares * 0.5).tolist())  # half an inch is 1


@pytest.mark.parametrize("make", [exhibits.odd, exhibits.captioner, exhibits.convnet, exhibits.han])
def test_it_is_written_for_papers(make, tmp_path):
    figure = picture(make(), path=tmp_path / "look.png")
    save(figure, tmp_path / "look.svg")
    for kind in ("png", "svg"):
        assert (tmp_path / f"look.{kind}").stat().st_size > 2000


def test_words_are_words_in_a_drawing():
    text = svg(picture(exhibits.odd()))
    assert "&lt;script&gt;" in text
    assert "<script>" not in text


def test_a_look_is_drawn_with_its_words():
    look = Attention(Dot()).look(torch.randn(2, 8), torch.randn(4, 8), torch.randn(4, 8))
    figure = picture(look, list("abcd"), list("xy"))
    assert names(figure.axes[0]) == (list("xy"), list("abcd"))
    assert torch.allclose(drawn(figure.axes[0]), look.weights.double(), atol=1e-6)


def test_nothing_to_draw_is_said():
    with pytest.raises(ArgumentError, match="rnn without attention"):
        picture(exhibits.without())


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
    assert units_of(side, 5) == ((None, 0, 0, 1, None), ["bad", "."])
    assert units_of(side, 5, whole=True) == ((0, 1, 1, 2, 3), ["<s>", "bad", ".", "</s>"])
    alone = replace(side, words=(None,) * 5)  # of pieces that are no words, each is drawn by itself
    assert list(units_of(alone, 5)[1]) == list(side.pieces)


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
