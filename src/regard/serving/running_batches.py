"""Batches of a worker: sentences that are decoded together, and that new sentences may join midway.

A worker's `Engine` owns the batches: `add` jobs, `cancel` them, and `advance`, which returns finished jobs. The engine
knows nothing of HTTP. Its batches take turns: the batch that has used the least time per request goes next. So a long
document, whose sentences have a batch of their own, takes as much of the machine as one short request. A batch that was
idle starts with a small credit, and a batch of short requests gets it each time: a short request is often answered
before a long one has its next turn.

A `HostBatch` runs a search step by step from the host and supports all options; new sentences join the running search.
A `WholeBatch` passes whole batches to another library's engine, and no sentence joins them. A `SlotBatch` is for a GPU:
a captured graph with slots, which new sentences take as others finish. There is one for each class of source length,
for greedy search or a beam of up to five, and for 16, 256 or 1,024 sentences, as far as memory allows. `warm` captures
all of them within one memory budget. A turn of such a batch launches some steps. In another turn, after writing the
results of earlier steps, the engine waits for them; new sentences come in between the two. Slots do not support wider
beams, sampling, coverage, n-gram blocking, groups, or an output longer than the slot: such jobs run step by step on the
host, in turn with the rest. On a CPU all jobs do.
"""

import functools
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from regard.decoding import (
    WRITES,
    BurstSearch,
    HostCopy,
    Hypotheses,
    Options,
    Output,
    SearchResult,
    SentenceSearch,
    StepSearch,
    can_join,
    check_outputs,
    check_prefix,
    host_features,
    join_searches,
    length_class,
    output_limit,
    shared_options,
    to_bfloat16,
    tokens_of,
    without_gradients,
)
from regard.errors import RegardError
from regard.machine import pause_garbage_collection
from regard.models import Model, Pictures, Tokens
from regard.serving.jobs import Job, Outcome, Update

CROWD = 8  # new jobs start once there is one for this many running jobs
PATIENCE = 0.03  # seconds that a new job waits for others at most
BEAMS = (1, 5)  # rows of a slot
# Slots of a graph, for a few sentences, for many, for all: sentences written to it at once, and bursts in flight.
SLOTS = {16: (4, 1), 256: (16, 1), 1024: (128, 1)}
SHARES = {1: 0.25, 5: 0.75}  # of the memory of a length class, by beam
HOST_BUDGET = {False: 4096, True: 2048}  # source tokens × hypotheses on a CPU: for short requests, and for long ones
SLOT_BUDGET = 524_288  # the same on a GPU, where slots are the limit
CREDIT = 0.02  # seconds of advantage over the other batches for a batch that was idle
SLACK = 0.01  # seconds that a batch may be ahead of one whose steps are in flight, so that the device has work
STEADY = 128  # sentences in slots of several rows, from which on greedy requests join them
PREFIX = 64  # tokens of a prefix that fit in a slot
WHOLE_BUDGET = {False: 4096, True: 8192}  # like HOST_BUDGET, for another library's engine
WHOLE_BATCH = {False: 2048, True: 4096}  # largest cost of one of its batches
Ended = tuple[Job, Outcome]
common_options = functools.lru_cache(1024)(shared_options)  # computed once for all jobs of a request


class RunningBatch:
    """Sentences that are decoded together, in turn with other batches."""

    def __init__(self) -> None:
        self.waiting: list[Job] = []
        self.time = 0.0  # seconds that it has used, divided by its number of requests
        self.members: Counter[Any] = Counter()  # its requests, each with the number of its jobs in this batch
        self.ordered: deque[float] = deque()  # launch times of the steps that are in flight
        self.streaming = 0  # jobs that stream their tokens
        self.short = 0  # jobs of short requests

    @property
    def takes_orders(self) -> bool:
        """Whether the batch can launch steps now, without waiting for earlier ones."""
        return True

    def add(self, job: Job) -> None:
        """Queue a job, which starts at the next step."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Stop a job, and free its slot or rows."""
        if job in self.waiting:
            self.waiting.remove(job)
        else:
            self.stop(job)

    def stop(self, job: Job) -> None:
        """Stop a running job."""

    def advance(self) -> list[Ended]:
        """Run or launch some steps; return the finished jobs with their outcomes."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the steps in flight."""

    def write(self) -> list[Ended]:
        """Return the finished jobs that have not been returned yet."""
        return []

    def partial_tokens(self) -> list[tuple[Job, list[int]]]:
        """Return the tokens so far of each streaming job: those that all of its hypotheses share."""
        return []


class HostBatch(RunningBatch):
    """Runs searches step by step, on any device, with options that have the same `shared_options`."""

    def __init__(self, model: Model, device: torch.device):
        super().__init__()
        self.model, self.device = model, device
        self.searches: list[StepSearch] = []
        self.alone: set[StepSearch] = set()  # searches that no sentence may join
        self.under_way: dict[SentenceSearch, Job] = {}

    def advance(self) -> list[Ended]:
        """Start the waiting jobs, and run one step of each search."""
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
        """Return whether to start the waiting jobs now: each start costs a pass over their sources, and a step."""
        patience = time.perf_counter() - self.waiting[0].added > PATIENCE
        return patience or len(self.waiting) >= max(1, len(self.under_way) // CROWD)

    def begin(self, jobs: Sequence[Job], alone: bool = False) -> list[Ended]:
        """Start one search for some jobs, or one for each of them if that fails."""
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
        """Create a search for some jobs."""
        source: Tokens | Pictures
        if isinstance(jobs[0].source, list):
            source = tokens_of([job.source for job in jobs], self.device)
        else:
            source = Pictures(torch.stack([torch.as_tensor(job.source) for job in jobs]).to(self.device))
        prefixes = [job.prefix for job in jobs] if any(job.prefix for job in jobs) else None
        options = [job.options for job in jobs]
        return StepSearch(self.model, source, options[0], prefixes, each=options)

    def step(self, under_way: StepSearch) -> list[Ended]:
        """Run one step of a search. If it fails, search each of its sentences alone: most are not to blame."""
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
        """Remove a search."""
        self.searches.remove(under_way)
        self.alone.discard(under_way)

    def join(self) -> None:
        """Merge all searches that can be merged with the first."""
        first = next((each for each in self.searches if each not in self.alone), None)
        for each in list(self.searches):
            if first is not None and each is not first and each not in self.alone and can_join(first, each):
                join_searches(first, each)
                self.searches.remove(each)

    def stop(self, job: Job) -> None:
        """Stop a job; its rows leave at the next step."""
        for each in self.searches:
            for sentence in each.sentences:
                if self.under_way.get(sentence) is job:
                    del self.under_way[sentence]
                    each.stop(sentence)
                    if not any(other in self.under_way for other in each.sentences):
                        self.remove(each)
                    return

    def partial_tokens(self) -> list[tuple[Job, list[int]]]:
        """Return the tokens that all hypotheses of each streaming sentence share."""
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
    """Sentences with the same options for another library's engine, which decodes whole batches."""

    def __init__(self, search: Callable[..., Sequence[SearchResult]], most: int):
        """`most` is the largest cost of one batch."""
        super().__init__()
        self.search, self.most = search, most

    def advance(self) -> list[Ended]:
        """Decode the waiting jobs, as many as fit in one batch, at least one."""
        count = max(1, sum(cost <= self.most for cost in itertools.accumulate(job.cost for job in self.waiting)))
        jobs, self.waiting = self.waiting[:count], self.waiting[count:]
        return list(zip(jobs, self.search_together(jobs), strict=True))

    def search_together(self, jobs: Sequence[Job]) -> Sequence[Outcome]:
        """Decode jobs together, or each alone if the engine refuses one of them."""
        try:
            prefixes = [list(job.prefix) for job in jobs] if any(job.prefix for job in jobs) else None
            return self.search([job.source for job in jobs], jobs[0].options, prefixes=prefixes)
        except RegardError as error:
            return [error] if len(jobs) == 1 else [each for job in jobs for each in self.search_together([job])]
        except Exception as error:  # a fault of the engine fails this batch alone
            return [error] * len(jobs)


class SlotBatch(RunningBatch):
    """Slots of a device's search, for one class of source length and one number of rows.

    A turn launches a burst of steps and does not wait for it: results of the previous burst are written while the
    device is busy.
    """

    def __init__(self, slots: BurstSearch):
        super().__init__()
        self.slots, self.count = slots, slots.count
        self.inside: list[Job | None] = [None] * self.count
        self.free = list(range(self.count))
        self.first = [0] * self.count  # the burst in which the job of a slot starts
        self.burst = 0  # the next one to wait for
        self.unwritten: tuple[list[Job], Hypotheses] | None = None  # finished jobs, and their hypotheses
        self.partial: list[tuple[Job, list[int]]] = []

    @property
    def active(self) -> bool:
        """Whether jobs wait, run, or have finished without being returned."""
        return bool(self.waiting) or len(self.free) < self.count or self.unwritten is not None

    @property
    def takes_orders(self) -> bool:
        """Whether the batch has work, and may launch another burst before the last one ends."""
        return len(self.ordered) < self.slots.depth and self.active

    @property
    def sentences(self) -> int:
        """The number of jobs in a slot or waiting for one."""
        return self.count - self.room

    @property
    def room(self) -> int:
        """The number of slots that no job has or waits for."""
        return len(self.free) - len(self.waiting)

    def advance(self) -> list[Ended]:
        """Fill slots, launch a burst, and return the finished jobs."""
        if self.waiting and self.free:
            self.fill()
        if len(self.free) < self.count:
            self.slots.order()
            self.ordered.append(time.perf_counter())
        return self.write()

    def wait(self) -> None:
        """Wait for the oldest burst in flight, and free the slots of finished jobs."""
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
        """Return the finished jobs with their results."""
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
        """Start waiting jobs: as many as there are free slots, and as can be written between two bursts."""
        count = min(len(self.free), WRITES * self.slots.together)
        jobs, self.waiting = self.waiting[:count], self.waiting[count:]
        slots, self.free = self.free[: len(jobs)], self.free[len(jobs) :]
        self.slots.put(slots, *([getattr(job, name) for job in jobs] for name in ("source", "options", "prefix")))
        now = time.perf_counter()
        for slot, job in zip(slots, jobs, strict=True):
            self.inside[slot], self.first[slot], job.begun = job, self.burst + len(self.ordered), now

    def stop(self, job: Job) -> None:
        """Stop a job, and free its slot; a finished job has none."""
        if job in self.inside:
            slot = self.inside.index(job)
            self.slots.stop(slot)
            self.release([slot])

    def release(self, slots: list[int]) -> None:
        """Free slots; jobs take the lowest numbers first."""
        for slot in slots:
            self.inside[slot] = None
        self.free = sorted(self.free + slots)

    def share_tokens(self, copy: HostCopy, slots: Iterable[int]) -> list[tuple[Job, list[int]]]:
        """Return the tokens that all hypotheses of each streaming sentence share."""
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
        """Return the tokens so far of each streaming job, as of the last burst."""
        tokens, self.partial = self.partial, []
        inside = set(self.inside)
        return [(job, each) for job, each in tokens if job in inside]


def share_prefix(texts: Sequence[list[int]]) -> list[int]:
    """Return the longest common prefix of some token lists."""
    if not texts:
        return []
    first, last = min(texts), max(texts)
    count = next((i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:count]


# ---- the engine


class Engine:
    """Decodes with one model on one device, in batches; not thread-safe."""

    def __init__(
        self,
        model: Model,
        longest: int,
        precision: str = "auto",
        memory: float = 0.5,
        search: Callable[..., Sequence[SearchResult]] | None = None,
    ):
        """`longest` is the most tokens of a source; `memory` is the share of free GPU memory that slots may take.

        `search` is that of another library's engine, which takes whole batches and replaces the model.
        """
        self.model, self.longest, self.memory, self.search = model, longest, memory, search
        self.device = next(model.parameters()).device
        self.without_gradients = type(without_gradients(model, self.device))  # chosen once for all turns
        self.half = self.device.type == "cuda" and precision != "fp32"
        self.slots: dict[tuple[int, int], list[SlotBatch]] = {}  # by length class and rows, the fewest slots first
        self.host: dict[tuple[bool, Options], RunningBatch] = {}
        self.batches: dict[Job, RunningBatch] = {}  # of each job in the engine
        self.busy: dict[RunningBatch, None] = {}  # batches with work to do
        self.costs = {False: 0, True: 0}  # of all jobs in the engine, of short requests and of long ones
        self.waited = 0.0  # when the last awaited steps had ended
        self.ended: list[Update] = []  # empty sources, which need no search
        self.captures = 0

    # ---- before the first request

    @torch.no_grad()
    def warm(self, example: Any) -> None:
        """Capture all graphs, and decode an example with each beam; do nothing without an example."""
        if example is None:
            return
        if self.device.type == "cuda" and self.model.replays and isinstance(example, list):
            model = to_bfloat16(self.model) if self.half else self.model
            classes = sorted({length_class(length) for length in range(1, self.longest + 1)})
            room = torch.cuda.mem_get_info(self.device)[0] * self.memory / len(classes)
            for keys, beam in itertools.product(classes, BEAMS):
                self.slots[keys, beam] = self.capture(model, keys, beam, int(room * SHARES[beam]))
        for beam in BEAMS:
            self.add([Job(example, Options(beam=beam, longest=3))])
            while self.active:
                self.advance()

    def capture(self, model: Model, keys: int, beam: int, room: int) -> list[SlotBatch]:
        """Capture the graphs of a length class, with more and more slots as far as memory allows."""
        size = output_limit(model, keys, Options(), 0) + 1
        batches: list[SlotBatch] = []
        for count, (together, depth) in SLOTS.items():
            left = max(1, room - sum(batch.slots.bytes for batch in batches))
            slots = BurstSearch(model, count, keys, size, beam, PREFIX, left, together, depth)
            self.captures += 2 + depth
            if batches and slots.count <= batches[-1].count:
                break
            batches.append(SlotBatch(slots))
        return batches

    # ---- jobs

    @property
    def active(self) -> bool:
        """Whether a batch has work, or outcomes wait to be reported."""
        return bool(self.busy) or bool(self.ended)

    def room(self, bulk: bool) -> int:
        """Return how much more jobs of short requests (or of long ones, if `bulk`) may cost in total."""
        budget = HOST_BUDGET if self.search is None else WHOLE_BUDGET
        return (SLOT_BUDGET if self.slots else budget[bulk]) - self.costs[bulk]

    def add(self, jobs: Iterable[Job]) -> None:
        """Add jobs to their batches."""
        jobs = list(jobs)
        for number, job in enumerate(jobs):
            if isinstance(job.source, list) and not job.source:
                self.ended.append((job, SearchResult([Output([], 0.0, 0.0, True)])))
                continue
            batch = self.batch_of(job, len(jobs) - number)
            self.batches[job] = batch
            self.costs[job.bulk] += job.cost
            if not batch.members:  # it starts with as much time as the others have used
                least = min((each.time for each in self.busy if each is not batch), default=0.0) - CREDIT
                batch.time = max(batch.time, least) if job.bulk else least
                self.busy[batch] = None
            batch.members[job.request] += 1
            batch.streaming += job.streams
            batch.short += not job.bulk
            batch.add(job)

    def batch_of(self, job: Job, together: int = 1) -> RunningBatch:
        """Choose the batch for a job: slots, or a batch on the host. `together` counts the jobs that come with it.

        Two graphs in turn are slower than one. So sentences of a long request go to a running graph with room for all
        of them; greedy ones may join a beam's graph with many sentences. Those of a short request go to the graph with
        the fewest slots, unless other short requests run in a larger one.
        """
        if self.in_slots(job):
            keys, greedy = length_class(len(job.source)), job.options.beam == 1
            batches = self.slots[keys, 1 if greedy else BEAMS[-1]]
            if job.bulk:
                running = [batch for batch in reversed(batches[1:]) if batch.members]
                if greedy and not running:
                    running = [batch for batch in self.slots[keys, BEAMS[-1]] if batch.sentences >= STEADY]
                return next((batch for batch in (*running, *batches[1:]) if batch.room >= together), batches[-1])
            shared = [batch for batch in batches[1:] if batch.short and batch.room > 0]
            return next((batch for batch in (*shared, *batches) if batch.room > 0), batches[-1])
        key = job.bulk, common_options(job.options) if self.search is None else job.options
        if key not in self.host:
            host = HostBatch(self.model, self.device)
            self.host[key] = host if self.search is None else WholeBatch(self.search, WHOLE_BATCH[job.bulk])
        return self.host[key]

    def in_slots(self, job: Job) -> bool:
        """Return whether slots support a job."""
        options = job.options
        if not self.slots or not isinstance(job.source, list) or host_features(options) or options.beam > BEAMS[-1]:
            return False
        if options.precision not in ("auto", "bf16" if self.half else "fp32") or len(job.prefix) > PREFIX:
            return False
        batches = self.slots.get((length_class(len(job.source)), 1))
        if batches is None:
            return False
        limit = output_limit(self.model, len(job.source), options, len(job.prefix))
        try:
            check_prefix(job.prefix, limit)
        except RegardError:  # the host reports the error
            return False
        return limit < batches[0].slots.size

    def cancel(self, job: Job) -> None:
        """Stop a job; its slot or rows are free from the next step."""
        if job in self.batches:
            batch = self.remove(job)
            with self.without_gradients():
                batch.cancel(job)
            self.close(batch)

    def remove(self, job: Job) -> RunningBatch:
        """Forget a job, and return its batch."""
        batch = self.batches.pop(job)
        self.costs[job.bulk] -= job.cost
        batch.streaming -= job.streams
        batch.short -= not job.bulk
        batch.members[job.request] -= 1
        if not batch.members[job.request]:
            del batch.members[job.request]
        return batch

    def advance(self) -> list[Update]:
        """Run the next batch's turn; return the finished jobs, and the tokens so far of streaming ones."""
        updates, self.ended = self.ended, []
        batch, orders = self.next_turn()
        if batch is None:
            return updates
        start, requests = time.perf_counter(), max(1, len(batch.members))
        with self.without_gradients():
            if orders:
                if ended := batch.advance():
                    updates += self.end(batch, ended)
                batch.time += 0.0 if batch.ordered else (time.perf_counter() - start) / requests
            else:
                for each in list(self.busy):  # while the device is busy
                    updates += self.end(each, each.write())
                    self.close(each)
                began = max(batch.ordered[0], self.waited)  # the device runs one batch's steps after another's
                batch.wait()
                self.waited = time.perf_counter()
                batch.time += (self.waited - began) / requests
            if batch.streaming:
                updates += batch.partial_tokens()
        if not batch.members:
            self.close(batch)
        return updates

    def next_turn(self) -> tuple[RunningBatch | None, bool]:
        """Choose the batch for this turn, and whether it launches steps or waits for those in flight.

        It is the batch that has used the least time; if that has enough steps in flight, another that is hardly ahead
        of it. If no batch can launch steps, the engine waits for those launched first. Next to short requests, long
        ones launch one burst at a time, and none between two bursts of a short request whose turn it is, as it would
        have to wait.
        """
        batches = sorted(self.busy, key=lambda batch: batch.time)
        short = any(batch.short for batch in batches)
        for batch in batches:
            behind = short and not batch.short
            if batch.time > batches[0].time + (0.0 if behind and batches[0].short else SLACK):
                continue
            if batch.takes_orders and not (behind and batch.ordered):
                return batch, True
        return min(batches, key=lambda batch: batch.ordered[0] if batch.ordered else math.inf, default=None), False

    def end(self, batch: RunningBatch, ended: Iterable[tuple[Job, Outcome]]) -> list[Update]:
        """Forget finished jobs, and return their outcomes, except for jobs cancelled in the meantime."""
        updates: list[Update] = []
        for job, outcome in ended:
            if self.batches.get(job) is batch:
                self.remove(job)
                updates.append((job, outcome))
        return updates

    def close(self, batch: RunningBatch) -> None:
        """Mark a batch without jobs as idle; delete it if it is on the host, where every set of options has its own."""
        if not batch.members and not batch.ordered:
            self.busy.pop(batch, None)
            for key in [key for key, each in self.host.items() if each is batch]:
                del self.host[key]
