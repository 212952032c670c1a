"""Requests as dataclasses: the fields of each route, their checks, with the command line's messages, and their schemas.

A request is JSON. `regard.config.parse` checks its fields, as it checks the keys of a configuration, and its schema is
made from the same declarations. The part of OpenAPI that does not depend on a server's settings is data: openapi.toml
has each route's words, an example of its request and the form of its answer.
"""

import dataclasses
import json
import logging
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin

from regard.config import option, parse, show_value, suggestion
from regard.decoding import Options
from regard.errors import ConfigError
from regard.serving.errors import ApiError, InvalidValueError, TooLargeError
from regard.serving.settings import ServeSettings

T = TypeVar("T")
File = tuple[str, Any]  # an uploaded picture: its name in messages, and its file
LISTS = ("texts", "prefixes", "targets")  # fields that are lists of texts
ONE_TEXT = ("prefix", "text", "target")
EXAMPLES = {"source_language": ("en", "eng_Latn"), "target_language": ("de", "deu_Latn")}  # of fields
SEARCH = {each.name: each for each in dataclasses.fields(Options)}
# Request fields that are numbers, and the server settings that limit them.
LIMITS = {
    "beam": "beam",
    "nbest": "beam",
    "longest": "output_tokens",
    "shortest": "output_tokens",
    "count": "texts",
}
LOG_CHARACTERS = 100_000  # of a line of the log
SECRET = re.compile(r"key|token|secret|password|authori[sz]ation|credential", re.IGNORECASE)
HIDDEN = "(not logged)"
log = logging.getLogger("regard.serving")


@dataclass(frozen=True)
class ModelRequest:
    """A request for one of the served models."""

    model: str | None = option(None, "name of the model; may be missing where only one fits")


@dataclass(frozen=True)
class LanguageRequest(ModelRequest):
    """A request for a model that may know several languages."""

    source_language: str | None = option(None, "language of the sources, for a model that knows several")
    target_language: str | None = option(None, "language of the targets, for a model that knows several")

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The source and target languages; None for the model's own."""
        return self.source_language, self.target_language


@dataclass(frozen=True)
class TranslateRequest(LanguageRequest):
    """Translate texts; search options stand beside these fields."""

    texts: tuple[str, ...] = field(default=(), metadata={"help": "texts to translate, of any length", "min": 1})
    prefixes: tuple[str, ...] = field(
        default=(), metadata={"help": "texts that the outputs begin with, one for each text; may be empty"}
    )
    split: bool | None = option(
        None,
        "translate each sentence of a text by itself; null: as the model was trained, so that nothing is left out; "
        "false: cut what is too long, and say so",
    )
    alignment: bool = option(False, "add word links, pairs of a source word and a target word, counted from 0")
    coverage: bool = option(
        False, "add where an output leaves source words out (untranslated), which alignment adds as well"
    )
    scores: bool = option(False, "add the log-probability of every token")
    replace_unknown: bool = option(False, "replace each unknown word with the source word it attended to most")
    stream: bool = option(False, "answer with server-sent events: what is certain so far, then the whole answer")


@dataclass(frozen=True)
class SampleRequest(ModelRequest):
    """Sample texts from a language model."""

    count: int = option(1, "number of texts", least=1, most=10_000)
    prefix: str = option("", "text that every sample continues")
    stream: bool = option(False, "answer with server-sent events: what is written so far, then the whole answer")


@dataclass(frozen=True)
class ScoreRequest(LanguageRequest):
    """Score given translations, or texts of a language model."""

    texts: tuple[str, ...] = field(default=(), metadata={"help": "sources, or texts of a language model", "min": 1})
    targets: tuple[str, ...] = field(default=(), metadata={"help": "translations, one for each text"})


@dataclass(frozen=True)
class AlignRequest(LanguageRequest):
    """Align the words of given translations."""

    texts: tuple[str, ...] = field(default=(), metadata={"help": "sources", "min": 1})
    targets: tuple[str, ...] = field(default=(), metadata={"help": "translations, one for each text", "min": 1})


@dataclass(frozen=True)
class ClassifyRequest(ModelRequest):
    """Label documents."""

    texts: tuple[str, ...] = field(default=(), metadata={"help": "documents", "min": 1})


@dataclass(frozen=True)
class CaptionRequest(ModelRequest):
    """Caption pictures, which are uploaded beside these fields."""


@dataclass(frozen=True)
class LookRequest(LanguageRequest):
    """Look into a model: the data of a page of `regard look`."""

    text: str = option("", "text to look into")
    target: str | None = option(None, "output that the model is made to write, instead of searching for one")


# The request of each action, and the one sent with pictures if it takes any.
ACTIONS: dict[str, tuple[type[ModelRequest], type[ModelRequest] | None]] = {
    "translate": (TranslateRequest, None),
    "sample": (SampleRequest, None),
    "score": (ScoreRequest, None),
    "align": (AlignRequest, None),
    "look": (LookRequest, LookRequest),
    "classify": (ClassifyRequest, CaptionRequest),
    "caption": (CaptionRequest, CaptionRequest),
}
SEARCHING = (TranslateRequest, SampleRequest, CaptionRequest, LookRequest)  # requests with search options


class ActionRequest(NamedTuple):
    """The request of an action: its fields, search options, and pictures."""

    fields: Any
    options: Options = Options()
    given: Mapping[str, Any] = {}  # options in the request; others have the task's defaults
    files: Sequence[File] = ()


def read_json(body: bytes) -> dict[str, Any]:
    """Read the body of a request: a JSON object."""
    try:
        table = json.loads(body, parse_float=read_number, parse_constant=refuse_constant)
    except RecursionError:
        raise ApiError(400, "invalid_json", "the body is nested too deeply, expected a JSON object") from None
    except ValueError as error:  # invalid grammar or encoding, or too long a number
        raise ApiError(400, "invalid_json", f"the body is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise InvalidValueError(f"{show_value(table)} given, expected a JSON object")
    return table


def read_number(text: str) -> float | int:
    """Read a number with a decimal point; a whole one, such as 2.0, becomes an int."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are not JSON, though Python reads them."""
    raise ValueError(f"{name} is not a JSON number")


def parse_request(cls: type[T], table: Mapping[str, Any], settings: ServeSettings) -> tuple[T, Options]:
    """Check the fields of a request, and the search options among them."""
    searches, fields = cls in SEARCHING, [each.name for each in dataclasses.fields(cls)]  # type: ignore[arg-type]
    names = [*fields, *(SEARCH if searches else ())]
    for name in table:
        if name not in names:
            raise InvalidValueError(f"{shorten(name)}: no such field{suggestion(name, names)}", shorten(name))
    own = {name: value for name, value in table.items() if not (searches and name in SEARCH)}
    texts: dict[str, str | tuple[str, ...]] = {
        name: check_texts(name, own.pop(name), settings) for name in LISTS if name in own and name in fields
    }
    for name in ONE_TEXT:
        if name in own and name in fields and own[name] is not None:
            texts[name] = check_text(name, own.pop(name))
    total = sum(len(value) if isinstance(value, str) else sum(map(len, value)) for value in texts.values())
    if total > settings.characters:
        message = f"texts: {total:,} characters given, expected at most {settings.characters:,} in a request"
        raise TooLargeError(message, "texts")
    try:
        # Check texts separately: those of a configuration are shorter.
        request = parse(cls, own | {name: "text" if isinstance(each, str) else [] for name, each in texts.items()})
        options = parse(Options, {name: value for name, value in table.items() if searches and name in SEARCH})
    except ConfigError as error:
        raise InvalidValueError(str(error), error.key) from None
    for name, setting in LIMITS.items():  # the search itself could do more than this server allows
        value, limit = getattr(request if name == "count" else options, name, None), getattr(settings, setting)
        if value is not None and value > limit:
            raise InvalidValueError(f"{name}: {value:,} given, expected at most {limit:,} on this server", name)
    return dataclasses.replace(request, **texts), options  # type: ignore[type-var]


def shorten(name: str) -> str:
    """Shorten a name that may be very long, and replace lone surrogates."""
    return name[:80].encode("utf-8", "replace").decode()


def require_texts(texts: Sequence[str]) -> None:
    """Refuse a request without texts."""
    if not texts:
        raise InvalidValueError("texts: missing, expected a list of texts", "texts")


def check_texts(name: str, value: Any, settings: ServeSettings) -> tuple[str, ...]:
    """Check a list of texts."""
    if not isinstance(value, list):
        raise InvalidValueError(f"{name}: {show_value(value)} given, expected a list of texts", name)
    if len(value) > settings.texts:
        raise TooLargeError(f"{name}: {len(value):,} given, expected at most {settings.texts:,}", name)
    return tuple(check_text(f"{name}[{number}]", text) for number, text in enumerate(value))


def check_text(name: str, value: Any) -> str:
    """Check that a value is a text, without lone surrogates."""
    if not isinstance(value, str):
        raise InvalidValueError(f"{name}: {show_value(value)} given, expected a text", name)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(value[error.start]):04X}"
        message = f"{name}: a lone surrogate, {code}, at character {error.start + 1:,}; expected Unicode text"
        raise InvalidValueError(message, name) from None
    return value


def log_texts(path: str, table: dict[str, Any]) -> None:
    """Log the fields of a request, without anything that may be a key, at any depth."""
    try:
        line = json.dumps(hide_keys(table), ensure_ascii=True, default=str)
    except RecursionError:
        line = "(nested too deeply to be logged)"
    log.info("%s %s", path, line[:LOG_CHARACTERS])


def hide_keys(value: Any) -> Any:
    """Replace the values of fields whose names look like secrets."""
    if isinstance(value, dict):
        shown = ("output_tokens", "tokens")  # search options, not keys
        secret = {name for name in value if SECRET.search(name) is not None and name not in shown}
        return {name: HIDDEN if name in secret else hide_keys(each) for name, each in value.items()}
    return [hide_keys(each) for each in value] if isinstance(value, list | tuple) else value


# ---- schemas, for OpenAPI


UNCHECKED = ("421", "401", "503")  # statuses of a route that takes no fields


def schema_of(cls: type, settings: ServeSettings) -> dict[str, Any]:
    """Return the JSON schema of a request."""
    hints = typing.get_type_hints(cls)
    fields = {each.name: (hints[each.name], each) for each in dataclasses.fields(cls)}
    if cls in SEARCHING:
        search_hints = typing.get_type_hints(Options)
        fields |= {name: (search_hints[name], each) for name, each in SEARCH.items()}
    properties = {name: property_of(name, hint, each, settings) for name, (hint, each) in fields.items()}
    required = [name for name, (_, each) in fields.items() if each.metadata.get("min")]
    required += ["text"] if cls is LookRequest else []
    schema: dict[str, Any] = {"type": "object", "title": cls.__name__, "properties": properties}
    schema["additionalProperties"] = False
    return {**schema, "required": required} if required else schema


def property_of(name: str, hint: Any, each: dataclasses.Field, settings: ServeSettings) -> dict[str, Any]:
    """Return the schema of one field: its type, limits, default and help."""
    plain = {int: "integer", float: "number", str: "string", bool: "boolean"}
    schema: dict[str, Any]
    if hint in plain:
        schema = {"type": plain[hint]}
    elif get_origin(hint) is Literal:
        schema = {"type": "string", "enum": list(get_args(hint))}
    elif get_origin(hint) in (Union, types.UnionType):
        (real,) = (one for one in get_args(hint) if one is not type(None))
        schema = {"type": [plain[real], "null"]}
    else:
        schema = {"type": "array", "maxItems": settings.texts, "minItems": each.metadata.get("min", 0)}
        schema["items"] = {"type": "string", "maxLength": settings.characters}
    for key, word in (("least", "minimum"), ("most", "maximum"), ("above", "exclusiveMinimum")):
        if key in each.metadata:
            schema[word] = each.metadata[key]
    if name in LIMITS:
        limit = getattr(settings, LIMITS[name])
        schema["maximum"] = min(limit, schema.get("maximum", limit))
    if name == "text":
        schema |= {"minLength": 1, "maxLength": settings.characters}
    if name in EXAMPLES:
        schema["examples"] = list(EXAMPLES[name])
    if each.default is not dataclasses.MISSING and each.default not in (None, ()):
        schema["default"] = each.default
    return {**schema, "description": each.metadata.get("help", "")}


@dataclass(frozen=True)
class RouteWords:
    """OpenAPI's words for routes: their summaries, some examples, statuses, and the forms of answers."""

    summaries: dict[str, str]
    statuses: dict[str, str]
    examples: dict[str, dict[str, Any]]
    schemas: dict[str, dict[str, Any]]  # by the names that answers use
    answers: dict[str, Any]

    @classmethod
    def read(cls, package: str) -> Self:
        """Read the words of a package's routes from its openapi.toml."""
        return cls(**tomllib.loads(resources.files(package).joinpath("openapi.toml").read_text(encoding="utf-8")))

    def schema(self, form: Any) -> dict[str, Any]:
        """Return the schema of a form written as in openapi.toml."""
        if isinstance(form, str):
            return self.schemas[form] if form in self.schemas else self.schema(self.answers[form])
        if isinstance(form, list):
            several = [self.schema(each) for each in form]
            return {"type": "array", "items": several[0]} if len(several) == 1 else {"anyOf": several}
        named = {name.removesuffix("?"): self.schema(each) for name, each in form.items()}
        required = [name for name in form if not name.endswith("?")]
        return {"type": "object", "properties": named, "required": required}

    def describe(self, name: str, statuses: Iterable[str], bodies: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the description of a route for FastAPI; `bodies` maps content types to request schemas."""
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


def describe_route(name: str, settings: ServeSettings) -> dict[str, Any]:
    """Describe a route under /v1, for an action or without fields."""
    cls, upload = ACTIONS.get(name, (None, None))
    bodies = {"application/json": schema_of(cls, settings)} if cls is not None and name in WORDS.examples else {}
    if upload is not None:
        form = bodies["multipart/form-data"] = schema_of(upload, settings)
        pictures = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
        form["properties"]["pictures"] = {**pictures, "maxItems": settings.pictures}
        form["properties"].pop("text", None)
        form["required"] = ["pictures"]
    described = WORDS.describe(name, UNCHECKED if cls is None else WORDS.statuses, bodies)
    if name == "metrics":
        figures = {"text/plain": {"schema": WORDS.schema("text")}}
        described["responses"][200] = {"description": "The figures", "content": figures}
    if hasattr(cls, "stream"):  # it can also answer with events
        described["responses"][200]["content"]["text/event-stream"] = {"schema": WORDS.schema("event")}
    return described
