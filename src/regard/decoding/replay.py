"""Search on a GPU: the step of `DeviceSearch` is captured once in a CUDA graph and replayed; the host says nothing.

Sentences of like length are searched in the same places. Between two bursts of steps the host looks which are done,
takes what was found there and puts waiting sentences in their place; it writes results down while the GPU goes on.
Products are in bfloat16 (`precision`), with a copy of the model's weights; scores of tokens, and sums, in float32.
"""

# s places · r rows of each · b sentences that begin · n tokens
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.state import buffers
from regard.data.tokenizer import UNKNOWN
from regard.decoding.device_search import DeviceSearch, Ended
from regard.decoding.half_precision import to_bfloat16
from regard.decoding.limits import Constraints, check_prefixes, output_limit
from regard.decoding.options import Options
from regard.decoding.outputs import Output, SearchResult, check_outputs
from regard.decoding.sources import tokens_of
from regard.kernels.garbage import uncollected
from regard.models.contract import Model

__all__ = ["FEW", "Replay", "serves"]

ROWS = 10240  # hypotheses that are stepped together, at most
PLACES = 4096  # sentences, at most
FEW = 32  # sentences: for fewer a graph is not worth its capture
BURST = 4  # steps between two looks at what is done
CROWD = 8  # places are filled again when one in this many is done
SHARE = 4  # of the memory that is free, one part in this many is for states
CLASSES = (16, 32, 64, 128, 256, 512, 1024)  # source tokens up to here share their places
GRAPHS = 4  # that are kept for the next call
WIDER = 4  # times as many places as are needed: an earlier graph is better than a new one up to here


def serves(options: Options) -> bool:
    """Whether a search with these options never needs the host."""
    return not (options.sample or options.coverage_penalty or options.no_repeat or options.groups > 1)


class Replay:
    """Searches with one model on its GPU; graphs are kept from call to call, and threads take turns."""

    def __init__(self, model: Model, rows: int = ROWS):
        self.model, self.most_rows, self.turn = model, rows, threading.Lock()
        self.half: tuple[Any, Model] | None = None  # with the weights it was made of
        self.graphs: dict[Any, Graph] = {}

    @torch.no_grad()
    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Options,
        prefixes: Sequence[Sequence[int]] | None = None,
        budget: int | None = None,
    ) -> list[SearchResult]:
        """What `search` finds for each of the sentences; `budget` limits source tokens, counted a hypothesis."""
        if prefixes is not None:
            self.check(sources, options, prefixes)
        with self.turn, torch.cuda.device_of(next(self.model.parameters())):
            return self.in_turn(sources, options, prefixes, budget)

    def in_turn(
        self,
        sources: Sequence[Sequence[int]],
        options: Options,
        prefixes: Sequence[Sequence[int]] | None,
        budget: int | None,
    ) -> list[SearchResult]:
        """Class of length by class of length."""
        answers: list[SearchResult | None] = [None] * len(sources)
        groups: dict[int, list[int]] = {}
        for i, source in enumerate(sources):
            if len(source):
                groups.setdefault(class_of(len(source)), []).append(i)
        for keys, group in sorted(groups.items(), reverse=True):
            group.sort(key=lambda i: -len(sources[i]))
            begun = None if prefixes is None else [prefixes[i] for i in group]
            rows = self.most_rows if budget is None else max(options.beam, budget // (keys + 1))
            found = self.grouped([sources[i] for i in group], keys, options, begun, rows)
            for i, each in zip(group, found, strict=True):
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

    def grouped(
        self,
        sources: list[Sequence[int]],
        keys: int,
        options: Options,
        prefixes: list[Sequence[int]] | None,
        rows: int,
    ) -> list[SearchResult]:
        """The sentences of a class, the longest first."""
        model = self.weights(options.precision != "fp32")
        device = next(model.parameters()).device
        size, prefix = room(model, keys, options, prefixes), max((len(each) for each in prefixes or ()), default=0)
        graph = self.graph(model, len(sources), keys, size, prefix, options, rows)
        return graph.run(sources, prefixes, device)

    def weights(self, half: bool) -> Model:
        """The model, or its copy in bfloat16, made anew when the weights have changed."""
        if not half:
            return self.model
        now = [(parameter.data_ptr(), parameter._version) for parameter in self.model.parameters()]
        if self.half is None or self.half[0] != now:
            self.graphs.clear()
            self.half = now, to_bfloat16(self.model)
        return self.half[1]

    def graph(
        self, model: Model, count: int, keys: int, size: int, prefix: int, options: Options, rows: int
    ) -> "Graph":
        """The graph of places that fit: an earlier one, if it is not much too large, or a new one."""
        most = max(1, min(rows // options.beam, PLACES, 1 << (count - 1).bit_length()))
        same = (id(model), keys, size, prefix, options)
        for key, graph in self.graphs.items():
            if key[:-1] == same and most <= key[-1] <= WIDER * most:
                return graph
        while len(self.graphs) >= GRAPHS:
            del self.graphs[next(iter(self.graphs))]
        self.graphs[*same, most] = Graph(model, most, keys, size, prefix, options)
        return self.graphs[*same, most]


class Graph:
    """Places, and their step captured."""

    def __init__(self, model: Model, most: int, keys: int, size: int, prefix: int, options: Options):
        self.model, self.options, self.size = model, options, size
        device = next(model.parameters()).device
        memory = model.encode(tokens_of([[UNKNOWN] * keys], device))
        each = sum(
            buffer.numel() * buffer.element_size()
            for state in [model.start(memory, options.beam, size)]
            for part in (*state.sentence.values(), *state.row.values())
            for buffer in buffers(part)
        )
        free, _ = torch.cuda.mem_get_info(device)
        self.places = DeviceSearch(model, memory, max(1, min(most, free // SHARE // each)), size, options, prefix)
        self.flags = torch.zeros(self.places.count, dtype=torch.bool, pin_memory=True)
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):  # kernels are compiled, and workspaces made, before the capture
            for _ in range(2):
                self.places.advance()
        torch.cuda.current_stream(device).wait_stream(side)
        self.captured = torch.cuda.CUDAGraph()
        with uncollected(), torch.cuda.graph(self.captured, capture_error_mode="thread_local"):
            self.places.advance()

    def run(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]] | None, device: torch.device
    ) -> list[SearchResult]:
        """All sentences, through the places that there are."""
        answers: list[Any] = [None] * len(sources)
        waiting = deque(range(len(sources)))
        inside: list[int | None] = [None] * self.places.count
        left = [0] * self.places.count  # steps until a place is done at the latest
        free = list(range(self.places.count))
        written: Written | None = None
        while waiting or len(free) < len(inside):
            if waiting:
                begin = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
                taken, free = free[: len(begin)], free[len(begin) :]
                steps = self.put(taken, [sources[i] for i in begin], pick(prefixes, begin), device)
                for place, i, most in zip(taken, begin, steps, strict=True):
                    inside[place], left[place] = i, most
            enough = 1 if not waiting else max(1, len(inside) // CROWD)
            done: list[int] = []
            while len(done) < enough:
                latest = max(steps for steps, i in zip(left, inside, strict=True) if i is not None)
                burst = max(1, min(BURST, latest))
                for _ in range(burst):
                    self.captured.replay()
                self.flags.copy_(self.places.going, non_blocking=True)
                looked = torch.cuda.Event()
                looked.record()
                if written is not None:  # while the GPU is busy
                    written.into(answers, self.options.nbest)
                    written = None
                looked.synchronize()
                left = [steps - burst for steps in left]
                going = self.flags.tolist()
                done = [place for place, i in enumerate(inside) if i is not None and not going[place]]
            written = Written(self.places.ended(index_of(done, device)), [inside[place] for place in done])
            for place in done:
                inside[place] = None
            free = sorted(free + done)
        if written is not None:
            written.into(answers, self.options.nbest)
        return answers

    def put(
        self,
        places: list[int],
        sources: list[Sequence[int]],
        prefixes: list[Sequence[int]] | None,
        device: torch.device,
    ) -> list[int]:
        """Begin with sentences in these places; how many steps each may take."""
        batch = tokens_of(sources, device)
        lengths = [len(prefix) for prefix in prefixes] if prefixes is not None else [0] * len(sources)
        pairs = zip(sources, lengths, strict=True)
        most = [output_limit(self.model, len(source), self.options, length) for source, length in pairs]
        begun = None
        if prefixes is not None and any(prefixes):
            begun = tokens_of([*prefixes], device, fill=-1).ids
        self.places.put(index_of(places, device), self.model.encode(batch), torch.tensor(most, device=device), begun)
        return [steps + 1 for steps in most]


@dataclass
class Written:
    """What was found, on its way to the host."""

    ended: Ended
    numbers: list[int | None]

    def __post_init__(self) -> None:
        parts = (part.to("cpu", non_blocking=True) for part in vars(self.ended).values())
        self.ended, self.there = Ended(*parts), torch.cuda.Event()
        self.there.record()

    def into(self, answers: list[Any], nbest: int) -> None:
        """Put it among the answers."""
        self.there.synchronize()
        with uncollected():
            for i, found in zip(self.numbers, self.ended.found(nbest), strict=True):
                assert i is not None
                # A hypothesis whose score is no number is dropped on the device, where nothing can be asked.
                check_outputs(found.outputs)
                answers[i] = found


def index_of(places: list[int], device: torch.device) -> Tensor | slice:
    """Places as an index: neighbours, as they are when all are done at once, are a slice."""
    if places[-1] - places[0] + 1 == len(places):
        return slice(places[0], places[-1] + 1)
    return torch.tensor(places, device=device)


def class_of(length: int) -> int:
    """The most tokens of the sentences that are searched with one of this many."""
    return next((bound for bound in CLASSES if length <= bound), length)


def pick(prefixes: Sequence[Sequence[int]] | None, numbers: list[int]) -> list[Sequence[int]] | None:
    """The prefixes of some sentences."""
    return None if prefixes is None else [prefixes[i] for i in numbers]


def room(model: Model, keys: int, options: Options, prefixes: list[Sequence[int]] | None) -> int:
    """Steps that the sentences of a class may take, END's among them."""
    return output_limit(model, keys, options, max(map(len, prefixes or [()]))) + 1
