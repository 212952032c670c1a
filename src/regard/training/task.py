"""The task protocol: everything that the loop asks of what is learned. The loop knows nothing else.

A task of your own needs an objective and its batches:

    class Doubling(Task):
        objective = Objective(nn.Linear(1, 1))            # objective(batch) -> Loss
        def epoch(self, number): return torch.linspace(-1, 1, 160).view(10, 16, 1)

A batch is a plan as it is, here 16 numbers, unless `batch` is overridden.

The objective of most tasks is `Prediction`, around a model. Its output projection and the loss are one operation, so
that the scores of a whole batch never stand in memory. Compiling and sharding wrap the objective.
"""

# b sentences · n target positions · t real tokens of the batch · d width
import itertools
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Packed
from regard.data import Batch, PackedBatch, Position
from regard.errors import TrainingError
from regard.kernels import projection_loss
from regard.models import Model, Tokens
from regard.training.distributed import Group
from regard.training.progress import Sample

__all__ = ["Loss", "Position", "Sample", "Task"]


class Loss(NamedTuple):
    """The result of an objective: a sum that is differentiated, and further sums to be reported."""

    total: Tensor
    parts: dict[str, Tensor] = {}  # noqa: RUF012


DEPTH = 2  # updates that are loaded ahead
RENAMED = {"few_shapes": "limit_shapes", "ahead": "can_prefetch"}  # what tasks of earlier versions may define


class Task:
    """A task to learn: its objective, its batches, how it is measured.

    A *plan* is whatever stands for a batch before it is loaded, cheap to make and to count: the loop takes plans from
    `stream`, divides losses by the `count` of all plans of an update (on every process), and loads only its own.
    """

    objective: nn.Module  # a module around the model: objective(batch) -> Loss
    unit: str = "tokens"  # what `count` counts
    can_prefetch: bool = False  # batches before their step: `batch` is a function of its arguments alone
    metric: str = "loss"  # of what `validate` gives, the one that says which checkpoint is best

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Take over what a class defines under an older name, and give what it defines that name, too."""
        super().__init_subclass__(**arguments)
        for old, new in RENAMED.items():
            if old in vars(cls):
                message = f"{cls.__name__}.{old} is now called {new}: rename it"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                setattr(cls, new, vars(cls)[old])
            elif new in vars(cls):
                setattr(cls, old, vars(cls)[new])

    def epoch(self, number: int) -> Iterable[Any]:
        """Yield the plans of an epoch, a function of its number alone."""
        raise NotImplementedError

    def stream(self, position: Position) -> Iterator[tuple[Position, Any]]:
        """Yield plans without end from a position on, each with its own position."""
        for epoch in itertools.count(position.epoch):
            first = position.batch if epoch == position.epoch else 0
            empty = True
            for batch, plan in enumerate(self.epoch(epoch)):
                empty = False
                if batch >= first:
                    yield Position(epoch, batch), plan
            if empty:
                raise TrainingError("no batches to train on: the epoch is empty")

    def count(self, plan: Any) -> int:
        """Return the count that this plan's loss is a sum over: tokens, or examples."""
        return len(plan)

    def batch(self, plan: Any, position: Position) -> Any:
        """Load the tensors of a plan, on the host."""
        return plan

    def limit_shapes(self, half: bool) -> None:
        """Keep the number of batch shapes small; called before the first batch where each shape costs preparation.

        `half`: matrix products are in half precision.
        """

    def halves(self, batch: Any) -> Sequence[Any]:
        """Split the batch in two, for when it does not fit into memory."""
        raise TrainingError("out of memory, and this task's batches cannot be split: make them smaller")

    def move(self, batch: Any, device: torch.device) -> Any:
        """Move the batch to a device; on a CPU it is where it was loaded."""
        if device.type == "cpu":
            return batch
        if hasattr(batch, "to"):
            return batch.to(device, non_blocking=device.type == "cuda")
        if isinstance(batch, tuple | list):
            return type(batch)(self.move(each, device) for each in batch)
        return batch

    def validate(self) -> dict[str, float]:
        """Measure the model on held-out data; `loss` and `metric` are among the figures, where there are any."""
        return {}

    def samples(self) -> list[Sample]:
        """Return a few examples of the model's current output."""
        return []

    def facts(self) -> list[tuple[str, str]]:
        """List the facts to print before training starts."""
        return []

    def fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for a checkpoint to fit; it is stored in the manifest and compared on loading."""
        return {}

    few_shapes, ahead = limit_shapes, can_prefetch


# ---- the objective of predicting the next token


class Prediction(nn.Module):
    """Prediction of the next token: label-smoothed cross-entropy over every target token that is not padding.

    Szegedy et al. 2016 (arXiv:1512.00567), section 7: a share of the probability is spread evenly over all tokens.
    """

    replays = True  # an update may be a CUDA graph: nothing is read back from the device

    def __init__(self, model: Model, smoothing: float = 0.0):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    @property
    def half_weights(self) -> bool:
        """Return whether products take copies of the weights in half precision: those of a model that reads packed
        batches.
        """
        return self.model.packs

    def forward(self, batch: Batch | PackedBatch) -> Loss:
        """Sum the loss over the batch's target tokens; `nll` is the same without smoothing, `tokens` their number."""
        source, target = inputs(batch)
        hidden, _ = self.model.decode(self.model.encode(source), target)
        return self.token_loss(hidden, batch, target)

    def token_loss(self, hidden: Float[Tensor, "*b n d"], batch: Batch | PackedBatch, target: Tokens) -> Loss:
        """Compute the loss from the decoder's output after each token of `target`."""
        smoothing = self.smoothing if self.training else 0.0
        if isinstance(batch, PackedBatch):
            expected = batch.expected.long()
            real = expected >= 0
        else:
            expected, real = batch.target[:, 1:], target.real
            if hidden.is_cuda and self.model.projects:  # how many are real is not waited for
                hidden, expected = hidden.flatten(0, 1), expected.masked_fill(~real, -1).flatten()
            else:
                hidden, expected = hidden[real], expected[real]
        total, nll = next_token(self.model, hidden, expected, smoothing)
        return Loss(total, {"nll": nll, "tokens": real.sum().to(total.dtype)})


def next_token(
    model: Model, hidden: Float[Tensor, "t d"], expected: Int[Tensor, " t"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum the smoothed cross-entropy, and the negative log-likelihood, which alone is reported.

    Where a negative number is expected nothing counts.
    """
    if model.projects:
        return projection_loss(hidden, model.readout.weight, model.readout.bias, expected, smoothing)
    # What such a model cannot say has no probability to be smoothed into.
    nll = F.cross_entropy(model.output(hidden).float(), expected, reduction="sum", ignore_index=-1)
    return nll, nll.detach()


def inputs(batch: Batch | PackedBatch) -> tuple[Tokens, Tokens]:
    """Return the source, and the target as it is read: START first, without the END."""
    if isinstance(batch, PackedBatch):
        ids, read, _, *offsets = batch.parts()
        spans = [Packed(each, sizes=(size, batch.longest)) for each, size in zip(offsets, batch.sizes, strict=True)]
        return Tokens(ids, spans[0]), Tokens(read, spans[1])
    source = Tokens.of(batch.source, batch.source_lengths)
    return source, Tokens.of(batch.target[:, :-1], batch.target_lengths)


# ---- the batches of its updates


@dataclass(frozen=True)
class Share:
    """The part of an update that one process needs."""

    batches: list[Any]  # of this process
    count: int  # what the losses of all processes are sums over
    end: Position  # where the stream stands afterwards


class Prefetch:
    """The shares of one update after another, each loaded by a thread before it is needed.

    One thread, so that the stream is read in order; the batches are a function of their place in it, so that nothing
    depends on when they were loaded. A task that does not say so of its own (`can_prefetch`) has them loaded only when
    they are asked for. An error is raised when its update is asked for. `waited` counts the seconds in which the loop
    waited for its data.
    """

    def __init__(self, task: Task, position: Position, accumulate: int, group: Group):
        self.task, self.group = task, group
        self.stream, self.plans = task.stream(position), accumulate * group.world
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
        while self.task.can_prefetch and len(self.coming) <= DEPTH:
            self.coming.append(self.pool.submit(self.load))
        began = time.monotonic()
        share = self.coming.popleft().result() if self.task.can_prefetch else self.load()
        self.waited += time.monotonic() - began
        return share

    def load(self) -> Share:
        """Load the next update's plans, and this process's batches of them."""
        plans = [next(self.stream) for _ in range(self.plans)]
        mine = plans[self.group.rank :: self.group.world]
        batches = [self.task.batch(plan, position) for position, plan in mine]
        if self.group.device.type == "cuda":
            batches = [batch.pin_memory() if hasattr(batch, "pin_memory") else batch for batch in batches]
        last = plans[-1][0]
        return Share(batches, sum(self.task.count(plan) for _, plan in plans), Position(last.epoch, last.batch + 1))
