"""The graph of every kind in a real browser: its texts as the browser measures them."""

from functools import cache
from itertools import combinations

import pytest
from inspection.subjects import ALL, subject

from regard.inspection import model_graph

pytestmark = pytest.mark.browser

# Top and bottom are those of the ink: a font's line height may be half as large again, and lines may overlap.
TEXTS = """() => [...document.querySelectorAll("svg text")].map((each) => {
  const { left, right } = each.getBoundingClientRect();
  const pen = document.createElement("canvas").getContext("2d"), scale = each.getScreenCTM();
  let top = Infinity, bottom = -Infinity;
  const parts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
  for (let at = 0; parts.nextNode(); ) {
    const text = parts.currentNode.data, style = getComputedStyle(parts.currentNode.parentNode);
    pen.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const ink = pen.measureText(text), line = each.getStartPositionOfChar(Math.min(at, each.getNumberOfChars() - 1)).y;
    at += text.length;
    if (!text.trim()) continue;
    top = Math.min(top, scale.d * (line - ink.actualBoundingBoxAscent) + scale.f);
    bottom = Math.max(bottom, scale.d * (line + ink.actualBoundingBoxDescent) + scale.f);
  }
  const box = each.parentNode.querySelector(":scope > rect.graph-box");
  const around = (box ?? document.querySelector("svg")).getBoundingClientRect();
  return { words: each.textContent, left, right, top, bottom,
           inside: left >= around.left && right <= around.right && top >= around.top && bottom <= around.bottom };
})"""


@cache
def svg_of(name):
    return model_graph(subject(name).model).svg


@pytest.fixture(scope="module")
def tab(browser):
    made = browser.new_page(viewport={"width": 1900, "height": 1000}, offline=True)
    yield made
    made.close()


@pytest.mark.parametrize("name", ALL)
def test_no_two_texts_overlap_and_each_is_inside_of_its_box(tab, name):
    tab.set_content(f"<body style='margin: 0'>{svg_of(name)}</body>")
    texts = tab.evaluate(TEXTS)
    assert len(texts) >= 10
    assert not [each["words"] for each in texts if not each["inside"]]
    assert not [
        (one["words"], other["words"])
        for one, other in combinations(texts, 2)
        if one["left"] < other["right"]
        and other["left"] < one["right"]
        and one["top"] < other["bottom"]
        and other["top"] < one["bottom"]
    ]
