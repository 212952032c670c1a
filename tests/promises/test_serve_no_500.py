"""No input causes a server error: neither input that the OpenAPI document allows, nor forbidden or odd input."""

import dataclasses
import json
import random
import socket
import struct

import pytest
from hypothesis import strategies
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from serving.generated import draw_case, every_mode, generate, read_schema
from serving.served import STORED, png, serve_process, stored

from regard.decoding import Options

NAMES = ("transformer", "encoder-language-model", "han", "captioner")
FITTING = {  # models that serve each route
    "translate": ["transformer"],
    "sample": ["encoder-language-model"],
    "score": ["transformer", "encoder-language-model"],
    "align": ["transformer"],
    "look": ["transformer", "encoder-language-model", "han"],
    "classify": ["han"],
    "caption": ["captioner"],
}


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    with serve_process(*stored(*NAMES), folder=folder, flags=["--quiet"], output_tokens=40) as found:
        with found.client() as found.shared:
            yield found
        assert found.figure("regard_workers_ready") == len(NAMES)
        assert found.figure("regard_places_in_use") == found.figure("regard_queue_sentences") == 0


@pytest.fixture(scope="module")
def schema(process):
    return read_schema(process, 400, 404, 413, 415, 422)  # 413 answers a body that is too large


@pytest.mark.parametrize("route", FITTING)
@every_mode(5)
def test_what_the_document_allows_and_forbids(schema, route, mode, count):
    """Apply all rules of schemathesis with a few exceptions.

    A request may match the schema and still be refused: nbest must not exceed the beam, texts and targets must be
    equally many, and the model must exist. JSON Schema cannot express that.
    """
    excluded = [positive_data_acceptance]
    if route in ("caption", "classify"):
        excluded.append(negative_data_rejection)  # a form has no types: a list of one number arrives as a number

    @generate(count, draw_case(schema[f"/v1/{route}"]["post"], mode), strategies.sampled_from(FITTING[route]))
    def send(case, model):
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body["model"] = model
        case.call_and_validate(excluded_checks=excluded, timeout=60)


# ---- LibreTranslate's routes

PROTOCOL = ("translate", "detect", "translate_file")


@pytest.mark.parametrize("route", PROTOCOL)
@every_mode(5)
def test_what_the_protocol_allows_and_forbids(schema, route, mode, count):
    """Random languages are hardly ever served, so half of the requests get a served pair."""

    @generate(count, draw_case(schema[f"/{route}"]["post"], mode), strategies.booleans())
    def send(case, served):
        if mode is GenerationMode.POSITIVE and served and isinstance(case.body, dict) and "source" in case.body:
            case.body |= {"source": "en", "target": "de"}
        # Like LibreTranslate, the server ignores other mistakes.
        case.call_and_validate(excluded_checks=[positive_data_acceptance, negative_data_rejection], timeout=60)


def ask_protocol(process, path, **options):
    """Send anything; check that the answer is JSON in LibreTranslate's form, and no server error."""
    answer = process.shared.post(path, **options)
    assert answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/json"
    if answer.status_code != 200:
        assert list(answer.json()) == ["error"]
        assert len(answer.json()["error"]) < 2000
    return answer


# ---- by hand

TEXTS = {
    "nothing": "",
    "space": " \t\u00a0\u3000",
    "NUL": "a\0b",
    "controls": "".join(map(chr, range(32))),
    "ends of lines": "a\r\n\n\rb\x0b\x0c\x1c\x85\u2028\u2029c",
    "byte order mark": "\ufeffa",
    "right to left": "\u202eabc\u202c",
    "combining": "e" + "\u0301" * 500,
    "emoji": "👩‍👩‍👧‍👦" * 50,
    "no characters": "\ufffe\uffff\U0010ffff",
    "one character": "a" * 19_000,
    "one character, spaced": "a " * 9_500,
    "full stops": "." * 19_000,
    "sentences": "A. " * 6_000,
    "special tokens": "<s> </s> <pad> <unk> <2de> [MASK]",
    "code": "'; DROP TABLE runs; -- {{7*7}} ${x} %s %n <script>",
}


def ask(process, path, **options):
    """Send anything; check that the answer is JSON, and no server error."""
    answer = process.shared.post(f"/v1/{path}", **options)
    assert answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/json"
    table = answer.json()
    if answer.status_code != 200:
        assert table["error"]["message"].isprintable() or answer.status_code in (400, 422)
        assert len(table["error"]["message"]) < 2000
    return answer


@pytest.mark.parametrize("name", TEXTS)
def test_odd_texts_are_answered(process, name):
    text = TEXTS[name]
    short = {"beam": 1, "longest": 3, "model": "transformer"}
    assert ask(process, "translate", json={"texts": [text], **short, "scores": True}).status_code == 200
    assert ask(process, "translate", json={"texts": [text], **short, "split": False}).status_code == 200
    assert ask(process, "classify", json={"texts": [text]}).status_code == 200
    pairs = {"texts": [text[:300]], "targets": [text[:300]], "model": "transformer"}
    for path in ("score", "align"):
        assert ask(process, path, json=pairs).status_code == 200
    assert ask(process, "sample", json={"prefix": text[:100], "longest": 1024}).status_code in (200, 422)
    for model in FITTING["look"]:
        ask(process, "look", json={"text": text[:300], "target": text[:100], "model": model})


@pytest.mark.parametrize("name", TEXTS)
def test_odd_texts_are_answered_in_the_protocol(process, name):
    text, pair = TEXTS[name][:300], {"source": "auto", "target": "de"}
    for form in ("text", "html"):
        answer = ask_protocol(process, "/translate", json={"q": text, **pair, "format": form})
        assert answer.status_code == (200 if text else 400)
    assert ask_protocol(process, "/detect", data={"q": TEXTS[name]}).status_code == (200 if text else 400)
    for ending in ("txt", "html", "srt"):
        files = {"file": (f"{name}.{ending}", text.encode())}
        answer = ask_protocol(process, "/translate_file", data=pair, files=files)
        assert answer.status_code == (200 if text else 400)


SURROGATES = ["\ud800", "a\udfff", "\udc00\ud800", "\ud83d"]


@pytest.mark.parametrize("text", SURROGATES, ids=ascii)
def test_lone_surrogates_are_refused_everywhere(process, text):
    def send(path, table):
        return ask(process, path, content=json.dumps(table).encode(), headers={"content-type": "application/json"})

    for path, table in (
        ("translate", {"texts": [text]}),
        ("translate", {"texts": ["a"], "prefixes": [text]}),
        ("translate", {"texts": ["a"], "model": text}),
        ("translate", {"texts": ["a"], "precision": text}),
        ("translate", {"texts": ["a"], text: 1}),
        ("score", {"texts": ["a"], "targets": [text]}),
        ("sample", {"prefix": text}),
        ("look", {"text": text}),
        ("look", {"text": "a", "target": text}),
    ):
        assert send(path, table).status_code in (404, 422), table
    for table in (
        {"q": text, "source": "en", "target": "de"},
        {"q": [text], "source": "en", "target": "de"},
        {"q": "a", "source": text, "target": "de"},
        {"q": "a", "source": "en", "target": text},
        {"q": "a", "source": "en", "target": "de", "format": text},
        {"q": "a", "source": "en", "target": "de", "alternatives": text},
    ):
        headers = {"content-type": "application/json"}
        answer = ask_protocol(process, "/translate", content=json.dumps(table).encode(), headers=headers)
        assert answer.status_code == 400, table


def deep(depth, opening=b"[", closing=b"]"):
    return opening * depth + closing * depth


BODIES = {
    "empty": b"",
    "space": b" \n ",
    "NUL": b"\0",
    "no text": bytes(range(256)),
    "a list": b"[]",
    "a number": b"1e999",
    "null": b"null",
    "deep": deep(500),
    "deeper": deep(100_000),
    "deep objects": b'{"texts":' * 100_000,
    "deep in a field": b'{"texts": ' + deep(200_000) + b"}",
    "deep in a number": b'{"beam": ' + deep(900) + b"}",
    "UTF-16": json.dumps({"texts": ["a"]}).encode("utf-16"),
    "UTF-32": json.dumps({"beam": 0}).encode("utf-32"),
    "a byte order mark": b"\xef\xbb\xbf[]",
    "a megabyte": json.dumps({"texts": ["a" * 1_000_000]}).encode(),
    "a megabyte of a name": json.dumps({"a" * 1_000_000: 1}).encode(),
    "a megabyte of a model": json.dumps({"texts": ["a"], "model": "a" * 1_000_000}).encode(),
    "a megabyte of names": json.dumps({str(i): i for i in range(70_000)}).encode(),
    "a megabyte of texts": json.dumps({"texts": [""] * 250_000}).encode(),
    "more": b" " * 2_000_000,
    "the same name twice": b'{"texts": ["a"], "texts": 1}',
}


@pytest.mark.parametrize("name", BODIES)
def test_odd_bodies_are_refused(process, name):
    for path in FITTING:
        answer = ask(process, path, content=BODIES[name], headers={"content-type": "application/json"})
        if name == "UTF-16" and path in ("translate", "classify"):
            assert answer.status_code in (200, 422)  # the content may be valid JSON
        else:
            assert answer.status_code in (400, 413, 415, 422)
    for path in PROTOCOL:
        for kind in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""):
            answer = ask_protocol(process, f"/{path}", content=BODIES[name], headers={"content-type": kind})
            assert answer.status_code in (400, 413)


NUMBERS = (
    "1e308", "-1e308", "1e-308", "1e999", "9" * 400, "9" * 5000, "-0.0", "0.5", "-1", "NaN", "Infinity",
    "1" + "0" * 20,
)  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Options)])
def test_huge_numbers_are_refused_or_used(process, name):
    for number in NUMBERS:
        for path, rest in (("translate", '"texts": ["a"], "model": "transformer"'), ("sample", '"longest": 3')):
            if name in rest:
                continue
            body = f'{{{rest}, "{name}": {number}}}'.encode()
            ask(process, path, content=body, headers={"content-type": "application/json"})


KINDS = (
    "", "a", ";;;", "text/html", "application/xml", "application/json; charset=utf-16",
    "application/x-www-form-urlencoded", "multipart/mixed", "multipart/form-data", "multipart/form-data; boundary=",
    "multipart/form-data; boundary=é",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_odd_types_are_refused_or_read_as_json(process, kind):
    body = json.dumps({"texts": ["a"], "model": "transformer", "longest": 2}).encode()
    for path in FITTING:
        ask(process, path, content=body, headers={"content-type": kind.encode()})
        ask(process, path, content=b"", headers={"content-type": kind.encode()})


PICTURES = {
    "nothing": b"",
    "text": b"no picture",
    "a bomb": png(50_000, 50_000, b"\0" * 3_000_000),
    "a larger bomb": png(2**31 - 1, 2**31 - 1, b"\0" * 100),
    "no pixels": png(0, 0, b""),
    "one pixel": png(1, 1, b"\0\0\0\0"),
    "a line": png(1, 60_000, b"\0" * 240_000),
    "too little": png(500, 500, b"\0"),
    "only a head": b"\x89PNG\r\n\x1a\n",
    "GIF": b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0",
    "BMP": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 2**31 - 1, -(2**31), 1, 24, 0, 0, 0, 0, 0, 0),
    "TIFF": b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 200,
    "JPEG": b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x11\0\x02\x11\0\x03\x11\0\xff\xd9",
    "WebP": b"RIFF\xff\xff\xff\xffWEBPVP8X\n\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "ICO": b"\0\0\x01\0\xff\xff" + b"\xff" * 100,
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_that_are_bombs_or_none(process, name):
    for file in (PICTURES[name], (None, PICTURES[name]), ("\0/../x", PICTURES[name])):
        answer = ask(process, "caption", files=[("pictures", file)], data={"longest": "2"})
        assert answer.status_code in (200, 400, 413, 422)
        assert name in ("one pixel", "a line") or answer.status_code != 200


def test_files_that_are_cut_or_changed(process):
    """Send a real picture with bytes missing or flipped."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    whole = (STORED / "0.png").read_bytes()
    for _ in range(30):
        content = bytearray(whole[: rng.choice([len(whole), rng.randrange(len(whole))])])
        for _ in range(rng.choice([0, 1, 20])):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        ask(process, "caption", files=[("pictures", bytes(content))], data={"longest": "2"})


def test_odd_paths_and_headers(process):
    for path in ("/v1/translate/", "/v1/%00", "/v1/%ff", "/%2e%2e/etc/passwd", "/v1/" + "a" * 5000, "//v1/models"):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"):
            assert process.shared.request(method, path).status_code < 500, (method, path)
    for name in ("authorization", "x-api-key", "origin", "accept", "cookie", "range", "if-none-match"):
        answer = process.shared.post("/v1/translate", headers={name: "é\x7f".encode("latin-1")})
        assert answer.status_code == 400, name  # the request has no body
    for lines in (
        "Content-Length: é",
        "Content-Length: -1",
        f"Content-Length: {'9' * 5000}",
        "Transfer-Encoding: none",
    ):
        host, _, port = process.address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), 60) as raw:
            raw.sendall(f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n".encode("latin-1"))
            assert raw.recv(100).split()[1] in (b"400", b"413", b"501"), lines
