"""The routes: examples work as printed, answers match the OpenAPI document, and all errors have one form."""

import asyncio
import io
import json

import pytest
from PIL import Image
from serving.served import STORED, png, serve, stored

from regard.serving.requests import WORDS

MODELS = ("transformer", "encoder-language-model", "han", "captioner")
TRANSLATE = {"texts": ["The child sleeps. The dog eats.", "We are here ."], "longest": 6}


@pytest.fixture(scope="module")
def served():
    with serve(*stored(*MODELS), picture_bytes=50_000, pictures=2) as found:
        yield found


def events(answer):
    """Return the events of a stream with their names."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    parts = [part.split("\n") for part in answer.text.removesuffix("\n\n").split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def upload(served, *pictures, path="/v1/caption", **fields):
    files = [("pictures", ("x.png", content)) for content in pictures]
    return served.post(path, files=files, data={name: str(value) for name, value in fields.items()})


def message(answer, status):
    """Check the form of an error, and return its message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == {"error"}
    error = answer.json()["error"]
    assert error.keys() == {"code", "message", "field"}
    return error["message"]


# ---- examples and pages


@pytest.mark.parametrize("name", WORDS.examples)
def test_examples_are_answered_as_they_stand(served, name):
    table = WORDS.examples[name] if name != "look" else {**WORDS.examples[name], "model": "transformer"}
    if name == "score":
        table = {**table, "model": "transformer"}  # a language model can score, too
    assert served.post(f"/v1/{name}", table).status_code == 200


def test_the_models_are_listed(served):
    cards = served.get("/v1/models").json()["models"]
    assert [card["name"] for card in cards] == list(MODELS)
    assert cards == [model.card for model in served.service.models.values()]


def test_health_is_told(served):
    assert served.get("/livez").json() == {"status": "alive"}
    assert served.get("/readyz").json() == {"status": "ready", "models": dict.fromkeys(MODELS, "ready")}
    assert served.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/v1/translate", 405, "GET /v1/translate: method not allowed"),
        ("POST", "/livez", 405, "POST /livez: method not allowed"),
        ("GET", "/v1", 404, "GET /v1: not found"),
        *(("GET", path, 404, f"GET {path}: not found") for path in ("/docs", "/redoc")),  # they load from elsewhere
        ("POST", "/v1/none", 404, "POST /v1/none: not found"),
    ],
)
def test_a_wrong_path_or_method_is_an_error_like_others(served, method, path, status, said):
    answer = served.call(served.client.request(method, path))
    assert message(answer, status) == said
    if status == 405:
        assert answer.headers["allow"]


# ---- streams


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "nbest": 2}, {"sample": True, "seed": 3}], ids=str)
def test_a_stream_ends_with_the_whole_answer(served, options):
    table = {**TRANSLATE, **options, "alignment": True}
    *partial, last = events(served.post("/v1/translate", {**table, "stream": True}))
    assert last[0] == "result"
    found, expected = last[1], served.post("/v1/translate", table).json()
    assert [each["text"] for each in found["results"]] == [each["text"] for each in expected["results"]]
    written: dict = {}
    for name, data in partial:
        assert name == "partial"
        place = data["text"], data["piece"]
        assert len(data["output"]) > len(written.get(place, ""))
        written[place] = data["output"]
    assert set(written) <= {(0, 0), (0, 1), (1, 0)}
    if options != {"beam": 4, "nbest": 2}:  # hypotheses of a beam may have no common beginning
        assert set(written) == {(0, 0), (0, 1), (1, 0)}
        texts = [" ".join(written[0, piece] for piece in (0, 1)), written[1, 0]]
        for text, result in zip(texts, found["results"], strict=True):
            assert result["text"].split()[: len(text.split()) // 2] == text.split()[: len(text.split()) // 2]


def test_samples_can_be_streamed(served):
    table = {"count": 3, "longest": 6, "seed": 4}
    *partial, last = events(served.post("/v1/sample", {**table, "stream": True}))
    expected = served.results("/v1/sample", table)
    assert [each["text"] for each in last[1]["results"]] == [each["text"] for each in expected]
    assert {data["text"] for _, data in partial} <= {0, 1, 2}
    assert partial


def test_a_mistake_in_a_stream_is_an_error_as_ever(served):
    answer = served.post("/v1/translate", {"texts": [], "stream": True})
    assert message(answer, 422) == "texts: missing, expected a list of texts"
    table = {"texts": ["a"], "prefixes": ["a b c"], "longest": 1, "stream": True}
    assert message(served.post("/v1/translate", table), 422).startswith("prefix: ")


# ---- deadlines


def test_a_request_that_takes_too_long_is_answered_with_504():
    slow = {"texts": ["the dog"] * 40, "longest": 400, "shortest": 400}
    with serve(*stored("transformer"), seconds=0.2) as found:
        for table in (slow, {**slow, "texts": ["the dog"], "longest": 1000, "shortest": 1000}):
            expected = "the request took more than 0.2 s; send less at once, or try again"
            assert message(found.post("/v1/translate", table), 504) == expected
        *_, last = events(
            found.post("/v1/translate", {**slow, "beam": 1, "longest": 1000, "shortest": 999, "stream": True})
        )
        assert last == ("error", {"error": {"code": "deadline", "message": expected, "field": None}})

        async def wait_until_free():
            model = found.service.models["transformer"]
            while model.under_way or model.queue.waiting:
                await asyncio.sleep(0.01)

        found.call(wait_until_free())


# ---- uploads


def test_pictures_are_captioned_with_options(served):
    content = (STORED / "0.png").read_bytes()
    both = upload(served, content, (STORED / "1.png").read_bytes(), beam=2, nbest=2, longest=5).json()["results"]
    assert [len(result["outputs"]) for result in both] == [2, 2]
    assert all(len(output["tokens"]) <= 5 for result in both for output in result["outputs"])
    assert upload(served, content, model="captioner", beam=1).status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "pictures[0]"),
        (b"no picture", "pictures[0]"),
        (b"\x89PNG\r\n\x1a\n", "pictures[0]"),
        (png(60_000, 60_000), "pictures[0]"),  # a decompression bomb: 3.6 billion pixels
        (png(2**31 - 1, 2**31 - 1), "pictures[0]"),
        (png(0, 0), "pictures[0]"),
        (png(64, 64).replace(b"IDATx", b"IDAT\0"), "pictures[0]"),
    ],
    ids=["empty", "text", "short", "bomb", "larger bomb", "nothing", "broken"],
)
def test_what_is_no_picture_is_refused_by_its_name(served, content, said):
    assert message(upload(served, content), 422).startswith(said)


def test_the_second_picture_is_named_as_such(served):
    answer = upload(served, (STORED / "0.png").read_bytes(), b"none")
    assert message(answer, 422).startswith("pictures[1]")


def test_pictures_that_are_too_large_or_too_many_are_refused(served):
    large = io.BytesIO()
    Image.effect_noise((400, 400), 90).save(large, "PNG")
    assert len(large.getvalue()) > 50_000
    assert "expected at most 50,000 a picture" in message(upload(served, large.getvalue()), 413)
    small = (STORED / "0.png").read_bytes()
    assert message(upload(served, *[small] * 3), 413) == "pictures: 3 given, expected at most 2"
    assert message(upload(served, *[small] * 9), 413) == "pictures: more than 3 given, expected at most 2"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"beam": "0"}, "beam: 0 given, expected at least 1"),
        ({"beam": "two"}, 'beam: "two" given, expected a whole number'),
        ({"beam": "[1]"}, 'beam: "[1]" given, expected a whole number'),
        ({"beam": "NaN"}, "beam: "),
        ({"bean": "1"}, "bean: no such field; did you mean 'beam'?"),
        ({"model": "han"}, "its task is classify"),
    ],
)
def test_fields_of_a_form_are_checked(served, fields, said):
    assert said in message(upload(served, (STORED / "0.png").read_bytes(), **fields), 422)


def test_forms_that_are_wrong(served):
    assert message(served.post("/v1/caption", {"pictures": []}), 415).startswith(
        "Content-Type: expected multipart/form"
    )
    form = {"content-type": "multipart/form-data; boundary=x"}
    fields = b'--x\r\nContent-Disposition: form-data; name="beam"\r\n\r\n2\r\n--x--\r\n'
    answer = served.post("/v1/caption", content=fields, headers=form)
    assert message(answer, 422) == "pictures: missing, expected at least one file"
    twice = fields.replace(b"--x--", b"").rstrip() + b"\r\n" + fields
    assert message(served.post("/v1/caption", content=twice, headers=form), 422).startswith("beam: given twice")
    assert "no such part" in message(served.post("/v1/caption", files={"picture": b"x"}), 422)
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x"):
        answer = served.post("/v1/caption", content=b"nothing", headers={"content-type": kind})
        assert answer.status_code in (400, 422), kind
        message(answer, answer.status_code)
    answer = upload(served, (STORED / "0.png").read_bytes(), path="/v1/classify", model="han")
    assert message(answer, 422) == "han: reads texts, expected JSON with texts"


def test_a_fault_has_the_form_of_an_error(caplog, monkeypatch):
    """The test causes an internal error, as there should be none."""
    with serve(*stored("transformer"), start=False) as found:
        monkeypatch.setattr(type(found.service.metrics), "collect", lambda self: 1 / 0)
        assert message(found.get("/metrics"), 500) == "a fault of the server; see its log"
    assert "ZeroDivisionError" in caplog.text
