"""Workers whose engine runs in a process of its own, so that it shares no interpreter with what reads requests.

On this side such a worker takes from its line what a thread of the same kind would, and sends it. It knows what it has
sent, so that the line, the places and the limits are those of this process, and nothing has to be asked for. Two
threads work for it: one sends, one takes what comes back, so that neither side can keep the other from going on.

The process is started with the number of a socket that is open in both. The first message is a `Plan`, and is answered
with what an engine has room for (what jobs of short requests, and of long ones, may cost together) and has captured, or
with an error. From then on every message in is an `Order`, every message out a `Report`: what came of one
turn of the engine. The process ends when it is told to, or the other end is closed.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

from regard.decoding import Output, SearchResult
from regard.errors import RegardError
from regard.machine import settle_memory
from regard.run import Run
from regard.serving.engine import BatchEngine, Engine
from regard.serving.jobs import Job, Update
from regard.serving.settings import LOG_FORMAT, ServeSettings
from regard.serving.worker import STOPPED, CallOutcome, WorkerError, WorkerThread, call_with, open_engine

# What is on the path here is there, too: a plugin may lie beside the program.
PROGRAM = """import json, sys
sys.path[:] = json.loads(sys.argv[2])
from regard.serving.process_worker import main
main(int(sys.argv[1]))"""
# A terminal's Ctrl-C and a service's SIGTERM go to all processes of a group: this one says when they end.
SIGNALS = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
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


# ---- this side


class ProcessWorker(WorkerThread):
    """A worker whose engine is in a process of its own."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.process: subprocess.Popen[bytes] | None = None
        self.captures = 0
        self.lock = threading.Lock()  # of what follows
        self.over = False  # nothing comes back any more
        self.closing = False  # and it was told to end
        self.last = 0  # number
        self.jobs: dict[int, Job] = {}  # by their numbers, those that were sent and have not come back
        self.budgets, self.costs = {False: 0, True: 0}, {False: 0, True: 0}
        self.future: Future | None = None  # of the call that was sent

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return super().ready and not self.over

    @property
    def places(self) -> int:
        """Sentences that its process has, to be searched now."""
        return len(self.jobs)

    # ---- from start to end

    def run(self) -> None:
        """Start the process, send what is to be done, and wait for its end."""
        connection: Connection | None = None
        try:
            connection = self.start_process()
            ready = connection.recv()
            if isinstance(ready, Exception):
                raise ready
            self.budgets, self.captures = ready
            name = f"{self.name} reports"
            listener = threading.Thread(target=self.listen, args=(connection,), name=name, daemon=True)
            listener.start()
            self.started.set()
            self.work(connection)
            listener.join()
        except BaseException as error:
            self.failure = WorkerError(f"{self.name}: its process has {self.end()}") if is_gone(error) else error
            self.kill()
            if not isinstance(error, RegardError):
                log.error("%s: the worker has stopped", self.name, exc_info=None if is_gone(error) else error)
        finally:
            if connection is not None:
                connection.close()
            self.end()
            self.started.set()

    def end(self) -> str:
        """Wait for the end of the process; how it ended."""
        if self.process is None:
            return "not started"
        status = self.process.wait()
        return f"ended with status {status}" if status >= 0 else f"been ended by signal {-status}"

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        if self.process is not None:
            self.process.kill()

    def start_process(self) -> Connection:
        """Start the process, and tell it what to open."""
        if sys.platform == "win32":
            raise WorkerError("workers: a process given, expected a thread: Windows has no such pipes")
        else:
            connection, other = Pipe()
            command = [sys.executable, "-c", PROGRAM, str(other.fileno()), json.dumps(sys.path)]
            before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # a process inherits it
            try:
                self.process = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                other.close()
            level = log.getEffectiveLevel()
            threads = torch.get_num_threads()
            connection.send(Plan(self.name, self.device, self.open_run, self.settings, threads, level, os.getpid()))
            return connection

    # ---- one thread sends

    def work(self, connection: Connection) -> None:
        """Send what comes in, as far as there is room, until the line is closed and nothing is left."""
        line = self.line
        while not self.over:
            version = line.version
            cancelled = self.take_cancelled()
            jobs = [row for bulk in (False, True) for row in self.take_jobs(bulk)]
            call = self.take_call()
            if jobs or cancelled or call is not None:
                self.send(connection, bytes(ForkingPickler.dumps((jobs, cancelled, call))))
            elif line.closed and not (line.waiting or line.calls or self.jobs or self.future is not None):
                self.closing = True
                self.send(connection, b"")
                return
            else:
                line.wait(0.5, version)

    @staticmethod
    def send(connection: Connection, message: bytes) -> None:
        """Send a message; where nobody is left to take it, the other thread notices."""
        with contextlib.suppress(OSError):
            connection.send_bytes(message)

    def take_jobs(self, bulk: bool) -> list[tuple[Any, ...]]:
        """The next jobs of short requests, or of long ones, as an order has them."""
        with self.lock:
            room, idle = self.budgets[bulk] - self.costs[bulk], not self.costs[bulk]
        if room <= 0 and not idle:
            return []
        jobs = self.line.take(bulk, room, idle)
        rows = []
        with self.lock:
            for number, job in enumerate(jobs, self.last + 1):
                rows.append(
                    (number, job.source, job.options, job.prefix, id(job.request), bulk, job.streams, job.added)
                )
                self.jobs[number] = job
                self.costs[bulk] += job.cost
            self.last += len(jobs)
            lost = self.remove_all() if self.over else []
        self.line.deliver([(job, WorkerError(STOPPED)) for job in lost])
        return rows

    def take_cancelled(self) -> list[int]:
        """The numbers of jobs that were cancelled after they had been sent."""
        if not self.line.cancelled:
            return []
        with self.lock:
            own = {job: number for number, job in self.jobs.items()}
        return [own[job] for job in self.line.take_cancelled(own)]

    def take_call(self) -> bytes | None:
        """The next call, unless another one is under way; one that cannot be sent is answered with why."""
        if self.future is not None:
            return None
        call = self.line.take_call()
        if call is None or not call[1].set_running_or_notify_cancel():
            return None
        function, future = call
        try:
            message = bytes(ForkingPickler.dumps(function))
        except Exception as error:
            future.set_exception(error)
            return None
        with self.lock:
            if not self.over:
                self.future = future
                return message
        future.set_exception(WorkerError(STOPPED))
        return None

    # ---- the other takes what comes back

    def listen(self, connection: Connection) -> None:
        """Hand over what comes back, until the process has ended."""
        try:
            while True:
                message = ForkingPickler.loads(connection.recv_bytes())
                if isinstance(message, Exception):
                    break
                self.hand_over(Report(*message))
        except (EOFError, OSError):
            pass
        except BaseException:
            log.exception("%s: what its process has reported cannot be read", self.name)
        if not self.closing:
            self.kill()
            self.failure = WorkerError(STOPPED)
            log.error("%s: the worker has stopped: its process has %s", self.name, self.end())
        with self.lock:
            self.over = True
            left, future, self.future = self.remove_all(), self.future, None
        self.line.deliver([(job, WorkerError(STOPPED)) for job in left])
        if future is not None:
            future.set_exception(WorkerError(STOPPED))
        if not self.closing:
            self.stopped()
        self.line.wake()

    def hand_over(self, report: Report) -> None:
        """Hand over what came of a turn."""
        updates: list[Update] = []
        results: list[SearchResult] = []
        future, line = None, self.line
        self.captures = report.captures
        with self.lock:
            updates += [(self.jobs[number], tokens) for number, tokens in report.written if number in self.jobs]
            for number, begun, outcome in report.ended:
                job = self.remove(number)
                if job is None:
                    continue
                job.begun = begun
                if isinstance(outcome, list):
                    outcome = SearchResult([Output(*output) for output in outcome])
                    results.append(outcome)
                updates.append((job, outcome))
            for number in report.cancelled:
                self.remove(number)
            if report.call is not None:
                future, self.future = self.future, None
        self.counters.add_seconds(report.seconds, 0.0 if report.call is None else report.call.seconds)
        if results:
            self.counters.add(results)
        line.forget([job for job, outcome in updates if not isinstance(outcome, list)])
        line.deliver(updates)
        if future is not None and report.call is not None:
            if report.call.error is None:
                future.set_result(report.call.value)
            else:
                future.set_exception(report.call.error)
        if line.waiting or line.calls or line.closed:  # there may be room for them now
            line.wake()

    def remove(self, number: int) -> Job | None:
        """Count a job no more; for whoever has the lock."""
        job = self.jobs.pop(number, None)
        if job is not None:
            self.costs[job.bulk] -= job.cost
        return job

    def remove_all(self) -> list[Job]:
        """Count no job any more; for whoever has the lock."""
        return [job for number in list(self.jobs) if (job := self.remove(number)) is not None]


def is_gone(error: BaseException) -> bool:
    """Return whether an error says that the other process has ended."""
    return isinstance(error, EOFError | ConnectionError)


# ---- the other side


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
        call = order.call
        if call is None:
            return None
        outcome = call_with(self.run, lambda run: ForkingPickler.loads(call)(run))
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
            connection.send((budgets, engine.captures))
            EngineProcess(connection, run, engine).work()
    except (EOFError, ConnectionError):  # nobody is there any more
        return
    except Exception as error:
        if not isinstance(error, RegardError):
            log.exception("%s: the worker has stopped", plan.name)
        with contextlib.suppress(OSError):
            connection.send(portable(error))
