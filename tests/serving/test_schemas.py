"""The OpenAPI document: it is valid, complete, and tells the truth about what is answered."""

import jsonschema
import pytest
import schemathesis
from serving.served import STORED, serve, settings_of, stored

from regard.serving.requests import TranslateRequest, parse_request
from regard.serving.schemas import WORDS, RouteWords, describe_route

FORMS = ("caption", "classify")


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
    schema = describe_route("translate", TranslateRequest, settings)["openapi_extra"]["requestBody"]["content"]
    properties = schema["application/json"]["schema"]["properties"]
    assert (properties["beam"]["maximum"], properties["texts"]["maxItems"]) == (7, 3)
    parse_request(TranslateRequest, {"beam": 7, "texts": ["a"] * 3}, settings)


def test_forms_become_schemas():
    words = RouteWords({}, {}, {}, {"a": {}}, {"both": {"a": "a", "b?": ["a"]}})
    table = {"type": "object", "properties": {"a": {}, "b": {"type": "array", "items": {}}}, "required": ["a"]}
    assert words.schema("both") == table
    assert words.schema(["a", "both"]) == {"anyOf": [{}, table]}
