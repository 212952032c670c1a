"""Batches of a worker: sentences that are searched together, and that others join while they are on their way.

A `HostBatch` steps searches on the host, for whatever can be searched; sentences that come later join those that run. A
`SlotBatch` is for a GPU: its step was captured once, and sentences take slots as others are done. A `WholeBatch` hands
them to an engine of another library, and nobody joins.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch

from regard.decoding import (
    WRITES,
    BurstSearch,
    HostCopy,
    Hypotheses,
    SearchResult,
    SentenceSearch,
    StepSearch,
    can_join,
    check_outputs,
    check_prefix,
    join_searches,
    output_limit,
    tokens_of,
)
from regard.errors import RegardError
from regard.machine import pause_garbage_collection
from regard.models import Model, Pictures, Tokens
from regard.serving.jobs import Job, Outcome

CROWD = 8  # newcomers begin when they are one in this many of those that are under way
PATIENCE = 0.03  # seconds that a newcomer waits for others at most
Ended = tuple[Job, Outcome]


class RunningBatch:
    """Sentences that are searched together, in turn with other batches."""

    def __init__(self) -> None:
        self.waiting: list[Job] = []
        self.time = 0.0  # seconds that it had, each shared among its requests
        self.members: Counter[Any] = Counter()  # its requests, and how many jobs each has here
        self.ordered: deque[float] = deque()  # when steps were ordered that nobody has waited for yet
        self.streaming = 0  # jobs whose tokens are wanted as they come
        self.short = 0  # jobs of short requests

    @property
    def takes_orders(self) -> bool:
        """Whether steps may be ordered now, or have to be waited for first."""
        return True

    def add(self, job: Job) -> None:
        """Let a job begin with the next step."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Stop a job, and free its place."""
        if job in self.waiting:
            self.waiting.remove(job)
        else:
            self.stop(job)

    def stop(self, job: Job) -> None:
        """Stop a job that is under way."""

    def advance(self) -> list[Ended]:
        """Take or order some steps of what is here; return what has ended, with what came of it."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the steps that were ordered."""

    def write(self) -> list[Ended]:
        """Write down what is done, and was not written yet."""
        return []

    def partial_tokens(self) -> list[tuple[Job, list[int]]]:
        """Return what is certain so far of the jobs that stream: the tokens that all of their hypotheses share."""
        return []


class HostBatch(RunningBatch):
    """Searches step by step, on any device, with options that have the same `shared_options`."""

    def __init__(self, model: Model, device: torch.device):
        super().__init__()
        self.model, self.device = model, device
        self.searches: list[StepSearch] = []
        self.alone: set[StepSearch] = set()  # not to be joined
        self.under_way: dict[SentenceSearch, Job] = {}

    def advance(self) -> list[Ended]:
        """Begin with those that wait, and take a step of each search."""
        ended: list[Ended] = []
        if self.waiting and self.enough():
            jobs, self.waiting = self.waiting, []
            ended += self.begin(jobs)
        for each in list(self.searches):
            ended += self.step(each)
        if len(self.searches) > 1:
            self.join()
        return ended

    def enough(self) -> bool:
        """Return whether those that wait begin now: each beginning costs a pass over their sources, and a step."""
        patience = time.perf_counter() - self.waiting[0].added > PATIENCE
        return patience or len(self.waiting) >= max(1, len(self.under_way) // CROWD)

    def begin(self, jobs: Sequence[Job], alone: bool = False) -> list[Ended]:
        """Start a search of some jobs; where that fails, one of each."""
        ended: list[Ended] = []
        try:
            under_way = self.start(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [(jobs[0], error)]
            for job in jobs:
                ended += self.begin([job], alone=True)
            return ended
        self.searches.append(under_way)
        if alone:
            self.alone.add(under_way)
        for sentence, job in zip(under_way.sentences, jobs, strict=True):
            job.begun = time.perf_counter()
            self.under_way[sentence] = job
        return ended

    def start(self, jobs: Sequence[Job]) -> StepSearch:
        """Make a search of some jobs."""
        source: Tokens | Pictures
        if isinstance(jobs[0].source, list):
            source = tokens_of([job.source for job in jobs], self.device)
        else:
            source = Pictures(torch.stack([torch.as_tensor(job.source) for job in jobs]).to(self.device))
        prefixes = [job.prefix for job in jobs] if any(job.prefix for job in jobs) else None
        options = [job.options for job in jobs]
        return StepSearch(self.model, source, options[0], prefixes, each=options)

    def step(self, under_way: StepSearch) -> list[Ended]:
        """Take a step of a search. If it fails, every sentence of it is searched alone: most are not to blame."""
        sentences = under_way.sentences
        try:
            going = under_way.advance()
        except Exception as error:
            self.remove(under_way)
            jobs = [self.under_way.pop(sentence) for sentence in sentences if sentence in self.under_way]
            if under_way in self.alone or len(jobs) == 1:
                return [(job, error) for job in jobs]
            return [each for job in jobs for each in self.begin([job], alone=True)]
        if not going:
            self.remove(under_way)
        ended: list[Ended] = []
        for sentence in sentences:
            if sentence.done and (job := self.under_way.pop(sentence, None)) is not None:
                try:
                    ended.append((job, sentence.result()))
                except Exception as error:
                    ended.append((job, error))
        return ended

    def remove(self, under_way: StepSearch) -> None:
        """Let a search go."""
        self.searches.remove(under_way)
        self.alone.discard(under_way)

    def join(self) -> None:
        """Put searches together that can be."""
        first = next((each for each in self.searches if each not in self.alone), None)
        for each in list(self.searches):
            if first is not None and each is not first and each not in self.alone and can_join(first, each):
                join_searches(first, each)
                self.searches.remove(each)

    def stop(self, job: Job) -> None:
        """Stop a job; its rows leave with the next step."""
        for each in self.searches:
            for sentence in each.sentences:
                if self.under_way.get(sentence) is job:
                    del self.under_way[sentence]
                    each.stop(sentence)
                    if not any(other in self.under_way for other in each.sentences):
                        self.remove(each)
                    return

    def partial_tokens(self) -> list[tuple[Job, list[int]]]:
        """Return the tokens that the hypotheses of a sentence share, where they are wanted."""
        tokens = []
        for each in self.searches:
            for i, sentence in enumerate(each.sentences):
                job = self.under_way.get(sentence)
                if job is None or not job.streams:
                    continue
                alive = (each.total[i] > -torch.inf).tolist()
                rows = each.history[i, :, sentence.begin : each.step].tolist()
                texts = [row for row, lives in zip(rows, alive, strict=False) if lives]
                texts += [output.tokens for pool in sentence.pools for output in pool]
                texts += [output.tokens for output in sentence.samples.values()]
                tokens.append((job, share_prefix(texts)))
        return tokens


class WholeBatch(RunningBatch):
    """Sentences with the same options for an engine of another library, which searches whole batches."""

    def __init__(self, search: Callable[..., Sequence[SearchResult]], most: int):
        """`most` is the largest cost of one batch."""
        super().__init__()
        self.search, self.most = search, most

    def advance(self) -> list[Ended]:
        """Search for those that wait, as many as one batch has room for, and one at least."""
        count = max(1, sum(cost <= self.most for cost in accumulate(job.cost for job in self.waiting)))
        jobs, self.waiting = self.waiting[:count], self.waiting[count:]
        return list(zip(jobs, self.search_together(jobs), strict=True))

    def search_together(self, jobs: Sequence[Job]) -> Sequence[Outcome]:
        """Search for jobs together; where one of them is refused, each by itself."""
        try:
            prefixes = [list(job.prefix) for job in jobs] if any(job.prefix for job in jobs) else None
            return self.search([job.source for job in jobs], jobs[0].options, prefixes=prefixes)
        except RegardError as error:
            return [error] if len(jobs) == 1 else [each for job in jobs for each in self.search_together([job])]
        except Exception as error:  # a fault of its own is that of this batch alone
            return [error] * len(jobs)


class SlotBatch(RunningBatch):
    """Slots of a device's search, of one class of length and one number of rows.

    A turn orders a burst of steps, and does not wait for it: what the burst before has ended is written down while
    the device is busy.
    """

    def __init__(self, slots: BurstSearch):
        super().__init__()
        self.slots, self.count = slots, slots.count
        self.inside: list[Job | None] = [None] * self.count
        self.free = list(range(self.count))
        self.first = [0] * self.count  # the burst that the job of a slot begins with
        self.burst = 0  # the next that is waited for
        self.unwritten: tuple[list[Job], Hypotheses] | None = None  # jobs that are done, and what came of them
        self.partial: list[tuple[Job, list[int]]] = []

    @property
    def active(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.waiting) or len(self.free) < self.count or self.unwritten is not None

    @property
    def takes_orders(self) -> bool:
        """Whether there is something to order, and it need not be waited for the last."""
        return len(self.ordered) < self.slots.depth and self.active

    @property
    def sentences(self) -> int:
        """Sentences that are here, in a slot or waiting for one."""
        return self.count - self.room

    @property
    def room(self) -> int:
        """Slots that nobody has or waits for."""
        return len(self.free) - len(self.waiting)

    def advance(self) -> list[Ended]:
        """Fill slots, order some steps, and write down what is done."""
        if self.waiting and self.free:
            self.fill()
        if len(self.free) < self.count:
            self.slots.order()
            self.ordered.append(time.perf_counter())
        return self.write()

    def wait(self) -> None:
        """Wait for the steps that were ordered first, and note who is done."""
        copy, number = self.slots.wait(), self.burst
        self.ordered.popleft()
        self.burst += 1
        active = copy.active
        begun = [slot for slot, job in enumerate(self.inside) if job is not None and self.first[slot] <= number]
        if self.streaming:
            self.partial = self.share_tokens(copy, begun)
        done = [slot for slot in begun if not active[slot]]
        if done:
            jobs = [job for slot in done if (job := self.inside[slot]) is not None]
            self.unwritten = jobs, copy.finished(done)
            self.release(done)

    def write(self) -> list[Ended]:
        """Write down what is done."""
        if self.unwritten is None:
            return []
        (jobs, hypotheses), self.unwritten = self.unwritten, None
        ended: list[Ended] = []
        with pause_garbage_collection():
            for job, result in zip(jobs, hypotheses.results([job.options.nbest for job in jobs]), strict=True):
                try:
                    check_outputs(result.outputs)
                    ended.append((job, result))
                except Exception as error:
                    ended.append((job, error))
        return ended

    def fill(self) -> None:
        """Begin with those that wait, as many as there are slots and as are read between two bursts."""
        count = min(len(self.free), WRITES * self.slots.together)
        jobs, self.waiting = self.waiting[:count], self.waiting[count:]
        slots, self.free = self.free[: len(jobs)], self.free[len(jobs) :]
        self.slots.put(slots, *([getattr(job, name) for job in jobs] for name in ("source", "options", "prefix")))
        now = time.perf_counter()
        for slot, job in zip(slots, jobs, strict=True):
            self.inside[slot], self.first[slot], job.begun = job, self.burst + len(self.ordered), now

    def stop(self, job: Job) -> None:
        """Stop a job, and free its slot; one that is done is not written down."""
        if job in self.inside:
            slot = self.inside.index(job)
            self.slots.stop(slot)
            self.release([slot])

    def release(self, slots: list[int]) -> None:
        """Free slots; the first are taken first."""
        for slot in slots:
            self.inside[slot] = None
        self.free = sorted(self.free + slots)

    def share_tokens(self, copy: HostCopy, slots: Iterable[int]) -> list[tuple[Job, list[int]]]:
        """Return the tokens that the hypotheses of a sentence share, where they are wanted."""
        slots = [slot for slot in slots if (job := self.inside[slot]) is not None and job.streams]
        rows = self.slots.device_search.rows
        both = (part.results(rows) for part in (copy.living(slots), copy.finished(slots)))
        tokens = []
        for slot, *parts in zip(slots, *both, strict=True):
            job = self.inside[slot]
            assert job is not None
            tokens.append((job, share_prefix([output.tokens for part in parts for output in part.outputs])))
        return tokens

    def partial_tokens(self) -> list[tuple[Job, list[int]]]:
        """Return what is certain of the jobs that stream, as the last burst left them."""
        tokens, self.partial = self.partial, []
        inside = set(self.inside)
        return [(job, each) for job, each in tokens if job in inside]


def share_prefix(texts: Sequence[list[int]]) -> list[int]:
    """Return the tokens that all of some texts begin with."""
    if not texts:
        return []
    first, last = min(texts), max(texts)
    count = next((i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:count]


def check_job(model: Model, job: Job) -> None:
    """Refuse a prefix that does not fit, before it is searched together with other jobs."""
    length = len(job.source) if isinstance(job.source, list) else None
    check_prefix(job.prefix, output_limit(model, length, job.options, len(job.prefix)))
