"""Requests: each mistake gives one sentence that names its field, and no value gets through unchecked."""

import json
import logging

import jsonschema
import pytest
import schemathesis
from serving.served import STORED, serve, settings_of, stored

from regard.decoding import Options
from regard.serving.errors import ApiError
from regard.serving.requests import (
    WORDS,
    AlignRequest,
    CaptionRequest,
    ClassifyRequest,
    LookRequest,
    RouteWords,
    SampleRequest,
    ScoreRequest,
    TranslateRequest,
    describe_route,
    log_texts,
    parse_request,
    read_json,
    schema_of,
)

KINDS = (TranslateRequest, SampleRequest, ScoreRequest, AlignRequest, ClassifyRequest, CaptionRequest, LookRequest)
SEARCHING = (TranslateRequest, SampleRequest, CaptionRequest, LookRequest)


def refusal(function, *arguments) -> ApiError:
    with pytest.raises(ApiError) as caught:
        function(*arguments)
    error = caught.value
    assert error.body == {"error": {"code": error.code, "message": str(error), "field": error.field}}
    json.dumps(error.body, ensure_ascii=False).encode()
    assert len(str(error)) < 400
    return error


def refused(table, cls=TranslateRequest, **settings) -> ApiError:
    return refusal(parse_request, cls, table, settings_of(**settings))


# ---- JSON


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{", 400, "the body is not JSON: Expecting property name"),
        (b'{"beam": NaN}', 400, "the body is not JSON: NaN is not a JSON number"),
        (b'{"beam": -Infinity}', 400, "the body is not JSON: -Infinity is not a JSON number"),
        (b"\xff\xfe\xfd", 400, "the body is not JSON: "),
        (b'{"texts": ["\xe9"]}', 400, "the body is not JSON: 'utf-8' codec can't decode byte 0xe9"),
        (b'{"beam": ' + b"9" * 5000 + b"}", 400, "the body is not JSON: "),
        (b"[" * 100_000, 400, "the body is nested too deeply, expected a JSON object"),
        (b'{"a":' * 100_000, 400, "the body is nested too deeply, expected a JSON object"),
        (b"[1]", 422, "[1] given, expected a JSON object"),
        (b"null", 422, "expected a JSON object"),
        (b'"text"', 422, '"text" given, expected a JSON object'),
    ],
)
def test_a_body_that_is_no_object_is_refused(body, status, message):
    error = refusal(read_json, body)
    assert (error.status, error.field) == (status, None)
    assert error.code == ("invalid_json" if status == 400 else "invalid_value")
    assert message in str(error)


def test_numbers_with_a_point_may_be_whole():
    assert read_json(b'{"beam": 2.0, "a": 2.5, "b": -0.0, "c": 1e2, "d": 1e300}') == {
        "beam": 2,
        "a": 2.5,
        "b": 0,
        "c": 100,
        "d": 1e300,
    }
    assert type(read_json(b'{"beam": 2.0}')["beam"]) is int
    _, options = parse_request(TranslateRequest, read_json(b'{"beam": 3.0, "length_penalty": 1.0}'), settings_of())
    assert (options.beam, options.length_penalty) == (3, 1.0)


# ---- fields


@pytest.mark.parametrize(
    ("table", "field", "message"),
    [
        ({"text": ["a"]}, "text", "text: no such field; did you mean 'texts'?"),
        ({"x" * 5000: 1}, "x" * 80, f"{'x' * 80}: no such field"),
        ({"\ud800": 1}, "?", "?: no such field"),
        ({"texts": "one"}, "texts", 'texts: "one" given, expected a list of texts'),
        ({"texts": None}, "texts", "texts: "),
        ({"texts": [1]}, "texts[0]", "texts[0]: 1 given, expected a text"),
        ({"texts": ["a", None]}, "texts[1]", "texts[1]: "),
        ({"prefixes": [["a"]]}, "prefixes[0]", 'prefixes[0]: ["a"] given, expected a text'),
        ({"texts": ["ab\ud800"]}, "texts[0]", "texts[0]: a lone surrogate, U+D800, at character 3; expected Unicode"),
        ({"beam": 0}, "beam", "beam: 0 given, expected at least 1"),
        ({"beam": 2.5}, "beam", "beam: 2.5 given, expected a whole number"),
        ({"beam": True}, "beam", "beam: true given, expected a whole number"),
        ({"beam": None}, "beam", "beam: "),
        ({"beam": 101}, "beam", "beam: 101 given, expected at most 100 on this server"),
        ({"sample": True, "nbest": 101}, "nbest", "nbest: 101 given, expected at most 100 on this server"),
        ({"longest": 1025}, "longest", "longest: 1,025 given, expected at most 1,024 on this server"),
        ({"shortest": 1025}, "shortest", "shortest: 1,025 given, expected at most 1,024 on this server"),
        ({"beam": 2, "nbest": 3}, "nbest", "nbest: 3 given, expected at most the beam, 2"),
        ({"beam": 5, "groups": 2}, "groups", "groups: a beam of 5 is not divisible by 2"),
        ({"temperature": 0}, "temperature", "temperature: 0.0 given, expected more than 0"),
        ({"temperature": 10**400}, "temperature", "temperature: "),
        ({"seed": -1}, "seed", "seed: -1 given, expected at least 0"),
        ({"seed": 2**63}, "seed", "seed: "),
        ({"precision": "fp8"}, "precision", 'precision: "fp8" given, expected "auto", "fp32" or "bf16"'),
        ({"split": "no"}, "split", 'split: "no" given, expected true or false'),
        ({"model": 3}, "model", "model: 3 given, expected"),
        ({"model": {"a": {"b": {"c": {"d": 1}}}}}, "model", "model: "),
    ],
)
def test_a_field_that_is_wrong_is_named(table, field, message):
    error = refused(table)
    assert (error.status, error.code, error.field) == (422, "invalid_value", field)
    assert str(error).startswith(message)


@pytest.mark.parametrize(
    ("table", "cls", "settings", "message"),
    [
        ({"texts": ["a"] * 4}, TranslateRequest, {"texts": 3}, "texts: 4 given, expected at most 3"),
        ({"targets": ["a"] * 4}, ScoreRequest, {"texts": 3}, "targets: 4 given, expected at most 3"),
        (
            {"texts": ["abc", "de"], "prefixes": ["f", "g"]},
            TranslateRequest,
            {"characters": 6},
            "texts: 7 characters given, expected at most 6 in a request",
        ),
        ({"prefix": "abcd"}, SampleRequest, {"characters": 3}, "texts: 4 characters given, expected at most 3"),
        ({"text": "ab", "target": "cd"}, LookRequest, {"characters": 3}, "texts: 4 characters given"),
    ],
)
def test_what_is_too_large_is_refused_with_413(table, cls, settings, message):
    error = refused(table, cls, **settings)
    assert (error.status, error.code) == (413, "too_large")
    assert str(error).startswith(message)
    parse_request(cls, table, settings_of())


def test_options_stand_only_where_something_is_searched():
    for cls in KINDS:
        if cls in SEARCHING:
            _, options = parse_request(cls, {"beam": 7, "length_penalty": 0.25}, settings_of())
            assert options == Options(beam=7, length_penalty=0.25)
        else:
            assert refused({"beam": 7}, cls).field == "beam"


def test_a_request_is_what_was_sent():
    table = {"model": "m", "texts": ["é\0\U0001f600", ""], "prefixes": ["", "a"], "split": False, "scores": True}
    request, options = parse_request(TranslateRequest, table, settings_of())
    assert request == TranslateRequest("m", texts=("é\0\U0001f600", ""), prefixes=("", "a"), split=False, scores=True)
    assert options == Options()
    long = "word " * 3000  # longer than a text in a configuration may be
    assert parse_request(LookRequest, {"text": long}, settings_of())[0].text == long
    request, _ = parse_request(SampleRequest, {"prefix": long, "count": 3}, settings_of())
    assert (request.prefix, request.count) == (long, 3)
    assert parse_request(LookRequest, {"text": "a", "target": None}, settings_of())[0].target is None


@pytest.mark.parametrize("name", ["prefix", "text", "target"])
def test_a_text_of_its_own_is_checked(name):
    cls = SampleRequest if name == "prefix" else LookRequest
    assert str(refused({name: 3}, cls)).startswith(f"{name}: 3 given, expected a text")
    assert str(refused({name: "\udfff"}, cls)).startswith(f"{name}: a lone surrogate, U+DFFF, at character 1")


# ---- schemas


@pytest.mark.parametrize("cls", KINDS)
def test_a_schema_says_what_is_checked(cls):
    settings = settings_of(beam=12, output_tokens=77, texts=5, characters=99)
    schema = schema_of(cls, settings)
    assert schema["additionalProperties"] is False
    for name, each in schema["properties"].items():
        assert each["description"], name
        if "default" in each:
            parse_request(cls, {name: each["default"]}, settings)
        for limit, step in (("maximum", 1), ("minimum", -1)):
            if limit not in each:
                continue
            if name not in ("groups", "nbest", "shortest"):  # these depend on other fields
                parse_request(cls, {name: each[limit]}, settings)
            assert (
                refused({name: each[limit] + step}, cls, beam=12, output_tokens=77, texts=5, characters=99).field
                == name
            )
        if "exclusiveMinimum" in each:
            assert refused({name: each["exclusiveMinimum"]}, cls).field == name
        if "enum" in each:
            assert all(parse_request(cls, {name: value}, settings) for value in each["enum"])
    if cls in SEARCHING:
        assert schema["properties"]["beam"]["maximum"] == schema["properties"]["nbest"]["maximum"] == 12
        assert schema["properties"]["longest"]["type"] == ["integer", "null"]


def test_what_is_required():
    required = {cls.__name__: schema_of(cls, settings_of()).get("required", []) for cls in KINDS}
    assert required == {
        "TranslateRequest": ["texts"],
        "SampleRequest": [],
        "ScoreRequest": ["texts"],
        "AlignRequest": ["texts", "targets"],
        "ClassifyRequest": ["texts"],
        "CaptionRequest": [],
        "LookRequest": ["text"],
    }


@pytest.mark.parametrize(
    "name", ["api_key", "API-Key", "apikey", "key", "X-Api-Key", "authorization", "token", "secret"]
)
def test_a_key_is_not_logged(name, caplog):
    with caplog.at_level(logging.INFO, logger="regard.serving"):
        log_texts("/translate", {"q": "a text", name: "one", "more": [{name: ["two"], "x": {name: {"y": "three"}}}]})
    assert "a text" in caplog.text
    assert caplog.text.count("(not logged)") == 3
    assert not any(each in caplog.text for each in ("one", "two", "three"))


def test_options_of_the_search_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="regard.serving"):
        log_texts("/v1/translate", {"texts": ["a"], "beam": 3, "longest": 7})
    assert '{"texts": ["a"], "beam": 3, "longest": 7}' in caplog.text


def test_what_is_nested_too_deeply_is_named(caplog):
    table: dict = {}
    for _ in range(5000):
        table = {"a": table}
    with caplog.at_level(logging.INFO, logger="regard.serving"):
        log_texts("/translate", table)
    assert "nested too deeply" in caplog.text


# ---- the OpenAPI document: it is valid, complete, and true of the answers


@pytest.fixture(scope="module")
def served():
    with serve(*stored("transformer", "encoder-language-model", "han", "captioner")) as found:
        yield found


@pytest.fixture(scope="module")
def document(served):
    return served.get("/openapi.json").json()


def test_the_document_is_valid(document):
    schemathesis.openapi.from_dict(document).validate()
    assert document["openapi"].startswith("3.1")


def test_every_route_is_described(document):
    operations = {
        f"{method} {path}": operation
        for path, own in document["paths"].items()
        for method, operation in own.items()
        if "LibreTranslate" not in operation.get("tags", ())  # those have tests of their own
    }
    actions = ("translate", "sample", "score", "align", "look", "classify", "caption")
    assert operations.keys() == {
        *(f"post /v1/{name}" for name in actions),
        *("get /v1/models", "get /livez", "get /readyz", "get /metrics"),
    }
    for name, operation in operations.items():
        assert operation["summary"]
        assert operation["operationId"] == name.rsplit("/", 1)[1]
        assert "200" in operation["responses"]
        for response in operation["responses"].values():
            assert response["description"]
            for content in response["content"].values():
                jsonschema.Draft202012Validator.check_schema(content["schema"])
        if name.startswith("post"):
            assert WORDS.statuses.keys() <= operation["responses"].keys()
            for content in operation["requestBody"]["content"].values():
                jsonschema.Draft202012Validator.check_schema(content["schema"])


@pytest.mark.parametrize("name", WORDS.examples)
def test_an_example_fits_its_schema(document, name):
    content = document["paths"][f"/v1/{name}"]["post"]["requestBody"]["content"]["application/json"]
    assert content["example"] == WORDS.examples[name]
    jsonschema.validate(content["example"], content["schema"])


@pytest.mark.parametrize("name", [*WORDS.examples, "caption", "models", "livez", "readyz"])
def test_answers_fit_their_schemas(served, name):
    if name in WORDS.examples:
        model = {"model": "transformer"} if name in ("look", "score") else {}
        answer = served.post(f"/v1/{name}", {**WORDS.examples[name], **model})
    elif name == "caption":
        answer = served.post("/v1/caption", files={"pictures": (STORED / "0.png").read_bytes()})
    else:
        answer = served.get("/v1/models" if name == "models" else f"/{name}")
    assert answer.status_code == 200
    jsonschema.validate(answer.json(), WORDS.schema(name))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(answer.json(), WORDS.schema("error"))


def test_an_error_fits_its_schema(served):
    jsonschema.validate(served.post("/v1/translate", {"beam": 0}).json(), WORDS.schema("error"))


def test_the_limits_of_a_server_are_those_of_its_document():
    settings = settings_of(beam=7, texts=3)
    schema = describe_route("translate", settings)["openapi_extra"]["requestBody"]["content"]
    properties = schema["application/json"]["schema"]["properties"]
    assert (properties["beam"]["maximum"], properties["texts"]["maxItems"]) == (7, 3)
    parse_request(TranslateRequest, {"beam": 7, "texts": ["a"] * 3}, settings)


def test_forms_become_schemas():
    words = RouteWords({}, {}, {}, {"a": {}}, {"both": {"a": "a", "b?": ["a"]}})
    table = {"type": "object", "properties": {"a": {}, "b": {"type": "array", "items": {}}}, "required": ["a"]}
    assert words.schema("both") == table
    assert words.schema(["a", "both"]) == {"anyOf": [{}, table]}
