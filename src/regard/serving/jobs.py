"""Jobs: the sentences and pictures of requests, each searched by itself, and the queue in which they wait."""

import asyncio
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from regard.decoding import Options, SearchResult

BULK = 8  # sentences: longer requests take turns among themselves, and shorter ones overtake them
TURN = 8  # sentences that a request may send per turn
Outcome = SearchResult | Exception
Update = tuple["Job", Outcome | list[int]]  # the outcome of a job, or the tokens so far of a streaming one


@dataclass(eq=False)
class Job:
    """A sentence or a picture to search."""

    source: Any  # token numbers, or the pixels of a picture [3 h w]
    options: Options
    prefix: Sequence[int] = ()
    request: Any = None  # the one it belongs to: requests take turns
    number: int = 0  # in its request
    bulk: bool = False  # whether its request is a long one
    streams: bool = False  # whether its tokens are wanted as they come
    added: float = field(default_factory=time.perf_counter)
    begun: float | None = None

    @property
    def cost(self) -> int:
        """The cost to a worker: (source tokens + 1) × hypotheses."""
        rows = self.options.nbest if self.options.sample else self.options.beam
        length = len(self.source) if isinstance(self.source, list) else 1
        return (length + 1) * rows


class PendingRequest:
    """The jobs of a request, and their outcomes."""

    def __init__(self, jobs: Sequence[Job], stream: bool):
        self.jobs, self.left = jobs, len(jobs)
        self.outcomes: list[SearchResult | None] = [None] * len(jobs)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.updates: asyncio.Queue[tuple[int, list[int]] | None] | None = asyncio.Queue() if stream else None
        for number, job in enumerate(jobs):
            job.request, job.number, job.bulk, job.streams = self, number, len(jobs) > BULK, stream
        if not jobs:
            self.done.set_result(None)

    def release(self) -> Sequence[Job]:
        """Drop the references to the jobs, and return them.

        A job refers to its request. If the request kept referring to its jobs, they, with their pictures and outputs,
        would stay in memory until Python's next garbage collection, a thousand requests later.
        """
        jobs, self.jobs = self.jobs, ()
        return jobs

    def update(self, job: Job, outcome: Any) -> None:
        """Store the outcome of a job, or pass on its tokens so far."""
        if self.done.done():
            return
        if isinstance(outcome, list):
            if self.updates is not None:
                self.updates.put_nowait((job.number, outcome))
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
        else:
            self.outcomes[job.number] = outcome
            self.left -= 1
            if not self.left:
                self.done.set_result(None)
        if self.done.done() and self.updates is not None:
            self.updates.put_nowait(None)


class JobQueue:
    """Jobs that wait for a worker, by request, and calls for a worker to make; thread-safe.

    Requests take turns: the first sends some of its jobs and then goes to the end. Long requests have a queue of their
    own.
    """

    def __init__(self, deliver: Callable[[list[Update]], None]):
        self.deliver = deliver  # called in a worker's thread
        self.changed = threading.Condition()
        self.requests: dict[bool, dict[Any, deque[Job]]] = {False: {}, True: {}}
        self.calls: deque[tuple[Callable[[Any], Any], Future]] = deque()
        self.cancelled: weakref.WeakSet[Job] = weakref.WeakSet()  # weak references: ended jobs drop out
        self.waiting = 0  # number of jobs
        self.closed = False
        self.error: Exception | None = None  # set once there is no worker left
        self.version = 0  # grows whenever there may be new work

    def add(self, jobs: Iterable[Job]) -> None:
        """Queue jobs."""
        jobs = list(jobs)
        with self.changed:
            if self.error is None:
                for job in jobs:
                    self.requests[job.bulk].setdefault(job.request, deque()).append(job)
                self.waiting += len(jobs)
                jobs = []
                self.wake()
        self.deliver([(job, self.error) for job in jobs if self.error is not None])

    def wake(self) -> None:
        """Tell workers that there may be new work."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def call(self, function: Callable[[Any], Any]) -> Future:
        """Have a worker call a function with its run, between two steps of a search."""
        future: Future = Future()
        with self.changed:
            if self.error is not None:
                future.set_exception(self.error)
                return future
            self.calls.append((function, future))
            self.wake()
        return future

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Cancel jobs: waiting ones leave at once, and a worker stops running ones."""
        with self.changed:
            for job in jobs:
                own = self.requests[job.bulk].get(job.request)
                if own is not None and job in own:
                    own.remove(job)
                    self.waiting -= 1
                    if not own:
                        del self.requests[job.bulk][job.request]
                else:
                    self.cancelled.add(job)
            self.wake()

    def take(self, bulk: bool, room: int, idle: bool) -> list[Job]:
        """Take the next jobs, of at most `room` in cost; if the worker is `idle`, at least one."""
        jobs: list[Job] = []
        with self.changed:
            queue = self.requests[bulk]
            while queue:
                request = next(iter(queue))
                own = queue.pop(request)
                for _ in range(min(TURN, len(own))):
                    if own[0].cost > room and (jobs or not idle):
                        self.requests[bulk] = {request: own, **queue}  # it stays the first
                        self.waiting -= len(jobs)
                        return jobs
                    jobs.append(own.popleft())
                    room -= jobs[-1].cost
                if own:
                    queue[request] = own  # behind the others
            self.waiting -= len(jobs)
        return jobs

    def take_call(self) -> tuple[Callable[[Any], Any], Future] | None:
        """Take the next call, if there is one."""
        with self.changed:
            return self.calls.popleft() if self.calls else None

    def take_cancelled(self, own: Iterable[Job]) -> list[Job]:
        """Take those of a worker's own jobs that were cancelled."""
        if not self.cancelled:
            return []
        with self.changed:
            mine = [job for job in own if job in self.cancelled]
            self.cancelled.difference_update(mine)
        return mine

    def wait(self, seconds: float, since: int) -> None:
        """Wait until the queue has a newer version than `since`, for so many seconds at most."""
        with self.changed:
            if self.version == since:
                self.changed.wait(seconds)

    def close(self) -> None:
        """End the workers of this queue once they have nothing left to do."""
        with self.changed:
            self.closed = True
            self.wake()

    def fail(self, error: Exception) -> None:
        """Answer all waiting and future jobs and calls with an error, because no worker is left."""
        with self.changed:
            self.error = error
            queues = list(itertools.chain(self.requests[False].values(), self.requests[True].values()))
            calls = list(self.calls)
            self.requests, self.waiting = {False: {}, True: {}}, 0
            self.calls.clear()
        self.deliver([(job, error) for queue in queues for job in queue])
        for _, future in calls:
            future.set_exception(error)
