"""Heat maps and shaded bars: what is drawn is what was given, and nobody else's figures are touched."""

import re

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from regard.attention import Attention, Dot, Heads
from regard.errors import ArgumentError, ShapeError
from regard.inspection import bars, heatmap, save, svg
from regard.inspection.draw import plot
from regard.inspection.draw.plot import Drawing

SOURCE = ["I", "ate", "pizza", "yesterday"]
TARGET = ["ich", "habe", "gestern", "Pizza", "gegessen"]


def weights(*shape):
    return torch.randn(*shape).mul(3).softmax(-1)


def labels(axes):
    return [text.get_text() for text in axes.get_xticklabels()], [text.get_text() for text in axes.get_yticklabels()]


def test_one_matrix_has_its_words_and_its_numbers():
    given = weights(5, 4)
    axes, _ = heatmap(given, SOURCE, TARGET, title="additive").axes  # and the bar of its colours
    assert labels(axes) == (SOURCE, TARGET)
    assert torch.equal(torch.tensor(axes.images[0].get_array()), given.double())
    written = {(round(t.get_position()[1]), round(t.get_position()[0])): float(t.get_text()) for t in axes.texts}
    assert written
    assert all(abs(given[i, j].item() - number) <= 0.00501 for (i, j), number in written.items())


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_picture_is_drawn_once_and_cut_as_if_it_were_drawn_twice(kind, tmp_path, monkeypatch):
    """As matplotlib does it, which draws for the measures first; with words that stand out of their axes."""

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
    """Without a warning of matplotlib's that nothing is left to be drawn in."""
    figure = heatmap(weights(5, 4), ["x" * 2000, *SOURCE[1:]], ["y" * 2000, *TARGET[1:]])
    assert "yesterday" in svg(figure)
    assert "x" * 100 not in svg(figure)


def test_heads_become_small_multiples_with_the_rows_named_once():
    figure = heatmap(weights(3, 5, 4), SOURCE, TARGET)
    assert [axes.get_xlabel() for axes in figure.axes[:3]] == ["head 1", "head 2", "head 3"]
    assert labels(figure.axes[0])[1] == TARGET
    assert set(labels(figure.axes[1])[1]) == {""}
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
    source, target = (
        [*source, "along", "the", "beautiful", "sea", "."],
        [*map("Wort{}".format, range(14)), "Donaudampfschifffahrtsgesellschaft"],
    )
    header, *rows = bars(torch.eye(15), source, target, width=100).splitlines()  # one line of words above
    assert header.split() == source
    for index, row in enumerate(rows[:14]):
        assert row.split() == [target[index], "█" * max(2, len(source[index]))]
        assert row.index("█") == header.index(f" {source[index]} ") + 1
    assert rows[14].lstrip().startswith("Donaudampf")
    for width in (24, 40, 60, 80, 100):
        text = bars(torch.eye(40), [f"wort{index}" for index in range(40)], width=width)
        lines = text.splitlines()[:-1]
        assert max(map(len, lines)) <= width
        assert sum("█" in line for line in lines) == 40  # every column is somewhere, each once
        assert all(re.search(rf"\bwort{index}\b", text) for index in range(40))


def test_bars_of_heads_follow_one_another():
    text = bars(weights(2, 2, 2))
    assert text.index("head 1") < text.index("head 2")
