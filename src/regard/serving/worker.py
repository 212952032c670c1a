"""Workers: a thread for each model and device, which owns the model and all that is computed with it.

A `ThreadWorker` computes in its own thread; a `ProcessWorker` has a process of its own that does. Either takes turns:
what is new is taken, jobs are searched, a call is made, and what came of it is reported.

What a worker is asked to call with its run, between two turns of searches, are functions at the top of this module: in
another process they are found by their names.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from regard.decoding import SearchResult, batches
from regard.errors import RegardError
from regard.inspection import exhibit_of, page_parts
from regard.kernels import pack_weights
from regard.run import Run, surround_run
from regard.serving.engine import Engine
from regard.serving.errors import WorkerError
from regard.serving.jobs import Job, JobQueue, Update
from regard.serving.settings import ServeSettings
from regard.tasks import Translation, translate

STOPPED = "the worker of this model has stopped; see the server's log"
SPAN = 10.0  # seconds over which the rate of sentences is measured
TELL = 0.25  # seconds of searching after which they are reported, whether anything has ended or not
log = logging.getLogger("regard.serving")
T = TypeVar("T")


class Counters:
    """What workers have done so far; added to by them, in their threads, and read by whoever asks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sentences = self.tokens = 0
        self.steps_seconds = self.calls_seconds = 0.0
        self.recent: deque[tuple[float, int]] = deque(maxlen=4096)  # when, and how many sentences had ended

    def add(self, results: Sequence[SearchResult] = (), steps: float = 0.0, calls: float = 0.0) -> None:
        """Count sentences that are done, and what searches and calls took."""
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
        """Sentences a second, of late."""
        now = time.monotonic()
        with self.lock:
            recent = [(when, count) for when, count in self.recent if now - when < SPAN]
        return sum(count for _, count in recent) / max(0.5, now - recent[0][0]) if recent else 0.0


# ---- turns


class Order(NamedTuple):
    """What is new at a worker's turn. Between processes a job is a plain tuple or its number, and a call is pickled."""

    jobs: Sequence[Any] = ()
    cancelled: Sequence[Any] = ()
    call: Any = None  # a function of the run


NOTHING = Order()


class CallOutcome(NamedTuple):
    """What came of a call, and the seconds that it took."""

    value: Any
    error: Exception | None
    seconds: float


def call_with(run: Run, function: Callable[[Run], Any]) -> CallOutcome:
    """Call a function with a run; an error of it is an outcome like another."""
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
    """Cancel, call and search, in turn, until `take` has no order any more; `report` what came of it."""
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
    """What works for a model on a device: it opens a run, and searches what waits in a queue until it is closed."""

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
        self.opened: Run | None = None  # in this process
        self.failure: BaseException | None = None
        self.started = threading.Event()  # it is ready, or has failed
        self.captures = 0  # CUDA graphs
        self.jobs: Collection[Any] = ()  # that it searches now
        self.lock = threading.Lock()  # of what follows
        self.future: Future | None = None  # of the call that is under way

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.started.is_set() and self.failure is None and self.is_alive()

    @property
    def under_way(self) -> int:
        """Sentences that it searches now."""
        return len(self.jobs)

    def take_call(self) -> Callable[[Run], Any] | None:
        """Take the next call, unless another one is under way, or nobody waits for it any more."""
        call = None if self.future is not None else self.queue.take_call()
        if call is None or not call[1].set_running_or_notify_cancel():
            return None
        function, self.future = call
        return function

    def end_call(self, value: Any = None, error: Exception | None = None) -> None:
        """Answer the call that is under way."""
        with self.lock:
            future, self.future = self.future, None
        if future is not None and error is None:
            future.set_result(value)
        elif future is not None:
            future.set_exception(error)

    def hand_over(self, updates: Sequence[Update], _: Any, call: CallOutcome | None, seconds: float) -> None:
        """Hand over what came of a turn; what it took is counted before it is answered."""
        results = [outcome for _, outcome in updates if isinstance(outcome, SearchResult)]
        self.counters.add(results, seconds, 0.0 if call is None else call.seconds)
        if updates:
            self.queue.forget([job for job, outcome in updates if not isinstance(outcome, list)])
            self.queue.deliver(list(updates))
        if call is not None:
            self.end_call(call.value, call.error)

    def give_up(self, jobs: Iterable[Job]) -> None:
        """Answer what was under way, as nothing will come of it any more."""
        self.queue.deliver([(job, WorkerError(STOPPED)) for job in jobs])
        self.end_call(error=WorkerError(STOPPED))


class ThreadWorker(Worker):
    """A worker that computes in its own thread."""

    version = -1  # of the queue, when it was last looked at

    def run(self) -> None:
        """Open the run, capture what is to be captured, and work."""
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
        """Take what is new in the queue, and wait for it where there is nothing else to do; None: there will be none.

        While nothing has changed, and nothing waits for room, the queue is not asked.
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
    """Open the engine of a run, warm, with everything around it that its thread needs."""
    search = None if settings.engine == "regard" else run.engine.search
    engine = Engine(run.model, longest_source(run), settings.precision, settings.memory, search)
    cuda = torch.cuda.device(engine.device) if engine.device.type == "cuda" else contextlib.nullcontext()
    with cuda, pack_weights(), torch.no_grad():
        example: Any = None  # a source to search before the first request, where the run searches
        if run.can("caption"):
            side = run.settings.data.image_size
            example = torch.zeros(3, side, side, dtype=torch.uint8)
        elif run.can("translate") or run.can("sample"):
            example = [3, 4, 5]
        engine.warm(example)
        yield engine


# ---- what is called with a run


def longest_source(run: Run) -> int:
    """Return the most tokens of a source that the run's model takes."""
    longest, limit = run.settings.data.longest, run.model.limit
    return longest if limit is None else min(longest, limit)


def call_between(run: Run, function: Callable[[Run], T], around: Mapping[str, tuple[str, ...]]) -> T:
    """Call a function with the run as it is for other languages."""
    return function(surround_run(run, around))


def list_alignments(run: Run, texts: Any, sources: Any, outputs: Any, wanted: Any) -> list[list[Translation]]:
    """List the translations of some outputs, with their alignments."""
    return list(translate.add_alignments(run, texts, sources, outputs, *wanted))


def score_tokens(run: Run, sources: list[list[int]], targets: list[list[int]]) -> list[batches.Scored]:
    """Return the log-probabilities of the tokens of each target."""
    return run.engine.score(sources, targets)


def collect_page(run: Run, item: str | np.ndarray, target: str | None, table: dict[str, Any]) -> dict[str, Any]:
    """Collect the data of a page of one item."""
    return page_parts.page_data([exhibit_of(run, item, target=target, **table)])


def list_links(run: Run, pairs: list[tuple[str, str]]) -> list[Any]:
    """List the links of each pair of texts."""
    return list(run.links(pairs))
