"""Workers: a thread for each model and device, which owns the model and all that is computed with it.

What a worker is asked to call with its run, between two turns of searches, are functions at the top of this module: in
another process they are found by their names.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from regard.decoding import SearchResult, batches
from regard.errors import RegardError
from regard.inspection import exhibit_of, page_parts
from regard.kernels import pack_weights
from regard.run import Run, surround_run
from regard.serving.engine import BatchEngine, Engine
from regard.serving.jobs import Job, Update, WaitingLine
from regard.serving.settings import ServeSettings
from regard.tasks import Translation, translate

STOPPED = "the worker of this model has stopped; see the server's log"
SPAN = 10.0  # seconds over which the rate of sentences is measured
log = logging.getLogger("regard.serving")
T = TypeVar("T")


class WorkerError(RegardError):
    """The thread or the process that computes with a model has stopped."""


class Counters:
    """What workers have done so far; added to by them, in their threads, and read by whoever asks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sentences = self.tokens = 0
        self.steps_seconds = self.calls_seconds = 0.0
        self.recent: deque[tuple[float, int]] = deque(maxlen=4096)  # when, and how many sentences had ended

    def add(self, results: list[SearchResult]) -> None:
        """Count sentences that are done."""
        tokens = sum(len(output.tokens) + 1 for result in results for output in result.outputs)
        with self.lock:
            self.sentences += len(results)
            self.tokens += tokens
            self.recent.append((time.monotonic(), len(results)))
            while self.recent[-1][0] - self.recent[0][0] > SPAN:
                self.recent.popleft()

    def add_seconds(self, steps: float = 0.0, calls: float = 0.0) -> None:
        """Count what searches and calls took."""
        with self.lock:
            self.steps_seconds += steps
            self.calls_seconds += calls

    @property
    def rate(self) -> float:
        """Sentences a second, of late."""
        now = time.monotonic()
        with self.lock:
            recent = [(when, count) for when, count in self.recent if now - when < SPAN]
        return sum(count for _, count in recent) / max(0.5, now - recent[0][0]) if recent else 0.0


class WorkerThread(threading.Thread):
    """What works for a model on a device: it opens a run, and searches what waits in a line until it is closed."""

    def __init__(
        self,
        name: str,
        device: str,
        open_run: Callable[[str], Run],
        line: WaitingLine,
        counters: Counters,
        settings: ServeSettings,
        stopped: Callable[[], None] = lambda: None,
    ):
        super().__init__(name=f"regard {name} {device}", daemon=True)
        self.device, self.open_run, self.line, self.counters = device, open_run, line, counters
        self.settings, self.stopped = settings, stopped
        self.opened: Run | None = None  # in this process
        self.failure: BaseException | None = None
        self.started = threading.Event()  # it is ready, or has failed

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.started.is_set() and self.failure is None and self.is_alive()


class Worker(WorkerThread):
    """A worker that computes in its own thread."""

    engine: Engine | BatchEngine | None = None

    @property
    def places(self) -> int:
        """Sentences that it searches now."""
        return 0 if self.engine is None else len(self.engine.lanes)

    @property
    def captures(self) -> int:
        """CUDA graphs that were captured."""
        return 0 if self.engine is None else self.engine.captures

    def run(self) -> None:
        """Open the run, capture what is to be captured, and work."""
        try:
            opened = self.open_run(self.device)
            with open_engine(opened, self.settings) as engine:
                self.opened, self.engine = opened, engine
                self.started.set()
                self.work(opened, engine)
        except BaseException as error:
            self.failure = error
            if self.started.is_set() or not isinstance(error, RegardError):
                log.exception("%s: the worker has stopped", self.name)
            if self.engine is not None:
                stopped = WorkerError(STOPPED)
                self.line.deliver([(job, stopped) for job in self.engine.lanes])
                self.stopped()
        finally:
            self.started.set()

    def work(self, opened: Run, engine: Engine | BatchEngine) -> None:
        """Search, call and cancel, in turn."""
        line, version = self.line, -1
        while not line.closed or line.waiting or line.calls or engine.active:
            call = None
            if line.version != version or line.waiting or line.calls:  # else there is nothing new
                version = line.version
                for job in line.take_cancelled(engine.lanes):
                    engine.cancel(job)
                for bulk in (False, True):
                    engine.add(line.take(bulk, engine.room(bulk), not engine.costs[bulk]))
                call = line.take_call()
                if call is not None:
                    self.make_call(opened, *call)
            if engine.active:
                start = time.perf_counter()
                if updates := engine.advance():
                    self.deliver(updates)
                self.counters.add_seconds(steps=time.perf_counter() - start)
            elif call is None:
                line.wait(0.5, version)

    def make_call(self, opened: Run, function: Callable[[Run], Any], future: Future) -> None:
        """Call a function, unless nobody waits for it any more; what it takes is counted before it is answered."""
        if not future.set_running_or_notify_cancel():
            return
        try:
            value, error, seconds = call_with(opened, function)
        except BaseException:  # the end of this worker, and of nothing else
            future.set_exception(WorkerError(STOPPED))
            raise
        self.counters.add_seconds(calls=seconds)
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def deliver(self, updates: list[Update]) -> None:
        """Hand over what has ended."""
        ended: list[Job] = [job for job, outcome in updates if not isinstance(outcome, list)]
        self.counters.add([outcome for _, outcome in updates if isinstance(outcome, SearchResult)])
        self.line.forget(ended)
        self.line.deliver(updates)


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


@contextlib.contextmanager
def open_engine(run: Run, settings: ServeSettings) -> Iterator[Engine | BatchEngine]:
    """The engine of a run, warm, with everything around it that its thread needs."""
    if settings.engine != "regard":
        batches = BatchEngine(run)
        batches.warm(example_of(run))
        yield batches
        return
    engine = Engine(run.model, longest_source(run), settings.precision, settings.memory)
    cuda = torch.cuda.device(run.device) if run.device.type == "cuda" else contextlib.nullcontext()
    with cuda, pack_weights(), torch.no_grad():
        engine.warm(example_of(run))
        yield engine


def longest_source(run: Run) -> int:
    """Return the most tokens of a source that the run's model takes."""
    longest, limit = run.settings.data.longest, run.model.limit
    return longest if limit is None else min(longest, limit)


def example_of(run: Run) -> Any:
    """Return a source to search once before the first request; None where the run searches nothing."""
    if run.can("caption"):
        side = run.settings.data.image_size
        return torch.zeros(3, side, side, dtype=torch.uint8)
    return [3, 4, 5] if run.can("translate") or run.can("sample") else None


def call_between(run: Run, function: Callable[[Run], T], around: Mapping[str, tuple[str, ...]]) -> T:
    """Call a function with the run as it is for other languages."""
    return function(surround_run(run, around))


def list_alignments(run: Run, texts: Any, sources: Any, outputs: Any, wanted: Any) -> list[list[Translation]]:
    """The translations of some outputs, with their alignments."""
    return list(translate.add_alignments(run, texts, sources, outputs, *wanted))


def score_tokens(run: Run, sources: list[list[int]], targets: list[list[int]]) -> list[batches.Scored]:
    """The log-probabilities of the tokens of each target."""
    return run.engine.score(sources, targets)


def collect_page(run: Run, item: str | np.ndarray, target: str | None, table: dict[str, Any]) -> dict[str, Any]:
    """The data of a page of one item."""
    return page_parts.page_data([exhibit_of(run, item, target=target, **table)])


def list_links(run: Run, pairs: list[tuple[str, str]]) -> list[Any]:
    """The links of each pair of texts."""
    return list(run.links(pairs))
