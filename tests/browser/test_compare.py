"""Comparisons: both drawings have one orientation, common words align, and differences have a fixed scale."""

from dataclasses import replace

import pytest
from inspection import exhibits
from inspection.subjects import exhibit_of_subject

from regard.inspection import page

pytestmark = pytest.mark.browser


def pair_of():
    """Return two exhibits of one source: one output has an extra word and one different word."""
    said = [*exhibits.ENGLISH[:3], "gladly", *exhibits.ENGLISH[3:7], "pony", *exhibits.ENGLISH[8:]]
    links = [*exhibits.LINKS[:3], 3, *exhibits.LINKS[3:]]
    one = exhibits.transformer(layers=1, heads=1)
    return one, exhibits.transformer(target=said, links=links, layers=2, heads=4, seed=4)


def heights(tab, column, edge):
    words = tab.locator(".column").nth(column).locator(f"[data-section=pair] .{edge} .word")
    return words.evaluate_all("all => all.map((each) => [each.innerText, each.getBoundingClientRect().top])")


@pytest.mark.parametrize("width", [1280, 1920])
def test_words_that_both_wrote_stand_at_one_height(opened, width):
    tab = opened(page(*pair_of()[:1], against=pair_of()[1]))
    tab.set_viewport_size({"width": width, "height": 900})
    tab.wait_for_function("document.querySelectorAll('.pair.down').length === 2")
    one, two = (heights(tab, column, "below") for column in (0, 1))
    assert [word for word, _ in two] == [
        *exhibits.ENGLISH[:3],
        "gladly",
        *exhibits.ENGLISH[3:7],
        "pony",
        *exhibits.ENGLISH[8:],
    ]
    both = [*range(3), *range(4, 8), *range(9, 17)]  # without gladly and pony
    shared = [each for each in one if each[0] != "horse"]
    for (word, top), place in zip(shared, both, strict=True):
        assert two[place][0] == word
        assert two[place][1] == pytest.approx(top, abs=1)
    assert heights(tab, 0, "above") == [[word, pytest.approx(top, abs=1)] for word, top in heights(tab, 1, "above")]


def test_both_lie_or_both_stand(opened):
    short = exhibits.transformer(
        exhibits.GERMAN[:4], exhibits.ENGLISH[:4], links=[0, 1, 2, 3], layers=1, heads=1, cut=()
    )
    long = exhibits.transformer(exhibits.GERMAN[:4], exhibits.ENGLISH[:12], links=[0] * 12, layers=1, heads=1, cut=())
    layouts = (
        "[...document.querySelectorAll('[data-section=pair] > .pair')].map((each) => each.className.split(' ')[1])"
    )
    tab = opened(page(short, against=long))
    assert tab.evaluate(layouts) == ["down", "down"]
    tab = opened(page(short, against=replace(short, run="another")))
    assert tab.evaluate(layouts) == ["across", "across"]


def test_a_small_difference_looks_small(opened):
    one = exhibits.transformer(layers=1, heads=1)
    view = one.views[-1]
    near = replace(one, run="another", views=(*one.views[:-1], replace(view, weights=view.weights * 0.97)))
    tab = opened(page(one, against=near))
    compare = tab.locator("[data-section=compare]")
    assert compare.locator(".scale-row").inner_text().split()[:2] == ["−1", "1"]
    darkest = compare.locator(".cells").evaluate(
        """canvas => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const light = (_, k) => data[4 * k] + data[4 * k + 1] + data[4 * k + 2];
          return Math.min(...Array.from({ length: data.length / 4 }, light));
        }"""
    )
    assert darkest > 720  # of 765: almost the colour of the paper


def test_two_models_differ_where_they_do(opened):
    one = exhibits.transformer(layers=1, heads=1)
    said = [*exhibits.ENGLISH[:7], "pony", *exhibits.ENGLISH[8:]]
    other = exhibits.transformer(target=said, links=exhibits.LINKS, layers=2, heads=2, seed=4)
    tab = opened(page(one, against=other))
    compare = tab.locator("[data-section=compare]")
    assert compare.locator("mark").all_inner_texts() == ["horse", "pony"]
    assert tab.locator(".column").count() == 2
    assert tab.locator("[data-section=pair]").count() == 2
    assert compare.locator(".heat").count() == 1
    apart = compare.locator("tbody tr").count()
    assert tab.locator(".column:first-child .word.differs").count() == apart


def test_two_outputs_without_a_common_word(opened):
    one = exhibits.transformer(layers=1, heads=1)
    said = [f"{word}x" for word in exhibits.ENGLISH]
    other = exhibits.transformer(target=said, links=exhibits.LINKS, layers=1, heads=1, seed=4)
    compare = opened(page(one, against=other)).locator("[data-section=compare]")
    assert compare.locator("p.readout").first.inner_text() == "There are no words that both wrote."


def test_two_outputs_that_look_alike(opened):
    one = exhibits.transformer(layers=1, heads=1)
    compare = opened(page(one, against=replace(one, run="another"))).locator("[data-section=compare]")
    words = "Each of the 16 words that both wrote looks most at the same place in A and B."
    assert compare.locator("p.readout").first.inner_text() == words


@pytest.mark.parametrize("width", [1000, 1280, 1920])
def test_numbers_fit_beside_each_other(opened, width):
    one = exhibit_of_subject("transformer")
    tab = opened(page(one, against=replace(one, run="another")))
    tab.set_viewport_size({"width": width, "height": 900})
    tables = tab.locator("[data-section=numbers] .scroll")
    assert tables.count() == 2
    assert tables.evaluate_all("all => all.map((each) => each.scrollWidth <= each.clientWidth)") == [True, True]


def test_one_model_on_two_inputs(opened):
    """The page opens at the head that attends to the deciding word, and marks that word."""
    long = exhibits.encoder(["This", "pizza", "is", "not", "too", "bad", "."])
    tab = opened(page(long, against=exhibits.encoder(["This", "pizza", "is", "bad", "."], seed=3)))
    header, compare = tab.locator("header.both"), tab.locator("[data-section=compare]")
    assert header.locator(".eyebrow").inner_text().lower() == "one model on two inputs"
    assert header.locator("mark").all_inner_texts() == ["not", "too"]
    assert compare.locator("mark").all_inner_texts() == ["positive", "negative"]
    assert compare.locator("select").evaluate("(node) => node.selectedOptions[0].text") == "Encoder, layer 1"
    assert compare.locator("input:checked").get_attribute("data-value") == "1"
    assert compare.locator("caption").inner_text() == "5 of 5 words of both look elsewhere"
    seen = compare.locator("tbody tr", has_text="bad").locator("td").first.inner_text()
    assert seen.startswith("not ")
    at = float(seen.split()[1])
    assert at == pytest.approx(float(long.views[0].weights[1, 5, 3]), abs=0.01)
    compare.locator("select").select_option(index=1)
    assert not compare.locator("tbody tr", has_text="bad").locator("td").first.inner_text().startswith("not .9")
    for column in (0, 1):  # both show the same head
        checked = tab.locator(".column").nth(column).locator("[data-section=pair] input:checked")
        assert checked.get_attribute("data-value") == "1"
    for width in (1200, 400):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_two_documents_say_what_counted(opened):
    one, two = exhibits.han(sentences=2, length=6), exhibits.han(sentences=2, length=6, seed=4)
    table = opened(page(one, against=two)).locator("[data-section=compare] table").first
    assert table.locator("caption").inner_text() == "How much a word counts in its sentence"
    for number, each in enumerate((one, two)):
        figures = table.locator(f"td:nth-of-type({number + 1})").all_inner_texts()
        counted = [
            (word, text) for word, text in zip(table.locator("th[scope=row]").all_inner_texts(), figures, strict=True)
        ]
        counted = [(word, float(text)) for word, text in counted if text != "–"]
        assert [word for word, _ in counted] == list(each.sides["source"].texts)
        assert [w for _, w in counted] == pytest.approx(each.views[0].weights[0, 0].tolist(), abs=0.01)
