"""What pages share: one file, nothing loaded, colours that follow light and dark, words that stay as they are."""

import re

import pytest
import torch
from matplotlib.figure import Figure
from pages import read

from regard.inspection import heatmap
from regard.inspection.draw.html import Table, document, figure_element, is_number, svg_element, table_element
from regard.inspection.draw.plot import BLUE, DARK, legend, panels


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


@pytest.mark.parametrize("cell", [1, 2.5, None, "37.2", "37.2 ± 0.3", "−1.5 ± 0.7", "1,234", "98.2 ± 1.9 %", "–"])
def test_numbers(cell):
    assert is_number(cell)


@pytest.mark.parametrize("cell", ["", "LSTM", "n = 5", "1–10", "±", "3 of 5", "1.2.3"])
def test_words(cell):
    assert not is_number(cell)


def test_a_column_of_numbers_and_one_of_words():
    table = Table("t", ["a", "b", "c"], [["x", "1.0 ± 0.2", 3], ["y", "2.0", None]])
    assert table.numeric() == [False, True, True]
