"""The engine of a worker whose run is searched by another library: batch by batch, each of them whole.

It has the same few methods as `regard.serving.engine.Engine`. Jobs of the same options wait together; short requests
and long ones take turns, and so do options. What is cancelled leaves before its batch begins; what is cancelled later
is nobody's when the batch ends, so that deadlines hold at the grain of a batch.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from regard.decoding import Options, SearchResult
from regard.errors import RegardError
from regard.run import Run
from regard.serving.jobs import Job, Outcome, Update

BUDGET = {False: 4096, True: 8192}  # source tokens × hypotheses that wait: of short requests, and of long ones
BATCH = {False: 2048, True: 4096}  # of one batch
Key = tuple[bool, Options]


class BatchEngine:
    """Searches with a run's engine; for one thread."""

    captures = 0

    def __init__(self, run: Run):
        self.run = run
        self.lanes: dict[Job, Key] = {}
        self.waiting: dict[Key, dict[Job, None]] = {}  # whose turn it is comes first
        self.costs = {False: 0, True: 0}

    def warm(self, example: Any) -> None:
        """Search once for an example, so that the first request does not wait for what is done once."""
        if example is not None:
            self.run.engine.search([example], Options(beam=1, longest=3))

    @property
    def active(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.lanes)

    @property
    def places(self) -> int:
        """Sentences that are here."""
        return len(self.lanes)

    def jobs(self) -> Sequence[Job]:
        """The jobs that are here."""
        return list(self.lanes)

    def room(self, bulk: bool) -> int:
        """What jobs of short requests, or of long ones, may cost that are added now."""
        return BUDGET[bulk] - self.costs[bulk]

    def idle(self, bulk: bool) -> bool:
        """Whether no job of short requests, or of long ones, is here."""
        return not self.costs[bulk]

    def add(self, jobs: Iterable[Job]) -> None:
        """Take jobs in."""
        for job in jobs:
            key = job.bulk, job.options
            self.lanes[job] = key
            self.waiting.setdefault(key, {})[job] = None
            self.costs[job.bulk] += job.cost

    def cancel(self, job: Job) -> None:
        """Let a job go."""
        if job in self.lanes:
            self.remove(job)

    def remove(self, job: Job) -> None:
        """Count a job no more."""
        key = self.lanes.pop(job)
        self.costs[job.bulk] -= job.cost
        del self.waiting[key][job]
        if not self.waiting[key]:
            del self.waiting[key]

    def advance(self) -> list[Update]:
        """Search the next batch; what came of it."""
        if not self.waiting:
            return []
        key = next(iter(self.waiting))
        line = self.waiting.pop(key)
        self.waiting[key] = line  # behind the others
        batch = self.take_batch(line, BATCH[key[0]])
        updates: list[Update] = list(zip(batch, self.search(batch, key[1]), strict=True))
        for job in batch:
            self.remove(job)
        return updates

    @staticmethod
    def take_batch(line: dict[Job, None], budget: int) -> list[Job]:
        """Return the first jobs of a line, of so much cost together; one at least."""
        count, cost = 0, 0
        for job in line:
            cost += job.cost
            if count and cost > budget:
                break
            count += 1
        return list(islice(line, count))

    def search(self, jobs: Sequence[Job], options: Options) -> Sequence[Outcome]:
        """Search for jobs together; where one of them is refused, each by itself."""
        try:
            prefixes = [list(job.prefix) for job in jobs] if any(job.prefix for job in jobs) else None
            results: list[SearchResult] = self.run.engine.search(
                [job.source for job in jobs], options, prefixes=prefixes
            )
            return results
        except RegardError as error:
            return [error] if len(jobs) == 1 else [outcome for job in jobs for outcome in self.search([job], options)]
        except Exception as error:  # a fault of its own is that of this batch alone
            return [error] * len(jobs)
