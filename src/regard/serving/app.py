"""The routes of a server, and how they are described: OpenAPI with examples that can be sent as they stand."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from prometheus_client import generate_latest
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, StreamingResponse

from regard import __version__
from regard.decoding import Options
from regard.errors import RegardError
from regard.serving import requests
from regard.serving.errors import (
    OUT_OF_MEMORY,
    ApiError,
    InvalidValueError,
    TooLargeError,
    error_of,
    is_protocol_path,
    respond,
)
from regard.serving.guard import Guard
from regard.serving.libretranslate.routes import Routes
from regard.serving.page import add_page
from regard.serving.requests import describe_route
from regard.serving.service import Service

GONE = 499  # the client has closed the connection


def make_app(service: Service) -> Guard | CORSMiddleware:
    """Make the application of a service, with its guard around it."""
    settings = service.settings
    app = FastAPI(
        title="Regard",
        version=__version__,
        description="Translate, score, align, sample, caption, classify and look into trained runs.",
        docs_url=None,  # its pages load scripts from the network
        redoc_url=None,
        generate_unique_id_function=lambda route: route.path.rsplit("/", 1)[-1],
    )

    forms = [Depends(close_form)]
    for kind in (HTTPException, RegardError, ClientDisconnect, *OUT_OF_MEMORY, Exception):  # the guard logs the last
        app.add_exception_handler(kind, answer_error)

    async def read(request: Request, cls: type, upload: type | None) -> requests.ActionRequest:
        """Read the fields of a request, and its pictures where it is a form."""
        files: list[requests.File] = []
        if upload is not None and request.headers.get("content-type", "").lower().startswith("multipart/"):
            cls, (table, files) = upload, await read_upload(request, service)
        elif cls is upload is requests.CaptionRequest:
            message = "Content-Type: expected multipart/form-data with a part named pictures for each picture"
            raise ApiError(415, "wrong_type", message, "Content-Type")
        else:
            table = requests.read_json(await request.body())
        fields: Any
        fields, options = requests.parse_request(cls, table, settings)
        if settings.log_texts and not files:
            requests.log_texts(request.url.path, table)
        given = {name: getattr(options, name) for name in table if hasattr(Options, name)}
        return requests.ActionRequest(fields, options, given, files)

    def add_action(name: str, cls: type, upload: type | None) -> None:
        async def answer(request: Request) -> Response:
            asked = await read(request, cls, upload)
            if getattr(asked.fields, "stream", False):
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

    add_page(app, settings)
    Routes(app, service, finish, forms)
    guard = Guard(app, service)
    if not settings.origins:
        return guard
    return CORSMiddleware(  # around the guard: a browser asks without a key first, and its page reads every error
        guard,
        allow_origins=settings.origins,
        allow_methods=("GET", "POST"),
        allow_headers=("authorization", "content-type", "x-api-key"),
    )


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer with an error, in the form of the protocol that the path belongs to."""
    if isinstance(error, ClientDisconnect):  # while its body was read
        return Response(status_code=GONE)
    path = request.url.path
    if isinstance(error, HTTPException) and not is_protocol_path(path):
        code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "invalid_request")
        message = f"{request.method} {path}: {str(error.detail).lower()}"
        error = ApiError(error.status_code, code, message, headers=error.headers)
    return respond(path, error)


async def close_form(request: Request) -> AsyncIterator[None]:
    """Close the files of a form in the end, whichever route it was sent to."""
    try:
        yield
    finally:
        await request.close()


async def finish(service: Service, request: Request, work: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    """Answer with what the work gives, unless it takes too long or the client goes away: then its places are free."""
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
    """Answer with server-sent events; what is wrong from the start is an error as ever."""
    end = asyncio.get_running_loop().time() + service.settings.seconds
    try:
        async with asyncio.timeout_at(end):
            first = await anext(events)
    except TimeoutError:
        raise deadline(service) from None

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


def event_of(name: str, data: dict[str, Any]) -> bytes:
    """Write a server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n".encode()


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
