"""Servers for tests: a service in this process with its own event loop, and `regard serve` as a process."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from child import Child, Ended, command, fork

from regard.config import parse
from regard.serving.app import make_app
from regard.serving.service import Service
from regard.serving.settings import ServeSettings, parse_runs
from regard.training import Checkpoints, checkpoint_files, read_checkpoint

STORED = Path(__file__).parents[1] / "stored_runs"
FORM = os.environ.get("REGARD_TEST_WORKERS", "auto")  # process: run all tests that can with process workers
WAIT = 60.0  # seconds that any step may take on a busy machine
Request = tuple[str, dict[str, Any]]
logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx logs a line for each request


def stored(*names: str) -> list[str]:
    """Return the folders of stored runs."""
    return [str(STORED / name) for name in names]


def settings_of(**given: Any) -> ServeSettings:
    """Return the settings of a server on a CPU."""
    return parse(ServeSettings, {"device": "cpu", "workers": FORM, **given})


def wait_until(reached: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + WAIT
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


def png(width: int, height: int, data: bytes = b"\0" * 1000) -> bytes:
    """Return a PNG whose header states this size, with any data."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def write_best(run: Path, step: int, scale: float = 1.0) -> None:
    """Write another checkpoint with scaled weights into a run, and mark it as the best."""
    checkpoints = Checkpoints(run)
    last = read_checkpoint(checkpoints.find("best"))
    counters = {**last.manifest["counters"], "step": step, "best_step": step}
    kept = {key: value for key, value in last.manifest.items() if key not in ("files", "format", "sha256")}
    weights = {name: tensor * scale for name, tensor in last.model.items()}
    name = checkpoints.write(
        checkpoint_files.step_name(step), weights, last.trainer, {**kept, "step": step, "counters": counters}
    ).name
    checkpoints.mark_best(name)


class Served:
    """A service in the event loop of its own thread, and a client that calls it without a socket."""

    def __init__(self, runs: Sequence[str], **given: Any):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.service: Service = self.call(self.make(runs, given))
        # The service answers its internal errors, as a real server does, instead of raising them.
        transport = httpx.ASGITransport(make_app(self.service), raise_app_exceptions=False)  # type: ignore[arg-type]
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=WAIT)

    @staticmethod
    async def make(runs: Sequence[str], given: dict[str, Any]) -> Service:
        """Make a service inside the loop, without opening its models."""
        settings = settings_of(**given)
        return Service(settings, parse_runs(runs, settings.engine))

    def call(self, work: Any) -> Any:
        """Wait for a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT)

    def start(self) -> None:
        """Open the models."""
        self.call(self.service.start())

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Send a GET request."""
        return self.call(self.client.get(path, **options))

    def post(self, path: str, table: Any = None, **options: Any) -> httpx.Response:
        """Send a POST request with JSON, or with the body of the options."""
        return self.call(self.client.post(path, **({"json": table} if table is not None else {}), **options))

    def results(self, path: str, table: Any = None, **options: Any) -> list[Any]:
        """Return the results of a request that must succeed."""
        answer = self.post(path, table, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"]

    def all_at_once(self, requests: Sequence[Request]) -> list[httpx.Response]:
        """Send requests together, and return their answers."""

        async def gather() -> list[httpx.Response]:
            return await asyncio.gather(*(self.client.post(path, json=table) for path, table in requests))

        return self.call(gather())

    def figure(self, name: str, **labels: str) -> float:
        """Return a metric of the server, summed over all labels that are not given."""
        return read_figure(self.get("/metrics").text, name, **labels)

    def close(self) -> None:
        """End the service and its loop."""
        self.call(self.client.aclose())
        workers = [worker for model in self.service.models.values() for worker in model.workers]
        self.loop.call_soon_threadsafe(self.service.close)
        for worker in workers:
            worker.join(WAIT)
        self.call(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT)
        self.loop.close()


@contextlib.contextmanager
def serve(*runs: str, start: bool = True, **given: Any) -> Iterator[Served]:
    """Serve runs in this process; `given` are settings."""
    served = Served(runs, **given)
    try:
        if start:
            served.start()
        yield served
    finally:
        served.close()


def read_figure(page: str, name: str, **labels: str) -> float:
    """Return a metric from a page, summed over all labels that are not given."""
    found = []
    for line in page.splitlines():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if match and match[1] == name:
            own = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
            if labels.items() <= own.items():
                found.append(float(match[3]))
    assert found or labels, f"{name} is not on the page"
    return sum(found)


class Process:
    """`regard serve` as a process: the command line, forked from here, where torch is loaded."""

    def __init__(self, child: Child):
        self.child, self.address = child, ""
        self.ended: Ended | None = None

    @property
    def stderr(self) -> str:
        """The standard error so far."""
        if self.ended is not None:
            return self.ended.stderr
        size = os.fstat(self.child.err.fileno()).st_size
        return os.pread(self.child.err.fileno(), size, 0).decode()

    def wait_for(self, text: str) -> str:
        """Wait until the process prints a line with this text, and return the rest of the line."""
        end = time.monotonic() + WAIT
        while True:
            for line in self.stderr.splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.partition(text)[2].strip()
            assert self.alive, f"it ended: {self.stderr}"
            assert time.monotonic() < end, f"no {text!r} in: {self.stderr}"
            time.sleep(0.01)

    @property
    def alive(self) -> bool:
        """Whether the process runs; this does not reap it, which `wait` does."""
        found = os.waitid(os.P_PID, self.child.number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is None

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self.child.number, number)

    def wait(self, seconds: float = WAIT) -> Ended:
        """Wait for the process to end within so many seconds, and return how it ended."""
        end = time.monotonic() + seconds
        while self.alive:
            assert time.monotonic() < end, f"it has not ended within {seconds} s: {self.stderr}"
            time.sleep(0.01)
        self.ended = self.child.wait()
        return self.ended

    @property
    def memory(self) -> int:
        """The resident memory of the process in bytes."""
        pages = int(Path(f"/proc/{self.child.number}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def client(self, **options: Any) -> httpx.Client:
        """Return a client of the server, with its own connections."""
        return httpx.Client(base_url=self.address, timeout=WAIT, verify=False, **options)  # certificates load slowly

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        """Return a client for an event loop, with an unlimited number of connections."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncClient(base_url=self.address, timeout=WAIT, limits=limits, verify=False, **options)

    def get(self, path: str) -> httpx.Response:
        """Send a GET request on a new connection."""
        with self.client() as client:
            return client.get(path)

    def post(self, path: str, table: Any) -> httpx.Response:
        """Send a POST request with JSON on a new connection."""
        with self.client() as client:
            return client.post(path, json=table)

    def figure(self, name: str, **labels: str) -> float:
        """Return a metric of the server."""
        return read_figure(self.get("/metrics").text, name, **labels)

    def wait_for_figure(self, name: str, value: float) -> None:
        """Wait until a metric has a value."""
        end = time.monotonic() + WAIT
        while (found := self.figure(name)) != value:
            assert time.monotonic() < end, f"{name} is {found}, not {value}"
            time.sleep(0.02)


@contextlib.contextmanager
def serve_process(
    *runs: str,
    folder: Path,
    ready: bool = True,
    flags: Sequence[str] = (),
    before: Callable[[], object] = lambda: None,
    **given: Any,
) -> Iterator[Process]:
    """Start `regard serve` on a free port, and kill it at the end if it still runs; `given` are settings."""
    import regard.serving.server  # noqa: F401 (imported here, once for all children)

    file = folder / "serve.toml"
    file.write_text(
        "".join(f"{name} = {as_toml(value)}\n" for name, value in {"device": "cpu", "workers": FORM, **given}.items())
    )

    def prepare() -> None:
        signal.alarm(0)  # `fork` sets an alarm
        logging.root.handlers.clear()  # pytest sets handlers
        logging.root.setLevel(logging.WARNING)
        before()

    process = Process(fork(command("serve", *runs, "--port", 0, "--config", file, *flags), before=prepare))
    try:
        process.address = re.split(r"[; ]", process.wait_for("listening on "))[0]
        if ready:
            process.wait_for("ready: ")
        yield process
    finally:
        if process.ended is None:
            if process.alive:
                process.signal(signal.SIGKILL)
            process.ended = process.child.wait()
        print(process.stderr)  # it helps to see why a test failed


def open_slowly(gate: Path) -> Callable[[], None]:
    """Return a function for `before` of `serve_process`: runs open only when a file exists."""

    def hold() -> None:
        from regard.serving import models

        load = models.load

        def wait_and_load(*folders: str, device: str) -> Any:
            while not gate.exists():
                time.sleep(0.01)
            return load(*folders, device=device)

        models.load = wait_and_load

    return hold


def as_toml(value: Any) -> str:
    """Return a setting as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, list | tuple) else repr(value)
