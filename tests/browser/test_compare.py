"""Two side by side: drawings of one orientation, common words at one height, and a difference on a fixed scale."""

from dataclasses import replace

import pytest
from inspection import exhibits

from regard.inspection import page

pytestmark = pytest.mark.browser


def pair_of():
    """Two outputs of one source: one has a word more, and another word in one place."""
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
    assert darkest > 720  # of 765: almost the paper
