"""The description of LibreTranslate's routes: valid, complete, and true of what is answered."""

import jsonschema
import pytest
import schemathesis
from serving.served import serve, stored

from regard.serving.libretranslate.routes import WORDS


@pytest.fixture(scope="module")
def server():
    with serve(*stored("transformer")) as found:
        yield found


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
