"""The time from a keystroke to the translation on the screen, with the model that `regard demo` trains.

    REGARD_DEMO=runs/demo .venv/bin/python -m pytest -s tests/browser/test_serve_page_speed.py

measures an existing run; without the variable the test trains the demo first.
"""

import os
import statistics
from pathlib import Path

import pytest
from browser.served_pages import open_served
from serving.served import serve_process

from regard_corpora import STEPS, demonstrate

pytestmark = [pytest.mark.slow, pytest.mark.browser]
SENTENCES = [
    "I ate pizza yesterday.",
    "Where do you live?",
    "the old man sleeps in the small house",
    "my sister bought a new car yesterday because she had money",
    "The dog sleeps.",
    "i don't lose their black keys",
    "we will visit our friends tomorrow",
    "the teacher who lives here reads a book",
    "he wants to drink cold water",
    "can you help the children today?",
]
MOST = 150  # milliseconds

# Record when a letter was typed, and when the whole text was next translated and painted.
WATCH = """() => {
  const source = document.querySelector(".source textarea"), pane = document.querySelector(".target");
  let pressed = 0, typed = null;
  source.addEventListener("keydown", (event) => (pressed = event.timeStamp), true);
  source.addEventListener("input", () => (typed = pressed), true);
  window.took = null;
  new MutationObserver(() => {
    if (typed === null || pane.dataset.left !== "0") return;
    const from = typed, channel = new MessageChannel();
    typed = null;
    channel.port1.onmessage = () => (window.took = performance.now() - from);
    requestAnimationFrame(() => channel.port2.postMessage(null)); // after the frame was drawn
  }).observe(pane, { subtree: true, childList: true, attributes: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    given = os.environ.get("REGARD_DEMO")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("demo") / "demo"
    demonstrate(folder, steps=STEPS)
    return folder


def test_a_translation_is_there_within_150_milliseconds(browser, run, tmp_path):
    """Measure from the last keystroke to the painted text, with only the page, the server and the search in between."""
    times = []
    with serve_process(str(run), folder=tmp_path) as server, open_served(browser, server.address) as page:
        page.open()
        page.tab.evaluate(WATCH)
        for number in range(6):
            for sentence in SENTENCES:
                text = sentence if number == 0 else f"{sentence[:-1]} {number}{sentence[-1]}"
                page.source.fill("")
                page.tab.keyboard.type(text[:-1], delay=15)
                page.tab.wait_for_timeout(300 if number % 2 else 40)  # after a pause, and while typing
                page.tab.evaluate("window.took = null")
                page.tab.keyboard.type(text[-1])
                page.until(lambda: page.tab.evaluate("window.took") is not None, "a translation")
                times.append(page.tab.evaluate("window.took"))
    times.sort()
    median, most = statistics.median(times), times[int(0.95 * len(times))]
    print(f"{len(times)} keystrokes: median {median:.0f} ms, 95th percentile {most:.0f} ms, slowest {times[-1]:.0f} ms")
    assert times[len(times) // 10] < MOST  # the tenth that other work on this machine disturbed least
