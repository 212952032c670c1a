"""The loop: take batches, update, record, validate, save. It knows a Task, and nothing about what is learned.

One update takes `accumulate × processes` consecutive batches of the task's stream; their losses are divided by what
they count together, so that the update is the same however many processes share it. Everything random in an update is
drawn from a generator that is seeded anew by (seed, step, process): with the step, the place in the stream, the weights
and the optimiser's state, a resumed run is the run that was not stopped, bit by bit.

An update is eager, replayed (`regard.training.cuda_graphs`), or redone in smaller parts where memory runs out. The
three give the same weights: a replayed update equals the eager one bit by bit, and a batch in parts has the same
gradient but for rounding. What changes from update to update (the rate, what losses are divided by) is in the device's
memory, where a replay reads it, and the sums of the losses stay there until they are recorded, so that nothing waits
for the device.

How a run becomes a checkpoint and is restored from one, `regard.training.trainer_state` says.
"""

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.attention import call_records
from regard.errors import ConfigError, TrainingError
from regard.kernels import mixed_precision
from regard.machine import is_out_of_memory, wide_dtype
from regard.training.adapters import adapters_of, describe_adapters, merge_adapters
from regard.training.checkpoint import step_name
from regard.training.cuda_graphs import CudaCapture, Replay, describe_path, forbid_waits, not_replayed, plan_updates
from regard.training.distributed import Group, allow_tf32, describe_device, gather_full, uses_bf16
from regard.training.folder import claim
from regard.training.metrics import Metrics, mean_losses, metric_name, read_records
from regard.training.progress import Progress
from regard.training.schedule import StopCriteria, Timetable, rate_at
from regard.training.settings import TrainingSettings
from regard.training.task import Prefetch, Share, Task
from regard.training.trainer_state import Counters, Saver
from regard.training.weights import MovingAverage, swap_values

__all__ = ["Result", "Trainer", "train"]

T = TypeVar("T")
MAX_BAD_STEPS = 100  # in a row, without a finite gradient


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    step: int
    best: float | None
    best_step: int
    stop_reason: str  # finished, patience, minutes or signal
    seconds: float
    signal: int | None = None  # its number, where one stopped the run
    first: int = 0  # the step from which this process trained

    @property
    def why(self) -> str:
        """Return the reason under its older name."""
        warnings.warn("Result.why is now called stop_reason", DeprecationWarning, stacklevel=2)
        return self.stop_reason


def train(
    task: Task,
    settings: TrainingSettings,
    run: Path,
    *,
    progress: Progress | None = None,
    resume: bool = False,
    group: Group | None = None,
    began: float | None = None,
) -> Result:
    """Train a task into a run folder; with `resume`, from its last checkpoint on.

    `began` is the `time.monotonic()` from which the run's seconds count, where its data were prepared before.
    """
    group = group or Group(settings.device, settings.shard)
    with claim(run, resume, group):
        return Trainer(task, settings, run, progress or Progress(), group, began).run(resume)


class Trainer:
    """A run in progress."""

    def __init__(
        self,
        task: Task,
        settings: TrainingSettings,
        run: Path,
        progress: Progress,
        group: Group,
        began: float | None = None,
    ):
        self.task, self.settings, self.folder, self.group = task, settings, run, group
        self.progress = progress if group.first else Progress()
        self.saver = Saver(task, settings, run, group)
        self.now = Counters()
        self.began = began  # the moment from which this process's seconds count
        self.origin = time.monotonic()  # that from which the run's would, had it never stopped
        self.timetable = Timetable(settings)
        self.criteria = StopCriteria(group, self.progress, self.timetable)
        self.metrics: Metrics | None = None  # of the first process, from its first step on
        self.loss_is_finite = True  # of the last validation

    # ---- from the first step to the last

    def run(self, resume: bool, ready: Callable[[], None] | None = None) -> Result:
        """Run the whole training, in order, in a folder that is claimed.

        `ready` is called in the first process when nothing is left that could be refused, before anything is written.
        """
        resumed = self.prepare(resume)
        if ready is not None and self.group.first:
            ready()
        self.group.wait()
        if resumed and self.group.first:
            self.saver.checkpoints.repair(step_name(self.now.step))
        if self.group.first:  # without what is to come again
            path, validated = self.folder / "metrics.jsonl", self.now.validated == self.now.step
            self.metrics = Metrics(path, self.now.step, self.settings.track, validated=validated)
        device, bf16 = self.group.device, self.updater.bf16
        facts = [
            *self.task.facts(),
            *describe_adapters(self.objective),
            ("best checkpoint by", metric_name(self.task.metric)),
            ("device", describe_device(device, self.group.world, bf16)),
            ("path", self.updater.path()),
        ]
        title = f"{self.folder}" + (f", from step {self.now.step:,}" if resumed else "")
        self.progress.begin(title, facts, None if self.timetable.is_open else self.settings.steps)
        self.progress.limit(self.timetable.limit)
        self.objective.train()
        with self.metrics or contextlib.nullcontext(), self.criteria, allow_tf32(bf16 and device.type == "cuda"):
            try:
                reason = self.all_steps()
            except torch.OutOfMemoryError as error:  # not of a batch, which would be redone
                last = self.saver.checkpoints.last()
                raise TrainingError(
                    f"step {self.now.step:,}: out of memory: make training.batch_tokens or the model smaller; the last "
                    f"checkpoint is {last}"
                ) from error
        now, signal = self.now, self.criteria.signal_number if reason == "signal" else None
        return Result(now.step, now.best, now.best_step, reason, now.seconds, signal, self.timetable.first_step)

    def prepare(self, resume: bool) -> bool:
        """Set up weights, optimiser and counters, new or from the last checkpoint; return whether there was one."""
        torch.manual_seed(self.settings.seed)
        checkpoint = self.saver.find(resume)
        self.objective: nn.Module = self.task.objective.to(self.group.device)
        if checkpoint is not None:
            self.saver.load(checkpoint, self.objective)
        self.group.wrap(self.objective)
        self.updater = Updater(self.task, self.objective, self.settings, self.group, self.progress)
        decay = self.settings.ema
        self.ema = MovingAverage(self.updater.parameters, decay) if decay is not None else None
        if checkpoint is not None:
            self.now = self.saver.restore(checkpoint, self.updater, self.ema)
        self.updater.begin()
        return checkpoint is not None

    def all_steps(self) -> str:
        """Update, record, validate and save until there is a reason to stop, which is returned."""
        now, first, skipped = self.now, self.now.step, self.now.skipped
        self.origin = (time.monotonic() if self.began is None else self.began) - now.seconds
        self.count_apart(now.seconds)  # the preparation
        self.timetable.first_step = first
        # A run that is resumed may have had its time, or its patience, already.
        over = self.group.same(self.timetable.is_over(now))
        self.take_over(None if over else self.timetable.begin(now))
        reason = "minutes" if over else self.criteria.reason(now, self.settings)
        self.progress.tick(now.step, now.seconds)
        with self.shares() as shares:
            while reason is None:
                self.update(shares)
                now.seconds = self.seconds
                if now.step % self.settings.log_every:
                    self.progress.tick(now.step, now.seconds)
                else:
                    now.sums["waited"], shares.waited = shares.waited, 0.0
                    self.record()
                last = now.step >= self.settings.steps
                validated = last or now.step % self.settings.validate_every == 0
                if validated:
                    self.validate_and_save()
                if not last:
                    self.fit(validated)
                reason = self.criteria.reason(now, self.settings)
        # Also what a run that was killed, or stopped by a signal, at this very step did not come to.
        if reason != "signal" and now.validated != now.step:
            self.validate_and_save(reason)
        elif self.saver.step != now.step:
            self.saver.save(now, self.updater, self.ema, best=False)
        if reason != "signal":
            self.updater.read_sums(now)
            self.check_finite(now.skipped - skipped, now.step - first)
            if not self.loss_is_finite and now.best is None:
                raise TrainingError(
                    f"step {now.step:,}: the validation loss is not finite, and never was; lower training.rate, or "
                    f"check the data; {self.saver.last_checkpoint()}"
                )
            if self.settings.average > 1:
                self.average()
        now.seconds = self.seconds
        return reason

    # ---- the time

    @property
    def seconds(self) -> float:
        """Return the seconds that the run has taken, in all its processes one after the other."""
        return time.monotonic() - self.origin

    def count_apart(self, since: float) -> None:
        """Count the seconds since then as the run's, and not as those of training, whose pace is shown."""
        now = self.now
        now.seconds = self.seconds
        now.sums["since"] = now.sums.get("since", 0.0) + now.seconds - since

    def fit(self, validated: bool) -> None:
        """Fit the steps to a time limit, where that is due; the first process decides for all."""
        now, group = self.now, self.group
        if self.timetable.limit is None or (group.world > 1 and not validated and now.step % self.settings.log_every):
            return
        known = "steps" in now.fitted
        due = self.timetable.is_due(now, validated)
        settings = group.same(self.timetable.fit(now) if group.first and due else None)
        self.take_over(settings)
        if settings is not None and not known:
            self.progress.say(
                f"time limit of {self.settings.minutes:g} minutes: about {settings.steps:,} steps fit, with "
                f"{settings.warmup:,} of warm-up and a validation every {settings.validate_every:,}"
            )

    def take_over(self, settings: TrainingSettings | None) -> None:
        """Continue with fitted settings."""
        settings = self.group.same(settings)
        if settings is None:
            return
        self.settings = self.updater.settings = self.saver.settings = settings
        self.now.fitted = self.group.same(self.timetable.record(settings))
        ends = self.timetable.ends_with_the_time(self.now.fitted)
        self.progress.limit(self.timetable.limit if ends else None)  # otherwise the steps that were set end before

    # ---- one update

    def shares(self) -> Prefetch:
        """Prefetch the shares that each update from here on trains on."""
        return Prefetch(self.task, self.now.position, self.settings.accumulate, self.group)

    def update(self, shares: Prefetch) -> None:
        """Take one step of the optimiser on some batches."""
        now, step = self.now, self.now.step + 1
        torch.manual_seed(mix_seeds(self.settings.seed, step, self.group.rank))
        share = next(shares)
        self.updater(share, now)
        if self.ema is not None:
            self.ema.update(self.updater.parameters, step)
        now.step, now.position = step, share.end

    # ---- what is recorded, measured and saved

    def record(self) -> None:
        """Read the sums from the device, record them and show them."""
        now = self.now
        self.updater.read_sums(now)
        # Pieces that are cut anew are counted as they came out, where the objective says how many those were.
        sums, count = now.sums, max(1.0, now.sums.get("tokens", now.sums["count"]))
        interval = now.seconds - sums.get("since", 0.0)
        record = {
            "step": now.step,
            **({} if self.timetable.is_open and "steps" not in now.fitted else {"steps": self.settings.steps}),
            "epoch": now.position.epoch,
            **mean_losses(sums, count),
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
        self.write("step", record)
        self.progress.step(record)
        if bad_since:
            self.progress.say(f"step {now.step:,}: {bad_since:,.0f} steps were not finite and were skipped")
        self.check_finite(run, MAX_BAD_STEPS)

    def check_finite(self, run: float, most: int) -> None:
        """Stop where none of the last `run` steps had a finite gradient, and there were as many as `most`."""
        if run >= most > 0:
            raise TrainingError(
                f"step {self.now.step:,}: no finite gradient in the last {run:,.0f} steps; lower training.rate, or "
                f"check the data; {self.saver.last_checkpoint()}"
            )

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Write a record to metrics.jsonl, in the first process."""
        if self.metrics is not None:
            self.metrics.write(kind, record)

    def validate_and_save(self, stop_reason: str | None = None) -> None:
        """Validate and save a checkpoint, and note how long both took; `stop_reason` where the run ends here."""
        now, before = self.now, self.now.seconds
        figures, samples = self.measure()
        self.loss_is_finite = math.isfinite(figures.get("loss", 0.0))
        better, now.validated = now.compare(figures, self.task.metric), now.step
        self.record_validation(figures, samples, better)
        self.count_apart(before)  # of the pace; but of the run
        timetable, validated = self.timetable, now.seconds
        timetable.note_validation(validated - before)
        if timetable.limit is not None:
            end = now.step >= self.settings.steps and timetable.ends_with_the_time(now.fitted)
            is_over = stop_reason == "minutes" or end or timetable.is_late(now)
            timetable.open_step = None if is_over else now.step
            over = {"over": timetable.limit} if is_over else {}
            fitted = timetable.record(self.settings) if now.fitted else {}
            now.fitted = {**fitted, **over}  # also for who resumes it
        self.saver.save(now, self.updater, self.ema, better)
        self.count_apart(validated)
        timetable.note_validation(now.seconds - validated, more=True)

    def record_validation(self, figures: Mapping[str, float], samples: Sequence[Any], better: bool) -> None:
        """Record the figures and samples of a validation, and show them."""
        record = {"step": self.now.step, **figures, "best": better, "seconds": round(self.seconds, 3)}
        self.write("valid", {**record, "samples": [sample.record() for sample in samples]})
        self.progress.valid(record)
        self.progress.samples(samples)

    def measure(self) -> tuple[dict[str, float], list[Any]]:
        """Return the task's figures and samples, the same on every process."""
        self.progress.begin_validation()
        ema, parameters = self.ema, self.updater.parameters
        averaged = contextlib.nullcontext() if ema is None else swap_values(parameters, ema.values)
        self.objective.eval()
        try:
            with torch.no_grad(), averaged, merge_adapters(self.objective), self.group.whole(self.objective):
                # Sharded weights need every process at every step; otherwise one measures for all.
                here = self.group.first or self.group.shard
                results = (self.task.validate(), self.task.samples()) if here else None
        finally:
            self.objective.train()
        figures, samples = self.group.same(results)
        return figures, samples

    def average(self) -> None:
        """Measure the mean of the last checkpoints' weights, and save it as `average`, and as the best if it is.

        It is recorded last, so that a run which was killed before does what is left when it is resumed, and one that
        was not does nothing twice.
        """
        folders = self.saver.checkpoints.steps()[-self.settings.average :]
        done = {"step": self.now.step, "checkpoints": " ".join(folder.name for folder in folders)}
        before = read_records(self.folder / "metrics.jsonl")
        is_done = any(each.get("kind") == "average" and done.items() <= each.items() for each in before)
        if len(folders) < 2 or self.group.same(is_done):
            return
        mean, self.ema = self.saver.load_mean(folders, self.objective), None
        figures, samples = self.measure()
        best = self.now.compare(figures, self.task.metric)
        if self.group.same(self.saver.mean_is_best(folders)):  # a kill came behind its saving
            best = True
        else:
            self.saver.save_mean(mean, folders, self.now, best)
        self.record_validation(figures, samples, best)
        self.write("average", {**done, "best": best})
        verdict = "better" if best else "not better"
        self.progress.say(f"average of the last {len(folders)} checkpoints: {verdict}")


# ---- one update


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
        self.plan = plan_updates(device, group.world, settings.accumulate, objective)
        self.replay = self.choose_replay()

    def choose_replay(self) -> Replay | None:
        """Build the replay of updates, where the settings ask for it and it is possible."""
        replay = self.settings.replay
        if not replay:
            return None
        if self.plan.name == "replayed":
            self.task.limit_shapes(self.bf16)
            return Replay(CudaCapture(self.update_on, self.device))
        if replay is True:
            raise ConfigError("training.replay", f"true given, but {not_replayed(self.plan)} cannot be replayed")
        return None

    def path(self) -> str:
        """Describe the path of the updates in one line, and what keeps it from a faster one."""
        form, replayed = getattr(self.task, "form", None), self.replay is not None
        return describe_path(self.plan, form, self.objective, replayed, self.settings.compile)

    def begin(self) -> None:
        """Prepare for replays, when the optimiser is new or restored: create AdamW's state before its first step."""
        for parameter in self.parameters if self.replay is not None else ():
            if not self.optimiser.state[parameter]:
                self.optimiser.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                }

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
        if not self.fused:  # it cannot skip on the device
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
        if self.replay is not None:  # free the graphs' memory
            self.replay.forget()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.progress.say(f"step {self.now.step + 1}: out of memory, the batch is redone in {parts} parts")

    # ---- replayed

    def try_replay(self, share: Share) -> bool:
        """Replay the update captured for another batch of its shape, if there is one; return whether that was done."""
        if self.replay is None or not self.replay.on or call_records.has_hooks(self.objective):
            return False  # a replay runs no Python, and would not call them
        if self.updates == 1:  # the second update, with everything compiled, says whether it may be
            return self.rehearse(self.replay, share.batches[0])
        done = self.replay(share.batches[0])
        if done:  # no Python was run
            self.unread.update(self.device_sums)
        else:  # a failed capture may leave gradients without values
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


def mix_seeds(*numbers: int) -> int:
    """Mix several numbers into one seed (SplitMix64), so that neighbours have nothing in common."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state
