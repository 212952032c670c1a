"""Long inputs, long words and narrow windows: both sides are visible, and any shortened text can be unfolded."""

from dataclasses import replace

import pytest
from inspection import exhibits
from inspection.subjects import PAIRS, exhibit_of_subject, subject

from regard.inspection import dependency_trees, exhibit_of, page

pytestmark = pytest.mark.browser

WORD = "Donaudampfschifffahrtsgesellschaftskapitän"


def long_pair(words):
    source, target = ([*side * 20][:words] for side in (exhibits.GERMAN, exhibits.ENGLISH))
    return exhibits.transformer(source, target, links=list(range(words)), layers=1, heads=2, cut=())


@pytest.mark.parametrize("words", [80, 200])
@pytest.mark.parametrize("width", [1280, 400])
def test_source_and_output_are_in_sight_together(opened, words, width):
    tab = opened(page(long_pair(words)))
    tab.set_viewport_size({"width": width, "height": 900})
    pair = tab.locator("[data-section=pair]")
    tab.wait_for_selector(".panes")
    for at in (words - 1, 0):
        pair.locator(".below .word").nth(at).focus()
        tab.wait_for_function(  # the source scrolls to the word under attention
            """() => {
              const strongest = [...document.querySelectorAll(".above .word.lit")].sort((a, b) =>
                parseFloat(getComputedStyle(b).getPropertyValue("--w")) -
                parseFloat(getComputedStyle(a).getPropertyValue("--w")))[0];
              const looking = document.querySelector(".below .word.active");
              return [strongest, looking].every((each) => {
                const { top, bottom } = each.getBoundingClientRect();
                return top >= 0 && bottom <= innerHeight;
              });
            }"""
        )
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_all_heads_of_a_long_text_are_their_mean(opened):
    tab = opened(page(long_pair(80)))
    pair = tab.locator("[data-section=pair]")
    pair.locator(".choice [data-value=all]").check()
    assert "this is their mean" in pair.locator(".lead").inner_text()
    pair.locator(".below .word").first.focus()
    assert "looks at" in pair.locator(".readout").inner_text()


def test_words_of_a_map_are_unfolded(opened):
    target = [*exhibits.ENGLISH[:4], WORD, "oh"]
    tab = opened(page(exhibits.transformer(exhibits.GERMAN, target, links=[0] * 6, layers=1, heads=1, cut=())))
    heads = tab.locator("[data-section=heads] .large")
    names = heads.locator(".name.of-row")
    assert names.nth(4).text_content().endswith("…")
    heads.get_by_role("button", name="words in full").click()
    assert names.nth(4).text_content() == WORD
    assert heads.locator(".scroll").evaluate("each => each.scrollLeft") == 0
    assert names.nth(4).bounding_box()["x"] >= heads.bounding_box()["x"]
    heads.get_by_role("button", name="fewer letters").click()
    assert names.nth(4).text_content().endswith("…")


def test_a_long_text_is_unfolded(opened):
    exhibit = exhibits.han(sentences=40)
    tab = opened(page(exhibit))
    text = tab.locator("header .said dd span").first
    folded = text.bounding_box()["height"]
    tab.get_by_role("button", name="Show all of it").click()
    assert text.bounding_box()["height"] > 3 * folded
    assert text.inner_text() == exhibit.title
    tab.get_by_role("button", name="Show less").click()
    assert text.bounding_box()["height"] == folded


@pytest.mark.parametrize("width", [1280, 400])
def test_pieces_and_probabilities_of_the_search_do_not_collide(opened, width):
    tab = opened(page(exhibits.transformer(exhibits.GERMAN, [*exhibits.ENGLISH[:4], WORD, "oh"], links=[0] * 6,
                                           layers=1, heads=1, cut=())))  # fmt: skip
    tab.set_viewport_size({"width": width, "height": 900})
    search = tab.locator("[data-section=search]")
    boxes = """all => all.map((each) => {
      const { left, right, top, bottom } = each.getBoundingClientRect();
      return [each.textContent, left, right, top, bottom];
    })"""
    texts = search.locator(".nodes text").evaluate_all(boxes)
    assert WORD[4:] in [text for text, *_ in texts]  # its last piece
    for k, (text, left, right, top, bottom) in enumerate(texts):
        for other, left_, right_, top_, bottom_ in texts[k + 1 :]:
            assert not (left < right_ and left_ < right and top < bottom_ and top_ < bottom), (text, other)


def test_no_column_is_cut_at_four_hundred_pixels(opened):
    """Drawings and tables fit; only the search tree, which grows with its steps, scrolls."""
    example = PAIRS[3]
    tree = exhibit_of(
        subject("transformer"),
        example.source,
        longest=4,
        dependencies=dependency_trees.ParsedTree(example.source_heads),
    )
    for exhibit in (
        replace(exhibits.transformer(layers=2, heads=8), tree=None),
        replace(tree, tree=None),
        exhibits.han(),
        replace(exhibit_of_subject("rnnsearch"), tree=None),
    ):
        tab = opened(page(exhibit))
        tab.set_viewport_size({"width": 400, "height": 900})
        tab.wait_for_timeout(200)
        cut = tab.locator("section table").evaluate_all(
            """all => all.filter((each) => !each.closest("details:not([open])") &&
              each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.className)"""
        )
        assert cut == []


def test_the_candidates_of_a_step_fit_four_hundred_pixels(opened):
    tab = opened(page(exhibit_of(subject("transformer"), PAIRS[3].source, longest=4)))
    tab.set_viewport_size({"width": 400, "height": 900})
    tab.wait_for_timeout(200)
    table = tab.locator(".candidates")
    assert table.locator("tbody tr").count() > 3
    assert table.evaluate("each => each.getBoundingClientRect().right - innerWidth") <= 1


def test_what_a_hypothesis_said_so_far_is_not_broken_within_words_on_a_phone(opened):
    tab = opened(page(exhibits.transformer(layers=1, heads=1)))
    tab.set_viewport_size({"width": 400, "height": 900})
    search = tab.locator("[data-section=search]")
    search.get_by_label("next step").click()
    said = search.locator("tr.best .sofar")
    assert said.inner_text() == "The"
    assert said.bounding_box()["width"] > 75  # room for a word, where only two letters used to fit
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
