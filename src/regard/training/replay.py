"""Updates that are replayed: what a GPU did for one batch, it does again for the next of its shape, without being told.

A training step is a thousand small orders to the GPU, and giving them takes longer than carrying them out. A CUDA graph
holds them all, from the forward pass to the optimiser's step, and is ordered as a whole. Whatever differs between two
updates of a shape is read from memory: the batch, what its loss is divided by, the learning rate, and the seed of
torch's generator, which is written anew before each replay. So a replayed update is the eager one, bit by bit.

A shape's first updates are eager: they are its warm-up, and a shape that comes but once costs nothing else.
"""

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from regard.kernels.garbage import uncollected
from regard.training.memory import out_of_memory

__all__ = ["Replay", "unsynchronised"]

OFTEN = 2  # the coming of a shape at which it is captured
MOST = 96  # graphs; batches of other shapes are trained on eagerly


class Replay:
    """The graphs of a run, one for each shape of batch that came often enough; all in one pool of memory."""

    def __init__(self, work: Callable[[Any], None], device: torch.device, most: int = MOST, often: int = OFTEN):
        """`work(batch)` is an update on a batch that is on the device: it waits for nothing, and leaves no gradients.

        What it changes (weights, moments, sums) has its memory before it is called here.
        """
        self.work, self.device, self.most, self.often = work, device, most, often
        self.graphs: dict[Any, tuple[torch.cuda.CUDAGraph, Any]] = {}
        self.seen: Counter[Any] = Counter()
        self.pool: Any = None
        self.stream: torch.cuda.Stream | None = None
        self.on = True
        self.problem: BaseException | None = None  # why a capture failed

    def __call__(self, batch: Any) -> bool:
        """Replay the update on this batch, on the host still, or say that it is to be done eagerly."""
        shape = getattr(batch, "shape", None)
        if not self.on or shape is None:
            return False
        if shape not in self.graphs:
            self.seen[shape] += 1
            if self.seen[shape] < self.often or len(self.graphs) >= self.most or not self.capture(shape, batch):
                return False
        graph, there = self.graphs[shape]
        for mine, given in zip(tensors(there), tensors(batch), strict=True):
            mine.copy_(given, non_blocking=True)
        graph.replay()
        return True

    def capture(self, shape: Any, batch: Any) -> bool:
        """Take down what an update on a batch of this shape is, without doing it; whether that went well."""
        if self.stream is None:
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(self.device)
        there = batch.to(self.device)
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self.device)
        torch.cuda.synchronize(self.device)
        problem: BaseException | None = None
        ended = False
        with uncollected(), torch.cuda.stream(self.stream):  # an older run's graph, freed inside, would end it
            # Another thread loads and pins batches meanwhile, which concerns this one only.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                self.work(there)
            except RuntimeError as error:
                problem = error.with_traceback(None)  # which would hold on to every tensor that did fit
            try:
                graph.capture_end()
                ended = True
            except RuntimeError as error:
                problem = problem or error
        current.wait_stream(self.stream)
        if problem is None:
            self.graphs[shape] = graph, there
            return True
        if ended and out_of_memory(problem):
            self.most = len(self.graphs)  # what is captured fits; nothing else is tried
            return False
        # An eager update will say what is wrong, unless it is that this cannot be captured.
        self.problem = problem
        self.forget()
        if not ended:
            mend(self.device, self.pool)
        return False

    def forget(self) -> None:
        """Free the memory of all graphs; there will be no others."""
        self.on = False
        self.graphs.clear()


def tensors(batch: Any) -> list[Tensor]:
    """All tensors of a batch, in the order of its fields."""
    assert is_dataclass(batch)
    found = (getattr(batch, field.name) for field in fields(batch))
    return [each for each in found if isinstance(each, Tensor)]


@contextlib.contextmanager
def unsynchronised() -> Iterator[None]:
    """Inside, an operation that waits for the GPU is a RuntimeError: a capture would fail at it, and leave a mess."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():  # that this does not see everything
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def mend(device: torch.device, pool: Any) -> None:
    """A capture that failed leaves torch's generator and its allocator believing that it goes on: it does not.

    The generator gets a new state, equal to the old one. A graph would still read the old one: there must be none.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    old, new = torch.cuda.default_generators[index], torch.Generator(device)
    new.manual_seed(old.initial_seed())
    new.set_offset(old.get_offset())
    old.graphsafe_set_state(new.graphsafe_get_state())
    with contextlib.suppress(RuntimeError):  # where it did end
        torch._C._cuda_endAllocateToPool(index, pool)
