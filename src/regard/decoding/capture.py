"""CUDA graphs of a search: its steps, captured once and replayed.

`CudaSteps` is all that is of the GPU in a replayed search; `PlainSteps` stands for it elsewhere.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from regard.decoding.device_search import DeviceSearch
from regard.kernels import pause_garbage_collection


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
    """Steps of which one is captured, and replayed."""

    def __init__(self, device_search: DeviceSearch, device: torch.device):
        self.device_search = device_search
        self.flags = torch.zeros(device_search.count, dtype=torch.bool, pin_memory=True)
        self.graph = capture(device_search.advance, device)

    def run(self, count: int) -> None:
        """Order so many steps."""
        for _ in range(count):
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
