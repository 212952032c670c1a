"""The serving process: it listens, handles signals, and reads requests within limits of size and time.

On SIGTERM and Ctrl-C it finishes admitted requests and refuses new ones; on SIGHUP it reopens the runs whose best
checkpoint has changed.

The number of open connections is limited, and the server accepts none while the process has no free file descriptor. At
the limit it closes the connection that has been idle longest to accept a new one; if none is idle, new ones wait in the
operating system's queue. asyncio's own server instead logs a traceback for every attempt, thousands a second.

uvicorn reads HTTP with httptools, without limits on size or time. If the head of a request breaks a limit, this module
answers (431, 414, 408, 400) before storing any of it. If the body breaks a limit, the guard answers, because the
request has reached it by then.
"""

import asyncio
import contextlib
import errno
import functools
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from regard.errors import CommandError
from regard.machine import settle_memory
from regard.serving.app import make_app
from regard.serving.errors import REFUSAL
from regard.serving.libretranslate.language_pairs import LanguageTable
from regard.serving.models import parse_devices, share_threads
from regard.serving.service import Service
from regard.serving.settings import ServeSettings

THREADS = 2  # threads that split texts and write answers; more of them would keep workers waiting
SWITCH = 0.0002  # seconds after which a running thread must yield: workers and the event loop alternate
END = 2.0  # seconds that worker processes have to end
BACKLOG = 2048  # connections that the operating system queues while the server accepts none
RESERVE = 128  # file descriptors for models, workers, uploads and the log
IDLE_SECONDS = 1.0  # seconds after which an idle connection may be closed for a new one
PAUSE = 0.25  # seconds until the next attempt to accept a connection
REPORT = 60.0  # seconds between two log lines about exhausted connections
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SLICE = 16_384  # bytes parsed at once; limits are checked in between
CHUNK = 25  # bytes of a chunk that holds one byte: that byte, the size and two line endings
PIPELINED = 16  # requests that may wait behind another on a connection (HTTP pipelining)
LINGER = 1.0  # seconds for a client to read a refusal, and for a refused request to be answered
DRAIN = 2.0  # seconds for requests to arrive completely when the server stops
PACE = 1024  # bytes per second that a client has to read of its answer
IDLE, HEAD, BODY = range(3)  # the part of a request that is being read
Refusal = tuple[int, str, str]  # status, code and message
log = logging.getLogger("regard.serving")


class Server(uvicorn.Server):
    """uvicorn's server with limits on connections and requests, and without its signal handlers."""

    def __init__(self, config: uvicorn.Config, service: Service, sockets: list[socket.socket], most: int):
        super().__init__(config)
        self.listener = Listener(sockets, most, self.server_state.connections)
        self.service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await self.lifespan.startup()
        count = self.service.metrics.requests
        make = functools.partial(
            Connection,
            self.service.settings,
            self.listener,
            lambda status: count.labels("other", str(status)).inc(),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        listening = self.listener.sockets
        self.listener.tasks = [asyncio.create_task(self.listener.accept(each, make)) for each in listening]
        self.servers = [self.listener]  # type: ignore[list-item]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `handle_signals`."""
        yield


def run_server(service: Service, say: Callable[[str], None], show: Callable[[str], object] | None = None) -> None:
    """Serve until a signal ends it, and pass the page's address to `show` when it is ready.

    Raise an error if a run cannot be opened.
    """
    sys.setswitchinterval(SWITCH)
    share_threads(parse_devices(service.settings.device))
    asyncio.run(serve(service, say, show))


async def serve(service: Service, say: Callable[[str], None], show: Callable[[str], object] | None = None) -> None:
    """Listen, open the models, and serve until the server stops."""
    settings = service.settings
    with contextlib.ExitStack() as stack:  # also closes sockets if listening fails
        sockets = [stack.enter_context(each) for each in bind(settings.host, settings.port)]
        most = fit_descriptors(settings.connections)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "regard texts"))
        config = uvicorn.Config(
            make_app(service),
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
        )
        server = Server(config, service, sockets, most)
        handle_signals(service, server, say)
        listening = asyncio.create_task(server.serve())
        while not server.started and not listening.done():
            await asyncio.sleep(0.01)
        if listening.done():
            listening.result()
            return
        host, port = server.listener.sockets[0].getsockname()[:2]  # the real port, if 0 was given
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        say(f"listening on {address}; opening {', '.join(service.folders)}")
        if most < settings.connections:
            fewer = f"at most {most:,} connections, not {settings.connections:,}"
            say(f"{fewer}: raise the limit of open files (ulimit -n)")
        opening = asyncio.create_task(service.start())
        await asyncio.wait({opening, listening}, return_when=asyncio.FIRST_COMPLETED)
        if opening.done() and opening.exception() is not None:
            server.should_exit = True
            await listening
            opening.result()
        if opening.done():
            settle_memory()
            for model in service.models.values():
                languages = model.card["languages"]
                pair = f", {languages['source']} to {', '.join(languages['targets'])}" if languages else ""
                say(f"{model.name}: {model.card['task']}{pair}, {model.card['kind']}, step {model.card['step']:,}")
            if names := LanguageTable(service.models.values()).unknown:
                verb, whose = ("is", "its") if len(names) == 1 else ("are", "their")
                left_out = f"{', '.join(names)} {verb} not at /translate: {whose} languages are not known"
                say(f"{left_out}; give them with --languages {names[0]}=en-de")
            say(f"ready: {address} in a browser, {address}/v1 for programs (Ctrl-C stops)")
            if show is not None:
                await asyncio.to_thread(show, address)
        await listening
        opening.cancel()
        service.close()
        service.end_processes(END)


def handle_signals(service: Service, server: Server, say: Callable[[str], None]) -> None:
    """Install the signal handlers."""
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[Any]]()

    def start(work: Any) -> None:
        task = loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def stop() -> None:
        if service.draining:  # second signal: stop at once
            server.should_exit = server.force_exit = True
        else:
            start(drain(service, server, say))

    for name, function in (("SIGTERM", stop), ("SIGINT", stop), ("SIGHUP", lambda: start(reload(service, say)))):
        if hasattr(signal, name):
            try:
                loop.add_signal_handler(getattr(signal, name), function)
            except NotImplementedError:  # on Windows
                signal.signal(getattr(signal, name), lambda *_, function=function: loop.call_soon_threadsafe(function))


async def drain(service: Service, server: Server, say: Callable[[str], None]) -> None:
    """Stop the server once admitted requests have finished, or the grace period is over."""
    service.draining = True
    for connection in list(server.server_state.connections):
        connection.hurry()  # type: ignore[union-attr]
    end = time.monotonic() + service.settings.grace
    in_flight = service.metrics.in_flight._value
    count = int(in_flight.get())
    say(f"stopping: {count} request{'' if count == 1 else 's'} to finish")
    while in_flight.get() > 0 and time.monotonic() < end:
        await asyncio.sleep(0.02)
    server.force_exit = in_flight.get() > 0
    server.should_exit = True


async def reload(service: Service, say: Callable[[str], None]) -> None:
    """Reopen the runs whose best checkpoint has changed; stop at the first error, and keep the open models."""
    try:
        names = await service.reload()
    except Exception as error:
        say(f"not opened anew: {error}")
        return
    for name in names:
        say(f"{name}: step {service.models[name].card['step']:,} from now on")
    if not names:
        say("no best checkpoint has moved")


# ---- listening


class Listener:
    """Sockets that accept connections. It stands in for the server object that uvicorn's shutdown expects."""

    def __init__(self, sockets: Sequence[socket.socket], most: int, connections: set[Any]):
        self.sockets, self.most, self.connections = sockets, most, connections
        self.idle: dict[Connection, float] = {}  # since when; removed at the next request
        self.reported: dict[str, float] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def accept(self, listening: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections on one socket while there is room; `make` creates the protocol of each."""
        loop = asyncio.get_running_loop()
        while True:
            while len(self.connections) >= self.most:
                if not self.close_idle():
                    self.report(f"all {self.most:,} connections are in use; new ones wait (connections in serve.toml)")
                leaving = any(each.transport.is_closing() and not each.is_flushing for each in self.connections)
                await asyncio.sleep(0 if leaving else PAUSE)
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                await self.pause_after(error)
                continue
            try:
                await loop.connect_accepted_socket(make, accepted)
            except OSError as error:  # the client is gone, or no descriptor is left for the transport
                accepted.close()
                await self.pause_after(error)

    async def pause_after(self, error: OSError) -> None:
        """Stop accepting for a moment if no descriptor is left."""
        if error.errno not in EXHAUSTED:
            return  # the client disconnected before it was accepted
        self.close_idle()
        count = len(self.connections)
        self.report(
            f"no descriptor is left for a connection ({os.strerror(error.errno or 0).lower()}; {count:,} are open); "
            "new ones wait: raise the limit of open files (ulimit -n), or lower connections in serve.toml"
        )
        await asyncio.sleep(PAUSE)

    def close_idle(self) -> bool:
        """Close the connection that has been idle longest, if it has been idle for long enough."""
        if not self.idle:
            return False
        connection, since = next(iter(self.idle.items()))
        if time.monotonic() - since < IDLE_SECONDS:
            return False
        del self.idle[connection]
        connection.end()
        return True

    def report(self, message: str) -> None:
        """Log a warning, each kind at most once a minute."""
        kind, now = message[:12], time.monotonic()
        if now - self.reported.get(kind, -REPORT) >= REPORT:
            self.reported[kind] = now
            log.warning("%s", message)

    # ---- methods that uvicorn calls on a server

    def close(self) -> None:
        """Stop accepting connections."""
        for task in self.tasks:
            task.cancel()
        for each in self.sockets:
            each.close()

    async def wait_closed(self) -> None:
        """Wait until no task accepts connections any more."""
        await asyncio.gather(*self.tasks, return_exceptions=True)


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to each address of a host, and listen; a CommandError explains an address that cannot be used."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise CommandError(f"--host: {host!r} is no address or name of this machine; give one that is") from None
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sockets.append(socket.socket(family, kind, protocol))
            if os.name == "posix":  # on Windows it would let two servers share a port
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sockets[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sockets[-1].bind(address)
            sockets[-1].listen(BACKLOG)
            sockets[-1].setblocking(False)
    except OSError as error:
        for each in sockets:
            each.close()
        raise CommandError(explain(error, host, port)) from None
    return sockets


def explain(error: OSError, host: str, port: int) -> str:
    """Return a message on why the server cannot listen on an address, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"--port: {port} on {host} is in use; stop what listens there, or choose another port (0: any free one)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"--port: {port} on {host} is not allowed; choose a port above 1023, or ask for the right to use it"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host: {host} is no address of this machine; give one that is, or 0.0.0.0 for all of them"
    return f"--port: {port} on {host} cannot be listened on ({error.strerror}); choose another --host or --port"


def fit_descriptors(connections: int) -> int:
    """Return how many connections can have descriptors; raise the process's soft limit if needed."""
    if sys.platform != "win32":  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = connections + RESERVE
        if soft != resource.RLIM_INFINITY and soft < needed:
            raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
                soft = raised
            return max(1, min(connections, max(soft - RESERVE, soft // 2)))
    return connections


# ---- reading


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with limits: it refuses requests that are too large or arrive too slowly."""

    def __init__(self, settings: ServeSettings, listener: Listener, count: Callable[[int], None], **uvicorn: Any):
        super().__init__(**uvicorn)
        self.settings, self.listener, self.count_refused = settings, listener, count
        self.seconds = settings.seconds  # that a request may take to arrive
        self.phase, self.begun = IDLE, 0.0
        self.size = self.lines = self.raw = self.payload = 0
        self.refusal: Refusal | None = None
        self.stopped = False  # nothing more is read
        self.timer: asyncio.TimerHandle | None = None  # time-out of reading
        self.write_timer: asyncio.TimerHandle | None = None
        self.unsent = 0

    # ---- a connection comes and goes

    def connection_made(self, transport: Any) -> None:
        """Start waiting for the first request, with a time-out."""
        super().connection_made(transport)
        self.listener.idle[self] = time.monotonic()
        self.set_timer(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the listener, and cancel its timers."""
        self.listener.idle.pop(self, None)
        self.stopped = True
        self.cancel_timer()
        if self.write_timer is not None:
            self.write_timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def end(self) -> None:
        """Close the connection, even if its client has stopped reading."""
        self.stopped = True
        self.transport.close()
        if self.is_flushing:
            self.loop.call_later(LINGER, self.transport.abort)

    @property
    def is_flushing(self) -> bool:
        """Whether the write buffer still holds data."""
        return self.transport.get_write_buffer_size() > 0

    # ---- reading

    def data_received(self, data: bytes) -> None:
        """Parse received data, a slice at a time."""
        for start in range(0, len(data), SLICE):
            if self.stopped:
                return
            piece = data if len(data) <= SLICE else data[start : start + SLICE]
            try:
                self.feed(piece)
            except httptools.HttpParserError:
                self.refuse(*(self.refusal or (400, "invalid_http", "the request is not HTTP; send a valid one")))
        if self.phase != IDLE and self.timer is None and not self.stopped:
            self.set_timer(max(0.0, self.begun + self.seconds - self.loop.time()))

    def feed(self, piece: bytes) -> None:
        """Parse a slice; breaking a limit raises a parser error."""
        while piece:
            try:
                self.parser.feed_data(piece)
                break
            except httptools.HttpParserUpgrade as upgrade:  # there is no upgrade: go on with HTTP
                piece = piece[upgrade.args[0] :]
        self.raw += len(piece)
        if self.phase != IDLE and self.raw > CHUNK * self.payload + self.settings.header_bytes + SLICE:
            if self.phase == HEAD:
                self.stop_large()
            self.stop(400, "invalid_http", "there is too much between the chunks of the body; send a plain one")

    def stop(self, status: int, code: str, message: str) -> None:
        """Stop the parser with an error; it raises one of its own, whatever a callback raises."""
        self.refusal = (status, code, message)
        raise httptools.HttpParserError(message)

    def stop_large(self) -> None:
        """Refuse too many or too large headers."""
        most, number = self.settings.header_bytes, self.settings.headers
        message = f"the headers are more than {most:,} bytes or {number:,} lines, the most that is allowed; send fewer"
        self.stop(431, "headers_too_large", message)

    def on_message_begin(self) -> None:
        """Start a request, and its time-out."""
        self._unset_keepalive_if_required()
        self.cancel_timer()
        self.listener.idle.pop(self, None)
        self.phase, self.begun = HEAD, self.loop.time()
        self.size = self.lines = self.raw = self.payload = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL."""
        self.size += len(url)
        most = self.settings.header_bytes // 2
        if self.size > most:
            self.stop(414, "address_too_long", f"the address is longer than {most:,} bytes; send texts in the body")
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers after the body count, but are dropped."""
        self.size += len(name) + len(value) + 4
        self.lines += 1
        if self.size > self.settings.header_bytes or self.lines > self.settings.headers:
            self.stop_large()
        if self.phase == HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass the request on, unless too many wait before it on this connection."""
        if len(self.pipeline) >= PIPELINED:
            self.stop(429, "overloaded", "too many requests were sent without waiting for an answer; send fewer")
        super().on_headers_complete()
        self.phase = BODY

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self.payload += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the reading of a request."""
        self.phase = IDLE
        self.cancel_timer()
        super().on_message_complete()
        if self.cycle.response_complete and not self.pipeline:  # it was answered before it was read
            self.listener.idle[self] = time.monotonic()
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    # ---- time

    def set_timer(self, seconds: float) -> None:
        """Expect the request within so many seconds."""
        self.cancel_timer()
        self.timer = self.loop.call_later(seconds, self.expire)

    def cancel_timer(self) -> None:
        """Cancel the time-out of reading."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def expire(self) -> None:
        """Refuse a request that has not arrived in time, or close an idle connection."""
        self.timer = None
        if self.transport.is_closing():
            return
        if self.pipeline and self.flow.read_paused:  # nothing is read before an earlier request is answered
            self.set_timer(self.seconds)
        elif self.stopped or (self.phase == IDLE and self.is_answered):
            self.end()
        else:
            message = f"the request did not arrive within {self.seconds:g} s; send it again"
            self.refuse(408, "request_timeout", message)

    def hurry(self) -> None:
        """Shorten the time-out of a request that is arriving, because the server stops."""
        if self.phase != IDLE and not self.stopped:
            self.seconds = min(DRAIN, self.seconds)
            self.set_timer(self.seconds)

    # ---- answers

    @property
    def is_answered(self) -> bool:
        """Whether no request waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def refuse(self, status: int, code: str, message: str) -> None:
        """Read no more, and send the reason after the answer in progress."""
        self.stopped = True
        self.cancel_timer()
        if self.is_answered:
            if self.phase == BODY:  # this request has been answered, too
                self.end()
                return
            self.write_refusal(status, code, message)
        else:
            self.cycle.keep_alive = False  # uvicorn closes the connection after the answer
            if self.phase == BODY:
                self.cycle.scope["state"][REFUSAL] = (status, code, message)
                self.cycle.message_event.set()
                self.timer = self.loop.call_later(LINGER, self.give_up)
            else:
                self.count_refused(status)
            self.flow.resume_reading()  # to discard input, and to notice a disconnect

    def give_up(self) -> None:
        """Close the connection if the answer to a refused request has not started."""
        self.timer = None
        if self.cycle is not None and not self.cycle.response_started and not self.pipeline:
            self.end()

    def write_refusal(self, status: int, code: str, message: str) -> None:
        """Answer a request that has not reached a route."""
        self.count_refused(status)
        log.info("- - %d", status)
        body = json.dumps({"error": {"code": code, "message": message, "field": None}}).encode()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()  # closing now could discard the answer if the client is still sending
        self.timer = self.loop.call_later(LINGER, self.transport.abort)

    def on_response_complete(self) -> None:
        """Go on with the next request, or become idle."""
        super().on_response_complete()
        self.watch_writing()
        if self.transport.is_closing():
            return
        if self.is_answered and self.phase == IDLE:
            self.listener.idle[self] = time.monotonic()
        elif self.is_answered:  # the next request is being read, or the rest of this one
            self._unset_keepalive_if_required()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self.timeout_keep_alive_task = None
        if not self.transport.is_closing():
            self.end()

    # ---- writing

    def pause_writing(self) -> None:
        """Watch whether a slow client keeps reading."""
        super().pause_writing()
        self.watch_writing()

    def watch_writing(self) -> None:
        """Check again later, if the write buffer still holds data."""
        if self.write_timer is None and self.is_flushing:
            self.unsent = self.transport.get_write_buffer_size()
            self.write_timer = self.loop.call_later(self.seconds, self.expire_writing)

    def expire_writing(self) -> None:
        """Disconnect a client that reads its answer too slowly."""
        self.write_timer = None
        left = self.transport.get_write_buffer_size()
        if not left:
            return
        if self.unsent - left < PACE * self.seconds:
            self.transport.abort()
        else:
            self.watch_writing()
