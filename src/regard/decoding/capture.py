"""CUDA graphs of a search: its steps, and the reading of sentences, captured once and replayed.

`CudaSteps` and a captured `SlotWriter` are all that is of the GPU in a replayed search; `PlainSteps`, and a writer
without a graph, stand for them elsewhere.
"""

# s slots · n tokens
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch

from regard.data.tokenizer import PAD, UNKNOWN
from regard.decoding.device_search import DeviceSearch
from regard.kernels.garbage import pause_garbage_collection
from regard.models.contract import Tokens

__all__ = ["CudaSteps", "PlainSteps", "SlotWriter", "Steps", "capture"]


class Steps(Protocol):
    """Steps of a `DeviceSearch`, ordered from the host."""

    def run(self, count: int) -> None:
        """Order so many steps."""

    def read_active(self) -> Callable[[], list[bool]]:
        """Order a look at which slots are not done; calling what this gives waits for it."""


class PlainSteps:
    """Steps that are done as they are called, where there are no graphs."""

    def __init__(self, device_search: DeviceSearch):
        self.device_search = device_search

    def run(self, count: int) -> None:
        """Run `count` steps."""
        for _ in range(count):
            self.device_search.advance()

    def read_active(self) -> Callable[[], list[bool]]:
        """Read which slots are not done."""
        active: list[bool] = self.device_search.active.tolist()
        return lambda: active


class CudaSteps:
    """Steps that are captured once, `burst` of them together, and replayed."""

    def __init__(self, device_search: DeviceSearch, device: torch.device, burst: int = 1):
        self.device_search, self.burst = device_search, burst
        self.flags = torch.zeros(device_search.count, dtype=torch.bool, pin_memory=True)

        def steps() -> None:
            for _ in range(burst):
                device_search.advance()

        self.graph = capture(steps, device)

    def run(self, count: int) -> None:
        """Order the graph until so many steps are done, or a few more."""
        for _ in range(-(-count // self.burst)):
            self.graph.replay()

    def read_active(self) -> Callable[[], list[bool]]:
        """Copy the flags to the host behind the steps; what this gives waits for them."""
        self.flags.copy_(self.device_search.active, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()

        def read() -> list[bool]:
            copied.synchronize()
            flags: list[bool] = self.flags.tolist()
            return flags

        return read


class SlotWriter:
    """Sentences that are read, and whose states are put into slots, by one graph: a few at a time cost little then."""

    def __init__(self, device_search: DeviceSearch, keys: int, together: int):
        self.device_search, self.together = device_search, together
        device = device_search.tokens.device
        self.ids = torch.full((together, keys), UNKNOWN, device=device)
        self.lengths = torch.full((together,), keys, device=device)
        self.slots = torch.zeros(together, dtype=torch.long, device=device)
        self.graph = capture(self.work, device) if device.type == "cuda" else None

    def work(self) -> None:
        """Read the sentences, and put their states into the slots. All shapes are fixed."""
        model, rows = self.device_search.model, self.device_search.rows
        memory = model.encode(Tokens.of(self.ids, self.lengths))
        self.device_search.state.put_(self.slots, model.start(memory, rows, 1))

    def write(self, slots: list[int], sources: Sequence[Sequence[int]]) -> None:
        """Put sentences into slots; where they are fewer than the graph writes, the first is written again."""
        rest = self.together - len(slots)
        lengths = [len(source) for source in sources]
        numbers = np.full((self.together, self.ids.shape[1] + 2), PAD, np.int64)
        for row, source in enumerate((*sources, *([sources[0]] * rest))):
            numbers[row, : len(source)] = source
        numbers[:, -2] = [*lengths, *([lengths[0]] * rest)]
        numbers[:, -1] = [*slots, *([slots[0]] * rest)]
        given = torch.from_numpy(numbers).to(self.ids.device)
        self.ids.copy_(given[:, :-2])
        self.lengths.copy_(given[:, -2])
        self.slots.copy_(given[:, -1])
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()


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
