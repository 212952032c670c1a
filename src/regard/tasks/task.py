"""RunTask: what starting, opening, using, measuring and showing a run ask of its task, beside what the loop asks.

A row of `TASKS` names a class of this kind. One of your own may build on another:

    class Reversed(Translate):
        def make_objective(self): ...
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch

from regard.data.prepare import Prepared, prepare
from regard.data.tokenizer import Tokenizers
from regard.decoding.batches import Scored
from regard.decoding.options import Options
from regard.errors import ArgumentError, ConfigError, TrainingError
from regard.inspection.alignments.extraction import Links
from regard.inspection.alignments.settings import AlignmentSettings
from regard.inspection.collect.open_run import OpenRun
from regard.inspection.collect.teacher_forcing import ForcedExample, Item
from regard.models.contract import Model
from regard.models.kinds import KINDS, build
from regard.tasks.settings import Settings
from regard.training.task import Task

if TYPE_CHECKING:
    from regard.tasks.evaluation import EvaluationReport

__all__ = [
    "TrainedRun",
    "RunTask",
    "build_model",
    "halve",
    "make_task",
    "prepare_data",
    "spread_out",
    "vocabulary_sizes",
]


class TrainedRun(OpenRun, Protocol):
    """What tasks ask of an opened run: `regard.run.Run` is one, and stands above this layer."""

    @property
    def settings(self) -> Settings:
        """What it was trained with."""

    @property
    def alignment_settings(self) -> AlignmentSettings:
        """What is read as an alignment."""

    def stream(
        self, texts: Iterable[str], *, chunk: int | None = None, batch_tokens: int | None = None, **options: Any
    ) -> Iterator[list[Any]]:
        """The translations of each text, best first."""

    def links(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Links]:
        """The links of each pair of texts."""

    def score(self, sources: Iterable[str], targets: Iterable[str] | None = None) -> list[Scored]:
        """What the model thinks of each target given its source; of a language model, of each text."""


class RunTask(Task):
    """A task of the table, of which there are run folders."""

    actions: ClassVar[tuple[str, ...]] = ()  # of a run: those of translate, align, sample, caption and classify
    settings: Settings
    prepared: Prepared
    model: Model

    def __init__(self, settings: Settings, prepared: Prepared, budget: int):
        """`budget` is that of a batch, in tokens a side."""
        raise NotImplementedError

    @classmethod
    def prepare(
        cls,
        settings: Settings,
        *,
        say: Callable[[str], None] = lambda line: None,
        tokenizers: Tokenizers | None = None,
        labels: Sequence[str] = (),
    ) -> Prepared:
        """The encoded data: pairs of texts; `tokenizers` and `labels` are those of a run that is resumed."""
        return prepare(settings.data, settings.tokenizer, say=say, tokenizers=tokenizers)

    def move(self, batch: Any, device: torch.device) -> Any:
        """The batch on a device."""
        return batch.to(device, non_blocking=device.type == "cuda")

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def plugins(self) -> dict[str, list[str]]:
        """For a fingerprint: the plugins that the run needs, where there are any."""
        return {"plugins": list(self.settings.plugins)} if self.settings.plugins else {}

    def example(self) -> tuple[Item, str | None] | None:
        """An item of the validation, and an output of it where one is given, for the picture in a run's report."""
        return None

    @classmethod
    def force(cls, run: TrainedRun, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """An input and an output for a teacher-forced pass: what the search says of the item, or `target`."""
        raise ArgumentError(f"{run.folder}: its task is {run.settings.task}, which cannot be inspected")

    @classmethod
    def evaluate(cls, run: TrainedRun, **options: Any) -> "EvaluationReport":
        """Measure a run on a test set: its files, each by its name, and options of the search such as beam=5."""
        raise ArgumentError(f"{run.folder}: its task is {run.settings.task}, which cannot be measured")


def make_task(settings: Settings, prepared: Prepared, budget: int) -> RunTask:
    """The task that the settings name. What one task needs is loaded for no other."""
    return settings.row.load()(settings, prepared, budget)


def prepare_data(
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda line: None,
    tokenizers: Tokenizers | None = None,
    labels: Sequence[str] = (),
) -> Prepared:
    """The encoded data of the task; `tokenizers` and `labels` are those of a run that is resumed."""
    return settings.row.load().prepare(settings, say=say, tokenizers=tokenizers, labels=labels)


def build_model(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> Model:
    """A new model for these vocabularies: a language model reads what it writes, and a classifier says labels."""
    source, target = vocabulary_sizes(settings, tokenizers, labels)
    row = settings.row
    if tokenizers is not None and not tokenizers.joint and not row.alone and not row.labels:
        if settings.model.ties_both_sides():
            raise ConfigError("model.tied", '"all" given with two vocabularies, expected "output" or one for both')
        if KINDS[settings.kind].shares_vocabulary:
            raise ConfigError(
                "tokenizer.joint", f"two vocabularies given, expected one: a {settings.kind} writes what it reads"
            )
    return build(settings.kind, settings.model, source, target)


def vocabulary_sizes(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> tuple[int, int]:
    """How many tokens a model reads, none where it reads pictures, and how many tokens or labels it says."""
    if tokenizers is None:  # pictures, and labels
        return 0, len(labels)
    target = len(labels) if settings.row.labels else tokenizers.target.size
    return target if settings.row.alone else tokenizers.source.size, target


def halve(batch: Any, explain: Callable[[], str]) -> Sequence[Any]:
    """A batch in two; of one example a TrainingError that says what to do."""
    try:
        halves: Sequence[Any] = batch.halves()
    except ArgumentError:
        raise TrainingError(explain()) from None
    return halves


def spread_out(order: Sequence[int]) -> list[int]:
    """Three of some examples, a quarter, a half and three quarters along an order; fewer where there are fewer."""
    return sorted({order[len(order) * part // 4] for part in (1, 2, 3)}) if order else []
