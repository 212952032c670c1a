"""The loop: take batches, step, validate, save. It knows a Task and nothing of what is learned.

One update takes `accumulate × processes` consecutive batches of the task's stream; their losses are divided by what
they count together, so that the update does not hang on how many processes shared it. Everything random in an update is
drawn from a generator that is seeded anew by (seed, step, process): with the step, the place in the stream, the weights
and the optimiser's state, a resumed run is the run that was not stopped, bit by bit.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.watch import has_hooks
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.kernels.linear.mixed_precision import Copies
from regard.machine import wide_dtype
from regard.training.ahead import Ahead, Share
from regard.training.average import Average, mean_weights
from regard.training.checkpoint import (
    Checkpoint,
    Checkpoints,
    load_weights,
    read_checkpoint,
    step_name,
    weights_of,
)
from regard.training.distributed import Group, full, full_of, like
from regard.training.folder import claim
from regard.training.memory import attempt_in_parts, out_of_memory, pieces
from regard.training.metrics import name_of
from regard.training.precision import describe, in_bf16, products_in_tf32
from regard.training.progress import Metrics, Progress
from regard.training.replay import Replay, unsynchronised
from regard.training.schedule import rate_at
from regard.training.settings import TrainingSettings
from regard.training.stopping import Stopping
from regard.training.task import Task
from regard.training.trainer_state import (
    Counters,
    begin_optimiser,
    check_fits,
    counters_of,
    optimiser_tensors,
    restore_optimiser,
)
from regard.training.weights import check_weights

__all__ = ["Result", "Trainer", "train"]

HOPELESS = 100  # steps in a row that were not finite
UNSAID = ("count", "tokens", "since", "lost", "bad", "waited")  # of the sums: not losses


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    step: int
    best: float | None
    best_step: int
    why: str  # finished, patience, minutes or signal
    seconds: float


def train(
    task: Task,
    settings: TrainingSettings,
    run: Path,
    *,
    progress: Progress | None = None,
    resume: bool = False,
    group: Group | None = None,
    claimed: bool = False,
    ready: Callable[[], None] | None = None,
) -> Result:
    """Train a task into a run folder; with `resume`, go on from its last checkpoint.

    `claimed` says that the caller holds the folder already (`regard.training.folder.claim`). `ready` is called in the
    first process when nothing is left that could be refused, before anything is written.
    """
    group = group or Group(settings.device, settings.shard)
    with contextlib.nullcontext() if claimed else claim(run, resume, group):
        return Trainer(task, settings, run, progress or Progress(), group).run(resume, ready)


class Trainer:
    """A run in progress."""

    def __init__(self, task: Task, settings: TrainingSettings, run: Path, progress: Progress, group: Group):
        self.task, self.settings, self.folder, self.group = task, settings, run, group
        self.progress = progress if group.first else Progress()
        self.checkpoints = Checkpoints(run, settings.keep)
        self.now = Counters()
        self.device = group.device
        self.bf16 = in_bf16(settings, self.device)
        # A fused optimiser clips and skips on the device by itself; sharded weights and Apple's GPU have none.
        self.fused = not group.shard and self.device.type in ("cpu", "cuda")
        self.saved_step = -1
        self.first = 0  # the step that this process began after
        self.unmeasured = False  # whether the last validation had no finite loss

    # ---- from the first step to the last

    def run(self, resume: bool, ready: Callable[[], None] | None = None) -> Result:
        """Everything, in order."""
        found = self.prepare(resume)
        if ready is not None and self.group.first:
            ready()
        self.group.wait()
        if found and self.group.first:
            self.checkpoints.mend(step_name(self.now.step))
        metrics = Metrics(self.folder / "metrics.jsonl", self.now.step) if self.group.first else None
        facts = [*self.task.facts(), ("best checkpoint by", name_of(self.task.metric))]
        facts += [("device", describe(self.device, self.group.world, self.bf16))]
        title = f"{self.folder}" + (f", from step {self.now.step:,}" if found else "")
        self.progress.begin(title, facts, self.settings.steps)
        self.objective.train()
        stopping = Stopping(self.group, self.settings, self.progress)
        with metrics or contextlib.nullcontext(), stopping, products_in_tf32(self.bf16 and self.device.type == "cuda"):
            try:
                why = self.all_steps(metrics, stopping)
            except torch.OutOfMemoryError as error:  # not of a batch, which would be redone
                last = self.checkpoints.last()
                raise TrainingError(
                    f"step {self.now.step:,}: out of memory: make training.batch_tokens or the model smaller; the last "
                    f"checkpoint is {last}"
                ) from error
        return Result(self.now.step, self.now.best, self.now.best_step, why, self.now.seconds)

    def all_steps(self, metrics: Metrics | None, stopping: Stopping) -> str:
        """Update, record, validate and save until there is a reason to stop, which is given back."""
        now, settings = self.now, self.settings
        began, first, skipped = time.monotonic() - now.seconds, now.step, now.skipped
        why = stopping.reason(now)  # a run that goes on may have had its time, or its patience, already
        with self.shares() as shares:
            while why is None:
                self.update(shares)
                now.seconds = time.monotonic() - began
                if now.step % settings.log_every == 0:
                    now.sums["waited"], shares.waited = shares.waited, 0.0
                    self.record(metrics)
                if now.step == settings.steps or now.step % settings.validate_every == 0:
                    self.save(self.validate(metrics))
                    # The pace is that of training alone.
                    now.sums["since"] = now.sums.get("since", 0.0) + time.monotonic() - began - now.seconds
                why = stopping.reason(now)
        if self.saved_step != now.step:
            self.save(self.validate(metrics) if why == "minutes" else False)
        if why != "signal":
            self.read_sums()
            self.check_finite(now.skipped - skipped, now.step - first)
            if self.unmeasured and now.best is None:
                raise TrainingError(
                    f"step {now.step:,}: the validation loss is not finite, and never was; lower training.rate, or "
                    f"look at the data; {self.safe()}"
                )
        if why != "signal" and settings.average > 1 and now.step > first:
            self.average(metrics)
        return why

    def prepare(self, resume: bool) -> bool:
        """Weights, optimiser and counters, new or from the last checkpoint; whether there was one."""
        torch.manual_seed(self.settings.seed)
        found = None
        if self.group.first:
            self.checkpoints.clean()
        self.group.wait()
        if resume:
            path = self.checkpoints.last()
            if path is None:
                raise CheckpointError(f"{self.checkpoints.folder}: no checkpoint to resume from")
            found = read_checkpoint(path)
            check_fits(self.task, found.manifest, found.folder)
        objective = self.task.objective.to(self.device)
        if found is not None:
            raw = {name[4:]: tensor for name, tensor in found.trainer.items() if name.startswith("raw.")}
            own, where = weights_of(objective), str(found.folder / "model.safetensors")
            check_weights(own, found.model, where)  # of an average, the weights that are not loaded but averaged on
            load_weights(objective, raw or found.model, str(found.folder / "trainer.safetensors") if raw else where)
        self.group.wrap(objective)
        self.objective: nn.Module = objective
        self.parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        names = {id(parameter): name for name, parameter in objective.named_parameters()}
        self.names = [names[id(parameter)] for parameter in self.parameters]
        settings = self.settings
        self.optimiser = torch.optim.AdamW(
            self.parameters,
            lr=settings.rate,
            betas=(settings.betas[0], settings.betas[1]),
            eps=1e-9,
            weight_decay=settings.weight_decay,
            fused=self.fused,
            capturable=self.fused and self.device.type == "cuda",
        )
        self.ema = Average(self.parameters, settings.ema) if settings.ema is not None else None
        self.call = torch.compile(objective) if settings.compile else objective
        self.lost = torch.zeros((), device=self.device)
        self.device_sums: dict[str, Tensor] = {}
        self.summed: set[str] = set()  # of these since they were read
        # On a GPU what changes from update to update is in its memory, where a replay reads it.
        self.count = torch.ones((), device=self.device)
        self.rate = torch.zeros((), device=self.device) if self.optimiser.defaults["capturable"] else None
        packs = getattr(getattr(objective, "model", None), "packs", False)  # such a model takes weights in bf16
        halved = self.bf16 and self.rate is not None and packs
        self.copies = Copies(self.parameters, torch.bfloat16) if halved else None
        self.replay = self.replayed()
        if found is not None:
            self.restore(found)
        if self.replay is not None:
            begin_optimiser(self.optimiser, self.parameters)
        return found is not None

    def replayed(self) -> Replay | None:
        """What replays updates, where the settings want it and it can be done."""
        wanted, settings = self.settings.replay, self.settings
        if not wanted:
            return None
        problem = (
            "a run on a CPU or an Apple GPU" if self.device.type != "cuda"
            else f"{self.group.world} processes" if self.group.world > 1
            else f"training.accumulate = {settings.accumulate}" if settings.accumulate > 1
            else "an objective that does not say that it can be" if not getattr(self.objective, "replays", False)
            else None
        )  # fmt: skip
        if problem is None:
            self.task.few_shapes(self.bf16)
            return Replay(self.whole_update, self.device)
        if wanted is True:
            raise ConfigError("training.replay", f"true given, but updates of {problem} are not replayed")
        return None

    # ---- one update

    def shares(self) -> Ahead:
        """What each update from here on trains on."""
        group, pin = self.group, self.device.type == "cuda"
        return Ahead(self.task, self.now.position, self.settings.accumulate, group.rank, group.world, pin)

    def update(self, shares: Ahead) -> None:
        """Batches in, one step of the optimiser."""
        group, now, settings = self.group, self.now, self.settings
        step = now.step + 1
        torch.manual_seed(mixed(settings.seed, step, group.rank))
        share = next(shares)
        rate = rate_at(step, settings)
        for each in self.optimiser.param_groups:
            each["lr"] = rate if self.rate is None else self.rate.fill_(rate)
        self.count.fill_(share.count)
        if not self.done_again(share):
            self.add_up(attempt_in_parts(lambda parts: self.backward(share, parts), self.redo))
            group.sum_gradients(self.parameters)
            self.apply()
            self.optimiser.zero_grad(set_to_none=True)
        now.sums["count"] = now.sums.get("count", 0) + share.count
        if self.ema is not None:
            self.ema.update(self.parameters, step)
        now.step, now.position = step, share.end

    def done_again(self, share: Share) -> bool:
        """Whether the update was a replay of what was done for another batch of its shape."""
        if self.replay is None or not self.replay.on or has_hooks(self.objective):
            return False  # a replay runs no Python, and would not call who listens
        if self.now.step == self.first + 1:  # the second update, with everything compiled, says whether it may be
            drawn = torch.get_rng_state(), torch.cuda.get_rng_state(self.device)
            try:
                there = self.task.move(share.batches[0], self.device)
                with unsynchronised():
                    self.whole_update(there)
                return True
            except RuntimeError as error:
                if not out_of_memory(error):
                    self.replay.forget()
                    if "synchronizing" not in str(error):
                        raise
                    self.progress.say("updates are not replayed: this model waits for the GPU in between")
            self.optimiser.zero_grad(set_to_none=True)
            torch.set_rng_state(drawn[0])
            torch.cuda.set_rng_state(drawn[1], self.device)
            return False
        done = self.replay(share.batches[0])
        if done:  # no Python was run
            self.summed.update(self.device_sums)
        else:  # a capture that failed may leave some gradients, which nobody computed
            self.optimiser.zero_grad(set_to_none=True)
        return done

    def whole_update(self, batch: Any) -> None:
        """All that a GPU does for an update on one batch, which is there already."""
        self.add_up(self.differentiated(batch))
        self.apply()
        self.optimiser.zero_grad(set_to_none=True)

    def add_up(self, sums: Mapping[str, Tensor]) -> None:
        """Losses to be told of later."""
        for name, value in sums.items():
            if self.device.type == "cpu" and self.group.world == 1:  # reading is free, and the order always the same
                self.now.sums[name] = self.now.sums.get(name, 0.0) + float(value)
                continue
            if name not in self.device_sums:
                self.device_sums[name] = torch.zeros((), dtype=wide_dtype(self.device), device=self.device)
            self.device_sums[name] += value
            self.summed.add(name)

    def backward(self, share: Share, parts: int) -> dict[str, Tensor]:
        """Gradients of this process's share, its batches cut into so many parts."""
        sums: dict[str, Tensor] = {}
        for batch in share.batches:
            cut, whole = pieces(self.task, batch, parts)
            for piece in cut:
                try:
                    found = self.differentiated(self.task.move(piece, self.device))
                except (RuntimeError, MemoryError) as error:
                    if whole is not None and out_of_memory(error):
                        raise whole from None
                    raise
                for name, value in found.items():
                    sums[name] = sums[name] + value if name in sums else value
        return sums

    def differentiated(self, batch: Any) -> dict[str, Tensor]:
        """Gradients of a batch's share of the update's loss, and the sums that it reports."""
        copies = contextlib.nullcontext() if self.copies is None else self.copies.used()
        with copies, torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.call(batch)
        (loss.total / self.count).backward()
        return {name: value.detach() for name, value in {"loss": loss.total, **loss.parts}.items()}

    def redo(self, parts: int) -> None:
        """Before a share that did not fit into memory is tried again in smaller parts."""
        if self.group.shard:
            raise TrainingError("out of memory: make training.batch_tokens smaller (sharded runs cannot redo a batch)")
        self.optimiser.zero_grad(set_to_none=True)
        if self.replay is not None:  # what graphs hold may be what is wanting
            self.replay.forget()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.progress.say(f"step {self.now.step + 1}: out of memory, the batch is redone in {parts} parts")

    def apply(self) -> None:
        """One step of the optimiser, left out on the device where the gradient is not finite."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = full(torch.nn.utils.get_total_norm(gradients))
        bad = (~torch.isfinite(norm)).to(torch.float32)
        self.lost += bad
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

    # ---- what is said and kept

    def record(self, metrics: Metrics | None) -> None:
        """Read the sums from the device, and say them."""
        now = self.now
        self.read_sums()
        # Pieces that are cut anew are counted as they came out, where the objective says how many those were.
        sums, count = now.sums, max(1.0, now.sums.get("tokens", now.sums["count"]))
        interval = now.seconds - sums.get("since", 0.0)
        record = {
            "step": now.step,
            "steps": self.settings.steps,
            "epoch": now.position.epoch,
            **means(sums, count),
            "rate": rate_at(now.step, self.settings),
            "tokens_per_second": count / interval if interval > 0 else 0.0,
            "unit": self.task.unit,
            "waited": round(sums.get("waited", 0.0) / interval, 4) if interval > 0 else 0.0,
            "seconds": round(now.seconds, 3),
            "skipped": now.skipped,
        }
        bad_since = sums.get("bad", 0)
        run = sums.get("lost", 0) + bad_since if bad_since == self.settings.log_every else 0
        now.sums = {"since": now.seconds, "lost": run}
        if metrics is not None:
            metrics.write("step", record)
        self.progress.step(record)
        if bad_since:
            self.progress.say(f"step {now.step:,}: {bad_since:,.0f} steps were not finite and were skipped")
        self.check_finite(run, HOPELESS)

    def check_finite(self, run: float, most: int) -> None:
        """Stop where the last `run` steps had no finite gradient, and those are as many as `most`."""
        if run >= most > 0:
            raise TrainingError(
                f"step {self.now.step:,}: no finite gradient in the last {run:,.0f} steps; lower training.rate, or "
                f"look at the data; {self.safe()}"
            )

    def safe(self) -> str:
        """What there is to go on from, for a message."""
        last = self.checkpoints.last()
        return "no checkpoint was saved" if last is None else f"the last checkpoint is {last}"

    def read_sums(self) -> None:
        """Bring what the device summed to the host."""
        for name, value in self.device_sums.items():
            if name in self.summed:
                self.now.sums[name] = self.now.sums.get(name, 0.0) + float(self.group.sum(value.clone()))
                value.zero_()  # in place: a replay adds to it
        self.summed.clear()
        lost = int(self.lost)
        self.now.sums["bad"] = self.now.sums.get("bad", 0) + lost
        self.now.skipped += lost
        self.lost.zero_()

    def validate(self, metrics: Metrics | None) -> bool:
        """Measure the model on held-out data; whether it is the best so far, which is remembered."""
        figures, samples = self.measured()
        now = self.now
        self.unmeasured = not math.isfinite(figures.get("loss", 0.0))
        better = now.compare(figures, self.task.metric)
        record = {"step": now.step, **figures, "best": better}
        if metrics is not None:
            metrics.write("valid", {**record, "samples": [sample._asdict() for sample in samples]})
        self.progress.valid(record)
        self.progress.samples(samples)
        return better

    def measured(self) -> tuple[dict[str, float], list[Any]]:
        """The task's figures and samples, the same on every process."""
        self.objective.eval()
        try:
            with torch.no_grad(), self.averaged(), self.group.whole(self.objective):
                # Sharded weights need every process at every step; otherwise one measures for all.
                here = self.group.first or self.group.shard
                found = (self.task.validate(), self.task.samples()) if here else None
        finally:
            self.objective.train()
        figures, samples = self.group.same(found)
        return figures, samples

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the model has its averaged weights."""
        return contextlib.nullcontext() if self.ema is None else self.ema.swapped(self.parameters)

    def save(self, best: bool) -> None:
        """A checkpoint of this moment."""
        self.read_sums()
        first = self.group.first
        trainer = full_of(optimiser_tensors(self.optimiser, self.names, self.parameters), first)
        weights = full_of(weights_of(self.objective), first)
        self.check_overflow(weights)
        if self.ema is not None:
            trainer |= {f"raw.{name}": tensor for name, tensor in weights.items()}
            weights = {**weights, **full_of(dict(zip(self.names, self.ema.values, strict=True)), first)}
        self.saved_step = self.now.step
        problem: str | None = None
        if self.group.first:
            name = step_name(self.now.step)
            try:
                self.checkpoints.write(name, weights, trainer, self.manifest(best))
                if best:
                    self.checkpoints.mark_best(name)
                self.checkpoints.point("last", name)
                self.checkpoints.prune(self.settings.validate_every)
            except (TrainingError, CheckpointError) as error:
                problem = str(error)
        if problem := self.group.same(problem):
            raise TrainingError(problem)

    def manifest(self, best: bool) -> dict[str, Any]:
        """Everything that is not a tensor; of a new best one also which it is better than."""
        before = self.checkpoints.best_record() if best else None
        better = {} if before is None else {"better_than": before.manifest}
        return {"step": self.now.step, "counters": self.now.table(), "task": self.task.fingerprint(), **better}

    def check_overflow(self, weights: Mapping[str, Tensor]) -> None:
        """Stop before weights are saved that overflowed: the checkpoint before them is worth more."""
        bad = next((name for name, tensor in weights.items() if not bool(tensor.isfinite().all())), None)
        if bad := self.group.same(bad):
            raise TrainingError(
                f"step {self.now.step:,}: the weights are not finite any more ({bad}); lower training.rate; "
                f"{self.safe()}"
            )

    def restore(self, found: Checkpoint) -> None:
        """The optimiser, the average and the counters of a checkpoint."""
        where = str(found.folder / "trainer.safetensors")
        restore_optimiser(self.optimiser, self.names, self.parameters, found.trainer, where)
        if self.ema is not None:
            self.ema.values = [
                like(found.model[name], parameter.detach())
                for name, parameter in zip(self.names, self.parameters, strict=True)
            ]
        self.now = counters_of(found.folder, found.manifest)
        self.first = found.step
        self.saved_step = found.step
        score = self.checkpoints.best_average()
        if score is not None:  # it came after the last step, and is the one to beat
            self.now.best, self.now.best_step, self.now.best_loss = score

    def average(self, metrics: Metrics | None) -> None:
        """The mean of the last checkpoints' weights, kept as `average`, and as the best if it is."""
        folders = self.checkpoints.steps()[-self.settings.average :]
        if len(folders) < 2:
            return
        found, own = [read_checkpoint(folder, trainer=False).model for folder in folders], weights_of(self.objective)
        for folder, weights in zip(folders, found, strict=True):
            check_weights(own, weights, str(folder / "model.safetensors"))
        mean = mean_weights(found)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(like(mean[name], tensor.detach()))
        self.ema = None
        best = self.validate(metrics)
        problem: str | None = None
        if self.group.first:
            try:
                record = self.checkpoints.best_record()
                if best or record is None or record.name != "average":  # one of an earlier end may still be the best
                    self.checkpoints.write("average", mean, {}, self.manifest(best))
                if best:
                    self.checkpoints.mark_best("average")
                self.progress.say(
                    f"average of the last {len(folders)} checkpoints: " + ("better" if best else "not better")
                )
            except (TrainingError, CheckpointError) as error:
                problem = str(error)
        if problem := self.group.same(problem):
            raise TrainingError(problem)


def means(sums: Mapping[str, float], count: float) -> dict[str, float]:
    """What is said of the sums: each divided by the count, or by its own, as `guided` by `guided_count`."""
    own = {name: value for name, value in sums.items() if name.endswith("_count")}
    said = [name for name in sums if name not in UNSAID and name not in own]
    return {name: sums[name] / max(1.0, own.get(f"{name}_count", count)) for name in said}


def mixed(*numbers: int) -> int:
    """One seed out of several numbers (SplitMix64), so that neighbours have nothing in common."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state
