"""Accepts connections: at most so many at once, and none while the process has no descriptor left for one.

Where all are in use, the connection that has been idle longest is closed for a new one; where none is idle, new ones
wait in the system's queue. asyncio's own server logs a traceback for each of them instead, thousands a second.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from regard.errors import CommandError

BACKLOG = 2048  # connections that the system keeps while the server takes none
RESERVE = 128  # descriptors for models, workers, uploads and the log
IDLE = 1.0  # seconds after which an idle connection may be closed for a new one
PAUSE = 0.25  # seconds until the next try, where there is no room
REPORT = 60.0  # seconds between two lines of the log about that
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
log = logging.getLogger("regard.serving")


class Closable(Protocol):
    """A connection that can be ended."""

    def end(self) -> None:
        """Close it."""
        ...


class Listener:
    """Sockets that accept connections. It is what uvicorn's shutdown takes for a server."""

    def __init__(self, sockets: Sequence[socket.socket], most: int, connections: set[Any]):
        self.sockets, self.most, self.connections = sockets, most, connections
        self.idle: dict[Closable, float] = {}  # since when, the longest first
        self.reported: dict[str, float] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections; `make` makes the protocol of each."""
        for each in self.sockets:
            self.tasks.append(asyncio.create_task(self.accept(each, make)))

    async def accept(self, listening: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections of one socket, as long as there is room."""
        loop = asyncio.get_running_loop()
        while True:
            await self.wait_for_room()
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                await self.pause_after(error)
                continue
            try:
                await loop.connect_accepted_socket(make, accepted)
            except OSError as error:  # it is gone already, or its transport has found no descriptor
                accepted.close()
                await self.pause_after(error)

    async def wait_for_room(self) -> None:
        """Wait until there are fewer connections than may be open at once."""
        while len(self.connections) >= self.most:
            if not self.close_idle():
                self.report(f"all {self.most:,} connections are in use; new ones wait (connections in serve.toml)")
            await asyncio.sleep(0 if self.has_closing() else PAUSE)

    def has_closing(self) -> bool:
        """Return whether a connection is about to leave."""
        return any(each.transport.is_closing() and not each.is_flushing for each in self.connections)

    async def pause_after(self, error: OSError) -> None:
        """Take no connection for a moment, where there is no descriptor for one."""
        if error.errno not in EXHAUSTED:
            return  # a client that went before it was accepted
        self.close_idle()
        count = len(self.connections)
        self.report(
            f"no descriptor is left for a connection ({os.strerror(error.errno or 0).lower()}; {count:,} are open); "
            "new ones wait: raise the limit of open files (ulimit -n), or lower connections in serve.toml"
        )
        await asyncio.sleep(PAUSE)

    def close_idle(self) -> bool:
        """Close the connection that has been idle longest, if that is long enough."""
        if not self.idle:
            return False
        connection, since = next(iter(self.idle.items()))
        if time.monotonic() - since < IDLE:
            return False
        del self.idle[connection]
        connection.end()
        return True

    def report(self, message: str) -> None:
        """Write a line into the log, once a minute."""
        kind, now = message[:12], time.monotonic()
        if now - self.reported.get(kind, -REPORT) >= REPORT:
            self.reported[kind] = now
            log.warning("%s", message)

    def enter(self, connection: Closable) -> None:
        """Note that a connection is idle from now on."""
        self.idle[connection] = time.monotonic()

    def leave(self, connection: Closable) -> None:
        """Note that a connection is idle no more."""
        self.idle.pop(connection, None)

    # ---- what uvicorn asks of a server

    def close(self) -> None:
        """Accept no more."""
        for task in self.tasks:
            task.cancel()
        for each in self.sockets:
            each.close()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        await asyncio.gather(*self.tasks, return_exceptions=True)


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to each address of a host, and listen; what cannot be is a person's mistake."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise CommandError(f"--host: {host!r} is no address or name of this machine; give one that is") from None
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sockets.append(socket.socket(family, kind, protocol))
            if os.name == "posix":  # elsewhere it would let two servers have the same port
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
    """Why an address cannot be listened on, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"--port: {port} on {host} is in use; stop what listens there, or choose another port (0: any free one)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"--port: {port} on {host} is not allowed; choose a port above 1023, or ask for the right to use it"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host: {host} is no address of this machine; give one that is, or 0.0.0.0 for all of them"
    return f"--port: {port} on {host} cannot be listened on ({error.strerror}); choose another --host or --port"


def fit_descriptors(connections: int) -> int:
    """How many connections this process has descriptors for; its soft limit is raised as far as that needs."""
    if sys.platform != "win32":  # which has no such limit
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
