"""A real browser: the Chromium of this machine."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser():
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'regard[dev]'")
    if CHROMIUM is None:
        pytest.skip("no Chromium on the path")
    with driver.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open pages from files without a network; at the end check that there were no requests and no errors."""
    contexts, wrong = [], []

    def open_(made, **settings):
        context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True, **settings)
        contexts.append(context)
        context.set_default_timeout(120_000)  # other tests make the machine slow
        tab = context.new_page()
        path = made.save(tmp_path / f"look-{len(contexts)}.html")
        tab.on("console", lambda message: wrong.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.on(
            "request",
            lambda sent: (
                sent.url.startswith((path.as_uri(), "data:", "blob:")) or wrong.append(f"request: {sent.url[:80]}")
            ),
        )
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []
