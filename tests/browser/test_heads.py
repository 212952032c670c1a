"""All heads at once in colours, a matrix of heads to choose from, and attention from and to a word."""

import pytest
from inspection import exhibits

from regard.inspection import page

pytestmark = pytest.mark.browser


def test_all_heads_are_drawn_in_colours(opened):
    exhibit = exhibits.transformer(layers=2, heads=4)
    tab = opened(page(exhibit))
    pair = tab.locator("[data-section=pair]")
    pair.locator(".choice [data-value=all]").check()
    colours = set(pair.locator(".rest path").evaluate_all("all => all.map((each) => getComputedStyle(each).stroke)"))
    assert len(colours) == 4
    pair.locator(".below .word").nth(7).hover()  # horse
    view = next(each for each in exhibit.views if each.name == exhibit.aligned)
    rows = [k for k, word in enumerate(exhibit.sides["written"].words) if word == 7]
    merged = view.weights[:, rows].mean(1)
    words = exhibit.sides["source"].words
    by_word = [merged[:, [k for k, each in enumerate(words) if each == word]].sum(-1) for word in range(15)]
    wanted = sum(int((each >= 0.03).sum()) for each in by_word)
    assert pair.locator(".live path").count() == pytest.approx(wanted, abs=1)  # weights are rounded to 256 steps
    chips = (
        pair.locator(".above .word")
        .nth(10)
        .locator(".chips span")
        .evaluate_all("all => all.map((each) => parseFloat(getComputedStyle(each).opacity))")
    )
    assert chips == pytest.approx([float(each) for each in by_word[10]], abs=0.02)
    said = pair.locator(".readout").inner_text()
    assert [f"head {k} " in said for k in range(1, 5)] == [True] * 4


def test_heads_are_hidden_and_shown(opened):
    tab = opened(page(exhibits.transformer(layers=1, heads=3)))
    pair = tab.locator("[data-section=pair]")
    pair.locator(".choice [data-value=all]").check()
    before = pair.locator(".rest path").count()
    second = pair.locator(".legend button").nth(1)
    second.click()
    assert second.get_attribute("aria-pressed") == "false"
    assert pair.locator(".rest path").count() < before
    colours = set(pair.locator(".rest path").evaluate_all("all => all.map((each) => getComputedStyle(each).stroke)"))
    assert len(colours) == 2
    second.click()
    assert pair.locator(".rest path").count() == before
    pair.locator(".choice [data-value='0']").check()
    assert pair.locator(".legend button").count() == 0


def test_a_head_is_picked_from_the_matrix(opened):
    tab = opened(page(exhibits.transformer(layers=2, heads=3)))
    pair = tab.locator("[data-section=pair]")
    pair.locator(".picker summary").click()
    pair.locator(".picker .multiple").nth(17).wait_for()  # the picker draws when it opens
    assert pair.locator(".picker .multiple").count() == 18
    pair.locator(".picker").get_by_label("encoder, layer 2, head 3").click()
    assert pair.locator("select").evaluate("node => node.selectedOptions[0].text") == "Encoder, layer 2"
    assert pair.locator("input:checked").get_attribute("data-value") == "2"
    pressed = pair.locator(".picker .multiple[aria-pressed=true]")
    assert pressed.count() == 1
    assert pressed.get_attribute("aria-label").startswith("encoder, layer 2, head 3")


def test_attention_to_a_word_of_a_long_text(opened):
    exhibit = exhibits.long(200)
    tab = opened(page(exhibit))
    pair = tab.locator("[data-section=pair]")
    pair.get_by_label("what looks at it").check()
    word = pair.locator(".word").nth(100)
    word.hover()
    said = pair.locator(".readout").inner_text()
    assert said.startswith(f"{exhibit.sides['source'].texts[100]} is looked at by ")
    column = exhibit.views[0].weights.mean(0)[:, 100]
    assert float(pair.locator(".readout b").first.inner_text()) == pytest.approx(float(column.max()), abs=0.01)
    pair.get_by_label("where it looks").check()
    word.hover()
    assert "looks at" in pair.locator(".readout").inner_text()
