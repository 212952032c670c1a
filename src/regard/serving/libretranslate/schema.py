"""How LibreTranslate's routes are described in OpenAPI, with examples that can be sent as they stand."""

from typing import Any

from regard.serving.schemas import TEXT, array, table
from regard.serving.settings import ServeSettings

KEY = {"type": "string", "description": "API key, if the server asks for one and no header has it"}
SOURCE = {"type": "string", "description": "language of the text, or auto", "minLength": 1}
TEXTS = "translate"  # a route, and no task
TARGET = {"type": "string", "description": "language to translate into", "minLength": 1}
DETECTION = table(confidence={"type": "number", "minimum": 0, "maximum": 100}, language=TEXT)
LANGUAGE = table(code=TEXT, name=TEXT)
EXAMPLES: dict[str, dict[str, Any]] = {
    "translate": {"q": "The dog sleeps.", "source": "en", "target": "de", "format": "text", "alternatives": 2},
    "detect": {"q": "The dog sleeps."},
}
SUMMARIES = {
    "translate": "Translate a text or several, plain or HTML",
    "translate_file": "Translate a file: text, HTML or subtitles",
    "download_file": "Fetch a translated file",
    "detect": "Detect the language of a text",
    "languages": "List the languages",
    "settings": "What the server allows, for a page that uses it",
    "health": "Whether every model serves",
    "spec": "This description of LibreTranslate's routes",
    "suggest": "Suggest a better translation, which this server does not take",
}
ONE_OR_MORE = {"anyOf": [TEXT, array(TEXT)]}
ANSWERS: dict[str, dict[str, Any]] = {
    "translate": table(
        translatedText=ONE_OR_MORE,
        detectedLanguage_={"anyOf": [DETECTION, array(DETECTION)]},
        alternatives_={"anyOf": [array(TEXT), array(array(TEXT))]},
    ),
    "translate_file": table(translatedFileUrl=TEXT),
    "detect": array(DETECTION),
    "languages": array(table(code=TEXT, name=TEXT, targets=array(TEXT))),
    "settings": table(
        apiKeys={"type": "boolean"},
        charLimit={"type": "integer"},
        filesTranslation={"type": "boolean"},
        frontendTimeout={"type": "integer"},
        keyRequired={"type": "boolean"},
        language=table(source=LANGUAGE, target=LANGUAGE),
        suggestions={"type": "boolean"},
        supportedFilesFormat=array(TEXT),
    ),
    "health": table(status=TEXT),
    "spec": {"type": "object"},
    "suggest": table(success={"type": "boolean"}),
}
STATUSES = {
    400: "The request cannot be used as it is, or has no API key",
    403: "The API key is not known here, or the server does not do this",
    413: "The request is too large",
    421: "This Host is not served",
    408: "The request did not arrive in time",
    429: "Too many requests; Retry-After says when to try again",
    500: "A fault of the server",
    503: "The server is loading or stopping, or a worker has stopped",
    504: "The request took too long",
}


def describe_libretranslate(name: str, settings: ServeSettings) -> dict[str, Any]:
    """The description of a route, as FastAPI takes it."""
    error = {"application/json": {"schema": table(error=TEXT)}}
    open_to_all = name in ("languages", "settings", "health", "spec")
    statuses = {421: STATUSES[421]} if open_to_all else STATUSES
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": words, "content": error} for status, words in statuses.items()
    }
    if name == "download_file":
        responses[200] = {"description": "The file", "content": {"application/octet-stream": {"schema": {}}}}
        responses[404] = {"description": "There is no such file, or no more", "content": error}
    else:
        responses[200] = {"description": "The answer", "content": {"application/json": {"schema": ANSWERS[name]}}}
    if name == "health":
        responses[503] = {"description": "Not ready", "content": {"application/json": {"schema": ANSWERS[name]}}}
    described: dict[str, Any] = {
        "summary": SUMMARIES[name],
        "responses": responses,
        "response_model": None,
        "operation_id": f"libretranslate_{name}",
        "tags": ["LibreTranslate"],
    }
    if name in (TEXTS, "translate_file", "detect", "suggest"):
        content: dict[str, Any] = {}
        if name != "translate_file":
            content["application/json"] = {"schema": schema_of_body(name, settings, many=name == TEXTS)}
            content["application/x-www-form-urlencoded"] = {"schema": schema_of_body(name, settings, many=False)}
            if name in EXAMPLES:
                content["application/json"]["example"] = EXAMPLES[name]
        else:
            content["multipart/form-data"] = {"schema": schema_of_body(name, settings, many=False)}
        described["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return described


def schema_of_body(name: str, settings: ServeSettings, many: bool) -> dict[str, Any]:
    """The schema of what is sent to a route; `many`: a list of texts, too."""
    text: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": settings.characters}
    texts = {"type": "array", "items": TEXT, "minItems": 1, "maxItems": settings.texts}
    question = {"anyOf": [text, texts]} if many else dict(text)
    properties: dict[str, Any] = {"api_key": KEY}
    if name == "translate_file":
        properties |= {"file": {"type": "string", "format": "binary"}, "source": SOURCE, "target": TARGET}
    else:
        properties |= {"q": {**question, "description": "text to translate" + " or several" * many}}
    if name in (TEXTS, "suggest"):
        properties |= {"source": SOURCE, "target": TARGET}
    if name == TEXTS:
        properties["format"] = {"type": "string", "enum": ["text", "html"], "default": "text"}
        most = settings.beam - 1
        properties["alternatives"] = {"type": "integer", "minimum": 0, "maximum": most, "default": 0}
    if name == "suggest":
        properties["s"] = {"type": "string", "description": "the better translation"}
    required = [each for each in properties if each in ("file", "q", "source", "target")]
    return {"type": "object", "properties": properties, "required": required}
