"""The engine of a worker: `add` jobs, `cancel` them, `advance`, which gives what has ended. It knows no HTTP.

Jobs go into lanes, and lanes take turns: the one that has had the least time, a request counted, goes next. So a long
document, whose sentences have a lane of their own, takes as much of the machine as one short request does. A lane that
was idle has a small credit, that of short requests each time: such a request is often answered before a long one has
its next turn.

On a GPU a lane is a captured graph with slots: one for each class of source length, for greedy search or a beam of up
to five, and for 16, 256 or 1,024 sentences, as far as they fit. All of them are captured in `warm`, within one budget
of memory; none is captured later. A turn of such a lane orders some steps. The engine waits for them in another turn,
after it has written down what had ended before; newcomers come in between the two. Whatever slots do not serve (wider
beams, sampling, coverage, n-gram blocking, groups, an output longer than there is room) is searched on the host, step
by step, in turn with the rest. On a CPU everything is.
"""

import functools
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from regard.decoding import (
    Options,
    Output,
    SearchResult,
    bursts,
    host_features,
    joining,
    length_class,
    output_limit,
    to_bfloat16,
    without_gradients,
)
from regard.errors import RegardError
from regard.models import Model
from regard.run import Run
from regard.serving.jobs import Job, Outcome, Update
from regard.serving.lanes import HostLane, Lane, SlotLane, check_job

BEAMS = (1, 5)  # rows of a slot
# Slots of a graph, for a few sentences, for many, for all: how many begin together, and bursts that are under way.
SLOTS = {16: (4, 1), 256: (16, 1), 1024: (128, 1)}
SHARES = {1: 0.25, 5: 0.75}  # of a class's memory
HOST_BUDGET = {False: 4096, True: 2048}  # source tokens × hypotheses on a CPU: of short requests, and of long ones
SLOT_BUDGET = 524_288  # on a GPU, where slots are the limit
CREDIT = 0.02  # seconds by which a lane that was idle comes before the others
SLACK = 0.01  # seconds that a lane may be ahead of another whose steps are under way: a device is never without work
STEADY = 128  # sentences in slots of several rows from which greedy requests are searched beside them
PREFIX = 64  # tokens of a prefix that fit into a slot
BUDGET = {False: 4096, True: 8192}  # source tokens × hypotheses that wait: of short requests, and of long ones
BATCH = {False: 2048, True: 4096}  # of one batch
Key = tuple[bool, Options]
shared_options = functools.lru_cache(1024)(joining.shared_options)  # once for all jobs of a request


class Engine:
    """Searches with one model on one device, in lanes; for one thread."""

    def __init__(self, model: Model, longest: int, precision: str = "auto", memory: float = 0.5):
        """`longest` is the most tokens of a source; `memory` the share of a GPU's free memory that slots may take."""
        self.model, self.longest, self.memory = model, longest, memory
        self.device = next(model.parameters()).device
        self.without_gradients = type(without_gradients(model, self.device))  # settled here for every turn
        self.half = self.device.type == "cuda" and precision != "fp32"
        self.slots: dict[tuple[int, int], list[SlotLane]] = {}  # by class of length and rows, the smallest first
        self.host: dict[tuple[bool, Options], HostLane] = {}
        self.lanes: dict[Job, Lane] = {}  # of the jobs that are here
        self.busy: dict[Lane, None] = {}  # lanes that have something to do
        self.costs = {False: 0, True: 0}  # of the jobs here, of short requests and of long ones
        self.waited = 0.0  # when the last steps that were ordered had been taken
        self.ended: list[Update] = []  # without a search
        self.captures = 0

    # ---- before the first request

    def warm(self, example: Any) -> None:
        """Capture every graph, and search once for an example; nothing, where there is none."""
        if example is None:
            return
        if self.device.type == "cuda" and self.model.replays and isinstance(example, list):
            with torch.no_grad():
                self.capture_all()
        for beam in BEAMS:
            self.add([Job(example, Options(beam=beam, longest=3))])
            while self.active:
                self.advance()

    def capture_all(self) -> None:
        """Capture the graphs of all classes of length."""
        model = to_bfloat16(self.model) if self.half else self.model
        classes = sorted({length_class(length) for length in range(1, self.longest + 1)})
        room = torch.cuda.mem_get_info(self.device)[0] * self.memory / len(classes)
        for keys in classes:
            for beam in BEAMS:
                self.slots[keys, beam] = self.capture(model, keys, beam, int(room * SHARES[beam]))

    def capture(self, model: Model, keys: int, beam: int, room: int) -> list[SlotLane]:
        """The graphs of a class of length, of more and more slots as far as there is memory for."""
        size = output_limit(model, keys, Options(), 0) + 1
        lanes: list[SlotLane] = []
        for count, (together, depth) in SLOTS.items():
            left = max(1, room - sum(lane.slots.bytes for lane in lanes))
            slots = bursts.BurstSearch(model, count, keys, size, beam, PREFIX, left, together, depth)
            self.captures += 2 + depth
            if lanes and slots.count <= lanes[-1].count:
                break
            lanes.append(SlotLane(slots))
        return lanes

    # ---- jobs

    @property
    def active(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.busy) or bool(self.ended)

    def room(self, bulk: bool) -> int:
        """What jobs of short requests, or of long ones, may cost that are added now."""
        return (SLOT_BUDGET if self.slots else HOST_BUDGET[bulk]) - self.costs[bulk]

    def add(self, jobs: Iterable[Job]) -> None:
        """Take jobs in."""
        jobs = list(jobs)
        for number, job in enumerate(jobs):
            if isinstance(job.source, list) and not job.source:
                self.ended.append((job, SearchResult([Output([], 0.0, 0.0, True)])))
                continue
            lane = self.lane_of(job, len(jobs) - number)
            self.lanes[job] = lane
            self.costs[job.bulk] += job.cost
            if not lane.members:  # it begins with as much time as the others had
                least = min((each.time for each in self.busy if each is not lane), default=0.0) - CREDIT
                lane.time = max(lane.time, least) if job.bulk else least
                self.busy[lane] = None
            lane.members[job.request] += 1
            lane.streaming += job.streams
            lane.short += not job.bulk
            lane.add(job)

    def lane_of(self, job: Job, together: int = 1) -> Lane:
        """The slots that serve a job, which comes with others, or the lane on the host.

        Two graphs in turn are slower than one. So sentences of long requests go to a graph that runs, if all have room
        there that come with them, greedy ones beside a beam's many; and those of short ones to the smallest, unless
        others of their kind are elsewhere.
        """
        if self.in_slots(job):
            keys, greedy = length_class(len(job.source)), job.options.beam == 1
            lanes = self.slots[keys, 1 if greedy else BEAMS[-1]]
            if job.bulk:
                running = [lane for lane in reversed(lanes[1:]) if lane.members]
                if greedy and not running:
                    running = [lane for lane in self.slots[keys, BEAMS[-1]] if lane.sentences >= STEADY]
                return next((lane for lane in (*running, *lanes[1:]) if lane.room >= together), lanes[-1])
            shared = [lane for lane in lanes[1:] if lane.short and lane.room > 0]
            return next((lane for lane in (*shared, *lanes) if lane.room > 0), lanes[-1])
        key = job.bulk, shared_options(job.options)
        return self.host.setdefault(key, HostLane(self.model, self.device))

    def in_slots(self, job: Job) -> bool:
        """Whether a job is one for slots."""
        options = job.options
        if not self.slots or not isinstance(job.source, list) or host_features(options) or options.beam > BEAMS[-1]:
            return False
        if options.precision not in ("auto", "bf16" if self.half else "fp32") or len(job.prefix) > PREFIX:
            return False
        lanes = self.slots.get((length_class(len(job.source)), 1))
        if lanes is None:
            return False
        if job.prefix:
            try:
                check_job(self.model, job)
            except Exception:  # the host says what is wrong with it
                return False
        return output_limit(self.model, len(job.source), options, len(job.prefix)) < lanes[0].slots.size

    def cancel(self, job: Job) -> None:
        """Let a job go: its place is free with the next step."""
        if job in self.lanes:
            lane = self.remove(job)
            with self.without_gradients():
                lane.cancel(job)
            self.close(lane)

    def remove(self, job: Job) -> Lane:
        """Count a job no more; the lane that it was in."""
        lane = self.lanes.pop(job)
        self.costs[job.bulk] -= job.cost
        lane.streaming -= job.streams
        lane.short -= not job.bulk
        lane.members[job.request] -= 1
        if not lane.members[job.request]:
            del lane.members[job.request]
        return lane

    def advance(self) -> list[Update]:
        """The next lane's turn; what has ended, and what is certain so far of what streams."""
        updates, self.ended = self.ended, []
        lane, orders = self.next_turn()
        if lane is None:
            return updates
        start, requests = time.perf_counter(), max(1, len(lane.members))
        with self.without_gradients():
            if orders:
                updates += self.end(lane, lane.advance())
                lane.time += 0.0 if lane.ordered else (time.perf_counter() - start) / requests
            else:
                for each in list(self.busy):  # while the device is busy
                    updates += self.end(each, each.write())
                    self.close(each)
                began = max(lane.ordered[0], self.waited)  # it takes one lane's steps after another's
                lane.wait()
                self.waited = time.perf_counter()
                lane.time += (self.waited - began) / requests
            if lane.streaming:
                updates += lane.written()
        if not lane.members:
            self.close(lane)
        return updates

    def next_turn(self) -> tuple[Lane | None, bool]:
        """The lane whose turn it is, and whether it is to order steps, or to wait for those that it has ordered.

        It is the one that has had the least time; where that has ordered enough, another that is hardly ahead of it. If
        there is none of these, what was ordered first is waited for. Beside short requests, long ones order one burst
        at a time, and none between two of a short one whose turn it is: that would wait for it on the device.
        """
        lanes = sorted(self.busy, key=lambda lane: lane.time)
        short = any(lane.short for lane in lanes)
        for lane in lanes:
            behind = short and not lane.short
            if lane.time > lanes[0].time + (0.0 if behind and lanes[0].short else SLACK):
                continue
            if lane.takes_orders and not (behind and lane.ordered):
                return lane, True
        return min(lanes, key=lambda lane: lane.ordered[0] if lane.ordered else math.inf, default=None), False

    def end(self, lane: Lane, ended: Iterable[tuple[Job, Outcome]]) -> list[Update]:
        """Count jobs no more that have ended; those that were cancelled in the meantime are nobody's."""
        updates: list[Update] = []
        for job, outcome in ended:
            if self.lanes.get(job) is lane:
                self.remove(job)
                updates.append((job, outcome))
        return updates

    def close(self, lane: Lane) -> None:
        """Let a lane rest that has nothing to do; one of the host goes: there may be one for every sort of options."""
        if not lane.members and not lane.ordered:
            self.busy.pop(lane, None)
            for key in [key for key, each in self.host.items() if each is lane]:
                del self.host[key]


class BatchEngine:
    """Searches with a run's engine; for one thread."""

    captures = 0

    def __init__(self, run: Run):
        self.run = run
        self.lanes: dict[Job, Key] = {}  # of the jobs that are here
        self.waiting: dict[Key, dict[Job, None]] = {}  # whose turn it is comes first
        self.costs = {False: 0, True: 0}  # of the jobs here, of short requests and of long ones

    def warm(self, example: Any) -> None:
        """Search once for an example, so that the first request does not wait for what is done once."""
        if example is not None:
            self.run.engine.search([example], Options(beam=1, longest=3))

    @property
    def active(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.lanes)

    def room(self, bulk: bool) -> int:
        """What jobs of short requests, or of long ones, may cost that are added now."""
        return BUDGET[bulk] - self.costs[bulk]

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
        batch: list[Job] = []
        left = BATCH[key[0]]
        for job in line:  # one at least
            left -= job.cost
            if batch and left < 0:
                break
            batch.append(job)
        updates: list[Update] = list(zip(batch, self.search(batch, key[1]), strict=True))
        for job in batch:
            self.remove(job)
        return updates

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
