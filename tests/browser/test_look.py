"""An exhibit's page in a real browser: opened from a file, without a network, with pointer and keys."""

from dataclasses import replace

import pytest
import torch
from inspection import exhibits
from inspection.subjects import PAIRS, exhibit_of_subject, item_of, subject

from regard.inspection import Page, dependency_trees, exhibit_of, page
from regard.inspection.collect.graph import graph_of

pytestmark = pytest.mark.browser

KINDS = {
    "transformer": lambda: exhibits.transformer(layers=2, heads=3),
    "luong": exhibits.luong,
    "captioner": exhibits.captioner,
    "hard captioner": lambda: exhibits.captioner(hard=True, heads=2, layers=2),
    "han": exhibits.han,
    "convnet": exhibits.convnet,
    "without attention": exhibits.without,
    "odd": exhibits.odd,
}


def told(tab, section):
    return tab.locator(f"[data-section={section}] .readout").first.inner_text()


def light(tab, canvas, x, y):
    """Return red + green + blue of a canvas pixel, at fractions of the canvas's width and height."""
    return tab.evaluate(
        """([name, x, y]) => {
          const canvas = document.querySelector(name), copy = document.createElement("canvas");
          [copy.width, copy.height] = [canvas.width, canvas.height];
          const context = copy.getContext("2d", { willReadFrequently: true });
          context.drawImage(canvas, 0, 0);
          const [red, green, blue] = context.getImageData(x * canvas.width, y * canvas.height, 1, 1).data;
          return red + green + blue;
        }""",
        [canvas, x, y],
    )


def until(tab, true):
    """Wait until a condition is true; a busy machine paints late."""
    for _ in range(50):
        if true():
            return
        tab.wait_for_timeout(100)
    pytest.fail("it did not become true in five seconds")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_and_fits(opened, kind):
    tab = opened(page(KINDS[kind]()))
    assert tab.locator("h2").count() >= 1
    for width in (1200, 700, 375):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    unnamed = """[...document.querySelectorAll("button, select, input, canvas[role=img], [tabindex]")].filter((each) =>
      !(each.textContent.trim() || each.getAttribute("aria-label") || each.closest("label"))).length"""
    assert tab.evaluate(unnamed) == 0
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))


def test_hovering_lights_what_a_word_looks_at(opened):
    exhibit = exhibits.transformer(layers=2, heads=3)
    tab = opened(page(exhibit))
    pair = tab.locator("[data-section=pair]")
    assert pair.locator(".lines .rest path").count() >= len(exhibits.ENGLISH)
    pair.locator(".below .word").nth(7).hover()  # horse
    assert told(tab, "pair").startswith("horse looks at Pferd ")
    assert pair.locator(".lines .live path").count() >= 1
    lit = pair.locator(".above .word.lit .text").all_inner_texts()
    assert "Pferd" in lit
    number = float(pair.locator(".above .word").nth(10).locator(".number").inner_text())
    view = next(each for each in exhibit.views if each.name == exhibit.aligned)
    rows = [k for k, word in enumerate(exhibit.sides["written"].words) if word == 7]
    columns = [k for k, word in enumerate(exhibit.sides["source"].words) if word == 10]
    assert number == pytest.approx(float(view.weights.mean(0)[rows][:, columns].sum(-1).mean()), abs=0.01)
    pair.locator(".above .word").nth(10).hover()
    assert told(tab, "pair").startswith("Pferd is looked at by horse ")
    tab.mouse.move(5, 5)
    assert pair.locator(".lines .live path").count() == 0


def test_keys_move_from_word_to_word(opened):
    tab = opened(page(exhibits.transformer(layers=2, heads=3)))
    tab.locator("[data-section=pair] .below .word").first.focus()
    assert told(tab, "pair").startswith("The looks at Der")
    for key, said in [
        ("ArrowRight", "old looks"),
        ("End", ". looks"),
        ("Home", "The looks"),
        ("ArrowUp", "Der is looked at by"),
    ]:
        tab.keyboard.press(key)
        assert told(tab, "pair").startswith(said)
    first = tab.locator("[data-section=pair] input:checked").get_attribute("data-value")
    tab.keyboard.press("h")
    assert tab.locator("[data-section=pair] input:checked").get_attribute("data-value") != first
    layer = tab.locator("[data-section=pair] select").input_value()
    tab.keyboard.press("l")
    assert tab.locator("[data-section=pair] select").input_value() != layer
    tab.keyboard.press("Escape")
    assert tab.locator("[data-section=pair] .lighted").count() == 0


def test_a_small_head_becomes_large(opened):
    exhibit = exhibits.transformer(layers=2, heads=3)
    tab = opened(page(exhibit))
    heads = tab.locator("[data-section=heads]")
    assert heads.locator(".multiple").count() == 3 * 2 * 3
    heads.get_by_label("encoder, layer 2, head 3").click()
    assert "layer 2 · head 3" in heads.locator(".large h3").inner_text()
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("Enter")
    assert "layer 2 · head 2" in heads.locator(".large h3").inner_text()
    heads.locator(".heat").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    said = heads.locator(".large .readout").inner_text()
    words = exhibit.sides["source"]
    shown = float(said.split("entropy")[0].split()[-1])
    assert said.startswith(f"{words.texts[1]} → {words.texts[0]}")
    assert shown == pytest.approx(float(exhibit.views[1].weights[1, 1, 0]), abs=0.005)
    assert "entropy of the row" in said


def test_pieces_are_merged_or_shown(opened):
    exhibit = exhibits.transformer(layers=1, heads=2)
    tab = opened(page(exhibit))
    above = tab.locator("[data-section=pair] .above .word .text")
    assert above.all_inner_texts() == list(exhibit.sides["source"].texts)
    tab.get_by_label("pieces", exact=True).check()
    assert above.all_inner_texts() == list(exhibit.sides["source"].pieces)
    below = tab.locator("[data-section=pair] .below .word .text").all_inner_texts()
    assert below == list(exhibit.sides["written"].pieces)


def test_a_row_may_belong_to_the_word_that_is_read(opened):
    exhibit = exhibits.transformer(layers=1, heads=1)
    tab = opened(page(replace(exhibit, offset=1)))
    tab.get_by_label("pieces", exact=True).check()
    below = tab.locator("[data-section=pair] .below .word .text").all_inner_texts()
    assert below == list(exhibit.sides["read"].pieces)


def test_the_search_is_walked_through(opened):
    exhibit = exhibits.transformer(layers=1, heads=1)
    tab = opened(page(exhibit))
    search = tab.locator("[data-section=search]")
    assert "step 1 of" in search.locator(".counter").inner_text()
    search.locator("input[type=range]").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert search.locator(".counter").inner_text() == f"step 3 of {len(exhibit.tree.steps)}"
    rows = search.locator("tbody tr")
    assert rows.count() == len(exhibit.tree.steps[2])
    best = next(each for each in exhibit.tree.steps[2] if each.best)
    assert best.piece in search.locator("tr.best").inner_text()
    assert search.locator("tr.best .sofar").inner_text() == "The old"
    kept = sum(each.fate == "kept" for step in exhibit.tree.steps for each in step)
    assert search.locator(".nodes g.kept").count() == kept
    assert search.locator(".edges .best").count() == len(exhibit.tree.steps) - 1
    search.get_by_label("step before").click()
    assert "step 2 of" in search.locator(".counter").inner_text()


def test_windows_picks_and_states(opened):
    tab = opened(page(exhibits.luong()))
    tab.locator("[data-section=pair] .below .word").nth(7).hover()
    assert tab.locator("[data-section=pair] .live .window").count() == 1
    assert tab.locator("[data-section=heads] .centre").count() == len(exhibits.ENGLISH)
    assert tab.locator("[data-section=walk] .stages li").count() == 6
    states = tab.locator("[data-section=states]")
    states.locator("input[type=range]").fill("3")
    assert states.locator("li:not(.away)").count() == 3


def test_a_caption_looks_word_by_word(opened):
    exhibit = exhibits.captioner()
    tab = opened(page(exhibit))
    caption = tab.locator("[data-section=caption]")
    caption.locator(".caption .word").nth(8).hover()  # square
    at = int(exhibit.views[0].weights[0, 8].argmax())
    assert f"square looked most at row {at // 8 + 1}, column {at % 8 + 1}" in told(tab, "caption")
    caption.locator(".caption .word").nth(8).focus()
    tab.keyboard.press("ArrowLeft")
    assert told(tab, "caption").startswith("blue looked most")
    assert caption.locator(".frame").count() == len(exhibit.sides["written"].texts)
    on, off = (light(tab, "canvas.picture", *at) for at in ((0.72, 0.64), (0.05, 0.95)))
    assert on > off  # a blue square is brighter than grey that gets no attention


def test_a_tree_stands_over_its_words(opened):
    example = PAIRS[3]
    relations = tuple("det" if k % 2 else "obj" for k in range(len(example.source_heads)))
    given = dependency_trees.ParsedTree(example.source_heads, relations)
    exhibit = exhibit_of(subject("transformer"), example.source, longest=4, dependencies=given)
    tab, tree = opened(page(exhibit)), exhibit.dependencies
    section = tab.locator("[data-section=dependencies]")
    assert section.locator(".arcs .text").all_text_contents() == example.source.split()
    links = sum(head >= 0 for head in tree.heads)
    assert section.locator(".arcs .gold:not(.root)").count() == links
    best = max(tree.follows, key=lambda head: head.hits[""])
    assert section.locator(".readout b").all_inner_texts() == [
        f"{n} of {links}" for n in (best.hits[""], best.back[""])
    ]
    assert section.locator(".arcs .look.met").count() == best.hits[""] + best.back[""]
    view = next(view for view in exhibit.views if view.name == best.view)
    at = dependency_trees.strongest_words(view, exhibit.sides["source"])[best.head]
    met = [word for word, head in enumerate(tree.heads) if head >= 0 and (at[word] == head or at[head] == word)]
    assert section.locator(".arcs .gold.met").count() == len(met)
    rows = section.locator("tbody tr")
    assert rows.locator("th").all_inner_texts()[0] == "all"
    assert rows.count() == len([name for name, count in tree.words.items() if count])
    other = next(head for head in tree.follows if head.view != best.view or head.head != best.head)
    section.locator("select").select_option(label="encoder, layer 1" if "0" in other.view else "encoder, layer 2")
    section.locator(f"[data-value='{other.head}']").check()
    assert section.locator(".readout b").first.inner_text() == f"{other.hits['']} of {links}"
    rows.first.get_by_role("button").click()
    followed = max(tree.follows, key=lambda head: max(head.hits[""], head.back[""]))
    assert section.locator(".readout b").first.inner_text() == f"{followed.hits['']} of {links}"
    backward = followed.back[""] > followed.hits[""]
    assert rows.first.get_by_role("button").inner_text().endswith(", from the head") == backward
    for width in (1280, 400):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["han", "encoder-classifies", "transformer"])
def test_unknown_words_are_marked(opened, name):
    run = subject(name, "word")
    known = item_of(name).split()
    text = " ".join([*known[:2], "xylophonic", *known[2:]])
    tab = opened(page(exhibit_of(run, text, longest=4)))
    marked = tab.locator(".word.unknown")
    assert marked.count() > 0
    assert set(marked.locator(".text").all_text_contents()) == {"xylophonic"}
    assert {node.get_attribute("title") for node in marked.all()} == {"not in the vocabulary"}
    assert "underline" in marked.first.locator(".text").evaluate("node => getComputedStyle(node).textDecorationLine")
    assert tab.locator(".word:not(.unknown) .text", has_text="xylophonic").count() == 0


def test_a_tree_without_self_attention(opened):
    example = PAIRS[3]
    given = dependency_trees.ParsedTree(example.source_heads)
    tab = opened(page(exhibit_of(subject("rnnsearch"), example.source, longest=4, dependencies=given)))
    section = tab.locator("[data-section=dependencies]")
    assert section.locator(".arcs .text").count() == len(example.source.split())
    assert section.locator("table, .look").count() == 0


@pytest.mark.parametrize("name", ["lstmn", "rnnsearch", "han", "rnn"])
def test_gates_by_word(opened, name):
    exhibit = exhibit_of_subject(name, walk=True)
    tab = opened(page(exhibit))
    section, gates = tab.locator("[data-section=gates]"), exhibit.walk.gates
    assert section.locator(".layer-gates").count() == len(gates)
    assert section.locator("canvas.units").count() == sum(len(each.values) for each in gates)
    last = section.locator(".layer-gates").last
    if last.get_attribute("open") is None:
        last.locator("summary").click()
    assert last.locator(".name").all_text_contents() == [piece or "∅" for piece in gates[-1].pieces]
    kept = "f" if "f" in gates[-1].values else "z"
    lowest = gates[-1].pieces[int(gates[-1].values[kept].mean(-1).argmin())]
    assert last.locator(".remark").inner_text().startswith(f"Forgets most at {lowest} ({kept} = ")
    for width in (1280, 400):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_place_looks_at_others(opened):
    tab = opened(page(exhibits.convnet()))
    picture = tab.locator("[data-section=places] canvas.picture")
    picture.focus()
    before = told(tab, "places")
    tab.keyboard.press("ArrowDown")
    assert told(tab, "places").startswith("Row 4, column 3 looks most at") and told(tab, "places") != before  # noqa: PT018
    box = picture.bounding_box()
    tab.mouse.move(box["x"] + 5, box["y"] + 5)
    assert told(tab, "places").startswith("Row 1, column 1 looks most at")


def test_a_document_is_shaded(opened):
    exhibit = exhibits.han()
    tab = opened(page(exhibit))
    document = tab.locator("[data-section=document]")
    assert document.locator("li").count() == 6
    words = document.locator(".word")
    assert words.all_inner_texts() == list(exhibit.sides["source"].texts)
    words.first.focus()
    tab.keyboard.press("ArrowRight")
    assert told(tab, "document").startswith(f"{exhibit.sides['source'].texts[1]} counts ")
    shades = [
        float(each)
        for each in document.evaluate(
            "(node) => [...node.querySelectorAll('.word')].map((each) => each.style.getPropertyValue('--w'))"
        )
    ]
    share, whole = exhibit.views[0].weights[0, 0], exhibit.views[1].weights[0, 0]
    wanted = share * whole[list(exhibit.sides["source"].sentences)].sqrt()
    assert shades == pytest.approx(wanted.tolist(), abs=0.02)


def test_a_bar_is_a_share_of_the_document(opened):
    """The scale begins with 0 at the left, and the entropy of words and sentences stands beside it."""
    exhibit = exhibits.han()
    tab = opened(page(exhibit))
    document = tab.locator("[data-section=document]")
    what, begins, ends = document.locator(".axis span").all_inner_texts()
    assert (what, begins) == ("share of the document", "0")
    boxes = document.locator(".meter").evaluate_all(
        """all => all.map((each) => {
          const [whole, bar] = [each, each.firstElementChild].map((one) => one.getBoundingClientRect());
          return [bar.left - whole.left, bar.width / whole.width];
        })"""
    )
    shares = exhibit.views[1].weights[0, 0]
    assert [left for left, _ in boxes] == [0] * len(shares)
    assert [width * float(ends) for _, width in boxes] == pytest.approx(shares.tolist(), abs=0.01)
    words, sentences = exhibit.views[0].weights[0, 0], torch.tensor(exhibit.sides["source"].sentences)
    spread = [float(torch.special.entr(words[sentences == k]).sum()) for k in range(len(shares))]
    said = document.inner_text()
    assert f"entropy of the words: {sum(spread) / len(spread):.2f} nats" in said
    assert (
        f"of the sentences: {float(torch.special.entr(shares).sum()):.2f} of {float(torch.tensor(6.0).log()):.2f}"
        in said
    )


def test_few_heads_are_marked_as_useless(opened):
    exhibit = exhibits.transformer(layers=3, heads=8)
    changes = sorted((change for heads in exhibit.ablation.changes.values() for change in heads), reverse=True)
    assert sum(change > 0.005 for change in changes) > 20
    tab = opened(page(exhibit))
    marked = [each for each in tab.locator(".ablation td").all_inner_texts() if "▲" in each]
    assert len(marked) == 5
    assert sorted(float(each.split("+")[1]) for each in marked) == pytest.approx(sorted(changes[:5]), abs=0.006)


def test_odd_text_comes_out_as_it_went_in(opened):
    exhibit = exhibits.odd()
    tab = opened(page(exhibit))
    above = tab.locator("[data-section=pair] .above .word .text").all_inner_texts()
    assert above[:-1] == list(exhibit.sides["source"].texts[:-1])  # the last is half a surrogate pair
    assert tab.locator("[data-section=pair] .below").get_attribute("dir") == "rtl"
    assert tab.locator("[data-section=pair] .above").get_attribute("dir") == "ltr"
    assert tab.locator("main script, main b:has(script)").count() == 0
    assert "<script>alert('x')</script>" in tab.locator("header").inner_text()
    tab.locator("[data-section=pair] .below .word").first.focus()
    tab.keyboard.press("ArrowLeft")  # forward, in text that runs from right to left
    assert told(tab, "pair").startswith("أيها")


def test_a_long_document_is_shaded_in_place(opened):
    exhibit = exhibits.long(400)
    tab = opened(page(exhibit))
    words = tab.locator("[data-section=pair] .word")
    assert words.count() == 400
    words.nth(200).hover()
    assert told(tab, "pair").startswith(f"{exhibit.sides['source'].texts[200]} looks at ")
    assert tab.locator("[data-section=pair] .word.lit").count() >= 2
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1200


def test_light_and_dark_and_paper(opened):
    tab = opened(page(exhibits.transformer(layers=1, heads=1)), color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark, cell = tab.evaluate(colour), light(tab, ".cells", 0, 0.4)  # a word without attention
    tab.emulate_media(color_scheme="light")
    assert tab.evaluate(colour) == "rgb(255, 255, 255)" != dark
    until(tab, lambda: light(tab, ".cells", 0, 0.4) > cell + 400)  # zero weight has the colour of the page
    tab.emulate_media(color_scheme="dark")
    until(tab, lambda: light(tab, ".cells", 0, 0.4) == cell)
    assert len(tab.pdf()) > 10_000
    assert light(tab, ".cells", 0, 0.4) == cell  # restored after printing


def test_a_notebook_shows_it(opened):
    frame = page(exhibits.captioner())._repr_html_()
    tab = opened(Page(f"<!doctype html><html data-ready><meta charset=utf-8><title>notebook</title>{frame}"))
    inner = tab.frame_locator("iframe")
    inner.locator("html[data-ready]").wait_for(state="attached")
    assert inner.locator("[data-section=caption] .frame").count() == 13


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_graph_is_drawn_with_its_own_style_and_words_inside_boxes(opened, scheme):
    exhibit = replace(exhibits.transformer(), graph=graph_of(subject("transformer").model))
    tab = opened(page(exhibit, against=exhibit), color_scheme=scheme)
    assert tab.locator("svg.regard-graph").count() == 2
    assert tab.locator("a[href^='#graph']").first.inner_text() == "What runs"
    paper = tab.locator("svg.regard-graph .graph-ground").first.evaluate("each => getComputedStyle(each).fill")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
    outside = tab.locator("svg.regard-graph").first.evaluate(
        """drawn => [...drawn.querySelectorAll("g")].filter((group) => {
          const box = group.querySelector("rect").getBoundingClientRect();
          return [...group.querySelectorAll("text")].some((text) => {
            const words = text.getBoundingClientRect();
            return words.left < box.left || words.right > box.right || words.top < box.top || words.bottom > box.bottom;
          });
        }).map((group) => group.textContent)"""
    )
    assert outside == []
