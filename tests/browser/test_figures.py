"""What a lecture needs: full-window figures, a file of every figure, and links to a word, layer and head."""

import io
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from inspection import exhibits
from inspection.subjects import PAIRS, exhibit_of_subject, subject
from PIL import Image

from regard.inspection import dependency_trees, exhibit_of, page
from regard.inspection.collect.graph import graph_of

pytestmark = pytest.mark.browser

SVG = "{http://www.w3.org/2000/svg}"


def told(tab, section):
    return tab.locator(f"[data-section={section}] .readout").first.inner_text()


def download(tab, section, kind):
    with tab.expect_download() as started:
        tab.locator(f"[data-section={section}] .tools").get_by_text(kind, exact=True).click()
    name = started.value.suggested_filename
    assert name.endswith(f".{kind.lower()}")
    return started.value.path().read_bytes()


def with_tree_and_graph():
    example, run = PAIRS[3], subject("transformer")
    tree = dependency_trees.ParsedTree(example.source_heads)
    return replace(exhibit_of(run, example.source, longest=4, dependencies=tree, walk=True), graph=graph_of(run.model))


# One exhibit of each sort of drawing.
DRAWINGS = {
    "transformer": with_tree_and_graph,
    "ablation": lambda: exhibits.transformer(layers=2, heads=2),
    "recurrent": lambda: exhibit_of_subject("luong", walk=True),
    "captioner": exhibits.captioner,
    "convnet": exhibits.convnet,
    "han": exhibits.han,
    "odd": exhibits.odd,
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_drawing_is_saved_as_svg_and_png(opened, name):
    tab = opened(page(DRAWINGS[name]()))
    sections = tab.locator("section").evaluate_all("all => all.map((each) => each.dataset.section)")
    assert len(sections) >= 1
    for section in sections:
        root = ElementTree.fromstring(download(tab, section, "SVG"))
        assert root.tag == f"{SVG}svg"
        wide, high = (float(root.get(side)) for side in ("width", "height"))
        shapes = [each for each in root.iter() if each.tag.removeprefix(SVG) in ("path", "text", "image", "rect")]
        assert len(shapes) > 1  # more than the background
        picture = Image.open(io.BytesIO(download(tab, section, "PNG")))
        assert picture.size == (round(2 * wide), round(2 * high))
        assert len(picture.convert("RGB").resize((300, 300)).getcolors(90_000)) > 8


def test_the_file_has_every_word_and_line(opened):
    exhibit = exhibits.transformer(layers=1, heads=2)
    tab = opened(page(exhibit), color_scheme="dark")
    tab.locator("[data-section=pair] .below .word").nth(7).click()
    root = ElementTree.fromstring(download(tab, "pair", "SVG"))
    words = [each.text for each in root.iter(f"{SVG}text")]
    for text in (*exhibits.GERMAN, *exhibits.ENGLISH):
        assert text in words
    drawn = tab.locator("[data-section=pair] .lines path").count()
    assert len([each for each in root.iter(f"{SVG}path") if each.get("stroke-width")]) == drawn
    assert root[0].get("fill") == "#14171c"  # the colour of a dark page
    assert not any(each.get("class") or each.get("style") for each in root.iter())  # the file needs no style sheet


@pytest.mark.parametrize("width", [1280, 1920])
def test_a_lecture_fills_the_window(opened, width):
    tab = opened(page(exhibits.transformer(layers=2, heads=3)))
    tab.set_viewport_size({"width": width, "height": 900})
    pair = tab.locator("[data-section=pair]")
    size = "node => parseFloat(getComputedStyle(node).fontSize)"
    before = pair.locator(".below .word").first.evaluate(size)
    pair.get_by_label("Fill the window").click()
    stage = pair.locator(".pair").bounding_box()
    assert pair.bounding_box() == {"x": 0, "y": 0, "width": width, "height": 900}
    assert stage["width"] * stage["height"] > 0.4 * width * 900
    assert pair.locator(".below .word").first.evaluate(size) > 1.4 * before
    assert pair.evaluate("node => node.scrollWidth <= node.clientWidth")
    for key, words in [
        ("ArrowRight", "The looks at Der"),
        ("PageDown", "old looks"),
        ("ArrowDown", "man looks"),
        ("ArrowLeft", "old looks"),
        ("End", ". looks"),
        ("Home", "The looks"),
    ]:
        tab.keyboard.press(key)
        assert told(tab, "pair").startswith(words)
    assert tab.locator("[data-section=heads]").evaluate("node => node.inert")
    tab.keyboard.press("Escape")
    assert tab.locator(".lecture").count() == 0
    assert not tab.locator("[data-section=heads]").evaluate("node => node.inert")
    assert pair.locator(".below .word").first.evaluate(size) == before


@pytest.mark.parametrize("width", [400, 1280])
def test_weights_stand_clear_of_their_words(opened, width):
    short = exhibits.transformer(
        exhibits.GERMAN[:4], exhibits.ENGLISH[:4], links=[0, 1, 2, 3], layers=1, heads=1, cut=()
    )
    tab = opened(page(short))
    tab.set_viewport_size({"width": width, "height": 900})
    pair = tab.locator("[data-section=pair]")
    pair.get_by_label("Fill the window").click()
    tab.keyboard.press("ArrowRight")
    word = pair.locator(".above .word", has=tab.locator(".number")).first
    number = word.locator(".number").bounding_box()
    assert number["y"] + number["height"] <= word.bounding_box()["y"] + 1


def test_a_lecture_on_a_phone_has_one_column(opened):
    tab = opened(page(exhibits.transformer(layers=1, heads=2)))
    tab.set_viewport_size({"width": 400, "height": 900})
    heads = tab.locator("[data-section=heads]")
    heads.get_by_label("Fill the window").click()
    assert heads.locator(".large").bounding_box()["width"] > 350
    title = heads.locator("h2").bounding_box()
    assert title["x"] + title["width"] <= heads.locator(".close").bounding_box()["x"]


def test_other_drawings_fill_it_too(opened):
    tab = opened(page(exhibits.transformer(layers=1, heads=2)))
    heads = tab.locator("[data-section=heads]")
    before = heads.locator(".heat").bounding_box()
    heads.get_by_label("Fill the window").click()
    assert heads.locator(".heat").bounding_box()["height"] > 1.2 * before["height"]
    tab.keyboard.press("ArrowRight")
    assert heads.locator(".large .readout").inner_text().startswith("The → Der")
    cells = heads.locator(".cells").bounding_box()
    tab.mouse.move(cells["x"] + cells["width"] * 10.5 / 15, cells["y"] + cells["height"] * 7.5 / 16)
    assert heads.locator(".large .readout").inner_text().startswith("horse → Pferd")
    tab.keyboard.press("Escape")
    tab.locator("[data-section=search]").get_by_label("Fill the window").click()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("[data-section=search] .counter").inner_text().startswith("step 2 of")


def test_long_names_and_documents_fill_it_as_well(opened):
    """A heat map with names that can be unfolded stands in a narrow box, and a document breaks into lines."""
    german, english = (
        ["der", "Donaudampfschifffahrtskapitän", "schlief", "hier", "."],
        ["the", "captain", "slept", "here", "."],
    )
    short = exhibits.transformer(german, english, list(range(5)), 1, 2, ())
    tab = opened(page(short))
    tab.set_viewport_size({"width": 1920, "height": 1080})
    heads = tab.locator("[data-section=heads]")
    before = heads.locator(".cells").bounding_box()
    heads.get_by_label("Fill the window").click()
    assert heads.locator(".cells").bounding_box()["height"] > 2 * before["height"]
    tab = opened(page(exhibits.han(sentences=4, length=6)))
    tab.set_viewport_size({"width": 1920, "height": 1080})
    document = tab.locator("[data-section=document]")
    before = document.locator(".word").first.bounding_box()
    document.get_by_label("Fill the window").click()
    assert document.locator(".word").first.bounding_box()["height"] > 2 * before["height"]
    assert document.evaluate("node => node.scrollWidth <= node.clientWidth")
    last = document.locator(".document li").last.bounding_box()
    assert last["y"] + last["height"] < 1080


def test_a_picture_fills_the_height(opened):
    tab = opened(page(exhibits.captioner()))
    tab.set_viewport_size({"width": 1920, "height": 1080})
    seen = tab.locator("[data-section=caption]")
    seen.get_by_label("Fill the window").click()
    assert seen.locator("canvas.picture").bounding_box()["height"] > 0.6 * 1080
    tab.set_viewport_size({"width": 400, "height": 900})
    assert seen.locator("canvas.picture").bounding_box()["width"] > 350  # and the words stand below it


def test_a_link_opens_the_page_at_a_word_layer_and_head(opened):
    exhibit = exhibits.transformer(layers=2, heads=3)
    tab = opened(page(exhibit))
    tab.goto(tab.url.split("#")[0] + "#attention=cross&layer=1&head=2&word=8")
    tab.reload()
    tab.wait_for_selector("html[data-ready]", state="attached")
    pair = tab.locator("[data-section=pair]")
    assert pair.locator("select").evaluate("node => node.selectedOptions[0].text") == "Decoder, layer 1, to the source"
    assert pair.locator("input:checked").get_attribute("data-value") == "1"
    assert told(tab, "pair").startswith("horse looks at")
    tab.evaluate("location.hash = '#word=2'")
    tab.wait_for_function("document.querySelector('[data-section=pair] .readout').textContent.startsWith('old')")


def test_the_address_says_what_is_chosen(opened):
    exhibit = exhibits.transformer(layers=2, heads=3)
    tab = opened(page(exhibit))
    pair = tab.locator("[data-section=pair]")
    pair.locator("select").select_option(label="Encoder, layer 2")
    pair.locator(".choice [data-value='2']").check()
    pair.locator(".below .word").nth(4).focus()
    assert tab.url.split("#")[1] == "attention=encoder&layer=2&head=3&word=5"
    tab.keyboard.press("h")
    assert "head=mean" in tab.url
    tab.evaluate("location.hash = '#attention=nothing&layer=99&head=99&word=99'")  # the page has none of these
    assert pair.locator(".word").count() > 0
