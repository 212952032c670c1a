"""What the page of `regard serve` says about words: left out, unseen and alternative; and about missing servers."""

import math
import signal

import pytest
from browser.served_pages import open_served
from serving.served import STORED, serve_process, stored

from regard import load

pytestmark = pytest.mark.browser
LONG = " ".join(["we were here and the dog sleeps"] * 3) + "."
REFUSED = ("Failed to load resource", "net::ERR")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve_process(*stored("luong", "rnn", "han"), folder=tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture
def page(browser, server):
    with open_served(browser, server.address) as opened:
        opened.open()
        yield opened


def test_words_that_the_translation_leaves_out_have_a_wavy_line_and_are_named(page):
    text = f"we were here .\n{LONG}"
    page.translate(text)
    (output,) = next(load(STORED / "luong").stream([LONG], coverage=True))
    words = LONG.split()
    expected = [" ".join(words[start:end]) for start, end in output.untranslated]
    assert expected  # otherwise this test shows nothing
    page.until(lambda: page.marks().get("untranslated"), "a mark")
    assert page.marks()["untranslated"] == expected
    notes = page.tab.locator(".target .word-notes")
    assert notes.locator(".untranslated").all_inner_texts() == expected
    assert notes.inner_text().startswith("Perhaps not translated: ")
    # The line below the words has the style that the sentence shows.
    line = "(place) => getComputedStyle(document.querySelector(place)).textDecorationStyle"
    assert page.tab.evaluate(line, ".word-notes .untranslated") == "wavy"
    # A screen reader in the source field hears the note as well.
    assert page.source.get_attribute("aria-describedby") == notes.get_attribute("id")
    page.translate("we were here .")
    page.until(lambda: not page.marks().get("untranslated"), "the end of a mark")
    assert "not translated" not in notes.inner_text()
    page.translate("")
    assert not notes.is_visible()


def test_words_that_training_never_saw_have_a_dotted_line_and_are_named(page):
    page.translate("we жук were (жук), <i>жаба</i> I sleep .")
    page.until(lambda: page.marks().get("unknown"), "a mark")
    assert page.marks()["unknown"] == ["жук", "(жук),", "<i>жаба</i>"]
    notes = page.tab.locator(".word-notes")
    assert notes.locator(".unknown").all_inner_texts() == ["жук", "<i>жаба</i>"]
    assert "Never seen in training: жук, <i>жаба</i>" in notes.inner_text()
    line = "(place) => getComputedStyle(document.querySelector(place)).textDecorationStyle"
    assert page.tab.evaluate(line, ".word-notes .unknown") == "dotted"
    page.tab.select_option("#against", "rnn")  # it has no attention, and an equally small vocabulary
    page.until(lambda: page.tab.locator(".word-notes .unknown").count() == 4, "the notes of both")
    assert page.source.get_attribute("aria-describedby") == "words-A words-B"
    page.tab.select_option("#model", "han")
    page.source.fill("жук . ")
    page.until(lambda: page.marks().get("unknown") == ["жук"], "a mark in a document")
    assert page.tab.locator(".word-notes .unknown").all_inner_texts() == ["жук"]


def test_alternatives_have_their_probabilities(page):
    text = "we were here ."
    before = page.translate(text).split()
    page.tab.mouse.click(*page.place(".target", before[1]))
    page.tab.wait_for_selector(".menu button")
    run = load(STORED / "luong")
    shown = [
        (each.locator("b").inner_text(), each.locator(".value").inner_text())
        for each in page.tab.locator(".menu button").all()
    ]
    chances = []
    for word, value in shown:
        begun = f"{before[0]} {word}"
        (output,) = run.translate([text], prefixes=[begun], beam=10)
        tokens = run.tokenizers.target.encode(begun)
        (scored,) = run.score([text], [begun])
        first = len(run.tokenizers.target.encode(before[0]))
        chances.append(100 * math.e ** sum(scored.tokens[first : len(tokens)]))
        assert output.startswith(begun)
        assert value.endswith(" %")
        number = value.removesuffix(" %").strip("<>")
        assert float(number) == pytest.approx(chances[-1], abs=0.51 if chances[-1] >= 1 else 0.06), (word, value)
    assert chances == sorted(chances, reverse=True)


def test_the_last_translation_stays_in_grey_while_the_server_is_gone(browser, tmp_path):
    with serve_process(*stored("luong"), folder=tmp_path) as first, open_served(browser, first.address) as page:
        page.expected = REFUSED
        page.open()
        before = page.translate("we were here . I sleep .")
        first.signal(signal.SIGKILL)
        first.wait()
        colour = "getComputedStyle(document.querySelector('.target textarea')).color"
        usual = page.tab.evaluate(colour)
        page.source.fill("my old dog sleeps .")  # another text, about which nothing is known
        page.until(lambda: "does not answer" in page.notice, "the sentence")
        for _ in range(3):  # the notice stays, however often the page retries
            page.tab.wait_for_timeout(1200)
            shown = page.target.input_value()
            assert shown
            assert before.startswith(shown)
        assert page.tab.evaluate(colour) != usual
        assert "In grey: the last translation." in page.tab.locator(".target .state").inner_text()
        port = first.address.rsplit(":", 1)[1]
        with serve_process(*stored("luong"), folder=tmp_path, flags=("--port", port)):
            assert page.settle() == load(STORED / "luong").translate(["my old dog sleeps ."])[0]
            assert page.notice == ""
            assert page.tab.evaluate(colour) == usual


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_that_has_lost_its_server_is_asked_again(page, status):
    page.expected = REFUSED
    page.tab.route("**/v1/translate", lambda route: route.fulfill(status=status, body="<h1>Bad Gateway</h1>"))
    page.source.fill("we were here .")
    page.until(lambda: "The server does not answer." in page.notice, "the sentence")
    page.tab.unroute("**/v1/translate")
    assert page.settle()  # without a user action
    assert page.notice == ""


def test_a_link_names_a_model_with_or_without_a_text(browser, server):
    with open_served(browser, server.address, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.open("#model=rnn")
        assert page.tab.locator("#model").input_value() == "rnn"
        assert page.source.input_value() == ""
        page.translate("we were here .")
        page.tab.evaluate("location.hash = '#model=luong'")
        page.until(lambda: page.tab.locator("#model").input_value() == "luong", "the other model")
        assert page.source.input_value() == "we were here ."  # the link does not replace it
        page.settle()
        share = page.tab.locator(".tools button", has_text="Share")
        share.click()
        page.tab.locator(".tools button", has_text="Link copied").wait_for()
        link = page.tab.evaluate("navigator.clipboard.readText()")
        page.open("#" + link.split("#")[1])
        assert (page.tab.locator("#model").input_value(), page.source.input_value()) == ("luong", "we were here .")
        page.tab.evaluate("location.hash = '#model=none%20such'")
        page.until(lambda: "There is no model none such on this server" in page.notice, "the sentence")
        assert page.source.input_value() == "we were here ."
        page.tab.evaluate("location.hash = '#model=rnn'")
        page.until(lambda: page.notice == "", "the end of the notice")
