"""How routes are described in OpenAPI: what is sent, with an example, and what is answered."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Self

from regard.serving.requests import CaptionRequest, LookRequest, schema_of
from regard.serving.settings import ServeSettings


@dataclass(frozen=True)
class RouteWords:
    """What OpenAPI says of routes, in words: a summary of each, an example of some, and of every status."""

    summaries: dict[str, str]
    statuses: dict[str, str]
    examples: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, package: str) -> Self:
        """Read the words of a package's routes, in its openapi.toml."""
        return cls(**tomllib.loads(resources.files(package).joinpath("openapi.toml").read_text(encoding="utf-8")))


WORDS = RouteWords.read("regard.serving")
STREAMS = {"translate", "sample"}  # routes that answer with events, too
UPLOADS = {"caption": CaptionRequest, "classify": CaptionRequest, "look": LookRequest}  # routes that take pictures
NUMBER = {"type": ["number", "null"]}
TEXT = {"type": "string"}
LINKS = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}}


def table(**properties: Any) -> dict[str, Any]:
    """The schema of an object whose fields are all there, but for those whose names end in an underscore."""
    named = {name.rstrip("_"): schema for name, schema in properties.items()}
    required = [name for name in properties if not name.endswith("_")]
    return {"type": "object", "properties": named, "required": required}


def array(items: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": items}


OUTPUT = table(
    text=TEXT,
    score=NUMBER,
    log_prob=NUMBER,
    tokens=array(TEXT),
    finished={"type": "boolean"},
    alignment_=LINKS,
    untranslated_={
        **LINKS,
        "description": "rows of source words that are left out: the first, and the one behind them",
    },
    scores_=array(NUMBER),
)
EVENT = table(event={"type": "string", "enum": ["partial", "result", "error"]}, data=TEXT)  # its data are JSON
ERROR = table(error=table(code=TEXT, message=TEXT, field={"type": ["string", "null"]}))
UNKNOWN = {**array(TEXT), "description": "words of the text that did not occur in training"}
ANSWERS: dict[str, dict[str, Any]] = {
    "translate": table(
        model=TEXT, results=array(table(text=TEXT, cut={"type": "boolean"}, unknown=UNKNOWN, outputs=array(OUTPUT)))
    ),
    "sample": table(model=TEXT, results=array(OUTPUT)),
    "score": table(model=TEXT, results=array(table(log_prob=NUMBER, tokens=array(NUMBER), unknown=UNKNOWN))),
    "align": table(model=TEXT, results=array(table(alignment=LINKS, unknown=UNKNOWN))),
    "classify": table(
        model=TEXT,
        results=array(
            table(
                label={"type": ["string", "null"]},
                probability=NUMBER,
                probabilities={"type": ["object", "null"], "additionalProperties": {"type": "number"}},
                unknown_=UNKNOWN,
            )
        ),
    ),
    "caption": table(model=TEXT, results=array(table(text=TEXT, outputs=array(OUTPUT)))),
    "look": table(model=TEXT, page={"type": "object"}, unknown_=UNKNOWN),
    "models": table(
        models=array(
            table(
                name=TEXT,
                task=TEXT,
                kind=TEXT,
                reads={"type": "string", "enum": ["texts", "pictures"]},
                actions=array(TEXT),
                languages={"type": ["object", "null"]},
                known_languages={"type": ["object", "null"]},
                split={"type": ["boolean", "null"]},
                labels={"type": ["array", "null"]},
                step={"type": "integer"},
                parameters={"type": "integer"},
                longest={"type": "integer"},
                devices=array(TEXT),
            )
        )
    ),
    "livez": table(status=TEXT),
    "readyz": table(status=TEXT, models={"type": "object"}),
}


def route_name(route: Any) -> str:
    """The name of a route in OpenAPI: its path's last part."""
    return str(route.path).rsplit("/", 1)[-1]


def describe_route(name: str, cls: type | None, settings: ServeSettings) -> dict[str, Any]:
    """The description of a route, as FastAPI takes it."""
    statuses = WORDS.statuses if cls is not None else {each: WORDS.statuses[each] for each in ("421", "401", "503")}
    responses: dict[int | str, dict[str, Any]] = {
        int(status): {"description": words, "content": {"application/json": {"schema": ERROR}}}
        for status, words in statuses.items()
    }
    if name == "metrics":
        responses[200] = {"description": "The figures", "content": {"text/plain": {"schema": TEXT}}}
    else:
        responses[200] = {"description": "The answer", "content": {"application/json": {"schema": ANSWERS[name]}}}
    if name in STREAMS:
        responses[200]["content"]["text/event-stream"] = {"schema": EVENT}
    if name == "readyz":
        responses[503] = {"description": "Not ready", "content": {"application/json": {"schema": ANSWERS[name]}}}
    described: dict[str, Any] = {"summary": WORDS.summaries[name], "responses": responses, "response_model": None}
    if cls is not None:
        content: dict[str, Any] = {}
        if name in WORDS.examples:
            content["application/json"] = {"schema": schema_of(cls, settings), "example": WORDS.examples[name]}
        if name in UPLOADS:
            form = schema_of(UPLOADS[name], settings)
            picture = {"type": "string", "format": "binary"}
            form["properties"]["pictures"] = {"type": "array", "items": picture, "minItems": 1}
            form["properties"]["pictures"]["maxItems"] = settings.pictures
            form["properties"].pop("text", None)
            form["required"] = ["pictures"]
            content["multipart/form-data"] = {"schema": form}
        described["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return described
