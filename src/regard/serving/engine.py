"""The engine of a worker: `add` jobs, `cancel` them, `advance`, which gives what has ended. It knows no HTTP.

Jobs go into batches, and batches take turns: the one that has had the least time, a request counted, goes next. So a
long document, whose sentences have a batch of their own, takes as much of the machine as one short request does. A
batch that was idle has a small credit, that of short requests each time: such a request is often answered before a long
one has its next turn.

On a GPU a batch is a captured graph with slots: one for each class of source length, for greedy search or a beam of up
to five, and for 16, 256 or 1,024 sentences, as far as they fit. All of them are captured in `warm`, within one budget
of memory; none is captured later. A turn of such a batch orders some steps. The engine waits for them in another turn,
after it has written down what had ended before; newcomers come in between the two. Whatever slots do not serve (wider
beams, sampling, coverage, n-gram blocking, groups, an output longer than there is room) is searched on the host, step
by step, in turn with the rest. On a CPU everything is.
"""

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from regard.decoding import (
    BurstSearch,
    Options,
    Output,
    SearchResult,
    host_features,
    length_class,
    output_limit,
    shared_options,
    to_bfloat16,
    without_gradients,
)
from regard.models import Model
from regard.serving.jobs import Job, Outcome, Update
from regard.serving.running_batches import HostBatch, RunningBatch, SlotBatch, WholeBatch, check_job

BEAMS = (1, 5)  # rows of a slot
# Slots of a graph, for a few sentences, for many, for all: how many begin together, and bursts that are under way.
SLOTS = {16: (4, 1), 256: (16, 1), 1024: (128, 1)}
SHARES = {1: 0.25, 5: 0.75}  # of a class's memory
HOST_BUDGET = {False: 4096, True: 2048}  # source tokens × hypotheses on a CPU: of short requests, and of long ones
SLOT_BUDGET = 524_288  # on a GPU, where slots are the limit
CREDIT = 0.02  # seconds by which a batch that was idle comes before the others
SLACK = 0.01  # seconds that a batch may be ahead of another whose steps are under way: a device is never without work
STEADY = 128  # sentences in slots of several rows from which greedy requests are searched beside them
PREFIX = 64  # tokens of a prefix that fit into a slot
WHOLE_BUDGET = {False: 4096, True: 8192}  # the same, where an engine of another library searches whole batches
WHOLE_BATCH = {False: 2048, True: 4096}  # of one of them
common_options = functools.lru_cache(1024)(shared_options)  # once for all jobs of a request


class Engine:
    """Searches with one model on one device, in batches; for one thread."""

    def __init__(
        self,
        model: Model,
        longest: int,
        precision: str = "auto",
        memory: float = 0.5,
        search: Callable[..., Sequence[SearchResult]] | None = None,
    ):
        """`longest` is the most tokens of a source; `memory` the share of a GPU's free memory that slots may take.

        `search` is that of another library's engine, which takes whole batches and computes in place of the model.
        """
        self.model, self.longest, self.memory, self.search = model, longest, memory, search
        self.device = next(model.parameters()).device
        self.without_gradients = type(without_gradients(model, self.device))  # settled here for every turn
        self.half = self.device.type == "cuda" and precision != "fp32"
        self.slots: dict[tuple[int, int], list[SlotBatch]] = {}  # by class of length and rows, the smallest first
        self.host: dict[tuple[bool, Options], RunningBatch] = {}
        self.batches: dict[Job, RunningBatch] = {}  # of the jobs that are here
        self.busy: dict[RunningBatch, None] = {}  # batches that have something to do
        self.costs = {False: 0, True: 0}  # of the jobs here, of short requests and of long ones
        self.waited = 0.0  # when the last steps that were ordered had been taken
        self.ended: list[Update] = []  # without a search
        self.captures = 0

    # ---- before the first request

    @torch.no_grad()
    def warm(self, example: Any) -> None:
        """Capture every graph, and search once for an example; nothing, where there is none."""
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
        """Capture the graphs of a class of length, of more and more slots as far as there is memory for."""
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
        """Whether there is anything to do."""
        return bool(self.busy) or bool(self.ended)

    def room(self, bulk: bool) -> int:
        """Return what jobs of short requests, or of long ones, may cost that are added now."""
        budget = HOST_BUDGET if self.search is None else WHOLE_BUDGET
        return (SLOT_BUDGET if self.slots else budget[bulk]) - self.costs[bulk]

    def add(self, jobs: Iterable[Job]) -> None:
        """Take jobs in."""
        jobs = list(jobs)
        for number, job in enumerate(jobs):
            if isinstance(job.source, list) and not job.source:
                self.ended.append((job, SearchResult([Output([], 0.0, 0.0, True)])))
                continue
            batch = self.batch_of(job, len(jobs) - number)
            self.batches[job] = batch
            self.costs[job.bulk] += job.cost
            if not batch.members:  # it begins with as much time as the others had
                least = min((each.time for each in self.busy if each is not batch), default=0.0) - CREDIT
                batch.time = max(batch.time, least) if job.bulk else least
                self.busy[batch] = None
            batch.members[job.request] += 1
            batch.streaming += job.streams
            batch.short += not job.bulk
            batch.add(job)

    def batch_of(self, job: Job, together: int = 1) -> RunningBatch:
        """Choose the slots that serve a job, which comes with others, or the batch on the host.

        Two graphs in turn are slower than one. So sentences of long requests go to a graph that runs, if all have room
        there that come with them, greedy ones beside a beam's many; and those of short ones to the smallest, unless
        others of their kind are elsewhere.
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
        """Return whether a job is one for slots."""
        options = job.options
        if not self.slots or not isinstance(job.source, list) or host_features(options) or options.beam > BEAMS[-1]:
            return False
        if options.precision not in ("auto", "bf16" if self.half else "fp32") or len(job.prefix) > PREFIX:
            return False
        batches = self.slots.get((length_class(len(job.source)), 1))
        if batches is None:
            return False
        if job.prefix:
            try:
                check_job(self.model, job)
            except Exception:  # the host says what is wrong with it
                return False
        return output_limit(self.model, len(job.source), options, len(job.prefix)) < batches[0].slots.size

    def cancel(self, job: Job) -> None:
        """Let a job go: its place is free with the next step."""
        if job in self.batches:
            batch = self.remove(job)
            with self.without_gradients():
                batch.cancel(job)
            self.close(batch)

    def remove(self, job: Job) -> RunningBatch:
        """Count a job no more; the batch that it was in."""
        batch = self.batches.pop(job)
        self.costs[job.bulk] -= job.cost
        batch.streaming -= job.streams
        batch.short -= not job.bulk
        batch.members[job.request] -= 1
        if not batch.members[job.request]:
            del batch.members[job.request]
        return batch

    def advance(self) -> list[Update]:
        """Take the next batch's turn; return what has ended, and what is certain so far of what streams."""
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
                began = max(batch.ordered[0], self.waited)  # it takes one batch's steps after another's
                batch.wait()
                self.waited = time.perf_counter()
                batch.time += (self.waited - began) / requests
            if batch.streaming:
                updates += batch.partial_tokens()
        if not batch.members:
            self.close(batch)
        return updates

    def next_turn(self) -> tuple[RunningBatch | None, bool]:
        """Choose the batch whose turn it is, and whether it orders steps, or waits for those that it has ordered.

        It is the one that has had the least time; where that has ordered enough, another that is hardly ahead of it. If
        there is none of these, what was ordered first is waited for. Beside short requests, long ones order one burst
        at a time, and none between two of a short one whose turn it is: that would wait for it on the device.
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
        """Count jobs no more that have ended; those that were cancelled in the meantime are nobody's."""
        updates: list[Update] = []
        for job, outcome in ended:
            if self.batches.get(job) is batch:
                self.remove(job)
                updates.append((job, outcome))
        return updates

    def close(self, batch: RunningBatch) -> None:
        """Let a batch rest that has nothing to do; one of the host goes: there may be one for every sort of options."""
        if not batch.members and not batch.ordered:
            self.busy.pop(batch, None)
            for key in [key for key, each in self.host.items() if each is batch]:
                del self.host[key]
