"""An engine in a process of its own, so that it shares no interpreter with what reads requests and writes answers.

`regard.serving.process_worker` starts it, with the number of a socket that is open in both processes. The first message
is a `Plan`, and is answered with `Ready` or an error. From then on every message in is an `Order`, every message out a
`Report`: what came of one turn of the engine. The process ends when it is told to, or the other end is closed.
"""

import contextlib
import functools
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

from regard.errors import RegardError
from regard.kernels import settle_memory
from regard.run import Run
from regard.serving.engine import BatchEngine, Engine
from regard.serving.jobs import Job
from regard.serving.settings import LOG_FORMAT, ServeSettings
from regard.serving.worker import CallOutcome, call_with, open_engine

WATCH = 1.0  # seconds between two looks for the process that started this one
TELL = 0.25  # seconds of searching after which they are reported, whether anything has ended or not
log = logging.getLogger("regard.serving")


@dataclass(frozen=True)
class Plan:
    """What a process opens, and how."""

    name: str  # of the worker, in the log
    device: str
    open_run: Callable[[str], Run]
    settings: ServeSettings
    threads: int  # for computing on a CPU
    log_level: int
    parent: int  # the process that started it


@dataclass(frozen=True)
class Ready:
    """What the other side has to know of an engine that is warm."""

    budgets: dict[bool, int]  # what jobs of short requests, and of long ones, may cost together
    captures: int


class Order(NamedTuple):
    """Work for an engine. It is sent as a plain tuple, and so are its jobs, which costs a third."""

    jobs: Sequence[tuple[Any, ...]] = ()  # number, source, options, prefix, request, bulk, streams, added
    cancelled: Sequence[int] = ()  # numbers of jobs
    call: bytes | None = None  # a function of the run, pickled by itself: one that cannot be read is that call's error


class Report(NamedTuple):
    """What came of a turn of an engine; sent as a plain tuple."""

    ended: Sequence[tuple[int, float | None, Any]]  # number, when it began, outputs as plain tuples or an error
    written: Sequence[tuple[int, list[int]]]  # number, and the tokens that are certain, of jobs that stream
    cancelled: Sequence[int]  # numbers of jobs that have left
    call: CallOutcome | None
    seconds: float  # of searching, since the last report
    captures: int  # CUDA graphs so far


class EngineProcess:
    """Takes orders from a connection, and reports."""

    def __init__(self, connection: Connection, run: Run, engine: Engine | BatchEngine):
        self.connection, self.run, self.engine = connection, run, engine
        self.jobs: dict[int, Job] = {}

    def work(self) -> None:
        """Work until an empty message comes, or the other end is closed."""
        engine, seconds = self.engine, 0.0
        while True:
            cancelled: list[int] = []
            outcome: CallOutcome | None = None
            while outcome is None and (self.connection.poll() or not (engine.active or cancelled)):
                message = self.connection.recv_bytes()
                if not message:
                    return
                order = Order(*ForkingPickler.loads(message))
                cancelled += order.cancelled
                outcome = self.take(order)
            updates = []
            if engine.active:
                start = time.perf_counter()
                updates = engine.advance()
                seconds += time.perf_counter() - start
            if updates or cancelled or outcome is not None or seconds > TELL:
                report = (*self.list_updates(updates), cancelled, outcome, seconds, engine.captures)
                self.connection.send_bytes(bytes(ForkingPickler.dumps(report)))
                seconds = 0.0

    def take(self, order: Order) -> CallOutcome | None:
        """Take an order in, and make its call."""
        for number in order.cancelled:
            job = self.jobs.pop(number, None)
            if job is not None:
                self.engine.cancel(job)
        if order.jobs:
            jobs = [
                Job(source, options, prefix, request, number, bulk, streams, added)
                for number, source, options, prefix, request, bulk, streams, added in order.jobs
            ]
            self.jobs.update((job.number, job) for job in jobs)
            self.engine.add(jobs)
        if order.call is None:
            return None
        outcome = call_with(self.run, functools.partial(load_and_call, order.call))
        return outcome if outcome.error is None else outcome._replace(error=portable(outcome.error))

    def list_updates(self, updates: Sequence[tuple[Job, Any]]) -> tuple[list[Any], list[Any]]:
        """What has ended, and what was written of jobs that stream, as plain tuples."""
        ended, written = [], []
        for job, outcome in updates:
            if isinstance(outcome, list):
                written.append((job.number, outcome))
            elif self.jobs.pop(job.number, None) is not None:
                error = isinstance(outcome, Exception)
                ended.append((job.number, job.begun, portable(outcome) if error else list(map(tuple, outcome.outputs))))
        return ended, written


def load_and_call(function: bytes, run: Run) -> Any:
    """Call a function that was pickled."""
    return ForkingPickler.loads(function)(run)


def portable(error: Exception) -> Exception:
    """An error that another process can raise; one that is nobody's mistake says where it came from."""
    if not isinstance(error, RegardError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def watch_parent(parent: int) -> None:
    """End this process when the one that started it has gone, even while a run is opened."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def main(descriptor: int) -> None:
    """Work for the process that has the other end of a socket."""
    connection = Connection(descriptor)
    plan: Plan = connection.recv()
    logging.basicConfig(**LOG_FORMAT)
    log.setLevel(plan.log_level)
    threading.Thread(target=watch_parent, args=(plan.parent,), daemon=True).start()
    torch.set_num_threads(plan.threads)
    serve(connection, plan)


def serve(connection: Connection, plan: Plan) -> None:
    """Open what the plan says, and work; what is wrong with it is sent."""
    try:
        run = plan.open_run(plan.device)
        with open_engine(run, plan.settings) as engine:
            settle_memory()
            budgets = {bulk: engine.room(bulk) for bulk in (False, True)}
            connection.send(Ready(budgets, engine.captures))
            EngineProcess(connection, run, engine).work()
    except (EOFError, ConnectionError):  # nobody is there any more
        return
    except Exception as error:
        if not isinstance(error, RegardError):
            log.exception("%s: the worker has stopped", plan.name)
        with contextlib.suppress(OSError):
            connection.send(portable(error))
