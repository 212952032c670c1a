"""LibreTranslate's protocol: its own client, and requests in every form that other clients send."""

import json
import re
import urllib.error

import jsonschema
import pytest
import schemathesis
from libretranslatepy import LibreTranslateAPI
from serving.libretranslate.test_markup import letters
from serving.served import serve, serve_process, stored

from regard.serving.errors import PROTOCOL_PATHS
from regard.serving.libretranslate.routes import WORDS
from regard.serving.models import ServedModel

KEYS = "# keys\nfirst key\nsecond\n"
SRT = """1
00:00:01,000 --> 00:00:02,500
The dog sleeps.

2
00:00:03,000 --> 00:00:04,000
<i>Where</i>
do you live?
"""


@pytest.fixture(scope="module")
def runs(furnish):
    return furnish(book="phrasebook", tagged="tagged", digits="transformer")


@pytest.fixture(scope="module")
def server(runs):
    with serve(str(runs / "book")) as found:
        yield found


@pytest.fixture(scope="module")
def process(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    (folder / "keys.txt").write_text(KEYS)
    names = ("book", "digits")
    with serve_process(*(str(runs / name) for name in names), folder=folder, keys=str(folder / "keys.txt")) as found:
        yield found


def ask(server, **fields):
    """Send a request, check that it succeeds, and return the answer."""
    answer = server.post("/translate", {"source": "en", "target": "de", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer, status, *words):
    """Check that an error has LibreTranslate's form, and return its message."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    for word in words:
        assert word in answer.json()["error"]
    return answer.json()["error"]


def usual(server, *texts, **fields):
    """Return the translations of /v1/translate."""
    return [each["text"] for each in server.results("/v1/translate", {"texts": texts, **fields})]


# ---- with LibreTranslate's own client


def test_its_own_client(process):
    client = LibreTranslateAPI(process.address, api_key="second")
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de", "en"]},
        {"code": "de", "name": "German", "targets": ["de"]},
    ]
    (best, *_) = client.detect("Where do you live?")
    assert best["language"] == "en"
    assert 50 < best["confidence"] <= 100
    headers = {"authorization": "Bearer second"}
    with process.client(headers=headers) as other:
        table = {"texts": ["The dog sleeps. Where do you live?"], "model": "book"}
        expected = other.post("/v1/translate", json=table).json()["results"][0]["text"]
    assert client.translate("The dog sleeps. Where do you live?", "en", "de") == expected
    assert client.translate("The dog sleeps. Where do you live?", "auto", "de") == expected


def test_its_own_client_without_a_key(process):
    for key, status in ((None, 400), ("third", 403)):
        with pytest.raises(urllib.error.HTTPError) as error:
            LibreTranslateAPI(process.address, api_key=key).translate("The dog sleeps.", "en", "de")
        assert error.value.code == status
        assert list(json.load(error.value)) == ["error"]
    assert LibreTranslateAPI(process.address).languages()[0]["code"] == "en"


def test_a_key_is_in_the_body_in_a_header_or_in_the_address(process):
    fields = {"q": "The dog sleeps.", "source": "en", "target": "de"}
    with process.client() as client:
        assert client.post("/translate", json={**fields, "api_key": "first key"}).status_code == 200
        assert client.post("/translate", data={**fields, "api_key": "second"}).status_code == 200
        assert client.post("/translate", params={"api_key": "second"}, data=fields).status_code == 200
        assert client.post("/translate", json=fields, headers={"x-api-key": "second"}).status_code == 200
        assert client.post("/translate", json=fields, headers={"authorization": "Bearer second"}).status_code == 200
        refused(client.post("/translate", json=fields, headers={"x-api-key": "wrong"}), 403, "Invalid API key")
        refused(client.post("/translate", json={**fields, "api_key": "wrong"}), 403)
        refused(client.post("/translate", json={**fields, "api_key": ["second"]}), 403)
        refused(client.post("/detect", json={"q": "x"}), 400, "API key")
        refused(client.post("/suggest", json={"q": "x"}), 400, "API key")
        refused(client.post("/translate_file", data=fields, files={"file": ("a.txt", b"x")}), 400, "API key")
        for path in ("/languages", "/frontend/settings", "/health", "/spec"):
            assert client.get(path).status_code == 200
        assert client.post("/v1/translate", json={"texts": ["x"], "api_key": "second"}).status_code == 401


def test_the_start_says_which_model_is_left_out(process):
    line = process.wait_for("digits is not at /translate: ")
    assert line == "its languages are not known; give them with --languages digits=en-de"
    assert "book is not" not in process.stderr


# ---- translate


def test_a_text_is_translated_as_elsewhere(server):
    texts = ["The dog sleeps.", "Where do you live? I eat bread.\nThe child sings."]
    expected = usual(server, *texts)
    assert ask(server, q=texts[0]) == {"translatedText": expected[0]}
    assert ask(server, q=texts) == {"translatedText": expected}
    assert ask(server, q=texts[:1]) == {"translatedText": expected[:1]}
    assert ask(server, q=f"\n {texts[0]} \n\n")["translatedText"] == f"\n {expected[0]} \n\n"
    assert ask(server, q=" \n")["translatedText"] == " \n"
    assert ask(server, q=["", texts[0]])["translatedText"] == ["", expected[0]]


def test_forms_that_other_clients_send(server):
    fields = {"q": "The dog sleeps.", "source": "en", "target": "de"}
    expected = {"translatedText": usual(server, fields["q"])[0]}
    kinds = [
        {"data": fields},
        {"json": fields},
        {"json": {**fields, "format": "text", "api_key": "", "alternatives": 0, "unknown": 1}},
        {"data": {**fields, "format": "text", "api_key": "", "alternatives": "0"}},
        {"params": fields},
        {"params": {"source": "en", "target": "de"}, "data": {"q": fields["q"]}},
        {"files": {name: (None, value) for name, value in fields.items()}},
        {"content": json.dumps(fields).encode()},  # without a content type
        {"content": json.dumps(fields).encode(), "headers": {"content-type": "text/plain;charset=UTF-8"}},
        {"content": json.dumps(fields).encode(), "headers": {"content-type": "application/json; charset=utf-8"}},
        {"json": {**fields, "source": "EN", "target": "de-AT"}},
    ]
    for kind in kinds:
        answer = server.post("/translate", **kind)
        assert answer.status_code == 200, (kind, answer.text)
        assert answer.json() == expected, kind
    both = server.post("/translate", data={**fields, "q": ["The dog sleeps.", "The dog sleeps."]}).json()
    assert both == {"translatedText": [expected["translatedText"]] * 2}
    lines = server.post("/translate", data={**fields, "q": "The dog sleeps.\r\nThe dog sleeps."}).json()
    assert lines["translatedText"] == "\n".join([expected["translatedText"]] * 2)


def test_the_language_of_a_text_is_detected(server):
    text = "Where do you live now?"
    answer = ask(server, q=text, source="auto")
    assert answer["translatedText"] == usual(server, text)[0]
    assert answer["detectedLanguage"]["language"] == "en"
    assert 50 < answer["detectedLanguage"]["confidence"] <= 100
    # Text in the target language stays as it is.
    answer = ask(server, q=[text, "Wo wohnst du denn, mein Freund?", ""], source="auto")
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "de", "en"]
    assert answer["translatedText"][1] == "Wo wohnst du denn, mein Freund?"
    assert ask(server, q=text, target="en") == {"translatedText": text}


def test_the_language_of_a_page_is_that_of_its_text(server):
    page = '<p class="where do you live the dog sleeps" title="I eat the bread and the apple">Wo wohnst du denn?</p>'
    assert ask(server, q=page, source="auto")["detectedLanguage"]["language"] == "en"
    answer = ask(server, q=page, source="auto", format="html")
    assert answer["detectedLanguage"]["language"] == "de"
    assert answer["translatedText"] == page


def test_alternatives(server):
    one = ask(server, q="The dog sleeps.", alternatives=3)
    outputs = server.results("/v1/translate", {"texts": ["The dog sleeps."], "nbest": 4})[0]["outputs"]
    others = list(dict.fromkeys(each["text"] for each in outputs))[1:]
    assert one["alternatives"] == others
    many = ask(server, q=["The dog sleeps."] * 2, alternatives=3)
    assert many["alternatives"] == [others, others]
    wide = ask(server, q="The dog sleeps.", alternatives=9)
    assert len(wide["alternatives"]) > len(others)


MISTAKES = [
    ({}, "missing q"),
    ({"q": "x"}, "missing source"),
    ({"q": "x", "source": "en"}, "missing target"),
    ({"source": "en", "target": "de"}, "missing q"),
    ({"q": "", "source": "en", "target": "de"}, "missing q"),
    ({"q": [], "source": "en", "target": "de"}, "missing q"),
    ({"q": None, "source": "en", "target": "de"}, "missing q"),
    ({"q": 5, "source": "en", "target": "de"}, "q: 5 given, expected a text"),
    ({"q": ["a", 5], "source": "en", "target": "de"}, "q[1]: 5 given, expected a text"),
    ({"q": {"a": 1}, "source": "en", "target": "de"}, "expected a text"),
    ({"q": "x", "source": "xx", "target": "de"}, '"xx" is not supported'),
    ({"q": "x", "source": "en", "target": "xx"}, '"xx" is not supported'),
    ({"q": "x", "source": "en", "target": "auto"}, '"auto" is not supported'),
    ({"q": "x", "source": ["en"], "target": "de"}, "is not supported"),
    ({"q": "x", "source": 7, "target": {}}, "is not supported"),
    ({"q": "x", "source": "en", "target": {"a": 1}}, "is not supported"),
    ({"q": "x", "source": "de", "target": "en"}, "English (en) is not available as a target language from German (de)"),
    ({"q": "x", "source": "en", "target": "de", "format": "pdf"}, '"pdf" format is not supported'),
    ({"q": "x", "source": "en", "target": "de", "format": ["html"]}, "format is not supported"),
    ({"q": "x", "source": "en", "target": "de", "alternatives": -1}, "alternatives"),
    ({"q": "x", "source": "en", "target": "de", "alternatives": "many"}, "alternatives"),
    ({"q": "x", "source": "en", "target": "de", "alternatives": True}, "alternatives"),
    ({"q": "x", "source": "en", "target": "de", "alternatives": 1000}, "1,000 alternatives exceed the limit of 99"),
    ({"q": "x" * 20_001, "source": "en", "target": "de"}, "request (20001) exceeds text limit (20000)"),
    ({"q": ["x" * 15_000] * 2, "source": "en", "target": "de"}, "exceeds text limit"),
    ({"q": ["x"] * 129, "source": "en", "target": "de"}, "129 texts exceed the limit of 128"),
]


@pytest.mark.parametrize(("fields", "words"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistakes(server, fields, words):
    refused(server.post("/translate", fields), 400, words)


def test_bodies_that_cannot_be_read(server):
    for body in (b"", b"{", b"[]", b"\xff", b"null", b'{"q": "\\ud800", "source": "en", "target": "de"}', b"&" * 1000):
        for kind in ("application/json", "application/x-www-form-urlencoded", "", "multipart/form-data", "text/html"):
            answer = server.post("/translate", content=body, headers={"content-type": kind})
            refused(answer, 400)
    refused(server.post("/translate", content=b"q=x&" * 1000), 400)


def test_wrong_methods_and_paths(server):
    for path in sorted(PROTOCOL_PATHS):
        method = "get" if path in ("/translate", "/translate_file", "/detect", "/suggest") else "post"
        refused(getattr(server, method)(path), 405)
    refused(server.get("/download_file/none"), 404, "no such file")
    assert "code" in server.get("/none").json()["error"]  # not a path of LibreTranslate
    refused(server.post("/suggest", {"q": "x", "s": "y", "source": "en", "target": "de"}), 403, "disabled")


# ---- HTML


def test_a_block_is_translated_whole(server):
    text = "Where do you live? The dog sleeps."
    answer = ask(server, q="<p>Where do <b>you</b> live? The <i>dog</i> sleeps.</p>", format="html")["translatedText"]
    assert re.sub("<[^>]*>", "", answer) == usual(server, text)[0]
    assert [tag for tag in re.findall("<[^>]*>", answer) if "p" not in tag] in (
        ["<b>", "</b>", "<i>", "</i>"],
        ["<i>", "</i>", "<b>", "</b>"],
    )
    answer = ask(server, q=["<p>The dog</p>", "<code>x</code>"], format="html", alternatives=2)
    assert answer["translatedText"][1] == "<code>x</code>"
    assert answer["alternatives"][1] == []
    assert all(each.startswith("<p>") for each in answer["alternatives"][0])


def test_a_long_page_is_aligned_in_parts_and_others_are_served_between(server, monkeypatch):
    """Tags are placed as in short pages; each call of a worker takes only a few sentences."""
    blocks = ["<p>The <b>dog</b> sleeps.</p>", "<p>Where do <i>you</i> live?</p>"]
    apart = ask(server, q=blocks, format="html")["translatedText"]
    sizes, call = [], ServedModel.call

    async def note(model, function, *languages):
        found = await call(model, function, *languages)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(ServedModel, "call", note)
    whole = ask(server, q="".join(blocks * 20), format="html")["translatedText"]
    assert whole == "".join(apart * 20)
    assert sum(sizes) == 40
    assert max(sizes) <= 16


def test_text_is_not_markup_and_markup_is_not_text(server):
    plain = ask(server, q="a < b & <b>c</b>")["translatedText"]
    assert "&lt;" not in plain
    assert plain == usual(server, "a < b & <b>c</b>")[0]


def test_a_model_without_attention_places_tags_in_proportion(runs):
    with serve(f"plain={stored('rnn')[0]}") as server:
        answer = ask(server, q="<p>The <b>dog</b> sleeps.</p>", format="html")["translatedText"]
        assert re.sub("<[^>]*>", "", answer) == usual(server, "The dog sleeps.")[0]
        assert answer.count("<b>") == answer.count("</b>") == 1


# ---- several models, tags, models without output


def test_tags_stand_before_every_sentence(runs):
    with serve(str(runs / "tagged")) as server:
        codes = {each["code"]: each["targets"] for each in server.get("/languages").json()}
        assert codes == {"en": ["de", "fr", "en"], "de": ["de"], "fr": ["fr"]}
        sentences = ["The dog sleeps.", "Where do you live?", "I eat bread."]
        text = f"{sentences[0]} {sentences[1]}\n\n{sentences[2]}"
        sums = {}
        for language in ("de", "fr"):
            apart = server.results("/v1/translate", {"texts": [f"<2{language}> {each}" for each in sentences]})
            one, two, three = (each["text"] for each in apart)
            expected = f"{one} {two}\n\n{three}"
            assert ask(server, q=text, target=language)["translatedText"] == expected
            (whole,) = server.results("/v1/translate", {"texts": [f"<2{language}> {text}"]})
            assert whole["text"] == expected
            sums[language] = sum(each["outputs"][0]["log_prob"] for each in apart)
            assert whole["outputs"][0]["log_prob"] == pytest.approx(sums[language], abs=1e-3)
        assert abs(sums["de"] - sums["fr"]) > 0.01  # a tag makes a difference
        marked = ask(server, q="<p>The <b>dog</b> sleeps. <i>Where</i> do you live?</p>", target="fr", format="html")
        words = usual(server, "<2fr> The dog sleeps. Where do you live?")[0]
        assert re.sub("<[^>]*>", "", marked["translatedText"]) == words
        detected = ask(server, q="Where do you live now?", source="auto", target="fr")["detectedLanguage"]
        assert detected["language"] == "en"


def test_the_model_is_chosen_by_its_languages(runs):
    names = [f"de={runs / 'book'}", f"fr={runs / 'tagged'}", f"other={stored('transformer')[0]}", str(runs / "digits")]
    with serve(*names, languages=["other=nl-en"]) as server:
        codes = {each["code"]: each["targets"] for each in server.get("/languages").json()}
        assert codes == {"en": ["de", "fr", "en"], "nl": ["en", "nl"], "de": ["de"], "fr": ["fr"]}
        text = "The dog sleeps."
        assert ask(server, q=text)["translatedText"] == usual(server, text, model="de")[0]
        assert ask(server, q=text, target="fr")["translatedText"] == usual(server, f"<2fr> {text}", model="fr")[0]
        assert ask(server, q=text, source="nl", target="en")["translatedText"] == usual(server, text, model="other")[0]
        refused(server.post("/translate", {"q": text, "source": "nl", "target": "de"}), 400, "Dutch (nl)")


def test_runs_without_profiles_have_no_confidence():
    with serve(*stored("transformer")) as server:
        assert server.post("/detect", {"q": "The dog sleeps."}).json() == [{"confidence": 0.0, "language": "en"}]
        answer = ask(server, q="The dog sleeps.", source="auto")
        assert answer["detectedLanguage"] == {"confidence": 0.0, "language": "en"}
        assert answer["translatedText"] == usual(server, "The dog sleeps.")[0]


def test_without_any_language(runs):
    with serve(str(runs / "digits")) as server:
        assert server.get("/languages").json() == []
        assert server.post("/detect", {"q": "x"}).json() == []
        assert server.get("/frontend/settings").json()["language"]["source"] == {"code": "", "name": ""}
        refused(server.post("/translate", {"q": "x", "source": "auto", "target": "de"}), 400, "not supported")


# ---- files


def send_file(server, name, content, **fields):
    fields = {"source": "en", "target": "de", **fields}
    return server.post("/translate_file", data=fields, files={"file": (name, content)})


def fetch_file(server, answer):
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.startswith("http://localhost/download_file/")
    found = server.get(url)
    assert found.status_code == 200
    assert found.headers["content-disposition"].startswith("attachment")
    assert found.headers["x-content-type-options"] == "nosniff"
    return found


def test_files_of_text_html_and_subtitles(server):
    text = "The dog sleeps.\n\nWhere do you live?\n"
    one, two = usual(server, "The dog sleeps.", "Where do you live?")
    found = fetch_file(server, send_file(server, "a b.txt", text.encode()))
    assert found.text == f"{one}\n\n{two}\n"
    assert 'filename="a_b_de.txt"' in found.headers["content-disposition"]
    page = "<!DOCTYPE html><title>The dog</title><p>Where do <b>you</b> live?</p>"
    found = fetch_file(server, send_file(server, "x.HTML", page.encode(), source="auto")).text
    assert found.startswith("<!DOCTYPE html><title>")
    assert letters([re.sub("<[^>]*>", "", found.partition("</title>")[2])]) == letters([two])
    found = fetch_file(server, send_file(server, "x.srt", b"\xef\xbb\xbf" + SRT.replace("\n", "\r\n").encode())).text
    assert re.findall(r"^(?:\d+|.*-->.*)$", found, re.MULTILINE) == re.findall(r"^(?:\d+|.*-->.*)$", SRT, re.MULTILINE)
    assert found.splitlines()[2] == one
    assert re.sub("<[^>]*>", "", " ".join(found.splitlines()[6:8])) == two
    # Text in the target language comes back as it is.
    assert fetch_file(server, send_file(server, "x.txt", text.encode(), target="en")).text == text


def test_files_that_are_refused(server):
    refused(send_file(server, "x.pdf", b"x"), 400, '"x.pdf" is not supported, expected .txt, .html, .htm, .srt')
    refused(send_file(server, "x.txt", b"x" * 20_001), 400, "exceeds text limit")
    refused(send_file(server, "x.txt", b"x", target="xx"), 400, '"xx" is not supported')
    refused(send_file(server, "x.txt", b"x", source=""), 400, "missing source")
    refused(server.post("/translate_file", data={"source": "en", "target": "de"}), 400, "missing file")
    refused(server.post("/translate_file", {"file": "x", "source": "en", "target": "de"}), 400, "missing file")
    refused(send_file(server, "x.txt", b"x" * 1_100_000), 413, "larger than")
    two = [("file", ("a.txt", b"x")), ("file", ("b.txt", b"y"))]
    refused(server.post("/translate_file", data={"source": "en", "target": "de"}, files=two), 400)


# ---- limits and descriptions


def test_limits_hold_here_too(runs, tmp_path):
    fields = {"q": "The dog sleeps.", "source": "en", "target": "de"}
    (tmp_path / "keys.txt").write_text("key\n")
    with serve(str(runs / "book"), keys=str(tmp_path / "keys.txt"), rate=2) as server:
        body = {**fields, "api_key": "key"}
        assert [server.post("/translate", body).status_code for _ in range(3)] == [200, 200, 429]
        answer = server.post("/translate", body)
        refused(answer, 429, "2 requests per minute")
        assert int(answer.headers["retry-after"]) >= 1
        assert server.get("/frontend/settings").json()["keyRequired"] is True
    with serve(str(runs / "book"), seconds=0.000001) as server:
        refused(server.post("/translate", fields), 504, "took more than")
    with serve(str(runs / "book")) as server:
        refused(server.post("/translate", fields, headers={"host": "elsewhere.example"}), 421)
        refused(server.post("/translate", {**fields, "q": "x" * 2_000_000}), 413)
        server.service.draining = True
        refused(server.post("/translate", fields), 503, "stopping")
        assert server.get("/health").status_code == 503
    with serve(str(runs / "book"), start=False) as server:
        refused(server.post("/translate", fields), 503, "being loaded")
        refused(server.get("/languages"), 503, "being loaded")
        assert server.get("/health").status_code == 503


def test_a_fault_is_answered_in_its_form(runs, monkeypatch):
    async def fail(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("regard.serving.libretranslate.routes.render_all", fail)
    with serve(str(runs / "book")) as server:
        error = refused(server.post("/translate", {"q": "x", "source": "en", "target": "de"}), 500)
        assert "fault of the server" in error


def test_what_the_server_says_of_itself(server):
    assert server.get("/health").json() == {"status": "ok"}
    said = server.get("/frontend/settings").json()
    assert said["charLimit"] == 20_000
    assert said["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert said["supportedFilesFormat"] == [".txt", ".html", ".htm", ".srt"]
    assert said["keyRequired"] is said["apiKeys"] is said["suggestions"] is False
    spec, whole = server.get("/spec").json(), server.get("/openapi.json").json()
    assert set(spec["paths"]) == PROTOCOL_PATHS | {"/download_file/{key}"}
    assert all(whole["paths"][path] == methods for path, methods in spec["paths"].items())
    for name, example in WORDS.examples.items():
        assert server.post(f"/{name}", example).status_code == 200


def test_the_log_holds_no_texts_and_no_keys(process):
    with process.client() as client:
        client.post("/translate", params={"q": "secret text", "source": "en", "target": "de", "api_key": "second"})
        client.post("/translate", json={"q": "secret text", "source": "en", "target": "de", "api_key": "second"})
    process.wait_for("POST /translate 200")
    assert "secret" not in process.stderr
    assert "second" not in process.stderr.replace("seconds", "")


# ---- the OpenAPI document of the routes: valid, complete, and true of the answers


@pytest.fixture(scope="module")
def document(server):
    return server.get("/spec").json()


def test_the_document_is_valid(document):
    schemathesis.openapi.from_dict(document).validate()
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert {each["summary"] for each in operations} == set(WORDS.summaries.values())
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    for each in operations:
        for response in each["responses"].values():
            for content in response["content"].values():
                jsonschema.Draft202012Validator.check_schema(content["schema"])


@pytest.mark.parametrize("name", WORDS.examples)
def test_an_example_fits_and_its_answer_does(server, document, name):
    operation = document["paths"][f"/{name}"]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    assert content["example"] == WORDS.examples[name]
    for fields in (WORDS.examples[name], {**WORDS.examples[name], "q": ["The dog sleeps."], "source": "auto"}):
        if name == "translate":
            jsonschema.validate(fields, content["schema"])
        answer = server.post(f"/{name}", fields)
        assert answer.status_code == 200
        jsonschema.validate(answer.json(), operation["responses"]["200"]["content"]["application/json"]["schema"])


@pytest.mark.parametrize("path", ["/languages", "/frontend/settings", "/health"])
def test_answers_are_as_described(server, document, path):
    schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    answer = server.get(path).json()
    jsonschema.validate(answer, schema)
    assert answer
    if isinstance(answer, dict):
        assert set(answer) == set(schema["properties"])


def test_errors_are_as_described(server, document):
    answer = server.post("/translate", {"q": "x"})
    schema = document["paths"]["/translate"]["post"]["responses"]["400"]["content"]["application/json"]["schema"]
    jsonschema.validate(answer.json(), schema)
