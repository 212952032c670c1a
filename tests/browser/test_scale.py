"""A weight has one colour on every page: the colour bar from 0 to 1, and the switch that stretches it."""

from dataclasses import replace
from importlib import resources

import pytest
import torch
from inspection import exhibits

from regard.inspection import page
from regard.tasks import Side

pytestmark = pytest.mark.browser

DARKEST = """canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height),
    context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const light = (_, k) => data[4 * k] + data[4 * k + 1] + data[4 * k + 2];
  return Math.min(...Array.from({ length: data.length / 4 }, light));
}"""
SHADES = "all => all.map((each) => parseFloat(each.style.getPropertyValue('--w')))"
KINDS = {
    "transformer": ("heads", lambda: exhibits.transformer(layers=1, heads=2)),
    "luong": ("heads", exhibits.luong),
    "captioner": ("caption", lambda: exhibits.captioner(heads=2)),
    "han": ("document", exhibits.han),
    "convnet": ("places", exhibits.convnet),
    "long": ("heads", lambda: exhibits.long(120)),
}


def scaled(most):
    """Return an exhibit of one head with weights `most` · exp(-|i - j|) over four words; they are no distribution."""
    near = torch.exp(-(torch.arange(4)[:, None] - torch.arange(4)).abs().float())
    side = exhibits.side(["one", "two", "three", "four"])
    view = exhibits.view("cross", "to the source", "cross", 0, "written", "source", most * near[None], entropy=None)
    made = exhibits.luong()
    return replace(made, sides={"source": side, "written": side}, views=(view,), aligned="cross", tree=None, walk=None)


def ends(tab, section):
    return tab.locator(f"[data-section={section}] .scale-row").last.inner_text().split()


def test_the_same_weight_has_the_same_colour(opened):
    """The other weights of the map do not matter; stretched, the largest weight is darkest and the bar names it."""
    darkest = {}
    for most in (0.28, 1.0):
        tab = opened(page(scaled(most)))
        cells = tab.locator("[data-section=heads] .cells")
        assert ends(tab, "heads") == ["0", "1"]
        darkest[most] = cells.evaluate(DARKEST)
        tab.locator("input.stretch").check()
        assert cells.evaluate(DARKEST) == pytest.approx(11 + 60 + 111, abs=6)
        largest = {0.28: ".28", 1.0: "1"}[most]
        assert ends(tab, "heads") == ["0", largest, "stretched:", "the", "largest", "is", largest]
    assert darkest[1.0] == pytest.approx(11 + 60 + 111, abs=6)
    assert 560 < darkest[0.28] < 700  # of 765: visible on the paper, and far from the colour of 1


def test_a_word_is_shaded_by_its_weight(opened):
    for most in (0.28, 1.0):
        tab = opened(page(scaled(most)))
        tab.locator("[data-section=pair] .below .word").nth(1).focus()
        words = tab.locator("[data-section=pair] .above .word")
        wanted = most * torch.exp(-(torch.arange(4) - 1).abs().float())
        assert words.evaluate_all(SHADES) == pytest.approx(wanted.tolist(), abs=0.01)
        tab.keyboard.press("s")
        assert tab.locator("input.stretch").is_checked()
        tab.locator("[data-section=pair] .below .word").nth(1).focus()
        assert words.evaluate_all(SHADES) == pytest.approx((wanted / most).tolist(), abs=0.01)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_a_bar_and_the_switch(opened, name):
    section, make = KINDS[name]
    tab = opened(page(make()))
    assert ends(tab, section)[:2] == ["0", "1"]
    switch = tab.get_by_role("checkbox", name="Stretch colours")
    switch.focus()
    tab.keyboard.press("Space")
    assert float(ends(tab, section)[1]) < 1.0 or section == "heads"
    assert "stretched" in tab.locator(f"[data-section={section}]").inner_text()
    assert "stretch=1" in tab.url
    tab.reload()  # the page remembers it like the other settings
    tab.wait_for_selector("html[data-ready]", state="attached")
    assert switch.is_checked()
    assert "stretched" in tab.locator(f"[data-section={section}]").inner_text()


def test_a_page_opens_stretched_and_says_when_it_is_no_more(opened):
    tab = opened(page(scaled(0.5), stretch=True))
    switch = tab.locator("input.stretch")
    assert switch.is_checked()
    switch.uncheck()
    tab.reload()
    tab.wait_for_selector("html[data-ready]", state="attached")
    assert not switch.is_checked()


def test_scores_keep_a_scale_of_their_own(opened):
    tab = opened(page(scaled(-3.0)))
    assert ends(tab, "heads") == ["−3", "3"]
    tab.locator("input.stretch").check()
    assert ends(tab, "heads") == ["−3", "3"]


def test_a_lecture_has_bar_and_switch(opened):
    tab = opened(page(scaled(0.5)))
    tab.locator("[data-section=heads]").get_by_label("Fill the window").click()
    tab.locator(".lecture .close input.stretch").check()
    assert ends(tab, "heads")[1] == ".50"
    tab.keyboard.press("s")
    assert ends(tab, "heads") == ["0", "1"]
    tab.keyboard.press("Escape")
    assert tab.locator("input.stretch").count() == 1


def test_punctuation_is_a_word_of_its_own(opened):
    """A full stop that takes all weight does not darken the word before it; a link counts the words of the text."""
    pieces = ("▁not", "▁b", "ad", ".", "▁(", "well", ")", ".")
    words = (0, 1, 1, 1, 2, 2, 2, 2)
    side = Side(pieces, words, ("not", "bad.", "(well)."))
    weights = torch.tensor([[[0.1, 0.05, 0.05, 0.6, 0.05, 0.05, 0.05, 0.05]]])
    view = exhibits.view("words", "words", "words", 0, "document", "source", weights, entropy=None)
    made = exhibits.han()
    tab = opened(page(replace(made, sides={"source": side}, views=(view,))))
    own = tab.locator("[data-section=document] .word")
    assert own.all_inner_texts() == ["not", "bad", ".", "(", "well", ")."]
    assert own.evaluate_all(SHADES) == pytest.approx([0.1, 0.1, 0.6, 0.05, 0.05, 0.1], abs=0.01)


def test_a_row_shows_what_its_beginning_takes(opened):
    """Also with words instead of pieces: the weight of `<s>` and the like is visible."""
    tab = opened(page(exhibits.transformer(layers=1, heads=1)))
    tab.locator("[data-section=heads] .multiple").last.click()
    names = tab.locator("[data-section=heads] .large .name.of-column")
    assert names.first.text_content() == "<s>"
    assert names.nth(1).text_content() == exhibits.ENGLISH[0]
    assert tab.locator("[data-section=heads] .large .name.of-row").first.text_content() == "<s>"


@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_nothing(opened, name):
    package = pytest.importorskip("axe_playwright_python", reason="pip install 'regard[dev]' brings axe-core")
    axe = resources.files(package).joinpath("axe.min.js").read_text()
    tab = opened(page(KINDS[name][1](), stretch=True), reduced_motion="reduce")
    tab.evaluate(axe)
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        found = tab.evaluate("async () => (await axe.run(document, { resultTypes: ['violations'] })).violations")
        assert [(each["id"], [node["html"][:100] for node in each["nodes"]]) for each in found] == []
