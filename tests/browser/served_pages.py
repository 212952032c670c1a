"""The page of `regard serve` in a real browser: a tab that records every error, and helpers for tests."""

import contextlib
import json
import time
from collections.abc import Iterator

import pytest

WAIT = 60.0  # seconds that any step may take on a busy machine

# The middle of a part of a field's text, in screen coordinates.
MIDDLE = """([field, part]) => {
  for (const line of document.querySelectorAll(`${field} .under > div`)) {
    const node = line.firstChild, at = node.data.indexOf(part);
    if (at < 0) continue;
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + part.length);
    const box = range.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }
  return null;
}"""
MARKS = """() => Object.fromEntries([...CSS.highlights].map(([name, all]) => [name, [...all].map((range) =>
  range.startContainer.data.slice(range.startOffset, range.endOffset))]))"""


class ServedTab:
    """A browser tab with a server's page in it."""

    def __init__(self, tab, address: str):
        self.tab, self.address = tab, address
        self.wrong: list[str] = []
        self.sent: list[tuple[str, dict]] = []  # routes and request bodies
        self.cancelled: list[str] = []
        self.expected: tuple[str, ...] = ()  # console errors that a test causes
        tab.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.on("request", self.note)
        tab.on("requestfailed", lambda sent: self.cancelled.append(sent.failure or ""))

    def note(self, sent) -> None:
        """Record a request; one that leaves the server is an error."""
        if not sent.url.startswith((self.address, "blob:", "data:")):
            self.wrong.append(f"request: {sent.url[:80]}")
        if sent.method == "POST" and "json" in sent.headers.get("content-type", ""):
            self.sent.append((sent.url.removeprefix(self.address), json.loads(sent.post_data or "{}")))

    def open(self, fragment: str = "") -> None:
        """Open the page and wait until it is ready."""
        self.tab.goto(f"{self.address}/{fragment}")
        self.tab.wait_for_selector("html[data-ready]", state="attached")

    def until(self, true, what: str = "it") -> None:
        """Wait until a condition is true."""
        end = time.monotonic() + WAIT
        while not true():
            if time.monotonic() > end:
                pytest.fail(f"{what} did not come; the page says {self.tab.locator('body').inner_text()[:600]!r}")
            self.tab.wait_for_timeout(20)

    @property
    def source(self):
        """The source field."""
        return self.tab.locator(".source textarea")

    @property
    def target(self):
        """The field of the first translation."""
        return self.tab.locator(".target textarea").first

    @property
    def notice(self) -> str:
        """The visible notice about a server that does not answer."""
        return self.tab.evaluate(
            "[...document.querySelectorAll('.notice')].filter((each) => each.checkVisibility())"
            ".map((each) => each.innerText).join(' ')"
        )

    def settle(self) -> str:
        """Wait until every sentence is translated, and return the translation."""
        self.until(lambda: self.tab.locator(".target[data-left='0']").count() > 0, "a translation")
        return self.target.input_value()

    def translate(self, text: str) -> str:
        """Enter a text into the source field, and wait for its translation."""
        self.source.fill(text)
        return self.settle()

    def place(self, field: str, part: str) -> tuple[float, float]:
        """Return the screen position of a part of a field's text."""
        return self.tab.evaluate(MIDDLE, [field, part])

    def marks(self) -> dict[str, list[str]]:
        """The marked texts by kind of mark."""
        return self.tab.evaluate(MARKS)


@contextlib.contextmanager
def open_served(browser, address: str, **settings) -> Iterator[ServedTab]:
    """Open a server's page; on exit check that there were no errors and no requests to other servers."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **settings})
    context.set_default_timeout(1000 * WAIT)
    page = ServedTab(context.new_page(), address)
    try:
        yield page
    finally:
        context.close()
    wrong = [each for each in page.wrong if not any(text in each for text in page.expected)]
    assert not wrong, wrong
