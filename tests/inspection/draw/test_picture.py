"""Pictures of exhibits: the drawing of each kind agrees with its numbers."""

import itertools
import re
from dataclasses import replace

import matplotlib.colors
import numpy as np
import pytest
import torch
from inspection import exhibits
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from PIL import Image

from regard.attention import Attention, Dot, Heads
from regard.errors import ArgumentError, ShapeError
from regard.inspection import bars, heatmap, picture, save, svg
from regard.inspection.collect.exhibit import merge
from regard.inspection.draw import plot
from regard.inspection.draw.picture import LOOK, arc_levels, draw_dependencies, units_of
from regard.inspection.draw.plot import FAINT, INK, SEQUENTIAL, Drawing
from regard.tasks import Side

WORDS, HEADS, RELATIONS = ("She", "ate", "the", "pizza."), (1, -1, 3, 1), ("nsubj", "root", "det", "obj")


def drawn(axes):
    return torch.tensor(axes.images[0].get_array())


def names(axes):
    """Return the names of an image's rows, and of its columns."""
    return tuple([each.get_text() for each in labels] for labels in (axes.get_yticklabels(), axes.get_xticklabels()))


def test_a_pair_is_drawn_between_words():
    exhibit = exhibits.transformer(layers=2, heads=3)
    figure = picture(exhibit)
    rows, columns = exhibit.sides["written"], exhibit.sides["source"]
    view = next(view for view in exhibit.views if view.name == exhibit.aligned)
    assert names(figure.axes[0]) == (list(rows.texts), list(columns.texts))
    merged = merge(view.weights.mean(0), rows.words, columns.words)
    assert torch.allclose(drawn(figure.axes[0]).float(), merged, atol=1e-6)
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
    """Whether any two of the drawn texts overlap."""
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
    veil = figure.axes[1].images[1].get_array()[..., 3]  # of the first word: transparent where its weight is largest
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
    bars = [patch for patch in axes.patches if patch.get_x() == 0.1][1::2]  # each bar follows its frame
    assert [bar.get_width() for bar in bars] == pytest.approx((shares * 0.5).tolist())  # 1 is half an inch


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
    """Return each word with the colour behind it."""
    texts = (text.get_text() for text in figure.axes[0].texts if text.get_fontsize() == 9.5)
    boxes = (patch for patch in figure.axes[0].patches if str(patch.get_gid()).startswith("shade-"))
    return [(text, patch.get_facecolor()) for text, patch in zip(texts, boxes, strict=True)]


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
    alone = replace(side, words=(None,) * 5)  # pieces without words are drawn one by one
    assert list(units_of(alone, 5)[1]) == list(side.pieces)


def looking(*at: int) -> torch.Tensor:
    weights = torch.full((len(at), len(at)), 0.1 / (len(at) - 1))
    for word, where in enumerate(at):
        weights[word, where] = 0.9
    return weights


def arcs_of(figure: Figure) -> list[tuple[str, str]]:
    """Return the colour and line style of each arc, the tree's first."""
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]
    return [(matplotlib.colors.to_hex(patch.get_edgecolor()), patch.get_linestyle()) for patch in patches]


def test_arcs_that_meet_are_full_and_dark():
    figure = draw_dependencies(looking(1, 3, 0, 3), WORDS, HEADS, RELATIONS, "head 1")
    look = matplotlib.colors.to_hex(LOOK)
    # She attends to ate, as in the tree; ate to pizza, against the tree's arc; the to She, which no tree has.
    tree, below = arcs_of(figure)[:3], arcs_of(figure)[3:]
    assert [colour for colour, _ in tree] == [INK, FAINT, INK]
    assert [colour for colour, _ in below] == [look] * 3
    assert [style == "solid" for _, style in below] == [True, True, False]
    written = [text.get_text() for text in figure.axes[0].texts]
    assert sorted(written) == sorted([*WORDS, "nsubj", "det", "obj", "root"])
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == list(WORDS)
    assert len([line for line in figure.axes[0].lines if line.get_markersize() == 4]) == 1  # pizza attends to itself
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


# ---- heat maps


SOURCE = ["I", "ate", "pizza", "yesterday"]
TARGET = ["ich", "habe", "gestern", "Pizza", "gegessen"]


def weights(*shape):
    return torch.randn(*shape).mul(3).softmax(-1)


def test_one_matrix_has_its_words_and_its_numbers():
    given = weights(5, 4)
    axes, _ = heatmap(given, SOURCE, TARGET, title="additive").axes  # and the colour bar
    assert names(axes) == (TARGET, SOURCE)
    assert torch.equal(torch.tensor(axes.images[0].get_array()), given.double())
    written = {(round(t.get_position()[1]), round(t.get_position()[0])): float(t.get_text()) for t in axes.texts}
    assert written
    assert all(abs(given[i, j].item() - number) <= 0.00501 for (i, j), number in written.items())


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_picture_is_drawn_once_and_cut_as_if_it_were_drawn_twice(kind, tmp_path, monkeypatch):
    """Match matplotlib's own result, which draws once to measure; some texts stand outside their axes."""

    def write(name):
        curves, (axes,) = plot.panels(1, titles=["a title that is much longer than the panel below it"], width=2)
        axes.plot([1, 2, 3], [3, 1, 2], label="loss")
        axes.annotate("out of it", (3, 2), xytext=(50, 0), textcoords="offset points")
        plot.legend(axes)
        figures = heatmap(given, SOURCE, TARGET, title="additive"), curves
        return [save(figure, tmp_path / f"{name}-{i}.{kind}").read_bytes() for i, figure in enumerate(figures)]

    given, drawn = weights(2, 5, 4), []
    whole = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: drawn.append(self) or whole(self, renderer))
    once = write("once")
    assert len(drawn) == 2
    monkeypatch.setattr(Drawing, "draw", Figure.draw)
    assert write("twice") == once
    assert len(drawn) == 2 + 4


def test_a_word_without_end_leaves_room_for_the_picture():
    """matplotlib does not warn that no room is left for the axes."""
    figure = heatmap(weights(5, 4), ["x" * 2000, *SOURCE[1:]], ["y" * 2000, *TARGET[1:]])
    assert "yesterday" in svg(figure)
    assert "x" * 100 not in svg(figure)


def test_heads_become_small_multiples_with_the_rows_named_once():
    figure = heatmap(weights(3, 5, 4), SOURCE, TARGET)
    assert [axes.get_xlabel() for axes in figure.axes[:3]] == ["head 1", "head 2", "head 3"]
    assert names(figure.axes[0])[0] == TARGET
    assert set(names(figure.axes[1])[0]) == {""}
    named = heatmap(weights(2, 5, 4), title=["soft", "local"])
    assert [axes.get_xlabel() for axes in named.axes[:2]] == ["soft", "local"]


def test_a_look_is_taken_as_it_is():
    q, k = torch.randn(1, 5, 8), torch.randn(1, 4, 8)
    look = Attention(Dot()).look(q, k)
    drawn = heatmap(look, SOURCE, TARGET).axes[0].images[0].get_array()
    assert torch.equal(torch.tensor(drawn), look.weights[0].detach().double())
    heads = Heads(8, heads=2).look(q)
    assert len([axes for axes in heatmap(heads).axes if axes.images]) == 2


def test_a_darker_pixel_is_a_larger_weight(tmp_path):
    figure = heatmap([[0.0, 0.5, 1.0]])
    axes, bar = figure.axes
    for text in list(axes.texts):
        text.remove()
    bar.remove()
    row = np.asarray(Image.open(save(figure, tmp_path / "step.png")).convert("L"))
    middle = row[row.shape[0] * 4 // 5].astype(int)  # below the labels, through the cells
    centres = [middle[len(middle) * part // 8] for part in (2, 4, 6)]
    assert centres[0] > centres[1] > centres[2]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_numbers_give_the_same_bytes(tmp_path, suffix):
    given = weights(2, 5, 4)
    for name in "ab":
        heatmap(given, SOURCE, TARGET, path=tmp_path / f"{name}.{suffix}")
    first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
    assert first == second
    assert len(first) > 1000


def test_words_stay_words_in_svg_and_dollars_are_not_mathematics():
    text = svg(heatmap(weights(1, 3), ["$x$", "a_b^c", "<&>"], ["猫"]))
    assert "$x$" in text
    assert "a_b^c" in text
    assert "&lt;&amp;&gt;" in text
    assert "猫" in text


def test_signed_weights_use_another_map():
    below = heatmap([[-1.0, 2.0]]).axes[0].images[0]
    assert below.get_clim() == (-2.0, 2.0)
    assert heatmap([[0.0, 2.0]]).axes[0].images[0].get_clim() == (0.0, 2.0)
    assert heatmap([[0.0, 0.0]]).axes[0].images[0].get_clim() == (0.0, 1.0)


def test_a_large_matrix_has_a_scale_in_place_of_numbers():
    figure = heatmap(weights(40, 60))
    assert len(figure.axes) == 2
    assert not figure.axes[0].texts


@pytest.mark.parametrize(
    ("given", "source", "target", "said"),
    [
        (torch.rand(5), None, None, "weights"),
        (torch.rand(2, 2, 5, 4), None, None, "weights"),
        (torch.rand(0, 4), None, None, "weights"),
        (torch.rand(5, 4), SOURCE[:3], None, "source: 4 words"),
        (torch.rand(5, 4), None, SOURCE, "target: 5 words"),
        (torch.rand(5, 4), "abcd", None, "source: a sequence"),
        (torch.tensor([[float("nan")]]), None, None, "finite"),
    ],
)
def test_what_cannot_be_drawn_is_named(given, source, target, said):
    for draw in (heatmap, bars):
        with pytest.raises(ArgumentError, match=said):
            draw(given, source, target)


def test_an_unknown_suffix_and_too_few_titles_are_named(tmp_path):
    with pytest.raises(ArgumentError, match="gif"):
        heatmap([[1.0]], path=tmp_path / "a.gif")
    with pytest.raises(ShapeError, match="title"):
        heatmap(weights(3, 2, 2), title=["one"])


def test_bars_put_each_shade_under_its_word():
    header, *rows = bars(torch.eye(4), SOURCE, SOURCE).splitlines()
    for word, row in zip(SOURCE, rows, strict=False):
        assert row.split() == [word, "█" * max(len(word), 4)]
        assert row.index("█") == header.index(f" {word}") + 1


def test_bars_shade_by_size():
    row = bars([[0.0, 0.1, 0.3, 0.6, 0.9]], list("abcde"), ["x"]).splitlines()[1]
    assert row.split() == ["x", "░░░░", "▒▒▒▒", "▓▓▓▓", "████"]


def test_bars_fit_the_width_and_count_wide_letters():
    words = [f"word{index}" for index in range(10)]
    for width in (120, 80, 60):
        lines = bars(weights(10, 10), words, words, width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert all(any(word in line for line in lines) for word in words)
    header, row, *_ = bars([[0.0, 1.0]], ["猫猫猫", "cat"], ["é"]).splitlines()
    assert header.index("cat") + 3 == row.index("█")  # three letters, each two columns wide


def test_bars_of_a_long_sentence():
    source = ["A", "man", "in", "a", "blue", "shirt", "rides", "one", "brown", "horse"]
    source += ["along", "the", "beautiful", "sea", "."]
    target = [*map("Wort{}".format, range(14)), "Donaudampfschifffahrtsgesellschaft"]
    header, *rows = bars(torch.eye(15), source, target, width=100).splitlines()  # one line of words above the bars
    assert header.split() == source
    for index, row in enumerate(rows[:14]):
        assert row.split() == [target[index], "█" * max(2, len(source[index]))]
        assert row.index("█") == header.index(f" {source[index]} ") + 1
    assert rows[14].lstrip().startswith("Donaudampf")
    for width in (24, 40, 60, 80, 100):
        text = bars(torch.eye(40), [f"wort{index}" for index in range(40)], width=width)
        lines = text.splitlines()[:-1]
        assert max(map(len, lines)) <= width
        assert sum("█" in line for line in lines) == 40  # every column appears, each once
        assert all(re.search(rf"\bwort{index}\b", text) for index in range(40))


def test_bars_of_heads_follow_one_another():
    text = bars(weights(2, 2, 2))
    assert text.index("head 1") < text.index("head 2")
