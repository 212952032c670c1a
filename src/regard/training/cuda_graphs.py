"""Replayed updates: a GPU repeats its work on one batch for the next of the same shape, without the host.

A training step is a thousand small orders to the GPU, and giving them takes longer than carrying them out. A CUDA graph
holds them all, from the forward pass to the optimiser's step, and is ordered as a whole. Whatever differs between two
updates of a shape is read from memory: the batch, what its loss is divided by, the learning rate, and the seed of
torch's generator, which is written anew before each replay. So a replayed update is the eager one, bit by bit.

A shape's first updates are eager: they are its warm-up, and a shape that comes but once costs nothing else. Which
shapes are captured, how many, and when it is given up, `Replay` decides on the host; `CudaCapture` alone is of the GPU.
"""

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Stack, stack_features
from regard.kernels import Plan, table
from regard.machine import is_out_of_memory, pause_garbage_collection

OFTEN = 2  # the coming of a shape at which it is captured
MOST_GRAPHS = 96  # batches of other shapes are trained on eagerly


# ---- whether updates are replayed


UPDATE = table.Table("update", table.Row(name="replayed", devices=("cuda",)), table.Row(name="eager", features=None))


def plan_updates(device: torch.device, world: int, accumulate: int, objective: object) -> Plan:
    """Return how the updates of a run can be made, and why not faster."""
    needs = []
    if world > 1:
        needs.append(f"updates of {world} processes")
    if accumulate > 1:
        needs.append(f"updates with training.accumulate = {accumulate}")
    if not getattr(objective, "replays", False):
        needs.append("the updates of an objective that does not set `replays`")
    return UPDATE.plan(table.Request(device.type, (), tuple(needs)))


def not_replayed(plan: Plan) -> str:
    """Name what keeps updates from being replayed."""
    if plan.request.device != "cuda":
        return "updates on a CPU or an Apple GPU"
    return table.listing(UPDATE.rows[0].missing(plan.request))


def describe_path(plan: Plan, form: str | None, objective: nn.Module, replayed: bool, compiled: bool) -> str:
    """Describe updates in one line: how batches lie, whether stacks are fused and updates replayed, and why not."""
    parts = [form or "padded"]
    if form == "packed" and any(isinstance(module, Stack) for module in objective.modules()):
        why = stack_features(objective)
        parts.append(f"block by block, because of {table.listing(why)}" if why else "fused")
    if replayed:
        parts.append("replayed")
    elif plan.request.device == "cuda":
        eager = "training.replay is false" if plan.name == "replayed" else f"{not_replayed(plan)} are not replayed"
        parts.append(f"eager ({eager})")
    else:
        parts.append("eager")
    return ", ".join([*parts, "compiled"] if compiled else parts)


class CaptureError(Exception):
    """An update that could not be captured; `ended`: the capture ended in order."""

    def __init__(self, problem: BaseException, ended: bool):
        super().__init__(str(problem))
        self.problem, self.ended = problem, ended


class Replay:
    """The captured updates of a run, one for each shape of batch that came often enough."""

    def __init__(self, capture: "CudaCapture", most: int = MOST_GRAPHS, often: int = OFTEN):
        self.capture, self.most, self.often = capture, most, often
        self.graphs: dict[Any, CudaGraph] = {}
        self.counts: Counter[Any] = Counter()  # how often a shape came before it was captured
        self.on = True
        self.problem: BaseException | None = None  # why a capture failed

    def __call__(self, batch: Any) -> bool:
        """Replay the update on this batch, still on the host, or return that it must run eagerly."""
        shape = getattr(batch, "shape", None)
        if not self.on or shape is None:
            return False
        if shape not in self.graphs:
            self.counts[shape] += 1
            if self.counts[shape] < self.often or len(self.graphs) >= self.most or not self.add(shape, batch):
                return False
        self.graphs[shape].replay(batch)
        return True

    def add(self, shape: Any, batch: Any) -> bool:
        """Capture the update on a batch of this shape; return whether that succeeded."""
        try:
            self.graphs[shape] = self.capture(batch)
            return True
        except CaptureError as error:
            problem, ended = error.problem, error.ended
        if ended and is_out_of_memory(problem):
            self.most = len(self.graphs)  # what is captured fits; nothing else is tried
            return False
        # An eager update will say what is wrong, unless it is that this cannot be captured.
        self.problem = problem
        self.forget()
        if not ended:
            self.capture.repair()
        return False

    def forget(self) -> None:
        """Free the memory of all graphs; there will be no others."""
        self.on = False
        self.graphs.clear()


def batch_tensors(batch: Any) -> list[Tensor]:
    """List all tensors of a batch, in the order of its fields."""
    assert is_dataclass(batch)
    values = (getattr(batch, field.name) for field in fields(batch))
    return [each for each in values if isinstance(each, Tensor)]


# ---- on a GPU


class CudaGraph:
    """An update as a CUDA graph, and the memory that it reads its batch from."""

    def __init__(self, graph: torch.cuda.CUDAGraph, batch: Any):
        self.graph, self.batch = graph, batch

    def replay(self, batch: Any) -> None:
        """Write the batch to where the graph reads it, and launch the graph."""
        for mine, source in zip(batch_tensors(self.batch), batch_tensors(batch), strict=True):
            mine.copy_(source, non_blocking=True)
        self.graph.replay()


class CudaCapture:
    """A capturer of updates as CUDA graphs, all in one pool of memory."""

    def __init__(self, work: Callable[[Any], None], device: torch.device):
        """Take `work`, an update on a batch on the device, which waits for nothing and leaves no gradients.

        What it changes (weights, moments, sums) has its memory before it is called here.
        """
        self.work, self.device = work, device
        self.pool: Any = None
        self.stream: torch.cuda.Stream | None = None

    def __call__(self, batch: Any) -> CudaGraph:
        """Capture an update on a batch of this shape without running it, or raise a CaptureError."""
        if self.stream is None:
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(self.device)
        there = batch.to(self.device)
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self.device)
        torch.cuda.synchronize(self.device)
        problem: BaseException | None = None
        ended = False
        # An older run's graph, freed inside, would end the capture.
        with pause_garbage_collection(), torch.cuda.stream(self.stream):
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
        if problem is not None:
            raise CaptureError(problem, ended)
        return CudaGraph(graph, there)

    def repair(self) -> None:
        """Tell torch's generator and its allocator that the capture is over, which a failed one does not.

        The generator gets a new state, equal to the old one. A graph would still read the old one: there must be none.
        """
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        old, new = torch.cuda.default_generators[index], torch.Generator(self.device)
        new.manual_seed(old.initial_seed())
        new.set_offset(old.get_offset())
        old.graphsafe_set_state(new.graphsafe_get_state())
        with contextlib.suppress(RuntimeError):  # where it did end
            torch._C._cuda_endAllocateToPool(index, self.pool)


@contextlib.contextmanager
def forbid_waits(device: torch.device) -> Iterator[None]:
    """Make an operation that waits for the GPU a RuntimeError, inside the block: a capture would fail at it."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():  # that this does not see everything
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
