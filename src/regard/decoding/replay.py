"""Search on a GPU: the step of `DeviceSearch` is captured once in a CUDA graph and replayed; the host says nothing.

Sentences of like length are searched in the same slots. Between two bursts of steps the host looks which are done,
takes what was found there and puts waiting sentences in their stead; it writes results down while the GPU goes on.
Products are in bfloat16 (`precision`), with a copy of the model's weights; scores of tokens, and sums, in float32.

Which search serves again, which sentences share one, and who comes next, `Replay` and `SlotQueue` decide on the host.
Elsewhere than on a GPU steps are taken as they are ordered (`order_of`).
"""

# s slots · r rows of each · b sentences that begin · n tokens
import contextlib
import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import buffers
from regard.data import UNKNOWN
from regard.decoding.device_search import DeviceSearch, Hypotheses, SlotOptions
from regard.decoding.limits import Constraints, check_prefixes, output_limit
from regard.decoding.options import Options
from regard.decoding.outputs import Output, SearchResult, check_outputs
from regard.decoding.sources import tokens_of
from regard.kernels import table
from regard.machine import memory as machine_memory
from regard.machine import pause_garbage_collection
from regard.models import Model

ROWS = 10240  # hypotheses that are stepped together, at most
PLACES = 4096  # sentences, at most
FEW = 32  # sentences: for fewer a graph is not worth its capture
BURST = 4  # steps between two looks at what is done
CROWD = 8  # slots are filled again when one in this many is done
SHARE = 4  # of the memory that is free, one part in this many is for states
CLASSES = (16, 32, 64, 128, 256, 512, 1024)  # source tokens up to here share their slots
GRAPHS = 4  # that are kept for the next call
WIDER = 4  # times as many slots as are needed: an earlier graph is better than a new one up to here


SEARCH = table.Table(
    "search",
    table.Row(
        name="replayed",
        devices=("cuda",),
        conditions=(
            table.Condition(
                lambda request: request.sizes["sentences"] >= FEW, f"a graph pays for {FEW} sentences and more"
            ),
        ),
    ),
    table.Row(name="step by step", features=None),
    steps={"sentences": (FEW - 1,)},
)


def describe(model: Model, count: int, options: Options, device: str, trace: bool = False) -> table.Request:
    """Put a search for so many sentences into plain data."""
    needs = [*host_features(options)]
    if trace:
        needs.append("a trace")
    if not model.replays:
        needs.append("a model whose steps wait for the host")
    # Elsewhere nothing is replayed, whoever listens.
    if device == "cuda" and any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        needs.append(table.HOOKS)
    return table.Request(device, (), tuple(needs), {"sentences": count})


def host_features(options: Options) -> tuple[str, ...]:
    """What a search with these options needs of the host between two steps; nothing, where it can be replayed."""
    asked = {
        "sampling": options.sample,
        "a coverage penalty": options.coverage_penalty,
        "no_repeat": options.no_repeat,
        "groups of a beam": options.groups > 1,
    }
    return tuple(name for name, given in asked.items() if given)


class Replay:
    """Searches with one model on its device; graphs are kept from call to call, and threads take turns."""

    def __init__(self, model: Model, rows: int = ROWS):
        self.model, self.most_rows, self.turn = model, rows, threading.Lock()
        self.half: tuple[Any, Model] | None = None  # with the weights it was made of
        self.graphs: dict[Any, SlotSearch] = {}

    @torch.no_grad()
    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Options,
        prefixes: Sequence[Sequence[int]] | None = None,
        budget: int | None = None,
    ) -> list[SearchResult]:
        """Search for each of the sentences as `search` does, class of length by class of length, the longest first.

        `budget` limits source tokens, counted a hypothesis.
        """
        if prefixes is not None:
            self.check(sources, options, prefixes)
        # Nothing is made for a sentence before its result: thousands of things would set off the garbage collection.
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
                size = output_limit(model, keys, options, longest) + 1  # steps, END's among them
                graph = self.graph(model, len(numbers), keys, size, longest, options.beam, rows)
                for i, each in zip(numbers, graph.run([sources[i] for i in numbers], options, begun), strict=True):
                    answers[i] = each
        return [SearchResult([Output([], 0.0, 0.0, True)]) if each is None else each for each in answers]

    def check(self, sources: Sequence[Sequence[int]], options: Options, prefixes: Sequence[Sequence[int]]) -> None:
        """Refuse prefixes that do not fit."""
        pairs = [(len(source), prefix) for source, prefix in zip(sources, prefixes, strict=True) if len(source)]
        most = torch.tensor([output_limit(self.model, length, options, len(prefix)) for length, prefix in pairs])
        begun = [prefix for _, prefix in pairs]
        check_prefixes(begun, most)
        readout = getattr(self.model, "readout", None)  # an ensemble has none of its own
        if isinstance(readout, nn.Linear):
            Constraints(most, begun).check(readout.out_features)

    def weights(self, half: bool) -> Model:
        """The model, or its copy in bfloat16, made anew when the weights have changed."""
        if not half:
            return self.model
        now = [(parameter.data_ptr(), parameter._version) for parameter in self.model.parameters()]
        if self.half is None or self.half[0] != now:
            self.graphs.clear()
            self.half = now, to_bfloat16(self.model)
        return self.half[1]

    def graph(self, model: Model, count: int, keys: int, size: int, prefix: int, beam: int, rows: int) -> "SlotSearch":
        """A search with slots that fit: an earlier one, if it is not much too large, or a new one."""
        most = max(1, min(rows // beam, PLACES, 1 << (count - 1).bit_length()))
        prefix = 1 << (prefix - 1).bit_length() if prefix else 0  # prefixes of like length share a graph
        same = (id(model), keys, size, prefix, beam)
        for key, graph in self.graphs.items():
            if key[:-1] == same and most <= key[-1] <= WIDER * most:
                return graph
        while len(self.graphs) >= GRAPHS:
            del self.graphs[next(iter(self.graphs))]
        self.graphs[*same, most] = SlotSearch(model, most, keys, size, beam, prefix)
        return self.graphs[*same, most]


class SlotSearch:
    """Sentences of one class of length, searched in the slots of a `DeviceSearch`: as one is done, another begins.

    `keys` are the most tokens of a source, `size` the most steps of a search, and no beam is wider than `beam`.
    """

    def __init__(self, model: Model, most: int, keys: int, size: int, beam: int, prefix: int = 0):
        self.model, self.device = model, next(model.parameters()).device
        self.device_search, _ = allocate_slots(model, most, keys, size, beam, prefix)
        self.step = order_of(self.device_search.advance, self.device)
        cuda = self.device.type == "cuda"
        self.flags = torch.zeros(self.device_search.count, dtype=torch.bool, pin_memory=cuda)
        self.looked = Arrival(self.device)

    def run(
        self, sources: Sequence[Sequence[int]], options: Options, prefixes: Sequence[Sequence[int]] | None
    ) -> list[SearchResult]:
        """All sentences, through the slots that there are."""
        answers: list[Any] = [None] * len(sources)
        queue = SlotQueue(len(sources), self.device_search.count)
        pending: PendingResults | None = None
        while queue.unfinished:
            slots, numbers = queue.fill()
            if slots:
                begun = select_prefixes(prefixes, numbers)
                each = [options] * len(numbers)
                queue.begin(slots, numbers, self.put(slots, [sources[i] for i in numbers], each, begun))
            done_slots: list[int] = []
            while len(done_slots) < queue.enough:
                burst = queue.burst
                for _ in range(burst):
                    self.step()
                self.flags.copy_(self.device_search.active, non_blocking=True)
                self.looked.record()
                if pending is not None:  # while the GPU is busy
                    pending.write_to(answers, options.nbest)
                    pending = None
                self.looked.wait()
                done_slots = queue.advance(burst, self.flags.tolist())
            hypotheses = self.device_search.collect(slot_index(done_slots, self.device), non_blocking=True)
            pending = PendingResults(hypotheses, queue.finish(done_slots), self.device)
        if pending is not None:
            pending.write_to(answers, options.nbest)
        return answers

    def put(
        self,
        slots: list[int],
        sources: Sequence[Sequence[int]],
        options: Sequence[Options],
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[int]:
        """Begin with sentences in these slots, each with its own options; how many steps each may take."""
        lengths = [len(prefix) for prefix in prefixes] if prefixes is not None else [0] * len(sources)
        each = zip(sources, options, lengths, strict=True)
        most = [output_limit(self.model, len(source), option, length) for source, option, length in each]
        begun = None
        if prefixes is not None and any(prefixes):
            begun = tokens_of([*prefixes], self.device, fill=-1).ids
        limits = SlotOptions.of(options, most, self.device)
        memory = self.model.encode(tokens_of(sources, self.device))
        self.device_search.put(slot_index(slots, self.device), memory, limits, begun)
        return [steps + 1 for steps in most]


class SlotQueue:
    """A queue of sentences: which is in which slot, and which come next."""

    def __init__(self, sentences: int, slots: int):
        self.waiting = deque(range(sentences))
        self.inside: list[int | None] = [None] * slots
        self.steps_left = [0] * slots  # steps until a slot is done at the latest
        self.free = list(range(slots))

    @property
    def unfinished(self) -> bool:
        """Return whether a sentence waits, or is in a slot."""
        return bool(self.waiting) or len(self.free) < len(self.inside)

    @property
    def enough(self) -> int:
        """The number of slots that have to be done before others begin there; one, when nobody waits any more."""
        return 1 if not self.waiting else max(1, len(self.inside) // CROWD)

    @property
    def burst(self) -> int:
        """Steps until the next look: no more than the longest of the sentences may still take."""
        latest = max(steps for steps, i in zip(self.steps_left, self.inside, strict=True) if i is not None)
        return max(1, min(BURST, latest))

    def fill(self) -> tuple[list[int], list[int]]:
        """The slots that are free, and the sentences that begin there: as many of both as there are."""
        numbers = [self.waiting.popleft() for _ in range(min(len(self.free), len(self.waiting)))]
        slots, self.free = self.free[: len(numbers)], self.free[len(numbers) :]
        return slots, numbers

    def begin(self, slots: list[int], numbers: list[int], steps: list[int]) -> None:
        """Note what has begun, and how many steps it may take."""
        for slot, i, most in zip(slots, numbers, steps, strict=True):
            self.inside[slot], self.steps_left[slot] = i, most

    def advance(self, steps: int, active: list[bool]) -> list[int]:
        """The slots that are done, so many steps later."""
        self.steps_left = [each - steps for each in self.steps_left]
        return [slot for slot, i in enumerate(self.inside) if i is not None and not active[slot]]

    def finish(self, slots: list[int]) -> list[int]:
        """The sentences of these slots, which are free from now on."""
        numbers = [i for slot in slots if (i := self.inside[slot]) is not None]
        for slot in slots:
            self.inside[slot] = None
        self.free = sorted(self.free + slots)
        return numbers


# ---- results


class PendingResults:
    """Finished hypotheses on their way to the host, and the sentences that they are of."""

    def __init__(self, hypotheses: Hypotheses, numbers: list[int], device: torch.device):
        self.hypotheses, self.numbers, self.copied = hypotheses, numbers, Arrival(device)
        self.copied.record()

    def write_to(self, answers: list[Any], nbest: int) -> None:
        """Put it among the answers."""
        self.copied.wait()
        with pause_garbage_collection():
            for i, result in zip(self.numbers, self.hypotheses.results(nbest), strict=True):
                # A hypothesis whose score is no number is dropped on the device, where nothing can be asked.
                check_outputs(result.outputs)
                answers[i] = result


# ---- sizes


def allocate_slots(
    model: Model, most: int, keys: int, size: int, beam: int, prefix: int, room: int | None = None
) -> tuple[DeviceSearch, int]:
    """Make a search with up to `most` slots, and count the bytes of its states.

    They take at most `room` bytes, and no more than a share of the memory that is free.
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
    """Slots for sentences whose states take `each` bytes: `most`, or what a share of the memory that is free holds."""
    return most if free is None else max(1, min(most, free // SHARE // each))


def slot_index(slots: list[int], device: torch.device) -> Tensor | slice:
    """Slots as an index: neighbours, as they are when all are done at once, are a slice."""
    if slots[-1] - slots[0] + 1 == len(slots):
        return slice(slots[0], slots[-1] + 1)
    return torch.tensor(slots, device=device)


def length_class(length: int) -> int:
    """The most tokens of the sentences that are searched with one of this many."""
    return next((bound for bound in CLASSES if length <= bound), length)


def select_prefixes(prefixes: Sequence[Sequence[int]] | None, numbers: list[int]) -> list[Sequence[int]] | None:
    """The prefixes of some sentences."""
    return None if prefixes is None else [prefixes[i] for i in numbers]


# ---- graphs


def order_of(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A call that has some work done: on a GPU a graph's, captured now."""
    return capture(work, device).replay if device.type == "cuda" else work


class Arrival:
    """The time when what was ordered so far of a device has been done, such as copies to the host's memory."""

    def __init__(self, device: torch.device):
        self.event = torch.cuda.Event() if device.type == "cuda" else None

    def record(self) -> None:
        """Note the time of what has been ordered by now."""
        if self.event is not None:
            self.event.record()

    def wait(self) -> None:
        """Wait for what was noted last."""
        if self.event is not None:
            self.event.synchronize()


def capture(work: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph:
    """Capture work as a graph, after it was done twice: kernels are compiled, and workspaces made, before that."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with pause_garbage_collection(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


# ---- a model's copy in bfloat16, whose scores of tokens are in float32 still

# r rows · d width · v vocabulary
MULTIPLE = 16  # scores of a row are a multiple of it
MORE = 8  # columns behind a readout's weights: two are used, and products want a multiple of eight


class WideReadout(nn.Module):
    """An output projection whose scores are in float32: in bfloat16 those of likely tokens would often be equal.

    The bias is two more columns of the weights, what bfloat16 has of it and what that leaves, so that it is in the same
    product: added to the scores it would cost twice as much as they do. Rows of zeros behind the weights make a row of
    scores a multiple of sixteen: for a vocabulary of any other size the product takes three times as long.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight = linear.weight.detach().to(torch.bfloat16)
        bias = torch.zeros_like(linear.weight[:, 0]) if linear.bias is None else linear.bias.detach()
        high = bias.to(torch.bfloat16)
        more = weight.new_zeros(len(weight), MORE)
        more[:, 0], more[:, 1] = high, (bias.float() - high.float()).to(torch.bfloat16)
        rows = -len(weight) % MULTIPLE
        self.register_buffer("weight", F.pad(torch.cat([weight, more], 1), (0, 0, 0, rows)), persistent=False)
        ones = torch.zeros(MORE)
        ones[:2] = 1
        self.register_buffer("ones", ones.to(weight), persistent=False)
        self.out_features = linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        """Compute x Wᵀ + b, summed and returned in float32."""
        assert isinstance(self.ones, Tensor)
        assert isinstance(self.weight, Tensor)
        wide = torch.cat([x, self.ones.expand(*x.shape[:-1], -1)], -1).flatten(0, -2)
        if x.is_cuda:
            scores = torch.mm(wide, self.weight.t(), out_dtype=torch.float32)
        else:
            scores = wide.float() @ self.weight.t().float()
        return scores[:, : self.out_features].unflatten(0, x.shape[:-1])


def to_bfloat16(model: Model) -> Model:
    """Copy a model, with weights in bfloat16."""
    half = copy.deepcopy(model)
    wide = {
        name: WideReadout(part.readout)
        for name, part in half.named_modules()
        if isinstance(part, Model) and part.projects and isinstance(getattr(part, "readout", None), nn.Linear)
    }
    half = half.to(torch.bfloat16).eval().requires_grad_(False)
    for name, readout in wide.items():
        half.get_submodule(name).readout = readout
    for part in half.modules():
        if isinstance(part, nn.RNNBase):
            flatten(part)
    return half


def flatten(part: nn.RNNBase) -> None:
    """Put the weights side by side, as cuDNN wants them; `flatten_parameters` wrongly skips bfloat16."""
    if not part.weight_ih_l0.is_cuda or not torch._use_cudnn_rnn_flatten_weight():
        return
    from torch.backends.cudnn.rnn import get_cudnn_mode

    torch._cudnn_rnn_flatten_weight(
        part._flat_weights,  # type: ignore[arg-type]
        4 if part.bias else 2,
        part.input_size,
        get_cudnn_mode(part.mode),
        part.hidden_size,
        part.proj_size,
        part.num_layers,
        part.batch_first,
        bool(part.bidirectional),
    )
