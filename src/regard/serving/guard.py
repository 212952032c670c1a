"""The guard before the routes: who may ask, how much they may send, and what is counted and logged of it."""

import asyncio
import hashlib
import hmac
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.serving.connection import REFUSAL
from regard.serving.errors import FAULT, ApiError, TooLargeError, is_open_path, is_protocol_path, respond
from regard.serving.page import FRAME, PAGE
from regard.serving.requests import ACTIONS
from regard.serving.service import Service

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Without a key, and while the server drains; the page asks for a key when it needs one.
OPEN = (PAGE, FRAME, "/livez", "/readyz", "/metrics", "/openapi.json")
UPLOADS = {f"/v1/{name}" for name, (_, upload) in ACTIONS.items() if upload is not None}
HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_.-]{1,255}))(?::(?P<port>[0-9]{1,5})?)?", re.ASCII
)
log = logging.getLogger("regard.serving")


class KeyRing:
    """API keys, and how many requests each has left; only their digests are held."""

    def __init__(self, keys: list[str], rate: int):
        self.digests, self.rate = [hashlib.sha256(key.encode()).digest() for key in keys], rate
        self.left = [float(rate)] * len(keys)
        self.counted = [time.monotonic()] * len(keys)

    def check(self, given: str | None) -> None:
        """Refuse a request without a key, and one that comes too soon; every key takes the same time."""
        digest = hashlib.sha256((given or "").encode("utf-8", "surrogatepass")).digest()
        same = [hmac.compare_digest(digest, each) for each in self.digests]
        if given is None or not any(same):
            problem = "missing" if given is None else "not known here"
            message = f"the API key is {problem}; send it as Authorization: Bearer KEY"
            raise ApiError(401, "unauthorised", message, headers={"WWW-Authenticate": "Bearer"})
        if self.rate:
            self.spend(same.index(True))

    def spend(self, number: int) -> None:
        """Count a request of a key: `rate` of them a minute, and no more at once."""
        now = time.monotonic()
        earned = (now - self.counted[number]) * self.rate / 60
        self.left[number], self.counted[number] = min(float(self.rate), self.left[number] + earned), now
        if self.left[number] < 1:
            seconds = max(1, math.ceil((1 - self.left[number]) * 60 / self.rate))
            message = f"this API key may send {self.rate:,} requests per minute; try again in {seconds} s"
            raise ApiError(429, "rate_limited", message, headers={"Retry-After": str(seconds)})
        self.left[number] -= 1


def read_keys(path: str) -> list[str]:
    """Read API keys: one per line, without those that begin with #."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").removeprefix("\ufeff").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("keys", f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError("keys", f"{path}: no key in it, expected one per line")
    return keys


class Guard:
    """An ASGI application around another: it checks, counts and logs, and no error passes it unanswered."""

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
        except asyncio.CancelledError:  # the server ends, and has waited long enough for this request
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
        """Refuse a request by its headers; return the keys of which its body must hold one, if its headers do not."""
        if len(hosts) > 1:  # a proxy before the server may read one of them, and the server the other
            raise ApiError(400, "invalid_http", f"Host: given {len(hosts)} times, expected one", "Host")
        host = hosts[0] if hosts else ""
        if host_name(host) not in self.hosts:
            shown = host if len(host) <= 80 else host[:80] + "…"
            message = f"Host: {shown!r} is not served here; start the server with it in hosts"
            raise ApiError(421, "wrong_host", message, "Host")
        if path in OPEN or is_open_path(path):
            return None
        if self.service.draining:
            raise stopping("the server is stopping; ask another one, or try again")
        if self.keys is not None:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            given = read_key(key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key"))
            if given is None and is_protocol_path(path):
                return self.keys
            self.keys.check(given)
        return None

    def limited(self, scope: Message, headers: dict[str, str], receive: Receive) -> Receive:
        """Count the bytes of a body, and refuse it when they are too many, or do not come."""
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
            if REFUSAL in state and message.get("more_body"):  # its connection reads no more of it
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
    """Build the answer of a server that ends."""
    return ApiError(503, "draining", message, headers={"Retry-After": "5", "Connection": "close"})


def host_name(host: str) -> str | None:
    """Take the name from a Host header, without its port; None where it is no name with a port or without."""
    found = HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    return (found["address"] or found["name"]).lower().removesuffix(".")


def read_key(value: str | None) -> str | None:
    """Decode a key: the bytes of a header are UTF-8, or else Latin-1."""
    try:
        return None if value is None else value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value
