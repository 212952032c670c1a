"""The site builds without a warning, and a search finds the right page first."""

import functools
import http.server
import subprocess
import sys
import threading
from importlib import resources
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = [pytest.mark.slow, pytest.mark.browser]
SEARCHES = {
    "fine-tune": "guide/train.html#fine-tune-a-model",
    "early stopping": "guide/train.html#early-stopping",
    "ONNX": "guide/serve.html#onnx",
    "out of memory": "guide/troubleshooting.html#out-of-memory",
    "overfitting": "guide/troubleshooting.html#overfitting",
    "gradient accumulation": "guide/processes.html#gradient-accumulation",
    "quickstart": "guide/quickstart.html",
    "install": "guide/install.html",
    "word alignment": "guide/align.html",
    "alignment": "guide/align.html",
    "evaluation": "guide/evaluate.html",
    "regard translate": "reference/commands.html#regard-translate",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site, serve it and return its address."""
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", DOCS, out]
    done = subprocess.run(build, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(out)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def tab(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("request", lambda sent: sent.url.startswith("http://127.0.0.1:") or pytest.fail(f"fetches {sent.url}"))
    yield page
    page.close()


@pytest.mark.parametrize("words", SEARCHES)
def test_a_search_finds_the_right_page_first(site, tab, words):
    tab.goto(f"{site}/search.html?q={words.replace(' ', '+')}")
    tab.wait_for_selector("#search-results li a")
    tab.wait_for_function("document.querySelector('#search-results .search-summary')?.textContent.includes('found')")
    first = tab.locator("#search-results li a").first.get_attribute("href")
    assert first.removeprefix(f"{site}/") == SEARCHES[words]


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", ["index", "guide/quickstart", "reference/commands", "attention/notebook"])
def test_no_page_is_wider_than_the_window(site, tab, page, width):
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(f"{site}/{page}.html")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("page", ["index", "results", "studies/index", "guide/configuration", "reference/commands"])
def test_a_page_is_no_wider_than_a_phone(site, tab, page):
    tab.set_viewport_size({"width": 400, "height": 900})
    tab.goto(f"{site}/{page}.html")
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
    tab.set_viewport_size({"width": 1280, "height": 900})


ACCESS = [
    "index",
    "guide/quickstart",
    "results",
    "reference/commands",
    "attention/notebook",
    "attention/self",
    "inside/names",
    "search",
]
BROKEN = """() => [...document.querySelectorAll("h1, h2, h3")].flatMap((heading) => {
  const walker = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT), broken = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const boxes = [...range.getClientRects()].filter((each) => each.width > 1);
      if (new Set(boxes.map((each) => Math.round(each.top))).size > 1) broken.push(word[0]);
    }
  return broken;
})"""


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", ACCESS)
def test_axe_finds_nothing(site, tab, page, width):
    """axe finds no violation: heading levels, landmark names and keyboard access to scrollable regions are right."""
    package = pytest.importorskip("axe_playwright_python", reason="pip install 'regard[dev]' brings axe-core")
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(f"{site}/{page}.html")
    tab.wait_for_timeout(200)
    tab.evaluate(resources.files(package).joinpath("axe.min.js").read_text())
    found = tab.evaluate("async () => (await axe.run(document, { resultTypes: ['violations'] })).violations")
    assert [(each["id"], [node["html"][:100] for node in each["nodes"][:3]]) for each in found] == []


def test_no_title_is_broken_within_a_word(site, tab):
    tab.set_viewport_size({"width": 400, "height": 900})
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).with_suffix("")
        if "_build" in name.parts or "_static" in name.parts:
            continue
        tab.goto(f"{site}/{name}.html")
        assert tab.evaluate(BROKEN) == [], name
    tab.set_viewport_size({"width": 1280, "height": 900})
