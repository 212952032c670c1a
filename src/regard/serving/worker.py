"""Workers: a thread for each model and device, which owns the model and everything computed with it.

A `ThreadWorker` computes in its own thread. A `ProcessWorker` computes in a process of its own, so that it does not
share a Python interpreter with the code that reads requests. Both work in turns: take new jobs, run searches, make a
call, report the results.

Between two turns of searches a worker can call a function with its run. These functions are at the top level of this
module, so that another process can find them by name.

A `ProcessWorker` takes jobs from its queue as a thread would, and sends them. It keeps track of what it has sent, so
the queue and the limits stay in this process, and it never has to ask the other one. It uses two threads, one that
sends and one that receives, so that neither side can block the other.

The process starts with the number of a socket that is open in both. The first messages tell it what to open; it answers
with the engine's room (the most that jobs of short requests, and of long ones, may cost together) and the number of
captured graphs, or with an error. After that, every message in is an `Order`, and every message out is a `Report`: the
results of one turn, or of a call. The process ends when it is told to, or when the other end is closed.
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
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from regard.decoding import Output, SearchResult, batches
from regard.errors import RegardError
from regard.inspection import exhibit_of, page_parts
from regard.kernels import pack_weights
from regard.machine import settle_memory
from regard.run import Run, surround_run
from regard.serving.errors import WorkerError
from regard.serving.jobs import Job, JobQueue, Update
from regard.serving.running_batches import Engine
from regard.serving.settings import LOG_FORMAT, ServeSettings

STOPPED = "the worker of this model has stopped; see the server's log"
SPAN = 10.0  # seconds over which the rate of sentences is measured
TELL = 0.25  # seconds of searching after which they are reported even if no job has ended
# The process gets the same import path: a plugin may lie beside the program.
PROGRAM = """import json, sys
sys.path[:] = json.loads(sys.argv[2])
from regard.serving.worker import main
main(int(sys.argv[1]))"""
# Ctrl-C in a terminal and a service's SIGTERM reach all processes of a group; this process decides when workers end.
SIGNALS = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
WATCH = 1.0  # seconds between two checks that the parent process is alive
log = logging.getLogger("regard.serving")
T = TypeVar("T")


class Counters:
    """What workers have done so far; workers add to it in their threads, and any thread may read it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sentences = self.tokens = 0
        self.steps_seconds = self.calls_seconds = 0.0
        self.recent: deque[tuple[float, int]] = deque(maxlen=4096)  # a time, and how many sentences ended then

    def add(self, results: Sequence[SearchResult] = (), steps: float = 0.0, calls: float = 0.0) -> None:
        """Count finished sentences, and the seconds of searches and calls."""
        tokens = sum(len(output.tokens) + 1 for result in results for output in result.outputs)
        with self.lock:
            self.steps_seconds += steps
            self.calls_seconds += calls
            if not results:
                return
            self.sentences += len(results)
            self.tokens += tokens
            self.recent.append((time.monotonic(), len(results)))
            while self.recent[-1][0] - self.recent[0][0] > SPAN:
                self.recent.popleft()

    @property
    def rate(self) -> float:
        """Sentences per second, over the last few seconds."""
        now = time.monotonic()
        with self.lock:
            recent = [(when, count) for when, count in self.recent if now - when < SPAN]
        return sum(count for _, count in recent) / max(0.5, now - recent[0][0]) if recent else 0.0


# ---- turns


class Order(NamedTuple):
    """New work for a worker's turn. Between processes a job is a plain tuple or its number, and a call is pickled."""

    jobs: Sequence[Any] = ()
    cancelled: Sequence[Any] = ()
    call: Any = None  # a function of the run


NOTHING = Order()


class CallOutcome(NamedTuple):
    """The result of a call, and the seconds that it took."""

    value: Any
    error: Exception | None
    seconds: float


def call_with(run: Run, function: Callable[[Run], Any]) -> CallOutcome:
    """Call a function with a run; return its error as an outcome, so that nothing of it stays in the loop."""
    start, value, error = time.perf_counter(), None, None
    try:
        value = function(run)
    except Exception as caught:
        error = caught
    return CallOutcome(value, error, time.perf_counter() - start)


def take_turns(
    run: Run,
    engine: Engine,
    take: Callable[[Engine], Order | None],
    report: Callable[[Sequence[Update], Sequence[Job], CallOutcome | None, float], None],
) -> None:
    """Cancel and add jobs, call and search, in turn, until `take` returns None; `report` the results."""
    seconds = 0.0
    while (order := take(engine)) is not None:
        for job in order.cancelled:
            engine.cancel(job)
        if order.jobs:
            engine.add(order.jobs)
        if order.call is not None:
            report((), (), call_with(run, order.call), 0.0)
        updates: Sequence[Update] = ()
        if engine.active:
            start = time.perf_counter()
            updates = engine.advance()
            seconds += time.perf_counter() - start
        if updates or order.cancelled or seconds > TELL:
            report(updates, order.cancelled, None, seconds)
            seconds = 0.0


# ---- workers


class Worker(threading.Thread):
    """Works for a model on a device: opens a run, and processes the jobs of a queue until the queue is closed."""

    def __init__(
        self,
        name: str,
        device: str,
        open_run: Callable[[str], Run],
        queue: JobQueue,
        counters: Counters,
        settings: ServeSettings,
        stopped: Callable[[], None] = lambda: None,
    ):
        super().__init__(name=f"regard {name} {device}", daemon=True)
        self.device, self.open_run, self.queue, self.counters = device, open_run, queue, counters
        self.settings, self.stopped = settings, stopped
        self.opened: Run | None = None  # only if it is in this process
        self.failure: BaseException | None = None
        self.started = threading.Event()  # set once it is ready or has failed
        self.captures = 0  # CUDA graphs
        self.jobs: Collection[Any] = ()  # in the engine now
        self.lock = threading.Lock()  # of the following attribute
        self.future: Future | None = None  # of the running call

    @property
    def ready(self) -> bool:
        """Whether the worker serves."""
        return self.started.is_set() and self.failure is None and self.is_alive()

    @property
    def under_way(self) -> int:
        """The number of sentences in the engine now."""
        return len(self.jobs)

    def take_call(self) -> Callable[[Run], Any] | None:
        """Take the next call, unless another one is running; skip one that was cancelled."""
        call = None if self.future is not None else self.queue.take_call()
        if call is None or not call[1].set_running_or_notify_cancel():
            return None
        function, self.future = call
        return function

    def end_call(self, value: Any = None, error: Exception | None = None) -> None:
        """Answer the running call."""
        with self.lock:
            future, self.future = self.future, None
        if future is not None and error is None:
            future.set_result(value)
        elif future is not None:
            future.set_exception(error)

    def hand_over(self, updates: Sequence[Update], _: Any, call: CallOutcome | None, seconds: float) -> None:
        """Deliver the results of a turn; count its time before the requests are answered."""
        results = [outcome for _, outcome in updates if isinstance(outcome, SearchResult)]
        self.counters.add(results, seconds, 0.0 if call is None else call.seconds)
        if updates:
            self.queue.deliver(list(updates))
        if call is not None:
            self.end_call(call.value, call.error)

    def give_up(self, jobs: Iterable[Job]) -> None:
        """Answer these jobs and the running call with an error."""
        self.queue.deliver([(job, WorkerError(STOPPED)) for job in jobs])
        self.end_call(error=WorkerError(STOPPED))


class ThreadWorker(Worker):
    """A worker that computes in its own thread."""

    version = -1  # of the queue, when it was last read

    def run(self) -> None:
        """Open the run, capture graphs, and work."""
        engine: Engine | None = None
        try:
            opened = self.open_run(self.device)
            with open_engine(opened, self.settings) as engine:
                self.opened, self.jobs, self.captures = opened, engine.batches, engine.captures
                self.started.set()
                take_turns(opened, engine, self.take, self.hand_over)
        except BaseException as error:
            self.failure = error
            if self.started.is_set() or not isinstance(error, RegardError):
                log.exception("%s: the worker has stopped", self.name)
            if engine is not None:
                self.give_up(engine.batches)
                self.stopped()
        finally:
            self.started.set()

    def take(self, engine: Engine) -> Order | None:
        """Take new work from the queue, waiting for it if the engine is idle; return None once the queue is closed.

        If nothing has changed, and nothing waits for room, do not read the queue.
        """
        queue = self.queue
        while True:
            if queue.version == self.version and not (queue.waiting or queue.calls):
                if engine.active:
                    return NOTHING
                if queue.closed:
                    return None
                queue.wait(0.5, self.version)
                continue
            self.version = queue.version
            cancelled = queue.take_cancelled(engine.batches)
            jobs = [
                job for bulk in (False, True) for job in queue.take(bulk, engine.room(bulk), not engine.costs[bulk])
            ]
            order = Order(jobs, cancelled, self.take_call())
            if engine.active or any(order):
                return order


@contextlib.contextmanager
def open_engine(run: Run, settings: ServeSettings) -> Iterator[Engine]:
    """Open the engine of a run, warmed up, in the contexts that its thread needs."""
    search = None if settings.engine == "regard" else run.engine.search
    engine = Engine(run.model, longest_source(run), settings.precision, settings.memory, search)
    cuda = torch.cuda.device(engine.device) if engine.device.type == "cuda" else contextlib.nullcontext()
    with cuda, pack_weights(), torch.no_grad():
        example: Any = None  # a source to search before the first request, if the run searches
        if run.can("caption"):
            side = run.settings.data.image_size
            example = torch.zeros(3, side, side, dtype=torch.uint8)
        elif run.can("translate") or run.can("sample"):
            example = [3, 4, 5]
        engine.warm(example)
        yield engine


class Report(NamedTuple):
    """The results of an engine's turn, or of a call; sent as a plain tuple, which costs a third."""

    ended: Sequence[tuple[int, float | None, Any]]  # number, when it began, outputs as plain tuples or an error
    written: Sequence[tuple[int, list[int]]]  # number, and the tokens so far, of streaming jobs
    cancelled: Sequence[int]  # numbers of cancelled jobs
    call: CallOutcome | None
    seconds: float  # of searching, since the last report


class ProcessWorker(Worker):
    """A worker whose engine is in a process of its own."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.process: subprocess.Popen[bytes] | None = None
        self.over = False  # the process sends no more reports
        self.closing = False  # the process was told to end
        self.last = 0  # number of the last job sent
        self.jobs: dict[int, Job] = {}  # by number: sent, and not reported yet
        self.budgets, self.costs = {False: 0, True: 0}, {False: 0, True: 0}

    @property
    def ready(self) -> bool:
        """Whether the worker serves."""
        return super().ready and not self.over

    # ---- from start to end

    def run(self) -> None:
        """Start the process, send it work, and wait for its end."""
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
        """Wait for the end of the process; return how it ended."""
        if self.process is None:
            return "not started"
        status = self.process.wait()
        return f"ended with status {status}" if status >= 0 else f"been ended by signal {-status}"

    def kill(self) -> None:
        """Kill the process at once."""
        if self.process is not None:
            self.process.kill()

    def start_process(self) -> Connection:
        """Start the process, and tell it what to open."""
        if sys.platform == "win32":
            raise WorkerError("workers: a process given, expected a thread: Windows has no such pipes")
        else:
            connection, other = Pipe()
            command = [sys.executable, "-c", PROGRAM, str(other.fileno()), json.dumps(sys.path)]
            before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the process inherits the mask
            try:
                self.process = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                other.close()
            connection.send((torch.get_num_threads(), log.getEffectiveLevel(), os.getpid()))
            connection.send((self.name, self.device, self.open_run, self.settings))
            return connection

    # ---- the sending thread

    def work(self, connection: Connection) -> None:
        """Send new work, as far as there is room, until the queue is closed and no job is left."""
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
                except Exception as error:  # fails this call alone
                    self.end_call(error=error)
            if jobs or cancelled or message is not None:
                self.send(connection, bytes(ForkingPickler.dumps((jobs, cancelled, message))))
            elif queue.closed and not (queue.waiting or queue.calls or self.jobs or self.future is not None):
                self.closing = True
                self.send(connection, b"")
                return
            elif call is None:
                queue.wait(0.5, version)
        self.give_up(self.remove_all())  # jobs taken while the process ended

    @staticmethod
    def send(connection: Connection, message: bytes) -> None:
        """Send a message; if the process is gone, the other thread notices."""
        with contextlib.suppress(OSError):
            connection.send_bytes(message)

    def take_jobs(self, bulk: bool) -> list[tuple[Any, ...]]:
        """Take the next jobs of short requests, or of long ones, as rows of an order."""
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

    # ---- the receiving thread

    def listen(self, connection: Connection) -> None:
        """Deliver reports until the process ends."""
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
        """Deliver the results of a turn."""
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
        """Forget a job; the caller holds the lock."""
        job = self.jobs.pop(number, None)
        if job is not None:
            self.costs[job.bulk] -= job.cost
        return job

    def remove_all(self) -> list[Job]:
        """Forget all jobs, and return them."""
        with self.lock:
            return [job for number in list(self.jobs) if (job := self.remove(number)) is not None]


# ---- the worker's process


class Orders:
    """Receives orders for an engine over a connection, and sends reports back."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.jobs: dict[int, Job] = {}  # by number

    def take(self, engine: Engine) -> Order | None:
        """Take new orders, up to a call; wait for one if there is no work. Return None for the message that ends it."""
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
        # Unpickled inside the call: a call that cannot be unpickled fails alone.
        function = None if call is None else lambda run: ForkingPickler.loads(call)(run)
        return Order(list(jobs.values()), cancelled, function)

    def report(
        self, updates: Iterable[Update], cancelled: Iterable[Job], call: CallOutcome | None, seconds: float
    ) -> None:
        """Send the results of a turn as plain tuples."""
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
    """Return an error that can be pickled; an unexpected one carries its traceback as a note."""
    if not isinstance(error, RegardError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def watch_parent(parent: int) -> None:
    """End this process when its parent has gone, even while a run is being opened."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def main(descriptor: int) -> None:
    """Run the worker's process, which talks to its parent over a socket."""
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
    """Open a run, and work; send an error if that fails."""
    try:
        run = open_run(device)
        with open_engine(run, settings) as engine:
            settle_memory()
            budgets = {bulk: engine.room(bulk) for bulk in (False, True)}
            connection.send((budgets, engine.captures))
            orders = Orders(connection)
            take_turns(run, engine, orders.take, orders.report)
    except (EOFError, ConnectionError):  # the parent is gone
        return
    except Exception as error:
        if not isinstance(error, RegardError):
            log.exception("%s: the worker has stopped", name)
        with contextlib.suppress(OSError):
            connection.send(portable(error))


# ---- functions to call with a run


def longest_source(run: Run) -> int:
    """Return the longest source, in tokens, that the run's model takes."""
    longest, limit = run.settings.data.longest, run.model.limit
    return longest if limit is None else min(longest, limit)


def call_between(run: Run, function: Callable[[Run], T], around: Mapping[str, tuple[str, ...]]) -> T:
    """Call a function with the run, with the tokens of other languages around its texts."""
    return function(surround_run(run, around))


def list_all(run: Run, function: Callable[..., Iterable[T]], **given: Any) -> list[T]:
    """Return everything that a function yields, as a list."""
    return list(function(run, **given))


def score_tokens(run: Run, sources: list[list[int]], targets: list[list[int]]) -> list[batches.Scored]:
    """Return the log-probabilities of the tokens of each target."""
    return run.engine.score(sources, targets)


def collect_page(run: Run, item: str | np.ndarray, target: str | None, table: dict[str, Any]) -> dict[str, Any]:
    """Collect the data of a page of one item."""
    return page_parts.page_data([exhibit_of(run, item, target=target, **table)])
