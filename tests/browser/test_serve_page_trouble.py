"""The page of `regard serve` when things go wrong: a server that is gone, busy or stopping, a key, hostile texts."""

import functools
import json
import shutil
import signal
from pathlib import Path

import pytest
from browser.served_pages import open_served
from serving.served import STORED, open_slowly, serve_process, stored
from tiny import document_table

from regard.tasks import start

pytestmark = pytest.mark.browser
TEXT = "we were here ."
# What a browser logs to its console when a request is refused or not answered.
REFUSED = ("Failed to load resource", "net::ERR")
MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script>"\'&amp;<b>'


def test_a_server_that_goes_away_takes_no_text_with_it(browser, tmp_path):
    with (
        serve_process(*stored("luong"), folder=tmp_path) as first,
        open_served(browser, first.address) as page,
    ):
        page.expected = REFUSED
        page.open()
        before = page.translate(TEXT)
        first.signal(signal.SIGKILL)
        first.wait()
        page.source.focus()
        page.source.press("End")
        page.tab.keyboard.type(" I sleep .", delay=10)
        page.until(lambda: "does not answer" in page.notice, "the sentence")
        assert "Your text stays here." in page.notice
        assert page.source.input_value() == f"{TEXT} I sleep ."
        assert page.target.input_value().startswith(before)  # the earlier translation stays
        port = first.address.rsplit(":", 1)[1]
        with serve_process(*stored("luong"), folder=tmp_path, flags=("--port", port)):
            if page.notice:  # it may have retried already
                page.tab.get_by_role("button", name="Try again").click(force=True)
            page.until(lambda: not page.notice, "the end of the notice")
            assert page.settle().startswith(before)
            assert len(page.target.input_value()) > len(before)


def test_it_tries_again_by_itself(browser, tmp_path):
    with serve_process(*stored("luong"), folder=tmp_path) as first, open_served(browser, first.address) as page:
        page.expected = REFUSED
        page.open()
        first.signal(signal.SIGKILL)
        first.wait()
        page.source.fill(TEXT)
        page.until(lambda: "Next try in" in page.notice, "the countdown")
        port = first.address.rsplit(":", 1)[1]
        with serve_process(*stored("luong"), folder=tmp_path, flags=("--port", port)):
            page.until(lambda: not page.notice, "the end of the notice")
            assert page.settle()


def test_a_server_that_opens_its_models_is_waited_for(browser, tmp_path):
    gate = tmp_path / "gate"
    with (
        serve_process(*stored("luong"), folder=tmp_path, ready=False, before=open_slowly(gate)) as server,
        open_served(browser, server.address) as page,
    ):
        page.expected = REFUSED
        page.tab.goto(server.address)
        page.until(lambda: "opening its models" in page.notice, "the sentence")
        gate.touch()
        page.tab.wait_for_selector("html[data-ready]", state="attached")
        assert page.translate(TEXT)
        assert page.notice == ""


def test_a_key_is_asked_for_and_kept_for_the_tab(browser, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("secret\n")
    with (
        serve_process(*stored("luong"), folder=tmp_path, keys=str(keys), rate=6) as server,
        open_served(browser, server.address) as page,
    ):
        page.expected = REFUSED
        page.tab.goto(server.address)  # the page itself needs no key
        for key in ("wrong", "secret"):
            page.tab.wait_for_selector("#key[open]")
            page.tab.fill("#key-text", key)
            page.tab.keyboard.press("Enter")
            page.until(lambda: page.tab.locator("#key-text").input_value() == "", "the form")
            if key == "wrong":
                page.until(lambda: "does not know this key" in page.tab.locator("#key").inner_text(), "a word")
        page.tab.wait_for_selector("html[data-ready]", state="attached")
        assert page.translate(TEXT)
        assert page.tab.evaluate("[sessionStorage.getItem('regard.key'), localStorage.getItem('regard.key')]") == [
            "secret",
            None,
        ]
        for number in range(9):  # the limit is six a minute: now the server is busy
            page.source.fill(f"{TEXT} I sleep {number} .")
            page.tab.wait_for_timeout(50)
        page.until(lambda: "The server is busy." in page.notice, "the sentence")
        assert "Next try in" in page.notice
        assert page.source.input_value() == f"{TEXT} I sleep 8 ."


def refuse(route, **answer):
    route.fulfill(**answer)


def test_a_server_that_stops_or_refuses_says_so(browser, tmp_path):
    with (
        serve_process(*stored("luong"), folder=tmp_path, characters=200) as server,
        open_served(browser, server.address) as page,
    ):
        page.expected = REFUSED
        page.open()
        for status, code, said in (
            (503, "draining", "The server is stopping."),
            (429, "overloaded", "The server is busy."),
            (500, "internal", "Something went wrong on the server."),
            (504, "deadline", "The server took too long."),
            (422, "invalid_value", f"The server refuses this: {MARKUP}"),
            (413, "too_large", f"The server refuses this: {MARKUP}"),
        ):
            body = json.dumps({"error": {"code": code, "message": MARKUP, "field": None}})
            headers = {"retry-after": "1", "content-type": "application/json"}
            answer = functools.partial(refuse, status=status, body=body, headers=headers)
            page.tab.route("**/v1/translate", answer)
            page.source.fill(f"{TEXT} {status}")
            page.until(lambda said=said: said in page.notice, said)
            assert page.source.input_value() == f"{TEXT} {status}"
            page.tab.unroute("**/v1/translate")
            page.tab.get_by_role("button", name="Try again").click(force=True)
            page.until(lambda: not page.notice, "the end of the notice")
            assert page.settle()
        page.translate("word " * 200)  # longer than a request may be: the page sends it in parts


def test_text_is_never_markup(browser, tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(3)>"
    shutil.copytree(STORED / "luong", folder, symlinks=True)
    han, table = tmp_path / "han", document_table(tmp_path)
    documents = Path(table["data"]["documents"])
    documents.write_text(documents.read_text().replace("positive\t", f"{MARKUP}\t"))
    start(table, han)
    runs = (str(folder), f"<b>han</b>={han}", *stored("captioner"))
    with serve_process(*runs, folder=tmp_path) as server, open_served(browser, server.address) as page:
        page.open()
        assert page.tab.locator("#model").input_value() == folder.name
        page.translate(f"{MARKUP} . {TEXT}")
        page.tab.mouse.move(*page.place(".source", "we"))
        page.until(lambda: page.marks().get("lit"), "a mark")
        page.source.press("End")
        page.tab.get_by_role("button", name="Look inside").click()
        page.tab.frame_locator("iframe.ready").locator("section").first.wait_for()
        page.tab.wait_for_timeout(1700)  # until the page has stored it in the history
        page.tab.get_by_role("button", name="History").click()
        assert "<img src=x" in page.tab.locator("#past").inner_text()
        page.tab.keyboard.press("Escape")
        page.tab.select_option("#model", "<b>han</b>")
        page.source.fill(MARKUP)
        page.until(lambda: page.tab.locator(".bars").count() == 1, "the label")
        assert MARKUP in page.tab.locator(".bars dt").all_inner_texts()
        page.tab.select_option("#model", "captioner")
        picture = {"name": f"{MARKUP}.png", "mimeType": "image/png", "buffer": (STORED / "0.png").read_bytes()}
        page.tab.set_input_files("#picture", picture)
        page.tab.wait_for_selector(".caption .first")
        assert MARKUP in page.tab.locator(".preview img").get_attribute("alt")
        assert page.tab.locator("main img:not(.preview img), main script, main b b").count() == 0
        page.open(f"#model={MARKUP}&text={MARKUP}")
        page.tab.reload()
        page.tab.wait_for_selector("html[data-ready]", state="attached")
        assert "<img" in page.source.input_value()


def test_what_is_no_picture_is_refused_in_a_sentence(browser, tmp_path):
    with (
        serve_process(*stored("captioner"), folder=tmp_path, picture_bytes=2000) as server,
        open_served(browser, server.address) as page,
    ):
        page.expected = REFUSED
        page.open()
        broken = {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"}
        page.tab.set_input_files("#picture", broken)
        page.until(lambda: "refuses this" in page.notice, "the sentence")
        large = {"name": "b.png", "mimeType": "image/png", "buffer": b"x" * 3000}
        page.tab.set_input_files("#picture", large)
        page.until(lambda: "cannot be read" in page.notice, "the sentence")
        page.tab.set_input_files("#picture", STORED / "0.png")
        page.tab.wait_for_selector(".caption .first")
        assert page.notice == ""
