"""Prefetching: batches are loaded while the last ones are trained on, so that a step need not wait for data."""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from regard.training.task import Position, Task

DEPTH = 2  # updates that are loaded ahead


@dataclass(frozen=True)
class Share:
    """The part of an update that one process needs."""

    batches: list[Any]  # of this process
    count: int  # what the losses of all processes are sums over
    end: Position  # where the stream stands afterwards


class Prefetch:
    """The shares of one update after another, each loaded by a thread before it is needed.

    One thread, so that the stream is read in order; the batches are a function of their place in it, so that nothing
    depends on when they were loaded. A task that does not say so of its own (`ahead`) has them loaded only when
    they are asked for. An error is raised when its update is asked for. `waited` counts the seconds in which the loop
    waited for its data.
    """

    def __init__(self, task: Task, position: Position, accumulate: int, rank: int, world: int, pin: bool):
        self.task, self.rank, self.world, self.pin = task, rank, world, pin
        self.stream, self.plans = task.stream(position), accumulate * world
        self.pool = ThreadPoolExecutor(1, "regard-batches")
        self.coming: deque[Future[Share]] = deque()
        self.waited = 0.0

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.coming:
            each.cancel()
        self.pool.shutdown(wait=True, cancel_futures=True)

    def __iter__(self) -> Iterator[Share]:
        return self

    def __next__(self) -> Share:
        while self.task.ahead and len(self.coming) <= DEPTH:
            self.coming.append(self.pool.submit(self.load))
        began = time.monotonic()
        share = self.coming.popleft().result() if self.task.ahead else self.load()
        self.waited += time.monotonic() - began
        return share

    def load(self) -> Share:
        """Load the next update's plans, and this process's batches of them."""
        plans = [next(self.stream) for _ in range(self.plans)]
        mine = plans[self.rank :: self.world]
        batches = [self.task.batch(plan, position) for position, plan in mine]
        if self.pin:
            batches = [batch.pin_memory() if hasattr(batch, "pin_memory") else batch for batch in batches]
        last = plans[-1][0]
        return Share(batches, sum(self.task.count(plan) for _, plan in plans), Position(last.epoch, last.batch + 1))
