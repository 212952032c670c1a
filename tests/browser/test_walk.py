"""A walk from x to the word in a real browser: parts and formulas of every sort of model, folded and unfolded."""

import pytest
from inspection.subjects import exhibit_of_subject

from regard.inspection import Which, page

pytestmark = pytest.mark.browser


def test_the_walk_folds_and_unfolds(opened):
    exhibit = exhibit_of_subject("transformer", walk=Which("decoder.blocks.0.attention", 1, 1))
    tab = opened(page(exhibit))
    walk = tab.locator("[data-section=walk]")
    stages = exhibit.walk.stages
    assert walk.locator("h3").all_inner_texts() == list(dict.fromkeys(stage.part for stage in stages))
    assert walk.locator(".stage").count() == len(stages)
    assert walk.locator(".stage[open]").count() == sum(stage.main for stage in stages)
    at = [stage.symbol for stage in stages].index("e masked")
    forbidden = walk.locator(".stage").nth(at).locator(".value")
    assert forbidden.all_inner_texts()[2:] == ["−∞"] * (len(stages[at].names) - 2)
    assert walk.locator(".stage").nth(at).locator(".shut").count() == len(stages[at].names) - 2
    assert "W" in walk.locator(".symbol", has=tab.locator("sub", has_text="Q")).first.inner_text()
    walk.get_by_role("button", name="Unfold all").click()
    assert walk.locator(".stage[open]").count() == len(stages)
    walk.get_by_role("button", name="Fold all").click()
    assert walk.locator(".stage[open]").count() == 0
    walk.locator(".stage summary").first.focus()
    tab.keyboard.press("Enter")
    assert walk.locator(".stage[open]").count() == 1


@pytest.mark.parametrize(
    ("name", "title", "lead", "formula"),
    [
        ("han", "From x to the label", "The document, words of each sentence.", ("sub", "w")),
        ("pointer", "From x to the word", "One word: ", ("sub", "j")),
        ("ntm", "From x to the word", "One word: ", ("sup", "c")),
    ],
)
@pytest.mark.parametrize("width", [1200, 375])
def test_every_walk_has_its_parts_and_its_formulas_and_fits(opened, name, title, lead, formula, width):
    exhibit = exhibit_of_subject(name, walk=True)
    tab = opened(page(exhibit))
    tab.set_viewport_size({"width": width, "height": 900})
    walk, stages = tab.locator("[data-section=walk]"), exhibit.walk.stages
    assert walk.locator("h2").inner_text() == title
    assert walk.locator(".lead").inner_text().startswith(lead)
    assert walk.locator("h3").all_inner_texts() == list(dict.fromkeys(stage.part for stage in stages))
    tag, text = formula
    assert walk.locator(f".symbol {tag}").get_by_text(text, exact=True).count() >= 1
    written = "".join(walk.locator(".symbol").all_inner_texts())
    assert "_" not in written
    assert "^" not in written
    while walk.get_by_role("button", name="Unfold all").count():
        walk.get_by_role("button", name="Unfold all").click()
    assert walk.locator(".stage[open]").count() == len(stages)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    wide = """[...document.querySelectorAll("[data-section=walk] summary, [data-section=walk] .line")].filter((each) =>
      each.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5).length"""
    assert tab.evaluate(wide) == 0


def test_of_many_places_the_walk_shows_those_with_the_largest_weights(opened):
    exhibit = exhibit_of_subject("convnet", walk=True)
    [view] = [each for each in exhibit.views if each.name == exhibit.walk.view]
    count = view.weights.shape[2]
    if count <= 32:
        pytest.skip(f"{count} places are all shown")
    walk = opened(page(exhibit)).locator("[data-section=walk]")
    assert walk.locator(".lead").inner_text().startswith("One place: ")
    stages = [k for k, stage in enumerate(exhibit.walk.stages) if len(stage.names) == count and stage.main]
    assert stages
    for k in stages:
        stage = walk.locator(".stage").nth(k)
        assert stage.locator(".line").count() == 12
        assert "The 12 with the largest weights." in stage.inner_text()
        stage.get_by_role("button", name=f"Show all {count}").press("Enter")
        assert stage.locator(".line").count() == count
    sums = exhibit.walk.stages[[stage.symbol for stage in exhibit.walk.stages].index("a")]
    shown = walk.locator(".stage").nth(exhibit.walk.stages.index(sums)).locator(".value").all_inner_texts()
    assert len(shown) == count
