"""Search on a GPU: a CUDA graph captures the step of `DeviceSearch` once and replays it without the host.

Sentences of similar length are searched in the same slots. Between two bursts of steps the host checks which slots are
done, collects their hypotheses and fills them with waiting sentences; it builds results while the GPU computes.
Products are in bfloat16 (`precision`), with a copy of the model's weights; logits and sums are in float32.

On the host, `Replay` decides which graph to reuse and which sentences share one, and `SlotQueue` which sentence comes
next. Without a GPU, `order_of` runs the steps directly.
"""

# s slots · r rows of each · b sentences that begin · n tokens
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import buffers
from regard.data import PAD, UNKNOWN
from regard.decoding.device_search import DeviceSearch, Hypotheses, SlotOptions, to_bfloat16
from regard.decoding.limits import FREE, Constraints, check_prefixes, output_limit, select_prefixes
from regard.decoding.options import Options, Output, SearchResult, check_outputs
from regard.decoding.scoring import tokens_of
from regard.machine import memory as machine_memory
from regard.machine import pause_garbage_collection
from regard.models import Model, Tokens

ROWS = 10240  # the most hypotheses per step
PLACES = 4096  # the most slots
BURST = 4  # steps between two checks for slots that are done
CROWD = 8  # refill slots when one in this many is done
SHARE = 4  # states may take one part in this many of the free memory
CLASSES = (16, 32, 64, 128, 256, 512, 1024)  # bounds of source lengths; sentences of one class share slots
GRAPHS = 4  # the number of graphs kept for the next call
WIDER = 4  # reuse a graph that has up to this many times the needed slots


class Replay:
    """Searches with one model on its device, which keep CUDA graphs between calls; a lock serialises threads."""

    def __init__(self, model: Model, rows: int = ROWS):
        self.model, self.most_rows, self.turn = model, rows, threading.Lock()
        self.half: tuple[Any, Model] | None = None  # with the addresses and versions of the weights it was copied from
        self.graphs: dict[Any, SlotSearch] = {}

    @torch.no_grad()
    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Options,
        prefixes: Sequence[Sequence[int]] | None = None,
        budget: int | None = None,
    ) -> list[SearchResult]:
        """Search for outputs for all sentences as `search` does, one class of lengths after another, longest first.

        `budget` limits the source tokens per step, counted once per hypothesis.
        """
        if prefixes is not None:
            self.check(sources, options, prefixes)
        # Allocate no object per sentence before its result: thousands would trigger the garbage collector.
        answers: list[SearchResult | None] = [None] * len(sources)
        classes: dict[int, list[int]] = {}
        for i, source in enumerate(sources):
            if len(source):
                classes.setdefault(length_class(len(source)), []).append(i)
        weight = next(self.model.parameters())
        with self.turn, torch.cuda.device_of(weight) if weight.is_cuda else contextlib.nullcontext():
            for keys, numbers in sorted(classes.items(), reverse=True):
                numbers.sort(key=lambda i: -len(sources[i]))
                begun = select_prefixes(prefixes, numbers)
                rows = self.most_rows if budget is None else max(options.beam, budget // (keys + 1))
                model = self.weights(options.precision != "fp32")
                longest = max((len(each) for each in begun or ()), default=0)
                size = output_limit(model, keys, options, longest) + 1  # steps, including END's
                graph = self.graph(model, len(numbers), keys, size, longest, options.beam, rows)
                for i, each in zip(numbers, graph.run([sources[i] for i in numbers], options, begun), strict=True):
                    answers[i] = each
        return [SearchResult([Output([], 0.0, 0.0, True)]) if each is None else each for each in answers]

    def check(self, sources: Sequence[Sequence[int]], options: Options, prefixes: Sequence[Sequence[int]]) -> None:
        """Raise an error for prefixes that are too long or have tokens outside the vocabulary."""
        pairs = [(len(source), prefix) for source, prefix in zip(sources, prefixes, strict=True) if len(source)]
        most = torch.tensor([output_limit(self.model, length, options, len(prefix)) for length, prefix in pairs])
        begun = [prefix for _, prefix in pairs]
        check_prefixes(begun, most)
        readout = getattr(self.model, "readout", None)  # an ensemble has none
        if isinstance(readout, nn.Linear):
            Constraints(most, begun).check(readout.out_features)

    def weights(self, half: bool) -> Model:
        """Return the model, or its copy in bfloat16, which is renewed after the weights have changed."""
        if not half:
            return self.model
        now = [(parameter.data_ptr(), parameter._version) for parameter in self.model.parameters()]
        if self.half is None or self.half[0] != now:
            self.graphs.clear()
            self.half = now, to_bfloat16(self.model)
        return self.half[1]

    def graph(self, model: Model, count: int, keys: int, size: int, prefix: int, beam: int, rows: int) -> "SlotSearch":
        """Return an earlier search that fits and does not have too many slots, or a new one."""
        most = max(1, min(rows // beam, PLACES, 1 << (count - 1).bit_length()))
        prefix = 1 << (prefix - 1).bit_length() if prefix else 0  # prefixes of similar length share a graph
        same = (id(model), keys, size, prefix, beam)
        for key, graph in self.graphs.items():
            if key[:-1] == same and most <= key[-1] <= WIDER * most:
                return graph
        while len(self.graphs) >= GRAPHS:
            del self.graphs[next(iter(self.graphs))]
        self.graphs[*same, most] = SlotSearch(model, most, keys, size, beam, prefix)
        return self.graphs[*same, most]


class SlotSearch:
    """A search for sentences of one class of lengths in the slots of a `DeviceSearch`, refilled as they are done.

    `keys` is the most tokens of a source, `size` the most steps of a search, and `beam` the widest beam.
    """

    def __init__(self, model: Model, most: int, keys: int, size: int, beam: int, prefix: int = 0):
        self.model, self.device = model, next(model.parameters()).device
        self.device_search, _ = allocate_slots(model, most, keys, size, beam, prefix)
        self.step = order_of(self.device_search.advance, self.device)
        cuda = self.device.type == "cuda"
        self.flags = torch.zeros(self.device_search.count, dtype=torch.bool, pin_memory=cuda)
        self.looked, self.copied = Arrival(self.device), Arrival(self.device)

    def run(
        self, sources: Sequence[Sequence[int]], options: Options, prefixes: Sequence[Sequence[int]] | None
    ) -> list[SearchResult]:
        """Search for outputs for all sentences through the slots."""
        answers: list[Any] = [None] * len(sources)
        queue = SlotQueue(len(sources), self.device_search.count)
        pending: tuple[Hypotheses, list[int]] | None = None  # hypotheses being copied to the host, and their sentences

        def write() -> None:
            """Wait for the pending hypotheses, and store their results as answers."""
            if pending is not None:
                self.copied.wait()
                with pause_garbage_collection():
                    for i, result in zip(pending[1], pending[0].results(options.nbest), strict=True):
                        # The device drops hypotheses with NaN scores without an error, so check for empty results.
                        check_outputs(result.outputs)
                        answers[i] = result

        while queue.unfinished:
            slots, numbers = queue.fill()
            if slots:
                begun = select_prefixes(prefixes, numbers)
                self.put(slots, [sources[i] for i in numbers], [options] * len(numbers), begun)
            done_slots: list[int] = []
            while len(done_slots) < queue.enough:
                for _ in range(BURST):
                    self.step()
                self.flags.copy_(self.device_search.active, non_blocking=True)
                self.looked.record()
                write()  # while the GPU is busy
                pending = None
                self.looked.wait()
                done_slots = queue.done(self.flags.tolist())
            hypotheses = self.device_search.collect(slot_index(done_slots, self.device), non_blocking=True)
            self.copied.record()
            pending = hypotheses, queue.finish(done_slots)
        write()
        return answers

    def put(
        self,
        slots: list[int],
        sources: Sequence[Sequence[int]],
        options: Sequence[Options],
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Start searches for sentences in these slots, each with its own options."""
        lengths = [len(prefix) for prefix in prefixes] if prefixes is not None else [0] * len(sources)
        each = zip(sources, options, lengths, strict=True)
        most = [output_limit(self.model, len(source), option, length) for source, option, length in each]
        begun = None
        if prefixes is not None and any(prefixes):
            begun = tokens_of([*prefixes], self.device, fill=-1).ids
        limits = SlotOptions.of(options, most, self.device)
        memory = self.model.encode(tokens_of(sources, self.device))
        self.device_search.put(slot_index(slots, self.device), memory, limits, begun)


class SlotQueue:
    """A queue of sentences, with the slot of each sentence in progress."""

    def __init__(self, sentences: int, slots: int):
        self.waiting = deque(range(sentences))
        self.inside: list[int | None] = [None] * slots
        self.free = list(range(slots))

    @property
    def unfinished(self) -> bool:
        """Return whether a sentence is waiting or in a slot."""
        return bool(self.waiting) or len(self.free) < len(self.inside)

    @property
    def enough(self) -> int:
        """Return how many slots must be done before they are refilled; 1 if no sentence is waiting."""
        return 1 if not self.waiting else max(1, len(self.inside) // CROWD)

    def fill(self) -> tuple[list[int], list[int]]:
        """Assign waiting sentences to free slots, and return both."""
        numbers = [self.waiting.popleft() for _ in range(min(len(self.free), len(self.waiting)))]
        slots, self.free = self.free[: len(numbers)], self.free[len(numbers) :]
        for slot, i in zip(slots, numbers, strict=True):
            self.inside[slot] = i
        return slots, numbers

    def done(self, active: list[bool]) -> list[int]:
        """Return the slots that hold a sentence and are not `active`."""
        return [slot for slot, i in enumerate(self.inside) if i is not None and not active[slot]]

    def finish(self, slots: list[int]) -> list[int]:
        """Free these slots, and return their sentences."""
        numbers = [i for slot in slots if (i := self.inside[slot]) is not None]
        for slot in slots:
            self.inside[slot] = None
        self.free = sorted(self.free + slots)
        return numbers


# ---- sizes


def allocate_slots(
    model: Model, most: int, keys: int, size: int, beam: int, prefix: int, room: int | None = None
) -> tuple[DeviceSearch, int]:
    """Return a search with up to `most` slots, and the number of bytes of its states.

    The states take at most `room` bytes and at most a fixed share of the free memory.
    """
    device = next(model.parameters()).device
    memory = model.encode(tokens_of([[UNKNOWN] * keys], device))
    state = model.start(memory, beam, size)
    parts = (*state.sentence.values(), *state.row.values())
    each = sum(buffer.numel() * buffer.element_size() for part in parts for buffer in buffers(part))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else machine_memory()
    count = count_slots(most, each, free)
    if room is not None:
        count = max(1, min(count, room // each))
    return DeviceSearch(model, memory, count, size, beam, prefix), count * each


def count_slots(most: int, each: int, free: int | None) -> int:
    """Return the number of slots, at `each` bytes per slot: `most`, or as many as the share of free memory holds."""
    return most if free is None else max(1, min(most, free // SHARE // each))


def slot_index(slots: list[int], device: torch.device) -> Tensor | slice:
    """Return an index of slots: a slice if they are adjacent, as when all are done at once, or a tensor."""
    if slots[-1] - slots[0] + 1 == len(slots):
        return slice(slots[0], slots[-1] + 1)
    return torch.tensor(slots, device=device)


def length_class(length: int) -> int:
    """Return the upper bound of the class of lengths that `length` belongs to; beyond the last class, `length`."""
    return next((bound for bound in CLASSES if length <= bound), length)


# ---- graphs


class Arrival:
    """A CUDA event that tells when the work queued so far, such as copies to the host, is done; on a CPU a no-op."""

    def __init__(self, device: torch.device):
        self.event = torch.cuda.Event() if device.type == "cuda" else None

    def record(self) -> None:
        """Record the event after all work queued so far."""
        if self.event is not None:
            self.event.record()

    def wait(self) -> None:
        """Wait for the last recorded event."""
        if self.event is not None:
            self.event.synchronize()


def order_of(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return a function that runs `work`: on a GPU, the replay of a CUDA graph that this call captures.

    `work` runs twice before the capture, so that kernels are compiled and workspaces allocated.
    """
    if device.type != "cuda":
        return work
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with pause_garbage_collection(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay


# ---- sentences that arrive a few at a time: one graph each for reading, stepping and copying to the host

# s slots · r rows of each · t steps · b sentences that start together
PARTS = ("total", "step", "scores", "log_probs", "lengths", "ends", "natural", "parents", "words")
WRITES = 4  # the most replays that read sentences between two bursts; other sentences wait for the next burst
# The numbers of a sentence, stored after its tokens and its prefix.
OWN = ("length", "slot", "most", "shortest", "beam", "penalty")


class BurstSearch:
    """A search for sentences of one class of lengths, in slots and in bursts of steps, for a server.

    `keys` is the most tokens of a source, `size` the most steps of a search, `prefix` the most tokens of a prefix, and
    `beam` the widest beam. The states take at most `room` bytes. One replay reads up to `together` sentences, and up to
    `depth` bursts are queued on the device.
    """

    def __init__(
        self,
        model: Model,
        most: int,
        keys: int,
        size: int,
        beam: int,
        prefix: int = 0,
        room: int | None = None,
        together: int = 1,
        depth: int = 1,
    ):
        self.model, self.keys, self.size, self.together, self.depth = model, keys, size, together, depth
        self.device_search, self.bytes = allocate_slots(model, most, keys, size, beam, prefix, room)
        self.count, device = self.device_search.count, self.device_search.tokens.device
        cuda = device.type == "cuda"
        self.width = keys + prefix + 1
        self.given = torch.full((together, self.width + len(OWN)), UNKNOWN, device=device)
        self.given[:, keys : self.width] = FREE
        self.given[:, self.width :] = torch.tensor([keys, 0, 1, 0, 1, 0], device=device)
        # A pinned buffer for each read between two bursts; `depth` bursts later the device has read it.
        blank = [torch.zeros(self.given.shape, dtype=torch.long, pin_memory=cuda) for _ in range(WRITES * depth)]
        self.blanks = deque((sent, sent.numpy()) for sent in blank)
        self.copies = deque(HostCopy(self.device_search, device) for _ in range(depth))
        self.ordered: deque[HostCopy] = deque()
        self.read_sentences = order_of(self.read, device)
        self.take_steps = order_of(self.step, device)
        for copy in self.copies:
            copy.order = order_of(copy.take, device)
        self.device_search.stop(slice(None))  # the capture started a search in a slot

    # ---- work on the device, with fixed shapes

    def read(self) -> None:
        """Encode the sentences in `given`, and start their searches in their slots."""
        search, own = self.device_search, dict(zip(OWN, self.given[:, self.width :].unbind(1), strict=True))
        memory = self.model.encode(Tokens.of(self.given[:, : self.keys], own["length"]))
        penalty = own["penalty"].contiguous().view(torch.float64)
        options = SlotOptions(own["most"], own["shortest"], penalty, own["beam"])
        search.put(own["slot"], memory, options, self.given[:, self.keys : self.width])

    def step(self) -> None:
        """Take a burst of steps."""
        for _ in range(BURST):
            self.device_search.advance()

    # ---- calls from the host

    def put(
        self,
        slots: Sequence[int],
        sources: Sequence[Sequence[int]],
        options: Sequence[Options],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Start searches in these slots with the next burst, for at most `WRITES` times `together` sentences."""
        for first in range(0, len(slots), self.together):
            some = slice(first, first + self.together)
            sent, rows = self.blanks[0]
            self.blanks.rotate(-1)
            self.write(rows, slots[some], sources[some], options[some], prefixes[some])
            self.given.copy_(sent, non_blocking=True)
            self.read_sentences()

    def write(self, rows: np.ndarray, slots: Any, sources: Any, options: Any, prefixes: Any) -> None:
        """Write sentences as rows of numbers; repeat the first sentence in the rows that remain."""
        rows[:, : self.keys], rows[:, self.keys : self.width] = PAD, FREE
        for row, slot, source, option, prefix in zip(rows, slots, sources, options, prefixes, strict=False):
            row[: len(source)] = source
            row[self.keys : self.keys + len(prefix)] = prefix
            most = output_limit(self.model, len(source), option, len(prefix))
            row[self.width : -1] = len(source), slot, most, option.shortest, option.beam
            row[-1:].view(np.float64)[0] = option.length_penalty
        rows[len(slots) :] = rows[0]

    def order(self) -> None:
        """Queue a burst of steps on the device, and a copy of its results to the host."""
        copy = self.copies.popleft()
        self.ordered.append(copy)
        self.take_steps()
        copy.order()
        copy.record()

    def wait(self) -> "HostCopy":
        """Wait for the oldest queued burst, and return its copy, which is valid until the next burst is queued."""
        copy = self.ordered.popleft()
        self.copies.append(copy)
        copy.wait()
        return copy

    def stop(self, slot: int) -> None:
        """End the search in a slot at once."""
        self.device_search.stop(slice(slot, slot + 1))


class HostCopy(Arrival):
    """A copy on the host of the state of all slots after a burst."""

    def __init__(self, search: DeviceSearch, device: torch.device):
        super().__init__(device)
        cuda = device.type == "cuda"
        self.parts = {name: getattr(search, name) for name in PARTS}
        self.copies = {
            name: torch.zeros(part.shape, dtype=part.dtype, pin_memory=cuda) for name, part in self.parts.items()
        }
        self.host: dict[str, np.ndarray] = {name: copy.numpy() for name, copy in self.copies.items()}
        self.order: Callable[[], None] = self.take

    def take(self) -> None:
        """Start copying all parts, without waiting."""
        for name, part in self.parts.items():
            self.copies[name].copy_(part, non_blocking=True)

    @property
    def active(self) -> list[bool]:
        """Return for each slot whether it is not done."""
        return list(map(bool, self.host["total"].max(1) > -np.inf))

    def finished(self, slots: Sequence[int]) -> Hypotheses:
        """Return a copy of the finished hypotheses of these slots."""
        ranks = (self.host[name][slots] for name in ("scores", "log_probs", "lengths", "ends", "natural"))
        return Hypotheses(*ranks, *self.past(slots))  # type: ignore[call-arg]

    def living(self, slots: Sequence[int]) -> Hypotheses:
        """Return a copy of the unfinished hypotheses of these slots."""
        totals = self.host["total"][slots]
        steps = np.broadcast_to(self.host["step"][slots][:, None], totals.shape)
        rows = np.broadcast_to(np.arange(totals.shape[1]), totals.shape)
        return Hypotheses(totals, totals, steps, rows, np.zeros_like(totals, dtype=bool), *self.past(slots))

    def past(self, slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return a copy of the parents and words of all rows of these slots, up to the last step of any slot."""
        steps = int(self.host["step"][slots].max(initial=0)) + 1
        return self.host["parents"][slots, :steps], self.host["words"][slots, :steps]
