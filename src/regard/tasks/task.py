"""RunTask: the interface for starting, opening, using, measuring and showing a run, beside the loop's own; its
engine, and results.

A row of `TASKS` names a class of this kind. One of your own may build on another:

    class Reversed(Translate):
        def make_objective(self): ...

An engine is what searches and scores for a run. A model of Regard's own is one; another library may stand in its place.
It gets token numbers and gives token numbers, so that all that is done with texts stays the same. It refuses options
that it does not serve, by their names.
"""

# n target words · m source words
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from regard.alignment import AlignmentSettings, extraction
from regard.data import Order, Prepared, Tokenizer, Tokenizers, prepare, sentence_split
from regard.decoding import Options, Output, Replay, SearchResult, batches, first_model
from regard.errors import ArgumentError, ConfigError, TrainingError
from regard.models import KINDS, Model, build
from regard.tasks.forcing import ForcedExample, Item
from regard.tasks.settings import Settings
from regard.training import Task

if TYPE_CHECKING:
    from regard.tasks.evaluation import EvaluationReport

Ids = Sequence[Sequence[int]]


class Engine(Protocol):
    """What a run searches, scores and aligns with."""

    def check(self, options: Options) -> None:
        """Refuse options that it does not serve, by a ConfigError with the option's name."""

    def search(
        self, sources: Ids, options: Options, *, prefixes: Ids | None = None, budget: int | None = None
    ) -> list[SearchResult]:
        """Search for each of the sources, in batches of `budget` source tokens for each hypothesis."""

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""

    def word_weights(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[Tensor]:
        """Return how much each target word of a pair looked at each source word, by the settings of alignment."""

    def word_attention(
        self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings
    ) -> list[extraction.WordAttention]:
        """Return these weights, and how much each source word received in all."""

    def link_words(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[extraction.Links]:
        """Return the links between the words of each pair."""


@dataclass(frozen=True, eq=False)
class ModelEngine:
    """A model of Regard's under its own search; `replay` keeps the graphs of searches on a GPU."""

    model: Model
    tokenizers: Tokenizers
    device: torch.device
    replay: Replay | None = None

    def check(self, options: Options) -> None:
        """Refuse nothing: the search serves every option, or says why not when it begins."""

    def search(
        self, sources: Ids, options: Options, *, prefixes: Ids | None = None, budget: int | None = None
    ) -> list[SearchResult]:
        """Search for each of the sources in batches."""
        how = {"prefixes": prefixes, "device": self.device, "budget": budget, "replay": self.replay}
        return batches.search_in_batches(self.model, sources, options, **how)  # type: ignore[arg-type]

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""
        return batches.score_pairs(self.model, sources, targets, device=self.device)

    def word_weights(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[Tensor]:
        """Read the weights in a teacher-forced pass."""
        return extraction.word_weights(first_model(self.model), self.tokenizers, pairs, settings)

    def word_attention(
        self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings
    ) -> list[extraction.WordAttention]:
        """Read the weights and what each source word received in a teacher-forced pass."""
        return extraction.word_attention(first_model(self.model), self.tokenizers, pairs, settings)

    def link_words(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[extraction.Links]:
        """Read the links in a teacher-forced pass."""
        return extraction.link_words(first_model(self.model), self.tokenizers, pairs, settings)


@dataclass(frozen=True)
class Translation:
    """One output for a text."""

    text: str
    score: float  # what outputs of a text are sorted by: the log-probability with the penalties
    log_prob: float  # what the model thinks of it: the same as `Run.score` says of the pair
    tokens: tuple[str, ...]  # its pieces
    finished: bool  # it ended by itself, and not at the limit of its length
    alignment: tuple[tuple[int, int], ...] | None = None  # links of a source word and a target word, from 0
    token_log_probs: tuple[float, ...] | None = None  # of each of its tokens, without END, where they were asked for
    untranslated: tuple[tuple[int, int], ...] | None = None  # rows of source words, [from, to), that it leaves out


@dataclass(frozen=True)
class Aligned:
    """A pair of sentences in words, and how much each target word looked at each source word."""

    source: list[str]
    target: list[str]
    weights: Tensor  # [n m]


@dataclass(frozen=True)
class Classified:
    """The predicted label of a document or a picture."""

    label: str
    probability: float
    probabilities: dict[str, float]  # of every label


def to_translations(outputs: Sequence[Sequence[Output]], tokenizer: Tokenizer) -> list[list[Translation]]:
    """Turn the outputs of many searches into text, all at once."""
    texts = iter(tokenizer.decode_batch([output.tokens for each in outputs for output in each]))
    return [[to_translation(output, tokenizer, next(texts)) for output in each] for each in outputs]


def to_translation(output: Output, tokenizer: Tokenizer, text: str | None = None) -> Translation:
    """Convert an output of a search to text, unless that was done before."""
    text = tokenizer.decode(output.tokens) if text is None else text
    pieces = tokenizer.pieces(tokenizer.visible(output.tokens))
    return Translation(text, output.score, output.log_prob, tuple(pieces), output.finished)


class TrainedRun(Protocol):
    """The part of an opened run that others need: `regard.run.Run` is one, and stands above this layer."""

    folder: Path  # that it was read from
    settings: Settings  # that it was trained with
    model: Model  # that decodes, or the ensemble
    step: int  # of the checkpoint
    labels: tuple[str, ...]  # of a classifier

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target; an error where there are no texts."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""

    @property
    def alignment_settings(self) -> AlignmentSettings:
        """The settings by which alignments are read."""

    @property
    def engine(self) -> Engine:
        """What searches, scores and aligns for the run."""

    @property
    def sentence_share(self) -> sentence_split.SentenceShare:
        """How many of the sources that it was trained on have several sentences."""

    def can(self, action: str) -> bool:
        """Return whether the run's task has an action, such as translate."""

    def force(self, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return an input and an output for a teacher-forced pass: what the search finds for the item, or `target`."""

    def stream(
        self, texts: Iterable[str], *, chunk: int | None = None, batch_tokens: int | None = None, **options: Any
    ) -> Iterator[list[Any]]:
        """The translations of each text, best first."""

    def links(self, pairs: Iterable[tuple[str, str]]) -> Iterator[extraction.Links]:
        """The links of each pair of texts."""

    def score(self, sources: Iterable[str], targets: Iterable[str] | None = None) -> list[batches.Scored]:
        """Score each target given its source or, for a language model, each text."""


class RunTask(Task):
    """A task of the table, of which there are run folders."""

    actions: ClassVar[tuple[str, ...]] = ()  # of a run: those of translate, align, sample, caption and classify
    settings: Settings
    prepared: Prepared
    order: Order  # of batches
    model: Model

    def __init__(self, settings: Settings, prepared: Prepared, budget: int):
        """Take `budget`, the size of a batch in tokens per side."""
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
        """Prepare the encoded data, pairs of texts; `tokenizers` and `labels` are those of a run that is resumed."""
        return prepare(settings.data, settings.tokenizer, say=say, tokenizers=tokenizers)

    def move(self, batch: Any, device: torch.device) -> Any:
        """Move the batch to a device."""
        return batch.to(device, non_blocking=device.type == "cuda")

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        """Count the model's parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def fingerprint(self) -> dict[str, Any]:
        """The model's options, the tokenizer, the data and its batches, and the plugins that the run needs."""
        settings, tokenizers = self.settings, self.prepared.tokenizers
        return {
            "task": settings.task,
            "model": settings.model_table(),
            "tokenizer": None if tokenizers is None else tokenizers.hash,
            "data": self.prepared.hash,
            "batch_tokens": self.order.budget,
            "batch_rows": self.order.rows,
            "dropout": settings.tokenizer.dropout,
            "seed": settings.training.seed,
            **({"plugins": list(settings.plugins)} if settings.plugins else {}),
        }

    def example(self) -> tuple[Item, str | None] | None:
        """Return an item of the validation set, and an output where one is given, for the picture in a run's report."""
        return None

    @classmethod
    def force(cls, run: TrainedRun, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return an input and an output for a teacher-forced pass: what the search finds for the item, or `target`."""
        raise ArgumentError(f"{run.folder}: its task is {run.settings.task}, which cannot be inspected")

    @classmethod
    def evaluate(cls, run: TrainedRun, **options: Any) -> "EvaluationReport":
        """Measure a run on a test set: its files, each by its name, and options of the search such as beam=5."""
        raise ArgumentError(f"{run.folder}: its task is {run.settings.task}, which cannot be measured")


def prepare_data(settings: Settings, **how: Any) -> Prepared:
    """Prepare the encoded data of the task; `how` are the other arguments of its `RunTask.prepare`."""
    return settings.row.load().prepare(settings, **how)


def build_model(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> Model:
    """Build a new model for these vocabularies: a language model reads what it writes; a classifier names labels."""
    source, target = vocabulary_sizes(settings, tokenizers, labels)
    row = settings.row
    if tokenizers is not None and not tokenizers.same_ids and not row.alone and not row.labels:
        if settings.model.ties_both_sides():
            raise ConfigError("model.tied", '"all" given with two vocabularies, expected "output" or one for both')
        if KINDS[settings.kind].shares_vocabulary:
            raise ConfigError(
                "tokenizer.joint", f"two vocabularies given, expected one: a {settings.kind} writes what it reads"
            )
    return build(settings.kind, settings.model, source, target)


def vocabulary_sizes(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> tuple[int, int]:
    """Return the sizes of a model's input vocabulary, 0 for pictures, and of its output: tokens or labels."""
    if tokenizers is None:  # pictures, and labels
        return 0, len(labels)
    target = len(labels) if settings.row.labels else tokenizers.target.size
    return target if settings.row.alone else tokenizers.source.size, target


def halve(batch: Any, problem: str) -> Sequence[Any]:
    """Split a batch in two; of one example the `problem`, which says what to do, is a TrainingError."""
    try:
        halves: Sequence[Any] = batch.halves()
    except ArgumentError:
        raise TrainingError(problem) from None
    return halves


def spread_out(order: Sequence[int]) -> list[int]:
    """Pick three examples, a quarter, a half and three quarters along an order; fewer where there are fewer."""
    return sorted({order[len(order) * part // 4] for part in (1, 2, 3)}) if order else []
