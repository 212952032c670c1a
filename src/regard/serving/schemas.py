"""How routes are described in OpenAPI: what is sent, with an example, and what is answered.

What does not hang on a server's settings is data: openapi.toml has the words, an example of a request and the form of
the answer of each route.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Self

from regard.serving.requests import CaptionRequest, LookRequest, schema_of
from regard.serving.settings import ServeSettings

UNCHECKED = ("421", "401", "503")  # statuses of a route that takes no fields
STREAMED = {"translate", "sample"}  # routes that answer in events, too
UPLOADS = {"caption": CaptionRequest, "classify": CaptionRequest, "look": LookRequest}  # routes that take pictures


@dataclass(frozen=True)
class RouteWords:
    """What OpenAPI says of routes: a summary of each, an example of some, of every status, and the form of answers."""

    summaries: dict[str, str]
    statuses: dict[str, str]
    examples: dict[str, dict[str, Any]]
    schemas: dict[str, dict[str, Any]]  # by the names that answers call them
    answers: dict[str, Any]

    @classmethod
    def read(cls, package: str) -> Self:
        """Read the words of a package's routes, in its openapi.toml."""
        return cls(**tomllib.loads(resources.files(package).joinpath("openapi.toml").read_text(encoding="utf-8")))

    def schema(self, form: Any) -> dict[str, Any]:
        """Return the schema of a form, as openapi.toml writes it."""
        if isinstance(form, str):
            return self.schemas[form] if form in self.schemas else self.schema(self.answers[form])
        if isinstance(form, list):
            several = [self.schema(each) for each in form]
            return {"type": "array", "items": several[0]} if len(several) == 1 else {"anyOf": several}
        named = {name.removesuffix("?"): self.schema(each) for name, each in form.items()}
        required = [name for name in form if not name.endswith("?")]
        return {"type": "object", "properties": named, "required": required}

    def describe(self, name: str, statuses: Iterable[str], bodies: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the description of a route, as FastAPI takes it; `bodies` are schemas of what is sent, by its type."""
        error = {"application/json": {"schema": self.schema("error")}}
        responses: dict[int | str, dict[str, Any]] = {
            int(status): {"description": self.statuses[status], "content": error} for status in statuses
        }
        responses[200] = {"description": "The answer", "content": {"application/json": {"schema": self.schema(name)}}}
        if name in ("readyz", "health"):
            responses[503] = {**responses[200], "description": "Not ready"}
        described: dict[str, Any] = {"summary": self.summaries[name], "responses": responses, "response_model": None}
        if bodies:
            content: dict[str, Any] = {kind: {"schema": schema} for kind, schema in bodies.items()}
            if name in self.examples:
                content["application/json"]["example"] = self.examples[name]
            described["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
        return described


WORDS = RouteWords.read("regard.serving")


def describe_route(name: str, cls: type | None, settings: ServeSettings) -> dict[str, Any]:
    """The description of a route under /v1, which takes the fields of a request, or none."""
    bodies = {"application/json": schema_of(cls, settings)} if cls is not None and name in WORDS.examples else {}
    if name in UPLOADS:
        form = bodies["multipart/form-data"] = schema_of(UPLOADS[name], settings)
        pictures = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
        form["properties"]["pictures"] = {**pictures, "maxItems": settings.pictures}
        form["properties"].pop("text", None)
        form["required"] = ["pictures"]
    described = WORDS.describe(name, UNCHECKED if cls is None else WORDS.statuses, bodies)
    if name == "metrics":
        figures = {"text/plain": {"schema": WORDS.schema("text")}}
        described["responses"][200] = {"description": "The figures", "content": figures}
    if name in STREAMED:
        described["responses"][200]["content"]["text/event-stream"] = {"schema": WORDS.schema("event")}
    return described
