"""One update of the weights: eager, replayed as a graph, or redone in smaller parts where memory runs out.

The three give the same weights: a replayed update equals the eager one bit by bit (`regard.training.replay`), and a
batch in parts has the same gradient but for rounding. What changes from update to update (the rate, what losses are
divided by) is in the device's memory, where a replay reads it, and the sums of the losses stay there until somebody
reads them, so that nothing waits for the device.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.attention import Stack, call_records, stack_features
from regard.errors import ConfigError, TrainingError
from regard.kernels import Plan, mixed_precision, table
from regard.machine import is_out_of_memory, wide_dtype
from regard.training.adapters import adapters_of
from regard.training.distributed import Group, gather_full, uses_bf16
from regard.training.progress import Progress
from regard.training.replay import CudaCapture, Replay, forbid_waits
from regard.training.settings import TrainingSettings
from regard.training.task import Position, Task
from regard.training.trainer_state import Counters, initialise_optimiser

T = TypeVar("T")
DEPTH = 2  # updates that are loaded ahead


@dataclass(frozen=True)
class Share:
    """The part of an update that one process needs."""

    batches: list[Any]  # of this process
    count: int  # what the losses of all processes are sums over
    end: Position  # where the stream stands afterwards


class Prefetch:
    """The shares of one update after another, each loaded by a thread before it is needed.

    One thread, so that the stream is read in order; the batches are a function of their place in it, so that nothing
    depends on when they were loaded. A task that does not say so of its own (`ahead`) has them loaded only when
    they are asked for. An error is raised when its update is asked for. `waited` counts the seconds in which the loop
    waited for its data.
    """

    def __init__(self, task: Task, position: Position, accumulate: int, rank: int, world: int, pin: bool):
        self.task, self.rank, self.world, self.pin = task, rank, world, pin
        self.stream, self.plans = task.stream(position), accumulate * world
        self.pool = ThreadPoolExecutor(1, "regard-batches")
        self.coming: deque[Future[Share]] = deque()
        self.waited = 0.0

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.coming:
            each.cancel()
        self.pool.shutdown(wait=True, cancel_futures=True)

    def __iter__(self) -> Iterator[Share]:
        return self

    def __next__(self) -> Share:
        while self.task.ahead and len(self.coming) <= DEPTH:
            self.coming.append(self.pool.submit(self.load))
        began = time.monotonic()
        share = self.coming.popleft().result() if self.task.ahead else self.load()
        self.waited += time.monotonic() - began
        return share

    def load(self) -> Share:
        """Load the next update's plans, and this process's batches of them."""
        plans = [next(self.stream) for _ in range(self.plans)]
        mine = plans[self.rank :: self.world]
        batches = [self.task.batch(plan, position) for position, plan in mine]
        if self.pin:
            batches = [batch.pin_memory() if hasattr(batch, "pin_memory") else batch for batch in batches]
        last = plans[-1][0]
        return Share(batches, sum(self.task.count(plan) for _, plan in plans), Position(last.epoch, last.batch + 1))


def rate_at(step: int, settings: TrainingSettings) -> float:
    r"""Return the learning rate of a step.

    `noam`: $r \cdot \min(t/w, \sqrt{w/t})$, Vaswani et al. 2017 (arXiv:1706.03762), section 5.3, with its peak r given
    in place of the width's root. `cosine`: from r down to nothing at the last step (arXiv:1608.03983). `constant`: r.
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


class Objective(Protocol):
    """An objective's optional properties, beside giving the `Loss` of a batch. What it does not say is False."""

    # An update may be a CUDA graph: nothing is read back from the device, shapes depend on the batch's alone.
    replays: bool
    half_weights: bool  # its products take copies of the weights in half precision, which are made once an update


class Updater:
    """The updates of a run: its objective's parameters, their optimiser, and how a batch becomes a step of it."""

    def __init__(self, task: Task, objective: nn.Module, settings: TrainingSettings, group: Group, progress: Progress):
        self.task, self.objective, self.settings, self.group, self.progress = task, objective, settings, group, progress
        self.device = device = group.device
        self.bf16 = uses_bf16(settings, device)
        self.parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        names = {id(parameter): name for name, parameter in objective.named_parameters()}
        self.names = [names[id(parameter)] for parameter in self.parameters]
        # A fused optimiser clips and skips on the device by itself; sharded weights and Apple's GPU have none.
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
        self.now = Counters()  # of the update under way
        self.updates = 0  # updates of this process
        self.skipped = torch.zeros((), device=device)  # updates without a finite gradient, since they were read
        self.device_sums: dict[str, Tensor] = {}
        self.unread: set[str] = set()  # of these sums
        # On a GPU what changes from update to update is in its memory, where a replay reads it.
        self.count = torch.ones((), device=device)
        self.rate = torch.zeros((), device=device) if self.optimiser.defaults["capturable"] else None
        halves = self.bf16 and self.rate is not None and getattr(objective, "half_weights", False)
        # Weights with adapters are computed in each update, and cast where they are used.
        adapted = {id(each.weight) for each in adapters_of(objective).values()}
        self.adapted = len(adapted) > 0
        plain = [weight for weight in objective.parameters() if id(weight) not in adapted]
        self.copies = mixed_precision.HalfCopies(plain, torch.bfloat16) if halves else None
        self.replay = self.choose_replay()

    def choose_replay(self) -> Replay | None:
        """Build the replay of updates, where the settings ask for it and it is possible."""
        replay = self.settings.replay
        if not replay:
            return None
        plan = self.plan()
        if plan.name == "replayed":
            self.task.few_shapes(self.bf16)
            return Replay(CudaCapture(self.update_on, self.device))
        if replay is True:
            raise ConfigError("training.replay", f"true given, but {not_replayed(plan)} cannot be replayed")
        return None

    def plan(self) -> Plan:
        """Return how updates can be made, and why not faster."""
        return UPDATE.plan(describe(self.device, self.group.world, self.settings.accumulate, self.objective))

    def path(self) -> str:
        """Describe the path of the updates in one line, and what keeps it from a faster one."""
        form, replayed = getattr(self.task, "form", None), self.replay is not None
        return describe_path(self.plan(), form, self.objective, replayed, self.settings.compile)

    def begin(self) -> None:
        """Prepare for the first update, when the optimiser is new or restored."""
        if self.replay is not None:
            initialise_optimiser(self.optimiser, self.parameters)

    def __call__(self, share: Share, now: Counters) -> None:
        """Take one step of the optimiser on some batches; `now` is where the run stands before it."""
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
        """Compute the gradients of this process's share, its batches split into so many parts, and the sums."""
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
        """Compute the gradients of a batch's share of the update's loss, and the sums that it reports."""
        copies = contextlib.nullcontext() if self.copies is None else self.copies.used()
        once = parametrize.cached() if self.adapted and not self.settings.compile else contextlib.nullcontext()
        with once, copies, torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.call(batch)
        (loss.total / self.count).backward()
        return {name: value.detach() for name, value in {"loss": loss.total, **loss.parts}.items()}

    def step_optimiser(self) -> None:
        """Take one step of the optimiser; the device skips it where the gradient is not finite."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.group.shard:
            norm = gather_full(norm)
        bad = (~torch.isfinite(norm)).to(torch.float32)
        self.skipped += bad
        if not self.fused:  # it cannot be told on the device
            if not bool(bad):
                if self.settings.clip:
                    torch.nn.utils.clip_grads_with_norm_(self.parameters, self.settings.clip, norm)
                self.optimiser.step()
            return
        self.optimiser.found_inf = bad  # type: ignore[attr-defined]
        # The fused step divides every gradient by this: clipping without a pass of its own.
        scale = (norm / self.settings.clip).clamp(min=1.0) if self.settings.clip else torch.ones_like(norm)
        self.optimiser.grad_scale = torch.where(bad > 0, 1.0, scale).to(torch.float32)  # type: ignore[attr-defined]
        self.optimiser.step()

    def redo(self, parts: int) -> None:
        """Reset before a share that did not fit into memory is tried again in smaller parts."""
        if self.group.shard:
            raise TrainingError("out of memory: make training.batch_tokens smaller (sharded runs cannot redo a batch)")
        self.optimiser.zero_grad(set_to_none=True)
        if self.replay is not None:  # what graphs hold may be what is wanting
            self.replay.forget()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.progress.say(f"step {self.now.step + 1}: out of memory, the batch is redone in {parts} parts")

    # ---- replayed

    def try_replay(self, share: Share) -> bool:
        """Replay the update captured for another batch of its shape, if there is one; return whether that was done."""
        if self.replay is None or not self.replay.on or call_records.has_hooks(self.objective):
            return False  # a replay runs no Python, and would not call who listens
        if self.updates == 1:  # the second update, with everything compiled, says whether it may be
            return self.rehearse(self.replay, share.batches[0])
        done = self.replay(share.batches[0])
        if done:  # no Python was run
            self.unread.update(self.device_sums)
        else:  # a capture that failed may leave some gradients, which nobody computed
            self.optimiser.zero_grad(set_to_none=True)
        return done

    def rehearse(self, replay: Replay, batch: Any) -> bool:
        """Run the update as a capture would see it; if it waits for the GPU, undo it and replay no updates."""
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
        """Run all of a GPU's work for an update on one batch, which is there already."""
        self.accumulate_sums(self.differentiate(batch))
        self.step_optimiser()
        self.optimiser.zero_grad(set_to_none=True)

    # ---- the sums of the losses

    def accumulate_sums(self, sums: Mapping[str, Tensor]) -> None:
        """Add losses to those that are read later."""
        for name, value in sums.items():
            if self.device.type == "cpu" and self.group.world == 1:  # reading is free, and the order always the same
                self.now.sums[name] = self.now.sums.get(name, 0.0) + float(value)
                continue
            if name not in self.device_sums:
                self.device_sums[name] = torch.zeros((), dtype=wide_dtype(self.device), device=self.device)
            self.device_sums[name] += value
            self.unread.add(name)

    def read_sums(self, now: Counters) -> None:
        """Copy the device's sums to the host."""
        for name, value in self.device_sums.items():
            if name in self.unread:
                now.sums[name] = now.sums.get(name, 0.0) + float(self.group.sum(value.clone()))
                value.zero_()  # in place: a replay adds to it
        self.unread.clear()
        skipped = int(self.skipped)
        now.sums["bad"] = now.sums.get("bad", 0) + skipped
        now.skipped += skipped
        self.skipped.zero_()


UPDATE = table.Table("update", table.Row(name="replayed", devices=("cuda",)), table.Row(name="eager", features=None))


def describe(device: torch.device, world: int, accumulate: int, objective: object) -> table.Request:
    """Put the updates of a run into plain data."""
    needs = []
    if world > 1:
        needs.append(f"updates of {world} processes")
    if accumulate > 1:
        needs.append(f"updates with training.accumulate = {accumulate}")
    if not getattr(objective, "replays", False):
        needs.append("the updates of an objective that does not set `replays`")
    return table.Request(device.type, (), tuple(needs))


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


# ---- in smaller parts, where memory runs out


def attempt_in_parts(attempt: Callable[[int], T], again: Callable[[int], None]) -> T:
    """Call `attempt(1)`; if memory runs out, `attempt(2)`, `attempt(4)` and so on, with `again(parts)` before each."""
    parts = 1
    while True:
        try:
            return attempt(parts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside of the handler: the traceback holds on to every tensor that did fit.
        parts *= 2
        again(parts)


def split_batch(task: Task, batch: Any, parts: int) -> tuple[list[Any], TrainingError | None]:
    """Split the batch into so many parts, a power of two, or as many as it has; raise if it cannot be split."""
    cut: list[Any] = [batch]
    problem: TrainingError | None = None
    for _ in range(parts.bit_length() - 1):
        before, cut = cut, []
        problem = TrainingError("out of memory, and this task cannot make its batches smaller")
        for each in before:
            try:
                cut += task.halves(each)
            except TrainingError as error:  # one example: others of this update may still be cut
                cut.append(each)
                problem = error
        if len(cut) > len(before):
            problem = None
    return cut, problem
