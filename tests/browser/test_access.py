"""Accessibility of pages of every kind: no script error, WCAG contrast, a name for each control, heading order."""

from dataclasses import replace
from itertools import pairwise

import pytest
from inspection import exhibits
from inspection.subjects import PAIRS, exhibit_of_subject, subject

from regard.inspection import dependency_trees, exhibit_of, page
from regard.inspection.collect.graph import graph_of
from regard.models import KINDS

pytestmark = pytest.mark.browser

# One subject of each kind, and drawings that none of these runs has.
SUBJECTS = [
    "rnn",
    "rnnsearch",
    "luong-local-p",
    "lstmn",
    "pointer",
    "ntm",
    "encoder-writes",
    "han",
    "captioner",
    "convnet",
]
PAGES = {
    "transformer": lambda: page(
        replace(
            exhibit_of(
                subject("transformer"), PAIRS[3].source, longest=5, walk=True, ablate=True,
                dependencies=dependency_trees.ParsedTree(PAIRS[3].source_heads)
            ),
            graph=graph_of(subject("transformer").model),
        )
    ),
    "two": lambda: page(exhibits.transformer(layers=1, heads=2), against=exhibits.transformer(layers=2, seed=3)),
    "long": lambda: page(exhibits.long(120)),
    "odd": lambda: page(exhibits.odd()),
    **{name: lambda name=name: page(exhibit_of_subject(name, walk=True)) for name in SUBJECTS},
}  # fmt: skip

# Every visible text, with its colour and the first opaque colour behind it.
LOW_CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => {
    const share = top[3] / 255;
    return [0, 1, 2].map((k) => top[k] * share + below[k] * (1 - share)).concat(255);
  };
  const light = ([...rgb]) => {
    const [red, green, blue] = rgb.slice(0, 3).map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const low = [];
  for (const node of document.querySelectorAll("main *")) {
    if (![...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim())) continue;
    if (!node.checkVisibility({ visibilityProperty: true }) || node.closest("svg, select")) continue;
    const layers = [];
    let faded = 1;
    for (let each = node; each; each = each.parentElement) {
      const style = getComputedStyle(each);
      faded *= parseFloat(style.opacity);
      layers.push(parts(style.backgroundColor));
    }
    if (faded < 0.3) continue; // has not arrived yet
    const ground = layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 255]);
    const ink = parts(getComputedStyle(node).color);
    ink[3] *= faded;
    const [a, b] = [light(over(ink, ground)), light(ground)].sort((p, q) => q - p);
    const size = parseFloat(getComputedStyle(node).fontSize),
      bold = parseFloat(getComputedStyle(node).fontWeight) >= 700;
    const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < least - 0.01)
      low.push(`${node.tagName}.${node.className} ${node.textContent.slice(0, 20)}: ${contrast.toFixed(2)}`);
  }
  return low;
}"""
UNNAMED = """() => [...document.querySelectorAll(
    "button, select, input, a, [role=img], [role=dialog], [tabindex='0'], section, nav"
  )].filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.closest("label")))
  .map((each) => each.outerHTML.slice(0, 120))"""
EMPTY = """() => [...document.querySelectorAll("th")].filter((each) => !each.textContent.trim()).length"""
NESTED = """() => [...document.querySelectorAll("button, a, [role=img]")].filter((each) =>
  each.querySelector("button, a, input, select, [tabindex='0']")).map((each) => each.outerHTML.slice(0, 120))"""
# The visible text of a control is part of its accessible name.
MISNAMED = """() => [...document.querySelectorAll("button[aria-label]")].filter((each) => {
  const seen = each.textContent.trim().toLowerCase();
  return /[a-z]/.test(seen) && !each.getAttribute("aria-label").toLowerCase().includes(seen);
}).map((each) => each.outerHTML.slice(0, 120))"""
UNREACHED = """() => [...document.querySelectorAll(".scroll")].filter((each) => each.checkVisibility() &&
  each.scrollWidth > each.clientWidth + 1 &&
  each.tabIndex < 0 && !each.querySelector("a, button, input, select, summary, [tabindex]")).length"""
LANDMARKS = """() => [...document.querySelectorAll("section[aria-label], nav")].map((each) => each.ariaLabel)"""


def test_every_kind_is_among_them():
    kinds = {exhibit_of_subject(name, walk=True).kind for name in SUBJECTS} | {"transformer"}
    assert kinds == {kind.name for kind in KINDS.values()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_and_reached_by_all(opened, name):
    """Contrast, names and nesting are right in both colour schemes; the fixture fails on any script error."""
    tab = opened(PAGES[name](), reduced_motion="reduce")
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        assert tab.evaluate(LOW_CONTRAST) == []
    for wrong in (UNNAMED, NESTED, MISNAMED):
        assert tab.evaluate(wrong) == []
    assert tab.evaluate(EMPTY) == 0
    names = tab.evaluate(LANDMARKS)
    assert len(names) == len(set(names))
    levels = tab.locator("h1, h2, h3").evaluate_all("all => all.map((each) => Number(each.tagName[1]))")
    assert levels.count(1) >= 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    for width in (1280, 400):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_timeout(100)
        assert tab.evaluate(UNREACHED) == 0


def test_the_order_of_tabs_is_the_order_of_the_page(opened):
    """Tab moves from top to bottom; the words of a drawing are one tab stop, and arrow keys move between them."""
    tab = opened(page(exhibits.transformer(layers=1, heads=2)))
    sections = []
    for _ in range(60):
        tab.keyboard.press("Tab")
        here = tab.evaluate(
            "(document.activeElement.closest('section') ?? document.activeElement.parentElement).dataset.section ?? ''"
        )
        if not sections or sections[-1] != here:
            sections.append(here)
        if here == "ablation":
            break
    shown = tab.locator("section").evaluate_all("all => all.map((each) => each.dataset.section)")
    assert [each for each in sections if each in shown] == shown
