"""A run's report in a browser: words are legible on dark paper, and commands are not cut off on a phone."""

import io
import re
from pathlib import Path

import pytest
from inspection import exhibits
from PIL import Image

from regard.inspection import LookPicture, Table, document, picture, table_element, write

pytestmark = pytest.mark.browser
STUDIES = Path(__file__).parents[2] / "docs" / "studies"


@pytest.fixture
def tab(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    yield page
    page.close()


def luminance(colour):
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (x / 255 for x in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("stretch", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_of_a_document_stand_out_from_their_shades(tab, tmp_path, scheme, stretch):
    look = LookPicture(picture(exhibits.han(sentences=3, length=6), stretch=stretch), "a document", "seen")
    tab.emulate_media(color_scheme=scheme)
    tab.goto(write(tmp_path, look=look).as_uri())
    boxes = tab.locator("svg [id*='shade-']")
    assert boxes.count() == 18
    inks = tab.evaluate(  # the colours of the letters, which are drawn over all shades, as the browser resolves them
        """() => [...document.querySelector("svg [id*='shade-']").closest("svg").querySelectorAll("text")]
          .map((each) => getComputedStyle(each).fill)"""
    )
    for k in range(18):
        letters = luminance([int(part) for part in re.findall(r"\d+", inks[k])[:3]])
        shot = Image.open(io.BytesIO(boxes.nth(k).screenshot())).convert("RGB")
        shade = luminance(shot.getpixel((2, shot.height // 2)))  # left of the first letter
        light, dark = max(letters, shade), min(letters, shade)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_commands_are_whole_on_a_phone(tab, tmp_path):
    tab.set_viewport_size({"width": 400, "height": 900})
    command = "regard train --from runs/a-long-name-of-a-run --source A.en --target A.de --out runs/another"
    tab.goto(write(tmp_path, commands=[(command, "Fine-tune it on other data.")]).as_uri())
    (fits,) = tab.locator(".next pre").evaluate_all("all => all.map((each) => each.scrollWidth <= each.clientWidth)")
    assert fits


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wide_table_scrolls_in_its_own_box_and_shows_that_it_does(tab, tmp_path, scheme):
    table = Table(
        "A caption that is long enough for two lines of a phone", ["name", *["a column"] * 12], [["a", *[1.25] * 12]]
    )
    (tmp_path / "page.html").write_text(document("t", [table_element(table)]), encoding="utf-8")
    tab.set_viewport_size({"width": 400, "height": 900})
    tab.emulate_media(color_scheme=scheme)
    tab.goto((tmp_path / "page.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
    box = tab.locator(".wide")
    assert box.evaluate("node => node.scrollWidth > node.clientWidth + 50")
    caption = tab.locator("caption").bounding_box()
    assert caption["x"] + caption["width"] <= 400

    def edges():  # of the box: the mean of its first and of its last column of pixels
        shot = Image.open(io.BytesIO(box.screenshot())).convert("L")
        return [sum(shot.getpixel((x, y)) for y in range(shot.height)) / shot.height for x in (1, shot.width - 2)]

    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    level = int(paper.split("(")[1].split(",")[0])
    shaded = abs(edges()[1] - level)
    assert shaded > 20  # there is more to scroll to
    box.evaluate("node => node.scrollTo(node.scrollWidth, 0)")
    assert abs(edges()[1] - level) < shaded / 2  # only letters and rules are left
    first = tab.locator("tbody td").first.bounding_box()
    assert 0 <= first["x"] < 30  # the name of the row stays visible


@pytest.mark.parametrize("path", sorted(STUDIES.glob("**/index.html")), ids=lambda path: path.parent.name)
def test_pages_of_studies_are_no_wider_than_a_phone(tab, path):
    tab.set_viewport_size({"width": 400, "height": 900})
    tab.goto(path.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
