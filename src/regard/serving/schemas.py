"""How routes are described in OpenAPI: what is sent, with an example, and what is answered."""

from typing import Any

from regard.serving.requests import CaptionRequest, LookRequest, schema_of
from regard.serving.settings import ServeSettings

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
EXAMPLES: dict[str, dict[str, Any]] = {
    "translate": {"texts": ["The child sleeps."], "beam": 5, "nbest": 2, "alignment": True, "scores": True},
    "sample": {"count": 2, "prefix": "The", "temperature": 0.8, "seed": 1},
    "score": {"texts": ["The child sleeps."], "targets": ["Das Kind schläft."]},
    "align": {"texts": ["The child sleeps."], "targets": ["Das Kind schläft."]},
    "classify": {"texts": ["This pizza is not too bad."]},
    "look": {"text": "The child sleeps.", "beam": 3},
}
SUMMARIES = {
    "translate": "Translate texts",
    "sample": "Sample texts from a language model",
    "score": "Score given translations, or texts of a language model",
    "align": "Align the words of given translations",
    "classify": "Label documents or pictures",
    "caption": "Caption pictures",
    "look": "Look into a model: the data of a page of regard look",
    "models": "List the models",
    "livez": "Whether the process is alive",
    "readyz": "Whether every model serves",
    "metrics": "Figures in Prometheus' format",
}
STATUSES = {
    400: "The body is not JSON",
    401: "The API key is missing or not known",
    404: "There is no such model",
    408: "The request did not arrive in time",
    413: "The request is too large",
    415: "The type of the body is not served",
    421: "This Host is not served",
    422: "A field has a value that cannot be used",
    429: "Too many requests; Retry-After says when to try again",
    431: "The headers are too many or too large",
    503: "The server is loading or stopping, or a worker has stopped",
    504: "The request took too long",
}


def route_name(route: Any) -> str:
    """The name of a route in OpenAPI: its path's last part."""
    return str(route.path).rsplit("/", 1)[-1]


def describe_route(name: str, cls: type | None, settings: ServeSettings) -> dict[str, Any]:
    """The description of a route, as FastAPI takes it."""
    statuses = STATUSES if cls is not None else {421: STATUSES[421], 401: STATUSES[401], 503: STATUSES[503]}
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": words, "content": {"application/json": {"schema": ERROR}}}
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
    described: dict[str, Any] = {"summary": SUMMARIES[name], "responses": responses, "response_model": None}
    if cls is not None:
        content: dict[str, Any] = {}
        if name in EXAMPLES:
            content["application/json"] = {"schema": schema_of(cls, settings), "example": EXAMPLES[name]}
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
