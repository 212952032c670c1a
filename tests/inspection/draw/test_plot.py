"""Plots: curves, the score by length, colour scales, and pages."""

import re

import pytest
import torch
from inspection import exhibits
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from pages import read
from torch.testing import assert_close

from regard.evaluation import Lengths
from regard.evaluation.evaluation import Bucket
from regard.inspection import heatmap, picture
from regard.inspection.draw.plot import (
    BLUE,
    DARK,
    DIVERGING,
    SEQUENTIAL,
    Table,
    document,
    draw_lengths,
    figure_element,
    is_number,
    legend,
    panels,
    svg,
    svg_element,
    table_element,
)


def test_every_range_its_sentences_and_the_score_over_all_are_there():
    buckets = [
        Bucket(1, 9, 3, 51.0, None),
        Bucket(10, 19, 1280, 40.5, (38.0, 43.0)),
        Bucket(20, None, 44, 33.3, (30, 36)),
    ]
    figure = draw_lengths(Lengths("BLEU", "words", buckets, 39.4))
    words = svg(figure)
    for text in ("1–9", "10–19", "20+", "1,280", "44", "all 39.4", "BLEU by source length", "open: fewer than 10"):
        assert text in words, text
    (axes,) = figure.axes
    joined = axes.lines[-1]
    assert joined.get_ydata().tolist() == [40.5, 33.3]  # no line joins a point of only three sentences to the rest
    assert axes.get_ylim()[0] == 0
    one = svg(draw_lengths(Lengths("BLEU", "characters", buckets[1:2], 0.0), "A title"))
    assert "A title" in one
    assert "open:" not in one


def lightness(colour):
    """Return the lightness L* (CIE) of a colour."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    y = sum(part * each for part, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def bars(figure):
    return [axes for axes in figure.axes if axes.get_gid() == "scale"]


def limits(figure):
    return [axes.images[0].get_clim() for axes in figure.axes if axes.images and axes.get_gid() != "scale"]


def test_lightness_falls_in_equal_steps():
    steps = torch.tensor([lightness(SEQUENTIAL(k / 20)) for k in range(21)]).diff()
    assert_close(steps, steps.mean().expand_as(steps), atol=0.6, rtol=0)
    assert lightness(SEQUENTIAL(0.0)) - lightness(SEQUENTIAL(0.28)) > 15  # visible beside white
    assert lightness(DIVERGING(0.5)) == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize("most", [0.03, 0.28, 1.0])
@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 7), (4, 30, 40)])
def test_weights_have_one_scale_whatever_their_largest(shape, most):
    weights = torch.rand(shape)
    weights *= most / weights.max()
    absolute, stretched = heatmap(weights), heatmap(weights, stretch=True)
    assert set(limits(absolute)) == {(0.0, 1.0)}
    assert all(each == pytest.approx((0.0, most)) for each in limits(stretched))
    ((bar,), (other,)) = bars(absolute), bars(stretched)
    assert bar.get_xlabel() + bar.get_ylabel() == ""
    named = {0.03: ".03", 0.28: ".28", 1.0: "1"}[most]
    assert other.get_xlabel() + other.get_ylabel() == f"stretched: the largest is {named}"
    ends = [text.get_text() for text in [*other.get_xticklabels(), *other.get_yticklabels()]]
    assert ends[0] == "0"
    assert ends[-1] == named


def test_scores_beside_weights_keep_a_scale_of_their_own():
    scores = torch.tensor([[-3.0, 1.0], [5.0, 0.0]])
    figure = heatmap(torch.stack([scores, scores.softmax(-1), -scores / 2]))
    assert limits(figure) == [(-5.0, 5.0), (0.0, 1.0), (-5.0, 5.0)]
    assert len(bars(figure)) == 2
    assert limits(heatmap(torch.stack([scores, scores.softmax(-1)]), stretch=True))[0] == (-5.0, 5.0)


def test_rounding_past_one_is_still_a_weight():
    assert limits(heatmap([[1.0 + 3e-5, 0.2]])) == [(0.0, 1.0)]


def test_pictures_of_exhibits_have_bars():
    text = exhibits.transformer(layers=1, heads=2)
    drawings = [picture(text), picture(exhibits.captioner()), picture(exhibits.convnet()), picture(exhibits.han())]
    assert [len(bars(figure)) for figure in drawings] == [1, 1, 1, 1]


def test_the_same_weight_is_as_bright_in_every_caption():
    """The other weights of a map do not matter; with `stretch` the largest weight is brightest."""
    exhibit = exhibits.captioner()

    def veils(scale, **options):
        view = exhibit.views[0]
        exhibit_ = exhibits.replace_view(exhibit, view.weights * scale)
        return [axes.images[1].get_array() for axes in picture(exhibit_, **options).axes if len(axes.images) == 2]

    whole, tenth = veils(1.0), veils(0.1)
    assert all(one[..., 0].max() > other[..., 0].max() for one, other in zip(whole, tenth, strict=True))
    assert max(veil[..., 0].max() for veil in veils(0.1, stretch=True)) == pytest.approx(1.0)


# ---- pages


def test_a_document_is_whole():
    page = document('1 < 2 & "so"', ["<p>hello</p>"], ".mine { color: red; }")
    assert "hello" in read(page)
    assert "<title>1 &lt; 2 &amp; &quot;so&quot;</title>" in page
    assert page.index(".mine") < page.index("</style>")
    for said in ("prefers-color-scheme: dark", "@media print", 'name="viewport"', "charset"):
        assert said in page


def test_colours_are_given_over_and_words_are_not():
    words = [BLUE, 'id="x', "<b>&", "url(#y)", "--> <script>"]
    drawn = svg_element(heatmap(torch.eye(5), words, words), 3, alt='say "cheese"')
    text = read(document("t", [drawn]))
    for word in words:
        assert text.count(word) == 2
    tags = "".join(re.findall(r"<[^>]+>", drawn))
    assert not any(light in tags for light in DARK)
    assert "var(--c23272f)" in tags
    assert 'aria-label="say &quot;cheese&quot;"' in tags
    assert "<!--" not in drawn


def test_every_colour_has_a_partner_in_the_dark():
    page = document("t", [])
    for light, dark in DARK.items():
        assert page.count(f"--c{light[1:]}: {light};") == 1
        assert page.count(f"--c{light[1:]}: {dark};") == 1


def test_figures_of_one_page_do_not_share_names():
    def plot() -> Figure:
        made, (axes,) = panels(1, titles=["$x$ and $"])
        axes.plot([1, 2], [3, 4], color=BLUE, label="l")
        legend(axes)
        return made

    page = document("t", [figure_element(plot(), index, caption="<c>", alt="a") for index in ("-a", "-b")])
    assert "$x$ and $" in read(page)  # a title is text, not a formula
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))
    assert used <= set(re.findall(r'id="([^"]+)"', page))


@pytest.mark.parametrize("numeric", [None, [False, True]])
def test_tables(numeric):
    page = table_element(Table("A <caption>", ["name", "value"], [["<x>", 1.5], ["y", None]], note="n&m"), numeric)
    assert read(document("t", [page])).count("<x>") == 1
    assert page.count('class="number"') == 3


def test_numbers_are_told_from_words():
    numbers = (1, 2.5, None, "37.2", "37.2 ± 0.3", "−1.5 ± 0.7", "1,234", "98.2 ± 1.9 %", "–")
    words = ("", "LSTM", "n = 5", "1–10", "±", "3 of 5", "1.2.3")
    assert [each for each in (*numbers, *words) if is_number(each)] == list(numbers)


def test_a_column_of_numbers_and_one_of_words():
    table = Table("t", ["a", "b", "c"], [["x", "1.0 ± 0.2", 3], ["y", "2.0", None]])
    assert table.numeric() == [False, True, True]
