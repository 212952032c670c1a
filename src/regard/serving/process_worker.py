"""Workers whose engine runs in a process of its own, so that it shares no interpreter with what reads requests.

On this side such a worker takes from its queue what a thread of the same kind would, and sends it. It knows what it has
sent, so that the queue and the limits are those of this process, and nothing has to be asked for. Two threads work for
it: one sends, one takes what comes back, so that neither side can keep the other from going on.

The process is started with the number of a socket that is open in both. The first messages say what to open, and are
answered with what an engine has room for (what jobs of short requests, and of long ones, may cost together) and has
captured, or with an error. From then on every message in is an `Order`, every message out a `Report`: what came of one
turn, or of a call. The process ends when it is told to, or the other end is closed.
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
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

from regard.decoding import Output, SearchResult
from regard.errors import RegardError
from regard.machine import settle_memory
from regard.run import Run
from regard.serving.engine import Engine
from regard.serving.errors import WorkerError
from regard.serving.jobs import Job, Update
from regard.serving.settings import LOG_FORMAT, ServeSettings
from regard.serving.worker import STOPPED, CallOutcome, Order, Worker, open_engine, take_turns

# What is on the path here is there, too: a plugin may lie beside the program.
PROGRAM = """import json, sys
sys.path[:] = json.loads(sys.argv[2])
from regard.serving.process_worker import main
main(int(sys.argv[1]))"""
# A terminal's Ctrl-C and a service's SIGTERM go to all processes of a group: this one says when they end.
SIGNALS = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
WATCH = 1.0  # seconds between two looks for the process that started this one
log = logging.getLogger("regard.serving")


class Report(NamedTuple):
    """What came of a turn of an engine, or of a call; sent as a plain tuple, which costs a third."""

    ended: Sequence[tuple[int, float | None, Any]]  # number, when it began, outputs as plain tuples or an error
    written: Sequence[tuple[int, list[int]]]  # number, and the tokens that are certain, of jobs that stream
    cancelled: Sequence[int]  # numbers of jobs that have left
    call: CallOutcome | None
    seconds: float  # of searching, since the last report


# ---- this side


class ProcessWorker(Worker):
    """A worker whose engine is in a process of its own."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.process: subprocess.Popen[bytes] | None = None
        self.over = False  # nothing comes back any more
        self.closing = False  # and it was told to end
        self.last = 0  # number
        self.jobs: dict[int, Job] = {}  # by their numbers, those that were sent and have not come back
        self.budgets, self.costs = {False: 0, True: 0}, {False: 0, True: 0}

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return super().ready and not self.over

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
            gone = isinstance(error, EOFError | ConnectionError)
            self.failure = WorkerError(f"{self.name}: its process has {self.end()}") if gone else error
            self.kill()
            if not isinstance(error, RegardError):
                log.error("%s: the worker has stopped", self.name, exc_info=None if gone else error)
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
            connection.send((torch.get_num_threads(), log.getEffectiveLevel(), os.getpid()))
            connection.send((self.name, self.device, self.open_run, self.settings))
            return connection

    # ---- one thread sends

    def work(self, connection: Connection) -> None:
        """Send what comes in, as far as there is room, until the queue is closed and nothing is left."""
        queue = self.queue
        while not self.over:
            version = queue.version
            cancelled = self.take_cancelled()
            jobs = [row for bulk in (False, True) for row in self.take_jobs(bulk)]
            call = self.take_call()
            message = None
            if call is not None:
                try:
                    message = bytes(ForkingPickler.dumps(call))
                except Exception as error:  # the call's alone
                    self.end_call(error=error)
            if jobs or cancelled or message is not None:
                self.send(connection, bytes(ForkingPickler.dumps((jobs, cancelled, message))))
            elif queue.closed and not (queue.waiting or queue.calls or self.jobs or self.future is not None):
                self.closing = True
                self.send(connection, b"")
                return
            elif call is None:
                queue.wait(0.5, version)
        self.give_up(self.remove_all())  # what was taken while the process ended

    @staticmethod
    def send(connection: Connection, message: bytes) -> None:
        """Send a message; where nobody is left to take it, the other thread notices."""
        with contextlib.suppress(OSError):
            connection.send_bytes(message)

    def take_jobs(self, bulk: bool) -> list[tuple[Any, ...]]:
        """Take the next jobs of short requests, or of long ones, as an order has them."""
        with self.lock:
            room, idle = self.budgets[bulk] - self.costs[bulk], not self.costs[bulk]
        if room <= 0 and not idle:
            return []
        jobs = self.queue.take(bulk, room, idle)
        with self.lock:
            self.costs[bulk] += sum(job.cost for job in jobs)
            self.jobs.update(enumerate(jobs, self.last + 1))
            self.last += len(jobs)
        return [
            (number, job.source, job.options, job.prefix, id(job.request), bulk, job.streams, job.added)
            for number, job in enumerate(jobs, self.last - len(jobs) + 1)
        ]

    def take_cancelled(self) -> list[int]:
        """Take the numbers of jobs that were cancelled after they had been sent."""
        if not self.queue.cancelled:
            return []
        with self.lock:
            own = {job: number for number, job in self.jobs.items()}
        return [own[job] for job in self.queue.take_cancelled(own)]

    # ---- the other takes what comes back

    def listen(self, connection: Connection) -> None:
        """Hand over what comes back, until the process has ended."""
        try:
            while True:
                message = ForkingPickler.loads(connection.recv_bytes())
                if isinstance(message, Exception):
                    break
                self.receive(Report(*message))
        except (EOFError, OSError):
            pass
        except BaseException:
            log.exception("%s: what its process has reported cannot be read", self.name)
        if not self.closing:
            self.kill()
            self.failure = WorkerError(STOPPED)
            log.error("%s: the worker has stopped: its process has %s", self.name, self.end())
        self.over = True
        self.give_up(self.remove_all())
        if not self.closing:
            self.stopped()
        self.queue.wake()

    def receive(self, report: Report) -> None:
        """Hand over what came of a turn."""
        with self.lock:
            updates: list[Update] = [
                (self.jobs[number], tokens) for number, tokens in report.written if number in self.jobs
            ]
            for number, begun, outcome in report.ended:
                if (job := self.remove(number)) is not None:
                    job.begun = begun
                    if isinstance(outcome, list):
                        outcome = SearchResult([Output(*each) for each in outcome])
                    updates.append((job, outcome))
            for number in report.cancelled:
                self.remove(number)
        self.hand_over(updates, (), report.call, report.seconds)
        if self.queue.waiting or self.queue.calls or self.queue.closed:  # there may be room for them now
            self.queue.wake()

    def remove(self, number: int) -> Job | None:
        """Count a job no more; for whoever has the lock."""
        job = self.jobs.pop(number, None)
        if job is not None:
            self.costs[job.bulk] -= job.cost
        return job

    def remove_all(self) -> list[Job]:
        """Count no job any more."""
        with self.lock:
            return [job for number in list(self.jobs) if (job := self.remove(number)) is not None]


# ---- the other side


class Orders:
    """The orders that come over a connection to an engine, and the reports to who sends them."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.jobs: dict[int, Job] = {}  # by their numbers

    def take(self, engine: Engine) -> Order | None:
        """Take what has come, up to a call, and wait where there is nothing to do; None: the message that ends it."""
        jobs: dict[int, Job] = {}
        cancelled: list[Job] = []
        call = None
        while call is None and (self.connection.poll() or not (engine.active or jobs or cancelled)):
            message = self.connection.recv_bytes()
            if not message:
                return None
            order = Order(*ForkingPickler.loads(message))
            for number, source, options, prefix, request, bulk, streams, added in order.jobs:
                jobs[number] = Job(source, options, prefix, request, number, bulk, streams, added)
            self.jobs.update(jobs)
            for number in order.cancelled:
                if (job := self.jobs.pop(number, None)) is not None:  # it has not ended yet
                    cancelled.append(job)
                    jobs.pop(number, None)
            call = order.call
        # Read where it is called: one that cannot be read is that call's error.
        function = None if call is None else lambda run: ForkingPickler.loads(call)(run)
        return Order(list(jobs.values()), cancelled, function)

    def report(
        self, updates: Iterable[Update], cancelled: Iterable[Job], call: CallOutcome | None, seconds: float
    ) -> None:
        """Send what came of a turn as plain tuples."""
        ended, written = [], []
        for job, outcome in updates:
            if isinstance(outcome, list):
                written.append((job.number, outcome))
            elif self.jobs.pop(job.number, None) is not None:
                result = portable(outcome) if isinstance(outcome, Exception) else list(map(tuple, outcome.outputs))
                ended.append((job.number, job.begun, result))
        if call is not None and call.error is not None:
            call = call._replace(error=portable(call.error))
        report = (ended, written, [job.number for job in cancelled], call, seconds)
        self.connection.send_bytes(bytes(ForkingPickler.dumps(report)))


def portable(error: Exception) -> Exception:
    """Return an error that another process can raise; a fault of the server says where it came from."""
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
    threads, level, parent = connection.recv()
    logging.basicConfig(**LOG_FORMAT)
    log.setLevel(level)
    threading.Thread(target=watch_parent, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    serve(connection, *connection.recv())


def serve(
    connection: Connection, name: str, device: str, open_run: Callable[[str], Run], settings: ServeSettings
) -> None:
    """Open a run, and work; what is wrong with it is sent."""
    try:
        run = open_run(device)
        with open_engine(run, settings) as engine:
            settle_memory()
            budgets = {bulk: engine.room(bulk) for bulk in (False, True)}
            connection.send((budgets, engine.captures))
            orders = Orders(connection)
            take_turns(run, engine, orders.take, orders.report)
    except (EOFError, ConnectionError):  # nobody is there any more
        return
    except Exception as error:
        if not isinstance(error, RegardError):
            log.exception("%s: the worker has stopped", name)
        with contextlib.suppress(OSError):
            connection.send(portable(error))
