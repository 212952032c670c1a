"""The page at `/`: one document that loads nothing else, names its scripts by their hashes, and needs no key."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest
from serving.served import serve, settings_of, stored

from regard import __version__
from regard.data import sentence_split
from regard.serving.app import FRAME, PAGE, SCRIPTS, STYLES, build_frame, build_page

VOID = {"meta", "input", "br", "img", "link"}


class Structure(HTMLParser):
    """The elements of a document, and the texts of its scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], {"script": [], "style": []}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in self.texts:
            self.texts[self.open[-1]][-1] += data


@pytest.fixture(scope="module", params=[PAGE, FRAME])
def built(request):
    return build_page(settings_of()) if request.param == PAGE else build_frame()


def policy_of(headers):
    return dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))


def test_the_policy_names_what_the_page_carries_by_its_hash(built):
    text, headers = built
    policy, found = policy_of(headers), Structure(text)
    for kind in ("script", "style"):
        code = found.texts[kind][-1]
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
        assert len(code) > 1000


def test_the_policy_allows_nothing_else(built):
    policy = policy_of(built[1])
    assert policy["default-src"] == "'none'"
    assert policy["base-uri"] == policy["form-action"] == "'none'"
    page = "connect-src" in policy
    assert policy["frame-ancestors"] == ("'none'" if page else "'self'")
    rest = {"connect-src": "'self'", "img-src": "blob: data:", "frame-src": "'self'"} if page else {"img-src": "data:"}
    known = {"default-src", "script-src", "style-src", "base-uri", "form-action", "frame-ancestors"}
    assert {name: value for name, value in policy.items() if name not in known} == rest


def test_nothing_in_it_points_elsewhere_or_is_inline(built):
    text = built[0].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(|XMLHttp|WebSocket|sendBeacon|innerHTML|eval\(", text)
    for tag, attributes in Structure(built[0]).elements:
        assert not {"src", "style", "integrity"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith(("#", "data:image/svg+xml,")), tag


def test_every_file_is_in_use():
    there = {each.name for each in resources.files("regard.serving").joinpath("static").iterdir()}
    frame = {"page.html", "frame.css"}
    assert there == {f"{name}.js" for name in SCRIPTS} | {f"{name}.css" for name in STYLES} | frame


def test_the_page_knows_the_limits_of_its_server_and_how_sentences_end():
    text, _ = build_page(settings_of(characters=77, texts=5))
    carried = json.loads(Structure(text).texts["script"][0])
    assert (carried["limits"]["characters"], carried["limits"]["texts"]) == (77, 5)
    assert carried["limits"]["version"] == __version__
    assert carried["sentences"]["short"] == sentence_split.SHORT.pattern
    assert "<!-- " not in text


@pytest.mark.parametrize("path", [PAGE, FRAME])
def test_it_is_sent_with_its_headers_without_a_key_and_before_models_are_open(tmp_path, path):
    (tmp_path / "keys").write_text("secret\n")
    with serve(*stored("rnn"), start=False, keys=str(tmp_path / "keys")) as served:
        answer = served.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == ("DENY" if path == PAGE else "SAMEORIGIN")
        assert "'sha256-" in answer.headers["content-security-policy"]
        assert served.call(served.client.head(path)).content == b""
        assert served.post(path, {}).status_code == 405
        assert served.get(path, headers={"Host": "evil.example"}).status_code == 421
        assert served.get("/v1/models").status_code == 401
        assert path not in served.get("/openapi.json").json()["paths"]
