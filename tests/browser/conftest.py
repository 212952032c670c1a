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
