"""The page of `regard serve` for everyone: axe finds nothing, keys reach all of it, it fits a phone and paper."""

from importlib import resources

import pytest
from browser.served_pages import open_served
from serving.served import STORED, serve_process, stored

pytestmark = pytest.mark.browser
MODELS = ("luong", "rnn", "captioner", "convnet", "han", "encoder-language-model")
TEXT = "we were here . I sleep ."


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve_process(*stored(*MODELS), folder=tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture(scope="module")
def axe():
    """Return the script of axe-core, which looks for accessibility problems."""
    package = pytest.importorskip("axe_playwright_python", reason="pip install 'regard[dev]' brings axe-core")
    return resources.files(package).joinpath("axe.min.js").read_text()


def show_translation(page):
    page.translate(TEXT)
    page.target.focus()
    page.target.press("Home")


def show_menu(page):
    show_translation(page)
    page.target.press("Alt+ArrowDown")
    page.tab.wait_for_selector(".menu button:focus")


def show_two(page):
    page.translate(TEXT)
    page.tab.select_option("#against", "rnn")
    page.until(lambda: page.tab.locator(".target[data-left='0']").count() == 2, "both")


def show_inside(page):
    show_translation(page)
    page.tab.get_by_role("button", name="Look inside").click()
    page.tab.frame_locator("iframe.ready").locator("[data-section=numbers]").wait_for()


def show_history(page):
    page.translate(TEXT)
    page.until(lambda: page.tab.evaluate("localStorage.length") == 1, "the history")
    page.tab.get_by_role("button", name="History").click()


def show_picture(page):
    page.tab.select_option("#model", "captioner")
    page.tab.set_input_files("#picture", STORED / "0.png")
    page.tab.frame_locator("iframe.ready").locator("section").first.wait_for()


def show_document(page):
    page.tab.select_option("#model", "han")
    page.source.fill("I did find the bread delicious . There were four of us .")
    page.tab.get_by_label("Stretch colours").check()
    page.until(lambda: page.marks().get("count-12"), "colours")


def show_sample(page):
    page.tab.select_option("#model", "encoder-language-model")
    page.source.fill("wir")
    page.source.press("Control+Enter")
    page.tab.wait_for_selector(".continuations button:visible")


SIGHTS = [
    show_translation,
    show_menu,
    show_two,
    show_inside,
    show_history,
    show_picture,
    show_document,
    show_sample,
]


@pytest.mark.parametrize("show", SIGHTS, ids=lambda show: show.__name__.removeprefix("show_"))
def test_axe_finds_nothing(browser, server, axe, show):
    with open_served(browser, server.address, reduced_motion="reduce") as page:
        page.open()
        show(page)
        for scheme in ("light", "dark"):
            page.tab.emulate_media(color_scheme=scheme)
            for frame in page.tab.frames:
                frame.evaluate(axe)
            found = page.tab.evaluate(
                "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
                ".map((each) => [each.id, each.help, each.nodes.map((node) => node.html.slice(0, 160))])"
            )
            assert found == [], scheme


@pytest.mark.parametrize("width", [360, 400, 800, 1200, 1920])
def test_no_width_makes_it_scroll_sideways(browser, server, width):
    with open_served(browser, server.address, viewport={"width": width, "height": 800}) as page:
        page.open()
        for show in (show_two, show_inside, show_picture, show_document, show_sample):
            show(page)
            assert page.tab.evaluate("document.documentElement.scrollWidth") <= width, show.__name__
            if show is show_inside:
                page.tab.get_by_role("button", name="Close").click()
        page.tab.select_option("#model", "luong")
        page.translate("a" * 3000 + " " + "word " * 100)  # a word that is longer than any line
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_lines_below_a_field_stand_exactly_below_its_words(browser, server):
    """The page paints marks on these lines, so both layers must break in the same places."""
    texts = [
        "word " * 90,
        "a" * 400,
        "x  y   z\t" * 40,
        "\n\n".join(["a line"] * 5),
        "שלום עולם " * 40,
        "ab\n" + "漢字" * 90,
    ]
    with open_served(browser, server.address) as page:
        page.open()
        for width in (1200, 400):
            page.tab.set_viewport_size({"width": width, "height": 900})
            for text in texts:
                page.source.fill(text)
                heights = page.tab.evaluate(
                    """() => {
                      const [under, area] = document.querySelector(".source .field").children;
                      area.style.height = "0";
                      const needed = area.scrollHeight;
                      area.style.height = "";
                      under.style.minHeight = "0";
                      under.style.alignSelf = "start";
                      const given = under.getBoundingClientRect().height;
                      under.style.minHeight = under.style.alignSelf = "";
                      return [needed, Math.round(given)];
                    }"""
                )
                assert abs(heights[0] - heights[1]) <= 2, (width, text[:20], heights)


def test_keys_reach_everything_in_the_order_of_the_page(browser, server):
    with open_served(browser, server.address) as page:
        page.open()
        page.translate(TEXT)
        reached = []
        for _ in range(40):  # from the source, around the window, and once more
            page.tab.keyboard.press("Tab")
            reached.append(
                page.tab.evaluate("((here) => here.ariaLabel || here.id || here.innerText)(document.activeElement)")
            )
        order = ["model", "against", "open-history", "English, to translate", "Clear", "Share", "Look inside", "German"]
        known = [each for each in reached if each in order]
        first = known.index(order[0])
        assert known[first : first + len(order)] == order


def test_a_field_is_in_the_language_of_its_text(browser, server):
    with open_served(browser, server.address) as page:
        page.open()
        assert [page.source.get_attribute("lang"), page.target.get_attribute("lang")] == ["en", "de"]
        assert page.tab.title() == "luong · Regard"


def test_right_to_left_text_begins_at_the_right(browser, server):
    with open_served(browser, server.address) as page:
        page.open()
        page.translate("שלום עולם")
        assert page.source.evaluate("area => getComputedStyle(area).direction") == "rtl"
        box = page.source.bounding_box()
        assert page.place(".source", "שלום")[0] > box["x"] + box["width"] / 2


def test_paper_has_the_texts_alone(browser, server):
    with open_served(browser, server.address) as page:
        page.open()
        page.translate(TEXT)
        page.tab.emulate_media(media="print")
        assert page.tab.locator(".under").first.evaluate("each => getComputedStyle(each).color") == "rgb(0, 0, 0)"
        assert not page.tab.locator("textarea").first.is_visible()
        assert page.tab.locator("button:visible").count() == 0
