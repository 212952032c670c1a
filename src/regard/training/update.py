"""One update: a step of the optimiser from batches, run eagerly, replayed as a CUDA graph, or in smaller parts.

All three give the same weights: a replayed update equals the eager one bit by bit, and a batch that is redone in parts
after running out of memory has the same gradient up to rounding. Values that change between updates (the learning rate,
the divisor of the losses) are in the device's memory, where a replay reads them. The sums of the losses stay there
until they are recorded, so that the host does not wait for the device.

A training step launches about a thousand small kernels, and launching them takes longer than running them. A CUDA graph
holds all launches, from the forward pass to the optimiser's step, and starts with a single one. It reads everything
that differs between two updates of a shape from memory, including the seed of torch's generator, which PyTorch writes
before each replay. The first update of a shape is eager: it warms up the capture, and a shape that occurs only once
costs nothing extra. `Replay` decides on the host which shapes to capture, how many, and when to give up; only
`CudaCapture` and `CudaGraph` use the GPU.
"""

import contextlib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.attention import Stack, call_records, stack_features
from regard.errors import ConfigError, TrainingError
from regard.kernels import mixed_precision, planning
from regard.machine import is_out_of_memory, pause_garbage_collection, wide_dtype
from regard.training.adapters import adapters_of
from regard.training.distributed import Group, gather_full, uses_bf16
from regard.training.progress import Progress
from regard.training.settings import TrainingSettings
from regard.training.task import Share, Task
from regard.training.trainer_state import Counters

T = TypeVar("T")
OFTEN = 2  # capture a shape at this occurrence
MOST_GRAPHS = 96  # further shapes stay eager


def rate_at(step: int, settings: TrainingSettings) -> float:
    r"""Return the learning rate of a step.

    `noam`: $r \cdot \min(t/w, \sqrt{w/t})$, Vaswani et al. 2017 (arXiv:1706.03762), section 5.3, but with the peak r as
    a setting instead of a function of the model's width. `cosine`: from r down to 0 at the last step (Loshchilov and
    Hutter 2017, arXiv:1608.03983). `constant`: r. All three rise linearly from 0 to r during the warm-up of w steps.
    """
    warmup, peak = settings.warmup, settings.rate
    if step <= warmup:
        return peak * step / warmup
    if settings.schedule == "noam":
        return peak * math.sqrt(warmup / step)
    if settings.schedule == "cosine":
        progress = (step - warmup) / max(1, settings.steps - warmup)
        return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return peak


# ---- whether updates are replayed


def not_replayed(device: torch.device, world: int, accumulate: int, objective: object) -> str | None:
    """Return why the updates of a run cannot be replayed, for messages, or None if they can."""
    if device.type != "cuda":
        return "updates on a CPU or an Apple GPU"
    needs = []
    if world > 1:
        needs.append(f"updates of {world} processes")
    if accumulate > 1:
        needs.append(f"updates with training.accumulate = {accumulate}")
    if not getattr(objective, "replays", False):
        needs.append("the updates of an objective that does not set `replays`")
    return planning.listing(needs) if needs else None


def describe_path(
    form: str | None, objective: nn.Module, device: torch.device, obstacle: str | None, replayed: bool, compiled: bool
) -> str:
    """Describe updates in one line: the batches' form, whether stacks are fused and updates replayed, and why not."""
    parts = [form or "padded"]
    if form == "packed" and any(isinstance(module, Stack) for module in objective.modules()):
        why = stack_features(objective)
        parts.append(f"block by block, because of {planning.listing(why)}" if why else "fused")
    why_eager = "training.replay is false" if obstacle is None else f"{obstacle} are not replayed"
    parts.append("replayed" if replayed else f"eager ({why_eager})" if device.type == "cuda" else "eager")
    return ", ".join([*parts, "compiled"] if compiled else parts)


class CaptureError(Exception):
    """The error for an update that could not be captured; `ended` says whether the capture ended properly."""

    def __init__(self, problem: BaseException, ended: bool):
        super().__init__(str(problem))
        self.problem, self.ended = problem, ended


class Replay:
    """The captured updates of a run, one per batch shape that has occurred often enough."""

    def __init__(self, capture: "CudaCapture", most: int = MOST_GRAPHS, often: int = OFTEN):
        self.capture, self.most, self.often = capture, most, often
        self.graphs: dict[Any, CudaGraph] = {}
        self.counts: Counter[Any] = Counter()  # occurrences of each shape until its capture
        self.on = True
        self.problem: BaseException | None = None  # the error of a failed capture

    def __call__(self, batch: Any) -> bool:
        """Replay the update on a batch on the host; return False if the update must run eagerly instead."""
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
            self.most = len(self.graphs)  # keep the graphs that fit, and capture no others
            return False
        # If the update itself is wrong, the eager update that follows raises the error.
        self.problem = problem
        self.forget()
        if not ended:
            self.capture.repair()
        return False

    def forget(self) -> None:
        """Free the memory of all graphs, and capture no others."""
        self.on = False
        self.graphs.clear()


def batch_tensors(batch: Any) -> list[Tensor]:
    """List all tensors of a batch, in the order of its fields."""
    assert is_dataclass(batch)
    values = (getattr(batch, field.name) for field in fields(batch))
    return [each for each in values if isinstance(each, Tensor)]


# ---- on a GPU


class CudaGraph:
    """An update as a CUDA graph, and the batch whose memory it reads."""

    def __init__(self, graph: torch.cuda.CUDAGraph, batch: Any):
        self.graph, self.batch = graph, batch

    def replay(self, batch: Any) -> None:
        """Copy the batch into the memory that the graph reads, and launch the graph."""
        for mine, source in zip(batch_tensors(self.batch), batch_tensors(batch), strict=True):
            mine.copy_(source, non_blocking=True)
        self.graph.replay()


class CudaCapture:
    """A function that captures updates as CUDA graphs, all in one memory pool."""

    def __init__(self, work: Callable[[Any], None], device: torch.device):
        """Take `work`, which runs an update on a batch on the device, never waits for the GPU, and leaves no gradients.

        All tensors that it changes (weights, moments, sums) must be allocated before a capture.
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
        # If the garbage collector freed an older run's graph here, the capture would end.
        with pause_garbage_collection(), torch.cuda.stream(self.stream):
            # thread_local: the thread that loads and pins batches must not disturb this capture.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                self.work(there)
            except RuntimeError as error:
                problem = error.with_traceback(None)  # the traceback would keep every allocated tensor alive
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
        """Tell torch's generator and allocator that the capture is over, as a failed capture does not do it.

        The generator gets a new state, equal to the old one. A graph would still read the old state, so forget all
        graphs first.
        """
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        old, new = torch.cuda.default_generators[index], torch.Generator(self.device)
        new.manual_seed(old.initial_seed())
        new.set_offset(old.get_offset())
        old.graphsafe_set_state(new.graphsafe_get_state())
        with contextlib.suppress(RuntimeError):  # raised if the allocation had ended
            torch._C._cuda_endAllocateToPool(index, self.pool)


@contextlib.contextmanager
def forbid_waits(device: torch.device) -> Iterator[None]:
    """Raise a RuntimeError inside the block for operations that wait for the GPU: a capture would fail there."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():  # torch warns that this mode does not detect every wait
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


# ---- the updates of a run


class Updater:
    """The updates of a run: the objective's parameters, their optimiser, and its steps."""

    def __init__(self, task: Task, objective: nn.Module, settings: TrainingSettings, group: Group, progress: Progress):
        self.task, self.objective, self.settings, self.group, self.progress = task, objective, settings, group, progress
        self.device = device = group.device
        self.bf16 = uses_bf16(settings, device)
        self.parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        names = {id(parameter): name for name, parameter in objective.named_parameters()}
        self.names = [names[id(parameter)] for parameter in self.parameters]
        # The fused optimiser clips and skips on the device; it supports neither sharded weights nor Apple's GPU.
        self.fused = not group.shard and device.type in ("cpu", "cuda")
        self.optimiser = torch.optim.AdamW(
            self.parameters,
            lr=settings.rate,
            betas=(settings.betas[0], settings.betas[1]),
            eps=1e-9,
            weight_decay=settings.weight_decay,
            fused=self.fused,
            capturable=self.fused and device.type == "cuda",
        )
        self.call = torch.compile(objective) if settings.compile else objective
        self.now = Counters()  # before the current update
        self.updates = 0  # updates of this process
        self.skipped = torch.zeros((), device=device)  # updates without a finite gradient, since the last read
        self.device_sums: dict[str, Tensor] = {}
        self.unread: set[str] = set()  # names of the device's sums that changed since the last read
        # On a GPU, values that change between updates are tensors, which a replay reads.
        self.count = torch.ones((), device=device)
        self.rate = torch.zeros((), device=device) if self.optimiser.defaults["capturable"] else None
        halves = self.bf16 and self.rate is not None and getattr(objective, "half_weights", False)
        # Weights with adapters are computed in each update, so they have no half-precision copies.
        adapted = {id(each.weight) for each in adapters_of(objective).values()}
        self.adapted = len(adapted) > 0
        plain = [weight for weight in objective.parameters() if id(weight) not in adapted]
        self.copies = mixed_precision.HalfCopies(plain, torch.bfloat16) if halves else None
        self.obstacle = not_replayed(device, group.world, settings.accumulate, objective)
        self.replay: Replay | None = None
        if settings.replay and self.obstacle is None:
            task.limit_shapes(self.bf16)
            self.replay = Replay(CudaCapture(self.update_on, device))
        elif settings.replay is True:
            raise ConfigError("training.replay", f"true given, but {self.obstacle} cannot be replayed")

    def path(self) -> str:
        """Describe in one line how updates are computed, and why not in a faster way."""
        form, replayed = getattr(self.task, "form", None), self.replay is not None
        return describe_path(form, self.objective, self.device, self.obstacle, replayed, self.settings.compile)

    def begin(self) -> None:
        """Prepare for replays, once the optimiser is new or restored: create AdamW's state before its first step."""
        for parameter in self.parameters if self.replay is not None else ():
            if not self.optimiser.state[parameter]:
                self.optimiser.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                }

    def __call__(self, share: Share, now: Counters) -> None:
        """Take one step of the optimiser on a share of batches; `now` holds the counters before it."""
        self.now = now
        rate = rate_at(now.step + 1, self.settings)
        for each in self.optimiser.param_groups:
            each["lr"] = rate if self.rate is None else self.rate.fill_(rate)
        self.count.fill_(share.count)
        if not self.try_replay(share):
            self.accumulate_sums(attempt_in_parts(lambda parts: self.backward(share, parts), self.redo))
            if self.group.world > 1:
                self.group.sum_gradients(self.parameters)
            self.step_optimiser()
            self.optimiser.zero_grad(set_to_none=True)
        now.sums["count"] = now.sums.get("count", 0) + share.count
        self.updates += 1

    # ---- eager

    def backward(self, share: Share, parts: int) -> dict[str, Tensor]:
        """Compute the gradients of this process's share, with each batch split into `parts`; return the sums."""
        sums: dict[str, Tensor] = {}
        for batch in share.batches:
            cut, whole = split_batch(self.task, batch, parts)
            for piece in cut:
                try:
                    losses = self.differentiate(self.task.move(piece, self.device))
                except (RuntimeError, MemoryError) as error:
                    if whole is not None and is_out_of_memory(error):
                        raise whole from None
                    raise
                for name, value in losses.items():
                    sums[name] = sums[name] + value if name in sums else value
        return sums

    def differentiate(self, batch: Any) -> dict[str, Tensor]:
        """Compute the gradients of a batch's part of the update's loss; return the sums that the objective reports."""
        copies = contextlib.nullcontext() if self.copies is None else self.copies.used()
        once = parametrize.cached() if self.adapted and not self.settings.compile else contextlib.nullcontext()
        with once, copies, torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.call(batch)
        (loss.total / self.count).backward()
        return {name: value.detach() for name, value in {"loss": loss.total, **loss.parts}.items()}

    def step_optimiser(self) -> None:
        """Take one step of the optimiser, unless the gradient is not finite; a fused one checks this on the device."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.group.shard:
            norm = gather_full(norm)
        bad = (~torch.isfinite(norm)).to(torch.float32)
        self.skipped += bad
        if not self.fused:  # this optimiser cannot skip on the device
            if not bool(bad):
                if self.settings.clip:
                    torch.nn.utils.clip_grads_with_norm_(self.parameters, self.settings.clip, norm)
                self.optimiser.step()
            return
        self.optimiser.found_inf = bad  # type: ignore[attr-defined]
        # The fused step divides every gradient by grad_scale, so clipping needs no pass of its own.
        scale = (norm / self.settings.clip).clamp(min=1.0) if self.settings.clip else torch.ones_like(norm)
        self.optimiser.grad_scale = torch.where(bad > 0, 1.0, scale).to(torch.float32)  # type: ignore[attr-defined]
        self.optimiser.step()

    def redo(self, parts: int) -> None:
        """Reset gradients and free memory before a share is retried in smaller parts."""
        if self.group.shard:
            raise TrainingError("out of memory: make training.batch_tokens smaller (sharded runs cannot redo a batch)")
        self.optimiser.zero_grad(set_to_none=True)
        if self.replay is not None:  # free the graphs' memory
            self.replay.forget()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.progress.say(f"step {self.now.step + 1}: out of memory, the batch is redone in {parts} parts")

    # ---- replayed

    def try_replay(self, share: Share) -> bool:
        """Replay the update, if a graph of the batch's shape exists or can be captured; return whether it was done."""
        if self.replay is None or not self.replay.on or call_records.has_hooks(self.objective):
            return False  # a replay runs no Python, and so would not call the hooks
        if self.updates == 1:  # the second update, when everything is compiled, shows whether a capture is possible
            return self.rehearse(self.replay, share.batches[0])
        done = self.replay(share.batches[0])
        if done:  # a replay does not run accumulate_sums
            self.unread.update(self.device_sums)
        else:  # a failed capture may leave gradients that were never computed
            self.optimiser.zero_grad(set_to_none=True)
        return done

    def rehearse(self, replay: Replay, batch: Any) -> bool:
        """Run the update under a capture's conditions; if it waits for the GPU, undo it and replay no updates."""
        cuda = self.device.type == "cuda"
        random = torch.get_rng_state(), torch.cuda.get_rng_state(self.device) if cuda else None
        try:
            there = self.task.move(batch, self.device)
            with forbid_waits(self.device):
                self.update_on(there)
            return True
        except RuntimeError as error:
            if not is_out_of_memory(error):
                replay.forget()
                if "synchronizing" not in str(error):
                    raise
                self.progress.say("updates are not replayed, because this model waits for the GPU in between")
        self.optimiser.zero_grad(set_to_none=True)
        torch.set_rng_state(random[0])
        if random[1] is not None:
            torch.cuda.set_rng_state(random[1], self.device)
        return False

    def update_on(self, batch: Any) -> None:
        """Run all of the GPU's work for an update on one batch that is already on the GPU."""
        self.accumulate_sums(self.differentiate(batch))
        self.step_optimiser()
        self.optimiser.zero_grad(set_to_none=True)

    # ---- the sums of the losses

    def accumulate_sums(self, sums: Mapping[str, Tensor]) -> None:
        """Add an update's losses to the sums since the last record."""
        for name, value in sums.items():
            if self.device.type == "cpu" and self.group.world == 1:  # no wait, and a fixed order of summation
                self.now.sums[name] = self.now.sums.get(name, 0.0) + float(value)
                continue
            if name not in self.device_sums:
                self.device_sums[name] = torch.zeros((), dtype=wide_dtype(self.device), device=self.device)
            self.device_sums[name] += value
            self.unread.add(name)

    def read_sums(self, now: Counters) -> None:
        """Move the device's sums of losses and skipped updates to `now`, and reset them."""
        for name, value in self.device_sums.items():
            if name in self.unread:
                now.sums[name] = now.sums.get(name, 0.0) + float(self.group.sum(value.clone()))
                value.zero_()  # in place: a replay adds to it
        self.unread.clear()
        skipped = int(self.skipped)
        now.sums["bad"] = now.sums.get("bad", 0) + skipped
        now.skipped += skipped
        self.skipped.zero_()


# ---- smaller parts, if memory runs out


def attempt_in_parts(attempt: Callable[[int], T], again: Callable[[int], None]) -> T:
    """Call `attempt(1)`; if memory runs out, `attempt(2)`, `attempt(4)` and so on, with `again(parts)` before each."""
    parts = 1
    while True:
        try:
            return attempt(parts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Retry outside the handler: inside, the traceback would keep every allocated tensor alive.
        parts *= 2
        again(parts)


def split_batch(task: Task, batch: Any, parts: int) -> tuple[list[Any], TrainingError | None]:
    """Split the batch into `parts` (a power of two) or fewer; also return the error if it cannot be split further."""
    cut: list[Any] = [batch]
    problem: TrainingError | None = None
    for _ in range(parts.bit_length() - 1):
        before, cut = cut, []
        problem = TrainingError("out of memory, and this task cannot make its batches smaller")
        for each in before:
            try:
                cut += task.halves(each)
            except TrainingError as error:  # a single example; other parts may still be split
                cut.append(each)
                problem = error
        if len(cut) > len(before):
            problem = None
    return cut, problem
