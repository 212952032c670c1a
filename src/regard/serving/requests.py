"""Requests as dataclasses: what may be sent to each route, checked in the words of the command line.

A request is JSON. Its fields are checked by `regard.config.parse`, as the keys of a configuration are, and its schema
is made from the same declarations.
"""

import dataclasses
import functools
import json
import logging
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from regard.config import option, parse, show_value, suggestion
from regard.decoding import Options
from regard.errors import ConfigError, RegardError
from regard.serving.settings import ServeSettings

T = TypeVar("T")
LISTS = ("texts", "prefixes", "targets")  # fields of texts
ONE_TEXT = ("prefix", "text", "target")
EXAMPLES = {"source_language": ("en", "eng_Latn"), "target_language": ("de", "deu_Latn")}  # of fields
SEARCH = {each.name: each for each in dataclasses.fields(Options)}
# Options of the search, and the settings of a server that limit them.
LIMITS = {"beam": "beam", "nbest": "beam", "longest": "output_tokens", "shortest": "output_tokens"}
MAX_CHARACTERS = 100_000  # characters of a line
SECRET = re.compile(r"key|token|secret|password|authori[sz]ation|credential", re.IGNORECASE)
HIDDEN = "(not logged)"
log = logging.getLogger("regard.serving")


class ApiError(RegardError):
    """A request that is not answered: the status, a code for programs, and a sentence for people."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
    ):
        super().__init__(message)
        self.status, self.code, self.field, self.headers = status, code, field, dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {"error": {"code": self.code, "message": str(self), "field": self.field}}


class InvalidValueError(ApiError):
    """A field with a value that cannot be used."""

    def __init__(self, message: str, field: str | None = None):
        super().__init__(422, "invalid_value", message, field)


class TooLargeError(ApiError):
    """A request, or a field of one, that is larger than the server allows."""

    def __init__(self, message: str, field: str | None = None):
        super().__init__(413, "too_large", message, field)


@dataclass(frozen=True)
class ModelRequest:
    """A request for one of the models that are served."""

    model: str | None = option(None, "name of the model; may be missing where only one fits")


@dataclass(frozen=True)
class LanguageRequest(ModelRequest):
    """A request for a model that may know several languages."""

    source_language: str | None = option(None, "language of the sources, for a model that knows several")
    target_language: str | None = option(None, "language of the targets, for a model that knows several")

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The two languages; None for the model's own."""
        return self.source_language, self.target_language


@dataclass(frozen=True)
class TranslateRequest(LanguageRequest):
    """Translate texts, or caption pictures: the search's options stand beside these fields."""

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


def read_json(body: bytes) -> dict[str, Any]:
    """Read the body of a request: a JSON object."""
    try:
        table = json.loads(body, parse_float=read_number, parse_constant=refuse_constant)
    except RecursionError:
        raise ApiError(400, "invalid_json", "the body is nested too deeply, expected a JSON object") from None
    except ValueError as error:  # of its grammar, its encoding, or a number that is too long
        raise ApiError(400, "invalid_json", f"the body is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise InvalidValueError(f"{show_value(table)} given, expected a JSON object")
    return table


def read_number(text: str) -> float | int:
    """Read a number with a point; 2.0 is a whole one."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def refuse_constant(name: str) -> None:
    """Refuse what is no JSON, though Python reads it."""
    raise ValueError(f"{name} is not a JSON number")


def parse_request(cls: type[T], table: Mapping[str, Any], settings: ServeSettings) -> tuple[T, Options]:
    """Check the fields of a request, and the options of the search that stand among them."""
    searches, (fields, names) = cls in SEARCHING, names_of(cls)  # type: ignore[arg-type]
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
        # Texts are checked by themselves: a configuration's are shorter.
        request = parse(cls, own | {name: "text" if isinstance(each, str) else [] for name, each in texts.items()})
        options = parse(Options, {name: value for name, value in table.items() if searches and name in SEARCH})
    except ConfigError as error:
        raise InvalidValueError(str(error), error.key) from None
    check_options(options, settings)
    return dataclasses.replace(request, **texts), options  # type: ignore[type-var]


@functools.cache
def names_of(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a request's own fields, and of all that may be sent."""
    own = tuple(each.name for each in dataclasses.fields(cls))
    return own, own + (tuple(SEARCH) if cls in SEARCHING else ())


def shorten(name: str) -> str:
    """Shorten what may be very long, and leave out what is no text."""
    return name[:80].encode("utf-8", "replace").decode()


def check_texts(name: str, value: Any, settings: ServeSettings) -> tuple[str, ...]:
    """Check a list of texts."""
    if not isinstance(value, list):
        raise InvalidValueError(f"{name}: {show_value(value)} given, expected a list of texts", name)
    if len(value) > settings.texts:
        raise TooLargeError(f"{name}: {len(value):,} given, expected at most {settings.texts:,}", name)
    return tuple(check_text(f"{name}[{number}]", text) for number, text in enumerate(value))


def check_text(name: str, value: Any) -> str:
    """Check a text: half of a pair of surrogates is no character."""
    if not isinstance(value, str):
        raise InvalidValueError(f"{name}: {show_value(value)} given, expected a text", name)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(value[error.start]):04X}"
        message = f"{name}: a lone surrogate, {code}, at character {error.start + 1:,}; expected Unicode text"
        raise InvalidValueError(message, name) from None
    return value


def check_options(options: Options, settings: ServeSettings) -> None:
    """Refuse what this server does not allow, though a search could do it."""
    for name, setting in LIMITS.items():
        value, limit = getattr(options, name), getattr(settings, setting)
        if value is not None and value > limit:
            raise InvalidValueError(f"{name}: {value:,} given, expected at most {limit:,} on this server", name)


SEARCHING = (TranslateRequest, SampleRequest, CaptionRequest, LookRequest)  # requests with the options of the search


# ---- schemas


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
    """Return the schema of one field: its type, its limits, its default and its help."""
    schema = type_of(hint)
    if schema.get("type") == "array":
        schema |= {"maxItems": settings.texts, "minItems": each.metadata.get("min", 0)}
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


def type_of(hint: Any) -> dict[str, Any]:
    """Return the schema of a type."""
    plain = {int: "integer", float: "number", str: "string", bool: "boolean"}
    if hint in plain:
        return {"type": plain[hint]}
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if get_origin(hint) in (Union, types.UnionType):
        (real,) = (each for each in get_args(hint) if each is not type(None))
        return {"type": [plain[real], "null"]}
    return {"type": "array"}


def log_texts(path: str, table: dict[str, Any]) -> None:
    """Write the fields of a request into the log, without what may be a key, however deep it is."""
    try:
        line = json.dumps(hide_keys(table), ensure_ascii=True, default=str)
    except RecursionError:
        line = "(nested too deeply to be logged)"
    log.info("%s %s", path, line[:MAX_CHARACTERS])


def hide_keys(value: Any) -> Any:
    """A value without what stands under the name of a key."""
    if isinstance(value, dict):
        shown = ("output_tokens", "tokens")  # options of the search are no keys
        secret = {name for name in value if SECRET.search(name) is not None and name not in shown}
        return {name: HIDDEN if name in secret else hide_keys(each) for name, each in value.items()}
    return [hide_keys(each) for each in value] if isinstance(value, list | tuple) else value
