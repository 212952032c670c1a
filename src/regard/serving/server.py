"""The process that serves: it listens, and knows what signals mean.

SIGTERM and Ctrl-C let requests that were admitted finish, and refuse new ones; SIGHUP opens runs anew whose best
checkpoint has moved.
"""

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn

from regard.machine import settle_memory
from regard.serving.app import make_app
from regard.serving.connection import Connection, Listener, bind, fit_descriptors
from regard.serving.libretranslate.language_pairs import LanguageTable
from regard.serving.models import parse_devices, share_threads
from regard.serving.service import Service

THREADS = 2  # that split texts and write answers beside the event loop: more of them would keep workers waiting
SWITCH = 0.0002  # seconds for which a thread may keep the others from running: workers and the event loop alternate
END = 2.0  # seconds that processes of workers have to end
log = logging.getLogger("regard.serving")


class Server(uvicorn.Server):
    """uvicorn's server with limits for connections and what is read from them, and without its handling of signals."""

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
        self.listener.start(make)
        self.servers = [self.listener]  # type: ignore[list-item]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run_server`."""
        yield


def run_server(service: Service, say: Callable[[str], None], show: Callable[[str], object] | None = None) -> None:
    """Serve until a signal ends it, and `show` the page's address when it is ready.

    An error of a run that cannot be opened is raised.
    """
    sys.setswitchinterval(SWITCH)
    share_threads(parse_devices(service.settings.device))
    asyncio.run(serve(service, say, show))


async def serve(service: Service, say: Callable[[str], None], show: Callable[[str], object] | None = None) -> None:
    """Listen, open the models, and wait for the end."""
    settings = service.settings
    with contextlib.ExitStack() as stack:  # closes sockets that nothing listens on yet, too
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
        host, port = server.listener.sockets[0].getsockname()[:2]  # port 0 is another one by now
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
    """Say what signals do."""
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[Any]]()

    def start(work: Any) -> None:
        task = loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def stop() -> None:
        if service.draining:  # asked twice
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
    """Let requests finish that were admitted, for as long as there is grace."""
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
    """Open runs anew whose best checkpoint has moved; one that cannot be opened stays as it is."""
    try:
        names = await service.reload()
    except Exception as error:
        say(f"not opened anew: {error}")
        return
    for name in names:
        say(f"{name}: step {service.models[name].card['step']:,} from now on")
    if not names:
        say("no best checkpoint has moved")
