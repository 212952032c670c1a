"""The task protocol: the only interface between the training loop and what the model learns.

Your own task needs an objective and its batches:

    class Doubling(Task):
        objective = Objective(nn.Linear(1, 1))            # objective(batch) -> Loss
        def epoch(self, number): return torch.linspace(-1, 1, 160).view(10, 16, 1)

Here each plan, 16 numbers, is itself a batch; override `batch` to load batches from plans.

The objective of most tasks is `Prediction`, a wrapper of a model. It fuses the output projection with the loss, so that
the logits of a whole batch are never in memory at once. Compiling and sharding wrap the objective.
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
    """The result of an objective: `total`, the sum to differentiate, and `parts`, further sums to report."""

    total: Tensor
    parts: dict[str, Tensor] = {}  # noqa: RUF012


DEPTH = 2  # updates to load ahead
RENAMED = {"few_shapes": "limit_shapes", "ahead": "can_prefetch"}  # old names that a task may still define


class Task:
    """A task to learn: its objective, its batches, and how the model is measured.

    A *plan* stands for a batch that is not loaded yet; it is cheap to make and to count. The loop takes plans from
    `stream` and divides losses by the `count` of all plans of an update. Each process loads only its own batches.
    """

    objective: nn.Module  # a module around the model: objective(batch) -> Loss
    unit: str = "tokens"  # what `count` counts
    can_prefetch: bool = False  # whether batches can be loaded early: `batch` depends only on its arguments
    metric: str = "loss"  # the figure of `validate` that selects the best checkpoint

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Make attributes that a class defines under an old name available under the new one, and vice versa."""
        super().__init_subclass__(**arguments)
        for old, new in RENAMED.items():
            if old in vars(cls):
                message = f"{cls.__name__}.{old} is now called {new}: rename it"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                setattr(cls, new, vars(cls)[old])
            elif new in vars(cls):
                setattr(cls, old, vars(cls)[new])

    def epoch(self, number: int) -> Iterable[Any]:
        """Yield the plans of an epoch, which depend only on its number."""
        raise NotImplementedError

    def stream(self, position: Position) -> Iterator[tuple[Position, Any]]:
        """Yield plans endlessly from a position on, each with its own position."""
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
        """Return how many tokens, or examples, this plan's loss is a sum over."""
        return len(plan)

    def batch(self, plan: Any, position: Position) -> Any:
        """Load the tensors of a plan, on the host."""
        return plan

    def limit_shapes(self, half: bool) -> None:
        """Keep the number of batch shapes small; called before the first batch if the run replays CUDA graphs.

        `half` says whether matrix products are in half precision.
        """

    def halves(self, batch: Any) -> Sequence[Any]:
        """Split a batch that does not fit into memory in two."""
        raise TrainingError("out of memory, and this task's batches cannot be split: make them smaller")

    def move(self, batch: Any, device: torch.device) -> Any:
        """Move the batch to a device; for a CPU, return it unchanged."""
        if device.type == "cpu":
            return batch
        if hasattr(batch, "to"):
            return batch.to(device, non_blocking=device.type == "cuda")
        if isinstance(batch, tuple | list):
            return type(batch)(self.move(each, device) for each in batch)
        return batch

    def validate(self) -> dict[str, float]:
        """Measure the model on held-out data; unless empty, the figures include `loss` and `metric`."""
        return {}

    def samples(self) -> list[Sample]:
        """Return a few examples of the model's current output."""
        return []

    def facts(self) -> list[tuple[str, str]]:
        """List the facts to print before training starts."""
        return []

    def fingerprint(self) -> dict[str, Any]:
        """Return the values that a checkpoint's manifest must match for this task to load it."""
        return {}

    few_shapes, ahead = limit_shapes, can_prefetch


# ---- the objective of predicting the next token


class Prediction(nn.Module):
    """Prediction of the next token: label-smoothed cross-entropy over every target token that is not padding.

    Szegedy et al. 2016 (arXiv:1512.00567), section 7: a share of the probability is spread evenly over all tokens.
    """

    replays = True  # an update can be a CUDA graph: forward never waits for the device

    def __init__(self, model: Model, smoothing: float = 0.0):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    @property
    def half_weights(self) -> bool:
        """Return whether matrix products use half-precision copies of the weights, as models of packed batches do."""
        return self.model.packs

    def forward(self, batch: Batch | PackedBatch) -> Loss:
        """Sum the loss over the batch's target tokens; `nll` is the sum without smoothing, `tokens` their number."""
        source, target = inputs(batch)
        hidden, _ = self.model.decode(self.model.encode(source), target)
        return self.token_loss(hidden, batch, target)

    def token_loss(self, hidden: Float[Tensor, "*b n d"], batch: Batch | PackedBatch, target: Tokens) -> Loss:
        """Compute the loss from the decoder's output at each token of `target`."""
        smoothing = self.smoothing if self.training else 0.0
        if isinstance(batch, PackedBatch):
            expected = batch.expected.long()
            real = expected >= 0
        else:
            expected, real = batch.target[:, 1:], target.real
            if hidden.is_cuda and self.model.projects:  # indexing by `real` would wait for the GPU
                hidden, expected = hidden.flatten(0, 1), expected.masked_fill(~real, -1).flatten()
            else:
                hidden, expected = hidden[real], expected[real]
        total, nll = next_token(self.model, hidden, expected, smoothing)
        return Loss(total, {"nll": nll, "tokens": real.sum().to(total.dtype)})


def next_token(
    model: Model, hidden: Float[Tensor, "t d"], expected: Int[Tensor, " t"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum the smoothed cross-entropy, and the negative log-likelihood, which has no gradient and is for reports.

    Ignore tokens whose expected id is negative.
    """
    if model.projects:
        return projection_loss(hidden, model.readout.weight, model.readout.bias, expected, smoothing)
    # No smoothing: it would give a share to tokens to which such a model assigns no probability.
    nll = F.cross_entropy(model.output(hidden).float(), expected, reduction="sum", ignore_index=-1)
    return nll, nll.detach()


def inputs(batch: Batch | PackedBatch) -> tuple[Tokens, Tokens]:
    """Return the source, and the target as the decoder reads it: with START, without END."""
    if isinstance(batch, PackedBatch):
        ids, read, _, *offsets = batch.parts()
        spans = [Packed(each, sizes=(size, batch.longest)) for each, size in zip(offsets, batch.sizes, strict=True)]
        return Tokens(ids, spans[0]), Tokens(read, spans[1])
    source = Tokens.of(batch.source, batch.source_lengths)
    return source, Tokens.of(batch.target[:, :-1], batch.target_lengths)


# ---- the batches of its updates


@dataclass(frozen=True)
class Share:
    """One process's part of an update."""

    batches: list[Any]  # of this process
    count: int  # tokens, or examples, of all processes
    end: Position  # the stream's position after this update


class Prefetch:
    """An iterator of this process's shares, which a thread loads before the loop needs them.

    A single thread reads the stream in order. Batches depend only on their position in it, not on when they are loaded;
    for a task that does not guarantee this (`can_prefetch`), each share is loaded when the loop asks for it. An error
    in loading is raised at the update to which it belongs. `waited` counts the seconds that the loop waited for data.
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
        """Take the next update's plans from the stream, and load this process's batches."""
        plans = [next(self.stream) for _ in range(self.plans)]
        mine = plans[self.group.rank :: self.group.world]
        batches = [self.task.batch(plan, position) for position, plan in mine]
        if self.group.device.type == "cuda":
            batches = [batch.pin_memory() if hasattr(batch, "pin_memory") else batch for batch in batches]
        last = plans[-1][0]
        return Share(batches, sum(self.task.count(plan) for _, plan in plans), Position(last.epoch, last.batch + 1))
