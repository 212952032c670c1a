"""The page splits a text as its model needs it: into sentences, also without capitals, or into lines."""

import shutil

import pytest
from browser.served_pages import open_served
from serving.served import STORED, serve_process

from regard import load
from regard.data import sentence_split

pytestmark = pytest.mark.browser
TEXTS = {  # each with its sentences
    "we were here. I sleep. She cries.": ["we were here.", "I sleep.", "She cries."],
    "we were here. she cries there.": ["we were here.", "she cries there."],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(STORED / "luong", folder / "stories")
    (folder / "stories" / sentence_split.FILE).write_text(sentence_split.SentenceShare(100, 50).dumps())
    with serve_process(str(STORED / "luong"), str(folder / "stories"), folder=folder) as process:
        yield process


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("model", ["luong", "stories"])
def test_a_text_is_cut_as_the_model_wants_it(browser, server, model, text):
    parts = TEXTS[text] if model == "luong" else [text]
    expected = " ".join(load(STORED / "luong").translate(parts, split=False))
    with open_served(browser, server.address) as page:
        page.open(f"#model={model}&text=x")
        assert page.translate(text) == expected
        asked = [each for path, table in page.sent if path == "/v1/translate" for each in table["texts"]]
        assert set(parts) <= set(asked)
        assert page.source.input_value() == text
