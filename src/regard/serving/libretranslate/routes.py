r"""LibreTranslate's protocol: its routes, requests, answers and errors, for clients that use it.

`/v1/translate` does the work and sets the limits; only the form differs. Errors are `{"error": "…"}` with
LibreTranslate's status codes. OpenAPI describes each route, with working examples.

The extension of a file's name says whether it is plain text, HTML or subtitles (SubRip). The numbers and times of
subtitle cues stay, and each cue is translated as one text, which is wrapped to as many lines as it had. If all its
lines begin with dashes, for several speakers, each line is a text of its own. Tags such as <i> are placed as in HTML,
and {\an8} stays at the beginning.
"""

import asyncio
import html
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Response
from starlette.datastructures import UploadFile
from starlette.responses import JSONResponse

from regard.config import show_value
from regard.decoding import Options
from regard.serving.errors import ProtocolError
from regard.serving.libretranslate.language_pairs import LanguagePair, LanguageTable, as_detection, language_name
from regard.serving.libretranslate.markup import Document, parse_html
from regard.serving.libretranslate.tag_placement import Link
from regard.serving.requests import (
    ActionRequest,
    RouteWords,
    TranslateRequest,
    check_text,
    log_texts,
    read_json,
    shorten,
)
from regard.serving.service import Service
from regard.serving.settings import ServeSettings

Finish = Callable[[Service, Request, Coroutine[Any, Any, Any]], Awaitable[Response]]
FORM_FIELDS = 100  # maximum for a form
WORDS = RouteWords.read("regard.serving.libretranslate")
FIELDS = {  # of the routes that take some
    "translate": ("q", "source", "target", "format", "alternatives"),
    "translate_file": ("file", "source", "target"),
    "detect": ("q",),
    "suggest": ("q", "source", "target", "s"),
}
LinkedText = tuple[str, Sequence[Link]]
TIMES = re.compile(r"^[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}[ \t]*-->[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}.*$")
PLACE = re.compile(r"(?:\{\\[^{}]*\})*(?:[-–—]\s*)?")  # the position of a cue, and the dash of a new speaker
WORD = re.compile(r"(?:<[^<>]*>|\S)+")  # spaces inside a tag do not end a word
FILES = 100  # maximum number of stored files
BYTES = 64 * 2**20  # maximum size of all of them
SECONDS = 600.0  # seconds for which a file is kept
NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Routes:
    """LibreTranslate's routes over a service; `finish` awaits some work and answers with its result."""

    def __init__(self, app: FastAPI, service: Service, finish: Finish, dependencies: Sequence[Any]):
        self.app, self.service, self.finish = app, service, finish
        self.files = FileStore()
        self.cached: tuple[Any, LanguageTable] | None = None
        rows: tuple[tuple[str, str, str, Any], ...] = (
            ("POST", "/translate", "translate", self.translate),
            ("POST", "/translate_file", "translate_file", self.translate_file),
            ("GET", "/download_file/{key}", "download_file", self.download_file),
            ("POST", "/detect", "detect", self.detect),
            ("POST", "/suggest", "suggest", self.suggest),
            ("GET", "/languages", "languages", self.languages),
            ("GET", "/frontend/settings", "settings", self.frontend_settings),
            ("GET", "/health", "health", self.health),
            ("GET", "/spec", "spec", self.spec),
        )
        for method, path, name, answer in rows:
            description = describe_libretranslate(name, service.settings)
            app.add_api_route(path, answer, methods=[method], dependencies=dependencies, **description)
            app.routes[-1].description = ""  # type: ignore[attr-defined]  # docstrings are for readers of this file

    # ---- routes

    async def translate(self, request: Request) -> Response:
        """Translate a text or several."""
        fields = await self.read_fields(request)
        question, many = self.read_question(fields)
        source, target = self.read_languages(fields)
        form = fields.get("format") or "text"
        if form not in ("text", "html"):
            raise ProtocolError(400, f"{show_value(form)} format is not supported")
        count = self.read_count(fields.get("alternatives"))
        documents: list[Renderable] = [PlainText(text) for text in question]
        if form == "html":
            documents = await asyncio.to_thread(lambda: [parse_html(text) for text in question])
        detected = [(source, 100.0)] * len(question) if source else await self.detect_sources(documents, target)

        async def work() -> dict[str, Any]:
            outputs: list[list[str]] = [[] for _ in question]
            options = Options(beam=max(Options.beam, 1 + count), nbest=1 + count)
            for code in dict.fromkeys(each for each, _ in detected):
                numbers = [number for number, each in enumerate(detected) if each[0] == code]
                pair = self.require_pair(code, target)
                if pair is None:  # the text is in the target language
                    found = [[question[number]] for number in numbers]
                else:
                    some = [documents[number] for number in numbers]
                    found = await render_all(self.service, pair, some, options)
                for number, each in zip(numbers, found, strict=True):
                    outputs[number] = each
            answer: dict[str, Any] = {"translatedText": [each[0] for each in outputs]}
            if count:
                answer["alternatives"] = [list(dict.fromkeys(each))[1:] for each in outputs]
            if source is None:
                answer["detectedLanguage"] = [as_detection(each) for each in detected]
            return answer if many else {name: values[0] for name, values in answer.items()}

        return await self.finish(self.service, request, work())

    async def translate_file(self, request: Request) -> Response:
        """Translate a file, and return the URL of the result."""
        fields = await self.read_fields(request)
        file = fields.get("file")
        if not isinstance(file, UploadFile):
            raise ProtocolError(400, "Invalid request: missing file parameter")
        source, target = self.read_languages(fields)
        name, content = file.filename or "", await file.read()
        text, document = await asyncio.to_thread(read_file, name, content, self.service.settings.characters)
        if source is None:
            ((source, _),) = await self.detect_sources([document], target)
        pair = self.require_pair(source, target)

        async def work() -> dict[str, Any]:
            translated = text
            if pair is not None:
                ((translated, *_),) = await render_all(self.service, pair, [document], Options())
            stem, dot, ending = name.rpartition(".")
            key = self.files.add(f"{stem}_{target}{dot}{ending}", translated.encode())
            return {"translatedFileUrl": str(request.base_url.replace(path=f"/download_file/{key}", query=""))}

        return await self.finish(self.service, request, work())

    async def download_file(self, request: Request) -> Response:
        """Return a translated file as a download, not to be displayed."""
        found = self.files.get(request.path_params["key"])
        if found is None:
            raise ProtocolError(404, "There is no such file, or no more: files are kept for ten minutes")
        name, content = found
        headers = {
            "content-disposition": f'attachment; filename="{name}"',
            "x-content-type-options": "nosniff",
            "content-security-policy": "sandbox; default-src 'none'",
            "cache-control": "no-store",
        }
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def detect(self, request: Request) -> Response:
        """Detect the language of a text."""
        question, _ = self.read_question(await self.read_fields(request))
        found = await asyncio.to_thread(self.table().detect, "\n".join(question))
        likely = [each for each in found if each[1] >= 0.05] or found[:1]
        return JSONResponse([as_detection(each) for each in likely])

    async def suggest(self, request: Request) -> Response:
        """Refuse suggested translations: the server does not learn from its clients."""
        await self.read_fields(request)
        raise ProtocolError(403, "Suggestions are disabled on this server")

    async def languages(self, request: Request) -> Response:
        """List the languages and their targets."""
        table = self.table()
        rows = [{"code": code, "name": language_name(code), "targets": table.targets(code)} for code in table.codes]
        return JSONResponse(rows)

    async def frontend_settings(self, request: Request) -> Response:
        """Return the settings and limits of this server."""
        settings, pairs = self.service.settings, self.table().pairs
        first = (pairs[0].source, pairs[0].target) if pairs else ("", "")
        source, target = ({"code": code, "name": language_name(code)} for code in first)
        return JSONResponse(
            {
                "apiKeys": settings.keys is not None,
                "charLimit": settings.characters,
                "filesTranslation": True,
                "frontendTimeout": 500,
                "keyRequired": settings.keys is not None,
                "language": {"source": source, "target": target},
                "suggestions": False,
                "supportedFilesFormat": list(ENDINGS),
            }
        )

    async def health(self, request: Request) -> Response:
        """Return whether every model serves."""
        return JSONResponse({"status": "ok"}) if self.service.ready else JSONResponse({"status": "not ready"}, 503)

    async def spec(self, request: Request) -> Response:
        """Return the OpenAPI description of these routes alone."""
        whole = self.app.openapi()
        own = {
            path: methods
            for path, methods in whole["paths"].items()
            if any("LibreTranslate" in each.get("tags", ()) for each in methods.values())
        }
        return JSONResponse({**whole, "paths": own})

    # ---- requests

    async def read_fields(self, request: Request) -> dict[str, Any]:
        """Read the fields of a request, from JSON or a form, and check its API key."""
        fields: dict[str, Any] = dict(request.query_params)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "multipart/form-data":
            form = await request.form(
                max_files=1, max_fields=FORM_FIELDS, max_part_size=self.service.settings.body_bytes
            )
            fields |= dict(form)
        else:
            body = await request.body()
            if kind.endswith("json") or (
                kind != "application/x-www-form-urlencoded" and body.lstrip()[:1] in (b"{", b"[")
            ):
                fields |= read_json(body)
            else:
                try:
                    pairs = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS, errors="strict")
                except ValueError:
                    problem = "Invalid request: the body is neither JSON nor a form in UTF-8"
                    raise ProtocolError(400, problem) from None
                for name, values in pairs.items():  # a repeated field is a list
                    several = [value.replace("\r\n", "\n") for value in values]  # forms send CRLF
                    fields[name] = several if len(several) > 1 else several[0]
        key = fields.get("api_key")
        ring = getattr(request.state, "keys", None)
        if ring is not None:  # the headers hold no key
            ring.check(str(key) if key else None)
        if self.service.settings.log_texts:
            log_texts(request.url.path, fields)
        return fields

    def read_question(self, fields: dict[str, Any]) -> tuple[list[str], bool]:
        """Return the texts of a request, and whether they were a list."""
        question, settings = fields.get("q"), self.service.settings
        if question is None or question in ("", []):
            raise ProtocolError(400, "Invalid request: missing q parameter")
        many = isinstance(question, list)
        texts = question if many else [question]
        if len(texts) > settings.texts:
            raise ProtocolError(400, f"Invalid request: {len(texts):,} texts exceed the limit of {settings.texts:,}")
        checked = [check_text(f"q[{number}]" if many else "q", text) for number, text in enumerate(texts)]
        size, most = sum(map(len, checked)), settings.characters
        if size > most:
            raise ProtocolError(400, f"Invalid request: request ({size}) exceeds text limit ({most})")
        return checked, many

    def read_languages(self, fields: dict[str, Any]) -> tuple[str | None, str]:
        """Return the languages of a request; None for a source to detect."""
        codes = []
        for name in ("source", "target"):
            given = fields.get(name)
            if not given:
                raise ProtocolError(400, f"Invalid request: missing {name} parameter")
            code = self.table().find_code(given) if isinstance(given, str) else None
            if code is None and not (name == "source" and given == "auto"):
                known = ", ".join(self.table().codes) or "no languages"
                raise ProtocolError(400, f"{shorten(show_value(given))} is not supported; this server has {known}")
            codes.append(code)
        return codes[0], str(codes[1])

    def read_count(self, given: Any) -> int:
        """Return how many alternatives are requested."""
        if given in (None, ""):
            return 0
        if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 9:
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool) or given < 0:
            raise ProtocolError(400, f"Invalid request: {shorten(show_value(given))} alternatives, expected a number")
        most = self.service.settings.beam - 1
        if given > most:
            raise ProtocolError(400, f"Invalid request: {given:,} alternatives exceed the limit of {most:,}")
        return given

    # ---- languages

    def table(self) -> LanguageTable:
        """Return the languages of the models served now."""
        if len(self.service.models) < len(self.service.folders):
            raise ProtocolError(503, "The models are being loaded; try again", headers={"Retry-After": "2"})
        models = tuple(self.service.models.values())
        if self.cached is None or self.cached[0] != models:
            self.cached = models, LanguageTable(models)
        return self.cached[1]

    async def detect_sources(self, documents: "Sequence[Renderable]", target: str) -> list[tuple[str, float]]:
        """Detect the languages of documents to translate into `target`, from their texts without markup."""
        texts, table = [" ".join(document.texts) for document in documents], self.table()
        return await asyncio.to_thread(lambda: [table.detect_source(text, target) for text in texts])

    def require_pair(self, source: str, target: str) -> Any:
        """Return the model for a pair of languages; None if both are the same and no model translates between them."""
        pair = self.table().find_pair(source, target)
        if pair is None and source != target:
            names = [f"{language_name(code)} ({code})" for code in (target, source)]
            raise ProtocolError(400, f"{names[0]} is not available as a target language from {names[1]}")
        return pair


# ---- texts and files


async def translate_linked(
    service: Service, pair: LanguagePair, texts: Sequence[str], options: Options, links: bool = True
) -> list[list[LinkedText]]:
    """Translate texts; return the outputs with word links, if the model has cross-attention."""
    words = [number for number, text in enumerate(texts) if text.strip()]
    outputs: list[list[LinkedText]] = [[(text, ())] for text in texts]
    if not words:
        return outputs
    tag = f"{pair.tag} " if pair.tag else ""
    aligned = links and service.models[pair.model].attends
    given = tuple(tag + texts[number].strip() for number in words)
    source, target = (pair.source, pair.target) if pair.named else (None, None)
    request = TranslateRequest(pair.model, source, target, texts=given, alignment=aligned)
    answer = await service.translate(ActionRequest(request, options))
    for number, result in zip(words, answer["results"], strict=True):
        outputs[number] = [
            (output["text"], [(source - bool(tag), target) for source, target in output.get("alignment", ())])
            for output in result["outputs"]
        ]
    return outputs


async def render_all(
    service: Service, pair: LanguagePair, documents: "Sequence[Renderable]", options: Options
) -> list[list[str]]:
    """Translate documents: translate all their texts together, then render the outputs of each, best first."""
    texts = [text for document in documents for text in document.texts]
    plain = all(isinstance(document, PlainText) for document in documents)
    outputs = await translate_linked(service, pair, texts, options, links=not plain)

    def render() -> list[list[str]]:
        rest, rows = iter(outputs), []
        for document in documents:
            own = [next(rest) for _ in document.texts]
            most = max(map(len, own), default=1)
            rows.append([document.render([each[min(rank, len(each) - 1)] for each in own]) for rank in range(most)])
        return rows

    return render() if plain else await asyncio.to_thread(render)


@dataclass(frozen=True)
class Subtitles:
    """A subtitle file in parts: the texts of cues, and lines to keep."""

    parts: tuple[tuple[str, Document, int] | str, ...]  # of a cue: prefix, text and number of lines

    @property
    def texts(self) -> list[str]:
        """The texts to translate."""
        return [text for part in self.parts if isinstance(part, tuple) for text in part[1].texts]

    def render(self, translations: Sequence[tuple[str, Sequence[Link]]]) -> str:
        """Render the file with the translation of each text."""
        rows, lines = iter(translations), []
        for part in self.parts:
            if isinstance(part, str):
                lines.append(part)
                continue
            before, document, count = part
            text = html.unescape(document.render([next(rows) for _ in document.texts]))
            lines.append(before + wrap(text, count))
        return "\n".join(lines)


def parse_srt(text: str) -> Subtitles:
    """Parse a subtitle file; keep everything that is not a cue's text."""
    parts: list[tuple[str, Document, int] | str] = []
    cue: list[str] | None = None  # lines of its text

    def end_cue() -> None:
        if cue:
            separate = all(line.lstrip().startswith(("-", "–", "—")) for line in cue)
            for lines in [[line] for line in cue] if separate else [cue]:
                joined = " ".join(line.strip() for line in lines)
                before = PLACE.match(joined)[0]  # type: ignore[index]
                parts.append((before, parse_html(joined[len(before) :]), len(lines)))

    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if TIMES.match(line):
            end_cue()
            cue = []
            parts.append(line)
        elif cue is not None and line.strip():
            cue.append(line)
        else:
            end_cue()
            cue = None
            parts.append(line)
    end_cue()
    return Subtitles(tuple(parts))


def wrap(text: str, lines: int) -> str:
    """Break a text into so many lines of about the same length, at spaces."""
    words = WORD.findall(text)
    length = sum(map(len, words)) / max(1, lines)
    rows: list[list[str]] = [[]]
    for word in words:
        written = sum(len(each) for row in rows for each in row) + len(word) / 2
        if rows[-1] and len(rows) < lines and written > length * len(rows):
            rows.append([])
        rows[-1].append(word)
    return "\n".join(" ".join(row) for row in rows)


@dataclass(frozen=True)
class PlainText:
    """A text that is translated as a whole; its lines are kept."""

    text: str

    @property
    def texts(self) -> list[str]:
        """The text to translate."""
        return [self.text]

    def render(self, translations: Sequence[tuple[str, Sequence[Link]]]) -> str:
        """Return the translation with the white space around the text."""
        text = self.text
        if not text.strip():
            return text
        return text[: len(text) - len(text.lstrip())] + translations[0][0] + text[len(text.rstrip()) :]


Renderable = PlainText | Subtitles | Document  # documents that can be rendered with translations
PARSERS: dict[str, Callable[[str], Renderable]] = {
    ".txt": PlainText,
    ".html": parse_html,
    ".htm": parse_html,
    ".srt": parse_srt,
}
ENDINGS = tuple(PARSERS)


def read_file(name: str, content: bytes, most: int) -> tuple[str, Renderable]:
    """Decode and parse a file of at most `most` characters, by its name's extension; return its text and document."""
    ending = f".{name.rpartition('.')[2].lower()}" if "." in name else ""
    if not name or not content:
        raise ProtocolError(400, "Invalid request: empty file")
    if ending not in PARSERS:
        given = show_value(name[-80:])
        raise ProtocolError(400, f"Invalid request: {given} is not supported, expected {', '.join(ENDINGS)}")
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise ProtocolError(400, "Invalid request: the file is not text in UTF-8 or UTF-16") from None
    if len(text) > most:
        raise ProtocolError(400, f"Invalid request: file ({len(text)}) exceeds text limit ({most})")
    return text, PARSERS[ending](text)


class FileStore:
    """Translated files by key; it drops the oldest when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock, self.size = clock, 0
        self.files: OrderedDict[str, tuple[float, str, bytes]] = OrderedDict()

    def add(self, name: str, content: bytes) -> str:
        """Store a file, and return its key."""
        key = f"{secrets.token_urlsafe(24)}.{clean_name(name)}"
        self.files[key] = self.clock() + SECONDS, clean_name(name), content
        self.size += len(content)
        self.sweep()
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the name and the content of a file, if it is still stored."""
        self.sweep()
        found = self.files.get(key)
        return None if found is None else found[1:]

    def sweep(self) -> None:
        """Drop files that have expired, and the oldest while there are too many."""
        while self.files:
            end, _, content = next(iter(self.files.values()))
            if end > self.clock() and len(self.files) <= FILES and self.size <= BYTES:
                return
            self.files.popitem(last=False)
            self.size -= len(content)


def clean_name(name: str) -> str:
    """Return a file's name in characters that are safe in headers and URLs."""
    cleaned = NAME.sub("_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".")
    return cleaned[-100:] or "file"


# ---- schemas


def describe_libretranslate(name: str, settings: ServeSettings) -> dict[str, Any]:
    """Return the description of a route for FastAPI."""
    bodies = {}
    if name in FIELDS:
        form = "multipart/form-data" if name == "translate_file" else "application/x-www-form-urlencoded"
        bodies[form] = schema_of_body(name, settings, many=False)
    if name in FIELDS and name != "translate_file":
        bodies["application/json"] = schema_of_body(name, settings, many="alternatives" in FIELDS[name])
    open_to_all = name in ("languages", "settings", "health", "spec")
    described = WORDS.describe(name, ("421",) if open_to_all else WORDS.statuses, bodies)
    if name == "download_file":
        responses = described["responses"]
        responses[404] = {**responses[400], "description": "There is no such file, or no more"}
        responses[200] = {"description": "The file", "content": {"application/octet-stream": {"schema": {}}}}
    return {**described, "operation_id": f"libretranslate_{name}", "tags": ["LibreTranslate"]}


def schema_of_body(name: str, settings: ServeSettings, many: bool) -> dict[str, Any]:
    """Return the schema of a route's request body; `many` also allows a list of texts."""
    text: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": settings.characters}
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": settings.texts}
    question = {"anyOf": [text, texts]} if many else text
    schemas = {
        **WORDS.schemas,
        "q": {**question, "description": "text to translate" + " or several" * many},
        "alternatives": {"type": "integer", "minimum": 0, "maximum": settings.beam - 1, "default": 0},
    }
    properties = {each: schemas[each] for each in ("api_key", *FIELDS[name])}
    required = [each for each in properties if each in ("file", "q", "source", "target")]
    return {"type": "object", "properties": properties, "required": required}
