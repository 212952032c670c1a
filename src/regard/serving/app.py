"""The application: its routes, described by OpenAPI with working examples, its guard and its page.

The guard runs before the routes: it checks the host, the API key and the size of a request, and counts and logs it. The
page at `/` is where a person types a text, reads the output, and looks into the model. It is one HTML document that
contains its style, its script and the server's limits, and a frame, `/look`, in which the scripts of `regard look` draw
the answer of `/v1/look`. A content security policy names the script and the style by their hashes, and allows
connections to this server only. The page itself contains no user's text, so it needs no key.
"""

import asyncio
import contextlib
import functools
import hashlib
import hmac
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from prometheus_client import generate_latest
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, StreamingResponse

from regard import __version__
from regard.data import sentence_split
from regard.decoding import Options
from regard.errors import ConfigError, RegardError
from regard.inspection import page_parts
from regard.serving import requests
from regard.serving.errors import (
    DOWNLOADS,
    FAULT,
    OUT_OF_MEMORY,
    REFUSAL,
    ApiError,
    InvalidValueError,
    TooLargeError,
    error_of,
    is_protocol_path,
    respond,
)
from regard.serving.libretranslate.routes import Routes
from regard.serving.requests import ACTIONS, describe_route
from regard.serving.service import Service
from regard.serving.settings import ServeSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
GONE = 499  # the client has closed the connection
LOOPBACK = ("localhost", "127.0.0.1", "::1")
UPLOADS = {f"/v1/{name}" for name, (_, upload) in ACTIONS.items() if upload is not None}
HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_.-]{1,255}))(?::(?P<port>[0-9]{1,5})?)?", re.ASCII
)
PAGE, FRAME = "/", "/look"
# Paths that need no key, and stay open while the server drains; the page asks for a key when it needs one.
OPEN = frozenset(
    (
        PAGE,
        FRAME,
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/languages",
        "/frontend/settings",
        "/health",
        "/spec",
    )
)
# Each script may use those before it.
SCRIPTS = (
    "elements", "sentences", "server", "field", "marks", "words", "translator", "alternatives", "frame", "notices",
    "history", "sharing", "pane", "translate", "pictures", "documents", "sample", "main",
)  # fmt: skip
STYLES = ("page", "text", "panels", "paper")
LIMITS = ("characters", "texts", "look_words", "picture_bytes", "output_tokens", "beam", "seconds")
OURS = "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'; "
PAGE_POLICY = OURS + "connect-src 'self'; img-src blob: data:; frame-src 'self'; frame-ancestors 'none'"
FRAME_POLICY = OURS + "img-src data:; frame-ancestors 'self'"
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
log = logging.getLogger("regard.serving")


def make_app(service: Service) -> "Guard | CORSMiddleware":
    """Make the application of a service, wrapped in its guard."""
    settings = service.settings
    app = FastAPI(
        title="Regard",
        version=__version__,
        description="Translate, score, align, sample, caption, classify and look into trained runs.",
        docs_url=None,  # FastAPI's pages load scripts from the network
        redoc_url=None,
        generate_unique_id_function=lambda route: route.path.rsplit("/", 1)[-1],
    )

    forms = [Depends(close_form)]
    for kind in (HTTPException, RegardError, ClientDisconnect, *OUT_OF_MEMORY, Exception):  # the guard logs the last
        app.add_exception_handler(kind, answer_error)

    def add_action(name: str, cls: type, upload: type | None) -> None:
        async def answer(request: Request) -> Response:
            files: list[requests.File] = []
            taken = cls
            if upload is not None and request.headers.get("content-type", "").lower().startswith("multipart/"):
                taken, (table, files) = upload, await read_upload(request, service)
            elif cls is upload is requests.CaptionRequest:
                message = "Content-Type: expected multipart/form-data with a part named pictures for each picture"
                raise ApiError(415, "wrong_type", message, "Content-Type")
            else:
                table = requests.read_json(await request.body())
            fields: Any
            fields, options = requests.parse_request(taken, table, settings)
            if settings.log_texts and not files:
                requests.log_texts(request.url.path, table)
            given = {name: getattr(options, name) for name in table if hasattr(Options, name)}
            asked = requests.ActionRequest(fields, options, given, files)
            if getattr(fields, "stream", False):
                return await stream(service, getattr(service, f"{name}_stream")(asked))
            return await finish(service, request, getattr(service, name)(asked))

        dependencies = [] if upload is None else forms
        described = describe_route(name, settings)
        app.add_api_route(f"/v1/{name}", answer, methods=["POST"], dependencies=dependencies, **described)

    for name, (cls, upload) in requests.ACTIONS.items():
        add_action(name, cls, upload)

    @app.get("/v1/models", **describe_route("models", settings))
    async def models() -> Response:
        return JSONResponse({"models": [model.card for model in service.models.values()]})

    @app.get("/livez", **describe_route("livez", settings))
    async def live() -> Response:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", **describe_route("readyz", settings))
    async def ready() -> Response:
        states = {
            name: "loading"
            if name not in service.models
            else "ready"
            if service.models[name].ready
            else "a worker has stopped"
            for name in service.folders
        }
        state = "draining" if service.draining else "ready" if service.ready else "not ready"
        return JSONResponse({"status": state, "models": states}, 200 if service.ready else 503)

    @app.get("/metrics", **describe_route("metrics", settings))
    async def metrics() -> Response:
        page = generate_latest(service.metrics.registry)
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = {PAGE: build_page(settings), FRAME: build_frame()}

    async def show(request: Request) -> Response:
        text, headers = pages[request.url.path]
        return Response(text, media_type="text/html; charset=utf-8", headers=headers)

    for path in pages:
        app.add_api_route(path, show, methods=["GET", "HEAD"], include_in_schema=False)
    Routes(app, service, finish, forms)
    guard = Guard(app, service)
    if not settings.origins:
        return guard
    return CORSMiddleware(  # outside the guard, for preflight requests without a key and readable errors
        guard,
        allow_origins=settings.origins,
        allow_methods=("GET", "POST"),
        allow_headers=("authorization", "content-type", "x-api-key"),
    )


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer with an error, in the form of the path's protocol."""
    if isinstance(error, ClientDisconnect):  # while its body was being read
        return Response(status_code=GONE)
    path = request.url.path
    if isinstance(error, HTTPException) and not is_protocol_path(path):
        code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "invalid_request")
        message = f"{request.method} {path}: {str(error.detail).lower()}"
        error = ApiError(error.status_code, code, message, headers=error.headers)
    return respond(path, error)


async def close_form(request: Request) -> AsyncIterator[None]:
    """Close the files of a form after the response, on any route."""
    try:
        yield
    finally:
        await request.close()


async def finish(service: Service, request: Request, work: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    """Answer with the result of the work; cancel it if it takes too long or the client disconnects."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(wait_until_gone(request))
    try:
        await asyncio.wait({task, gone}, timeout=service.settings.seconds, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            if gone.done():
                return Response(status_code=GONE)
            raise deadline(service)
        answer = task.result()
        dump = functools.partial(json.dumps, answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text = await service.run_in_thread(len(answer.get("results", ())), dump)
        return Response(text, media_type="application/json")
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def deadline(service: Service) -> ApiError:
    """Build the answer to a request that takes too long."""
    message = f"the request took more than {service.settings.seconds:g} s; send less at once, or try again"
    return ApiError(504, "deadline", message)


async def wait_until_gone(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def stream(service: Service, events: AsyncIterator[tuple[str, dict[str, Any]]]) -> Response:
    """Answer with server-sent events; an error before the first event is an ordinary error response."""
    end = asyncio.get_running_loop().time() + service.settings.seconds
    try:
        async with asyncio.timeout_at(end):
            first = await anext(events)
    except TimeoutError:
        raise deadline(service) from None

    def event_of(name: str, data: dict[str, Any]) -> bytes:
        return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n".encode()

    async def lines() -> AsyncIterator[bytes]:
        event: tuple[str, dict[str, Any]] | None = first
        try:
            while event is not None:
                yield event_of(*event)
                async with asyncio.timeout_at(end):
                    event = await anext(events, None)
        except TimeoutError:
            yield event_of("error", deadline(service).body)
        except Exception as error:
            known = error_of(error)
            if known is None:
                raise
            yield event_of("error", known.body)
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def read_upload(request: Request, service: Service) -> tuple[dict[str, Any], list[requests.File]]:
    """Read the fields and the pictures of a form."""
    settings = service.settings
    limits = {"max_files": settings.pictures + 1, "max_fields": 100, "max_part_size": settings.body_bytes}
    try:
        form = await request.form(**limits)
    except HTTPException as error:
        if "files" in error.detail.lower():
            message = f"pictures: more than {settings.pictures + 1} given, expected at most {settings.pictures}"
            raise TooLargeError(message, "pictures") from None
        raise
    files: list[requests.File] = []
    table: dict[str, Any] = {}
    for name, value in form.multi_items():
        if not isinstance(value, UploadFile):
            if name in table:
                raise InvalidValueError(f"{name[:80]}: given twice, expected one value", name[:80])
            try:
                given = json.loads(str(value))
            except (ValueError, RecursionError):
                given = None
            table[name] = given if isinstance(given, bool | int | float) else str(value)
            continue
        if name != "pictures":
            raise InvalidValueError(f"{name[:80]}: no such part, expected pictures", name[:80])
        if (value.size or 0) > settings.picture_bytes:
            message = f"pictures: {value.size:,} bytes given, expected at most {settings.picture_bytes:,} a picture"
            raise TooLargeError(message, "pictures")
        files.append((f"pictures[{len(files)}]", value.file))
    if not files:
        raise InvalidValueError("pictures: missing, expected at least one file", "pictures")
    if len(files) > settings.pictures:
        raise TooLargeError(f"pictures: {len(files)} given, expected at most {settings.pictures}", "pictures")
    return table, files


# ---- the guard


class KeyRing:
    """API keys, stored as digests, and how many requests each has left."""

    def __init__(self, keys: list[str], rate: int):
        self.digests, self.rate = [hashlib.sha256(key.encode()).digest() for key in keys], rate
        self.left = [float(rate)] * len(keys)
        self.counted = [time.monotonic()] * len(keys)

    def check(self, given: str | None) -> None:
        """Refuse a missing or unknown key, and a key over its rate; compare all keys in constant time."""
        digest = hashlib.sha256((given or "").encode("utf-8", "surrogatepass")).digest()
        same = [hmac.compare_digest(digest, each) for each in self.digests]
        if given is None or not any(same):
            problem = "missing" if given is None else "not known here"
            message = f"the API key is {problem}; send it as Authorization: Bearer KEY"
            raise ApiError(401, "unauthorised", message, headers={"WWW-Authenticate": "Bearer"})
        if not self.rate:
            return
        number, now = same.index(True), time.monotonic()  # up to `rate` a minute, and up to `rate` at once
        earned = (now - self.counted[number]) * self.rate / 60
        self.left[number], self.counted[number] = min(float(self.rate), self.left[number] + earned), now
        if self.left[number] < 1:
            seconds = max(1, math.ceil((1 - self.left[number]) * 60 / self.rate))
            message = f"this API key may send {self.rate:,} requests per minute; try again in {seconds} s"
            raise ApiError(429, "rate_limited", message, headers={"Retry-After": str(seconds)})
        self.left[number] -= 1


def read_keys(path: str) -> list[str]:
    """Read API keys: one per line, ignoring lines that begin with #."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").removeprefix("\ufeff").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("keys", f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError("keys", f"{path}: no key in it, expected one per line")
    return keys


class Guard:
    """An ASGI application around another: it checks, counts and logs requests, and answers every error."""

    def __init__(self, app: Any, service: Service):
        self.app, self.service = app, service
        settings = service.settings
        self.keys = None if settings.keys is None else KeyRing(read_keys(settings.keys), settings.rate)
        listening = () if settings.host in ("0.0.0.0", "::") else (settings.host,)
        self.hosts = {name.lower() for name in (*LOOPBACK, *listening, *settings.hosts)}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"]
        begun = False

        async def send_counted(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
            await send(message)

        metrics = self.service.metrics
        metrics.in_flight.inc()
        try:
            scope.setdefault("state", {})["keys"] = self.check(scope["path"], headers, hosts)
            with self.service.hold():
                await self.app(scope, self.limited(scope, headers, receive), send_counted)
        except ApiError as error:
            if not begun:
                await respond(scope["path"], error)(scope, receive, send_counted)
        except Exception:
            log.exception("%s %s: not answered", scope["method"], scope["path"])
            if not begun:
                await respond(scope["path"], ApiError(500, "internal", FAULT))(scope, receive, send_counted)
        except asyncio.CancelledError:  # the server is stopping, and the grace period is over
            if not begun:
                stopped = stopping("the server has stopped; ask another one, or try again")
                await respond(scope["path"], stopped)(scope, receive, send_counted)
        finally:
            metrics.in_flight.dec()
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "other")
            metrics.requests.labels(route, str(status)).inc()
            metrics.seconds.labels(route).observe(seconds)
            log.info("%s %s %d %.0f ms", scope["method"], route, status, 1000 * seconds)

    def check(self, path: str, headers: dict[str, str], hosts: list[str]) -> KeyRing | None:
        """Refuse a request by its headers; return the keys to check in its body, if its headers hold none."""
        if len(hosts) > 1:  # a proxy before the server might read one of them, and the server another
            raise ApiError(400, "invalid_http", f"Host: given {len(hosts)} times, expected one", "Host")
        host = hosts[0] if hosts else ""
        if host_name(host) not in self.hosts:
            shown = host if len(host) <= 80 else host[:80] + "…"
            message = f"Host: {shown!r} is not served here; start the server with it in hosts"
            raise ApiError(421, "wrong_host", message, "Host")
        if path in OPEN or path.startswith(DOWNLOADS):  # names of downloads are secrets
            return None
        if self.service.draining:
            raise stopping("the server is stopping; ask another one, or try again")
        if self.keys is not None:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            given = key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key")
            with contextlib.suppress(UnicodeDecodeError):  # header values are UTF-8, or else Latin-1
                given = None if given is None else given.encode("latin-1").decode()
            if given is None and is_protocol_path(path):
                return self.keys
            self.keys.check(given)
        return None

    def limited(self, scope: Message, headers: dict[str, str], receive: Receive) -> Receive:
        """Count the bytes of a body, and refuse it if it is too large or stops arriving."""
        settings, path, state = self.service.settings, scope["path"], scope["state"]
        most = settings.body_bytes
        if path in UPLOADS and headers.get("content-type", "").lower().startswith("multipart/"):
            most += settings.pictures * settings.picture_bytes
        too_large = f"the body is larger than {most:,} bytes, the most that is allowed"
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > most):
            raise TooLargeError(too_large)
        count = 0

        async def receive_limited() -> Message:
            nonlocal count
            message = await receive()
            if REFUSAL in state and message.get("more_body"):  # the connection reads no more of the body
                if self.service.draining:
                    raise stopping("the server is stopping; ask another one, or try again")
                status, code, problem = state[REFUSAL]
                raise ApiError(status, code, problem, headers={"Connection": "close"})
            count += len(message.get("body", b""))
            if count > most:
                raise TooLargeError(too_large)
            return message

        return receive_limited


def stopping(message: str) -> ApiError:
    """Build the answer of a server that is stopping."""
    return ApiError(503, "draining", message, headers={"Retry-After": "5", "Connection": "close"})


def host_name(host: str) -> str | None:
    """Return the name in a Host header, without its port; None if the header is invalid."""
    found = HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    return (found["address"] or found["name"]).lower().removesuffix(".")


# ---- the page


def build_page(settings: ServeSettings) -> tuple[str, dict[str, str]]:
    """Build the page of a server, and its response headers."""
    script = page_parts.join_scripts([page_parts.look_data(), *(read_static(f"{name}.js") for name in SCRIPTS)])
    style = "".join(read_static(f"{name}.css") for name in STYLES)
    limits = {"version": __version__, **{name: getattr(settings, name) for name in LIMITS}}
    rules = {
        "short": sentence_split.SHORT.pattern,
        "closing": sentence_split.CLOSING,
        "opening": sentence_split.OPENING,
        "shortened": sentence_split.SHORTENED.pattern,
        "quotes": sentence_split.QUOTES,
    }
    # ASCII without "<", so that nothing in it can end the script element.
    embedded = json.dumps({"limits": limits, "sentences": rules}, ensure_ascii=True).replace("<", "\\u003c")
    text = read_static("page.html")
    for name, value in (("style", style), ("settings", embedded), ("script", script)):
        text = text.replace(f"<!-- {name} -->", value, 1)
    policy = PAGE_POLICY.format(script=page_parts.hash_source(script), style=page_parts.hash_source(style))
    return text, {**HEADERS, "Content-Security-Policy": policy, "X-Frame-Options": "DENY"}


def build_frame() -> tuple[str, dict[str, str]]:
    """Build the frame in which the scripts of `regard look` draw, and its response headers."""
    script, style = page_parts.look_script(), page_parts.look_style() + read_static("frame.css")
    text = (
        '<!doctype html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Inside the model</title>\n'
        f'<style>{style}</style>\n</head>\n<body>\n<main id="look" aria-label="Views"></main>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    policy = FRAME_POLICY.format(script=page_parts.hash_source(script), style=page_parts.hash_source(style))
    return text, {**HEADERS, "Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN"}


def read_static(name: str) -> str:
    """Read a static file of the page."""
    return resources.files("regard.serving").joinpath("static", name).read_text(encoding="utf-8")
