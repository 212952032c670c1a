"""RunTask, the interface for starting, opening, using, measuring and showing a run; engines, and results.

A row of `TASKS` names a subclass of RunTask. Your own may extend another:

    class Reversed(Translate):
        def make_objective(self): ...

An engine searches and scores for a run. `ModelEngine` does so with one of Regard's models; another library may replace
it. An engine receives and returns token ids, so that all work with texts is the same for every engine. It raises an
error that names an option which it does not support.
"""

# n target words · m source words
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from regard import data
from regard.alignment import AlignmentSettings, extraction
from regard.data import Order, Prepared, TextProfile, Tokenizer, Tokenizers, prepare, sentence_split
from regard.decoding import Options, Output, Replay, SearchResult, batches, first_model
from regard.errors import ArgumentError, ConfigError, NotFiniteError, TrainingError
from regard.evaluation import measure
from regard.io import Say, ignore
from regard.models import KINDS, Model, build
from regard.plugins import added
from regard.tasks.evaluation import EvaluationReport, TextTest
from regard.tasks.forcing import ForcedExample, Item
from regard.tasks.settings import Settings
from regard.training import Prediction, Sample, Task

Ids = Sequence[Sequence[int]]
PICTURES = 64  # pictures per batch, unless training.batch_rows is set
BLEU_WORDS = 4  # the order of BLEU's longest n-grams


class Engine(Protocol):
    """The protocol of an engine, which searches, scores and aligns for a run."""

    def check(self, options: Options) -> None:
        """Raise a ConfigError that names an option which the engine does not support."""

    def search(
        self, sources: Ids, options: Options, *, prefixes: Ids | None = None, budget: int | None = None
    ) -> list[SearchResult]:
        """Search for outputs of each source, in batches of at most `budget` source tokens, counted per hypothesis."""

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""

    def word_weights(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[Tensor]:
        """Return the attention of each pair's target words to its source words, as the alignment settings define it."""

    def word_attention(
        self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings
    ) -> list[extraction.WordAttention]:
        """Return these weights, and the total attention that each source word received."""

    def link_words(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[extraction.Links]:
        """Return the links between the words of each pair."""


@dataclass(frozen=True, eq=False)
class ModelEngine:
    """An engine of one of Regard's models and its search; `replay` keeps the CUDA graphs of searches on a GPU."""

    model: Model
    tokenizers: Tokenizers
    device: torch.device
    replay: Replay | None = None

    def check(self, options: Options) -> None:
        """Do nothing: the search itself checks its options."""

    def search(
        self, sources: Ids, options: Options, *, prefixes: Ids | None = None, budget: int | None = None
    ) -> list[SearchResult]:
        """Search for outputs of each source, in batches."""
        how = {"prefixes": prefixes, "device": self.device, "budget": budget, "replay": self.replay}
        return batches.search_in_batches(self.model, sources, options, **how)  # type: ignore[arg-type]

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""
        return batches.score_pairs(self.model, sources, targets, device=self.device)

    def word_weights(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[Tensor]:
        """Return the attention between words, from a teacher-forced pass."""
        return [each.weights for each in self.word_attention(pairs, settings)]

    def word_attention(
        self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings
    ) -> list[extraction.WordAttention]:
        """Return the attention between words and each source word's total, from a teacher-forced pass."""
        return extraction.word_attention(first_model(self.model), self.tokenizers, pairs, settings)

    def link_words(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[extraction.Links]:
        """Return the links between words, from a teacher-forced pass."""
        return extraction.link_words(first_model(self.model), self.tokenizers, pairs, settings)


@dataclass(frozen=True)
class Translation:
    """One output for a text."""

    text: str
    score: float  # the log-probability with penalties, by which outputs are sorted
    log_prob: float  # the log-probability under the model, as `Run.score` computes it
    tokens: tuple[str, ...]  # its pieces
    finished: bool  # whether it ended with END, and not at the length limit
    alignment: tuple[tuple[int, int], ...] | None = None  # links (source word, target word), from 0
    token_log_probs: tuple[float, ...] | None = None  # of each token, without END, if requested
    untranslated: tuple[tuple[int, int], ...] | None = None  # spans of source words, [from, to), that it leaves out


@dataclass(frozen=True)
class Aligned:
    """A pair of sentences in words, and the attention of each target word to each source word."""

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
    """Convert the outputs of many searches to text, in one batch."""
    texts = iter(tokenizer.decode_batch([output.tokens for each in outputs for output in each]))
    return [[to_translation(output, tokenizer, next(texts)) for output in each] for each in outputs]


def to_translation(output: Output, tokenizer: Tokenizer, text: str | None = None) -> Translation:
    """Convert an output of a search to a Translation; `text` is the decoded text, if known already."""
    text = tokenizer.decode(output.tokens) if text is None else text
    pieces = tokenizer.pieces(tokenizer.visible(output.tokens))
    return Translation(text, output.score, output.log_prob, tuple(pieces), output.finished)


class TrainedRun(Protocol):
    """The protocol of an opened run for this layer; `regard.run.Run`, in a higher layer, implements it."""

    folder: Path  # the folder that it was read from
    settings: Settings  # the settings that it was trained with
    model: Model  # the model, or the ensemble
    step: int  # of the checkpoint
    labels: tuple[str, ...]  # of a classifier

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target; raises an error if the run has no texts."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""

    @property
    def alignment_settings(self) -> AlignmentSettings:
        """The settings that define alignments."""

    @property
    def engine(self) -> Engine:
        """The engine that searches, scores and aligns for the run."""

    @property
    def sentence_share(self) -> sentence_split.SentenceShare:
        """The share of training sources with several sentences."""

    def can(self, action: str) -> bool:
        """Return whether the run's task has an action, such as translate."""

    def force(self, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return a teacher-forced example of an item and its output: `target`, or the output of a search."""

    def stream(
        self, texts: Iterable[str], *, chunk: int | None = None, batch_tokens: int | None = None, **options: Any
    ) -> Iterator[list[Any]]:
        """The translations of each text, best first."""

    def links(self, pairs: Iterable[tuple[str, str]]) -> Iterator[extraction.Links]:
        """The links of each pair of texts."""

    def score(self, sources: Iterable[str], targets: Iterable[str] | None = None) -> list[batches.Scored]:
        """Score each target given its source or, for a language model, each text."""


class RunTask(Task):
    """A task of the table of tasks, whose runs have folders."""

    actions: ClassVar[tuple[str, ...]] = ()  # of a run: some of translate, align, sample, caption and classify
    settings: Settings
    prepared: Prepared
    order: Order  # of batches
    model: Model

    def __init__(self, settings: Settings, prepared: Prepared, budget: int):
        """Build the model, its objective and the order of batches; `budget` is their size in tokens per side."""
        self.settings, self.prepared = settings, prepared
        torch.manual_seed(settings.training.seed)
        self.model = build_model(settings, prepared.tokenizers, prepared.labels)
        self.objective = self.make_objective()
        self.metric = settings.training.metric or self.suitable_metric()
        self.order = self.make_order(budget)

    def make_objective(self) -> nn.Module:
        """Create the module around the model that computes the loss of a batch."""
        raise NotImplementedError

    def suitable_metric(self) -> str:
        """Choose the default metric for selecting the best checkpoint."""
        return "loss"

    def make_order(self, budget: int) -> Order:
        """Create the order of batches of every epoch."""
        raise NotImplementedError

    def stream(self, position: data.Position) -> Iterator[tuple[data.Position, Any]]:
        """Yield plans of batches within a token budget, as indices of examples."""
        return self.order.stream(position)

    def make_dropout(self) -> data.BpeDropout | None:
        """Create the BPE dropout that splits texts differently in every epoch, or return None if it is not set."""
        share, tokenizers = self.settings.tokenizer.dropout, self.prepared.tokenizers
        seed = self.settings.training.seed
        return data.BpeDropout(tokenizers, share, seed=seed) if share and tokenizers is not None else None

    @classmethod
    def prepare(
        cls,
        settings: Settings,
        *,
        say: Callable[[str], None] = lambda line: None,
        tokenizers: Tokenizers | None = None,
        labels: Sequence[str] = (),
    ) -> Prepared:
        """Prepare the encoded data, pairs of texts; `tokenizers` and `labels` are those of an earlier run, if any."""
        return prepare(settings.data, settings.tokenizer, say=say, tokenizers=tokenizers)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        """Count the model's parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def fingerprint(self) -> dict[str, Any]:
        """Return the task, the model, the hashes of tokenizer and data, the batches' options, seed and plugins."""
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
        """Return an item of the validation set, and optionally its output, for the figure in a run's report."""
        return None

    @classmethod
    def force(cls, run: TrainedRun, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return a teacher-forced example of an item and its output: `target`, or the output of a search."""
        raise ArgumentError(f"{run.folder}: its task is {run.settings.task}, which cannot be inspected")

    @classmethod
    def evaluate(cls, run: TrainedRun, **options: Any) -> EvaluationReport:
        """Measure a run on a test set; `options` are its files by name, and options of the search such as beam=5."""
        raise ArgumentError(f"{run.folder}: its task is {run.settings.task}, which cannot be measured")


def prepare_data(settings: Settings, **how: Any) -> Prepared:
    """Prepare the encoded data of the task; `how` holds the other arguments of its `RunTask.prepare`."""
    return settings.row.load().prepare(settings, **how)


def build_model(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> Model:
    """Build a new model for these vocabularies, and a classifier for the labels."""
    source, target = vocabulary_sizes(settings, tokenizers, labels)
    row = settings.row
    if tokenizers is not None and not tokenizers.same_ids and row.has_source and not row.labels:
        if settings.model.ties_both_sides():
            raise ConfigError("model.tied", '"all" given with two vocabularies, expected "output" or one for both')
        if KINDS[settings.kind].shares_vocabulary:
            raise ConfigError(
                "tokenizer.joint", f"two vocabularies given, expected one: a {settings.kind} writes what it reads"
            )
    return build(settings.kind, settings.model, source, target)


def vocabulary_sizes(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> tuple[int, int]:
    """Return the sizes of a model's input vocabulary, 0 for pictures, and of its output: tokens or labels."""
    if tokenizers is None:  # a classifier of pictures
        return 0, len(labels)
    target = len(labels) if settings.row.labels else tokenizers.target.size
    return tokenizers.source.size if settings.row.has_source else target, target


def halve(batch: Any, problem: str) -> Sequence[Any]:
    """Split a batch in two; for a single example raise a TrainingError with the message `problem`."""
    try:
        halves: Sequence[Any] = batch.halves()
    except ArgumentError:
        raise TrainingError(problem) from None
    return halves


def pick_three(order: Sequence[int]) -> list[int]:
    """Pick the examples a quarter, a half and three quarters along an order, or fewer of a short one."""
    return sorted({order[len(order) * part // 4] for part in (1, 2, 3)}) if order else []


def without_bleu(shape: TextProfile) -> str | None:
    """Choose a metric for texts that do not suit word n-grams (none, no spaces, or too few words); otherwise None."""
    if not shape.words:
        return "loss"
    if shape.unspaced:
        return "chrf"
    return "exact" if shape.words < BLEU_WORDS else None


# ---- tasks that predict the next token: translation, language modelling and captions


class NextToken(RunTask):
    """A task whose model writes text, token by token, from a source or from nothing."""

    can_prefetch = True

    def __init__(self, settings: Settings, prepared: Prepared, budget: int):
        super().__init__(settings, prepared, budget)
        self.validation_samples: list[Sample] = []  # of the last validation

    def valid_batches(self) -> Iterable[Any]:
        """Yield the validation data in batches."""
        raise NotImplementedError

    def write(self, rows: int) -> tuple[list[Sample], dict[str, float]]:
        """Decode the first validation examples greedily, and score the outputs."""
        raise NotImplementedError

    @property
    def tokenizer(self) -> data.Tokenizer:
        """Return the tokenizer of the output."""
        assert self.prepared.tokenizers is not None
        return self.prepared.tokenizers.target

    def count(self, plan: Any) -> int:
        """Count the target tokens, including the END of each sentence."""
        return int(self.prepared.train.lengths[plan, 1].sum()) + len(plan)

    def validate(self) -> dict[str, float]:
        """Measure the loss per token over all validation examples, and score the outputs for the first ones."""
        figures = self.loss()
        rows = min(self.settings.training.validate_rows, len(self.prepared.valid))
        self.validation_samples = []
        if rows and math.isfinite(figures["loss"]):  # a search needs finite logits
            try:
                self.validation_samples, scores = self.write(rows)
            except NotFiniteError:  # the loss is finite, but logits in the search are not
                return figures
            figures |= scores | self.plugin_scores()
        return figures

    def plugin_scores(self) -> dict[str, float]:
        """Score the outputs of the last validation with the metrics of plugins."""
        outputs = [each.output for each in self.validation_samples]
        references = [each.reference for each in self.validation_samples]
        measurements = {key: measure(key, outputs, references) for key in added("metric")}
        if self.metric in measurements and not measurements[self.metric].higher:
            raise ConfigError(
                "training.metric", f'"{self.metric}" given, for which lower is better; expected another metric'
            )
        return {key: each.score().value for key, each in measurements.items()}

    def loss(self) -> dict[str, float]:
        """Compute the negative log-likelihood per validation token, without smoothing and dropout."""
        if not len(self.prepared.valid):
            return {}
        total, count = 0.0, 0
        for batch in self.valid_batches():
            total += float(self.objective(batch.to(self.device)).parts["nll"])
            count += batch.tokens
        return {"loss": total / count}

    def samples(self) -> list[Sample]:
        """Return three outputs of the last validation, always of the same sources, of different lengths."""
        samples = self.validation_samples
        by_length = sorted(range(len(samples)), key=lambda i: (len(samples[i].source), i))
        return [samples[i] for i in pick_three(by_length)]

    def fingerprint(self) -> dict[str, Any]:
        """Return the common values, and the weights of the corpora."""
        return {**super().fingerprint(), "weights": list(self.prepared.weights)}


class TextPairs(NextToken):
    """A task of pairs of texts, in batches by a token budget, packed or padded."""

    def __init__(self, settings: Settings, prepared: data.Prepared, budget: int):
        super().__init__(settings, prepared, budget)
        self.linking = data.Linking(self.tokenizers) if settings.training.guided else None
        self.form: str | None = None  # of batches: packed, padded up, or None for the usual padding
        self.dropout = self.make_dropout()

    @property
    def tokenizers(self) -> data.Tokenizers:
        """The tokenizers of source and target."""
        assert self.prepared.tokenizers is not None
        return self.prepared.tokenizers

    def make_objective(self) -> nn.Module:
        """Create the objective of predicting the next token."""
        return Prediction(self.model, self.settings.training.smoothing)

    def make_order(self, budget: int) -> data.Order:
        """Group pairs of similar length."""
        training, train = self.settings.training, self.prepared.train
        return data.Order(
            train.lengths,
            budget,
            seed=training.seed,
            rows=training.batch_rows,
            starts=train.starts,
            weights=self.prepared.weights,
        )

    def batch(self, plan: Any, position: data.Position) -> data.Batch | data.PackedBatch:
        """Load the pairs' tokens, with their links if training uses guided alignment."""
        train, longest = self.prepared.train, self.settings.data.longest
        if self.form == "packed":
            sides, lengths, _ = data.batching.read(train, plan, self.dropout, position.epoch, longest)
            return data.batching.pack(sides[0], sides[1], lengths, data.batching.step_of(self.order.budget))
        batch = data.batching.load(train, plan, self.dropout, position.epoch, longest, self.linking)
        return batch if self.form is None else data.batching.pad_up(batch)

    def limit_shapes(self, half: bool) -> None:
        """Pack batches in half precision if the model supports it; otherwise pad them up to fewer shapes."""
        if self.linking is None:
            self.form = "packed" if half and self.model.packs else "padded"

    def halves(self, batch: Any) -> Sequence[Any]:
        """Split the batch into halves of its sentences."""
        packed = isinstance(batch, data.PackedBatch)
        size = batch.longest if packed else max(batch.source.shape[1], batch.target.shape[1])
        return halve(batch, f"out of memory with one sentence of {size} tokens: lower data.longest or the model's size")

    def valid_batches(self) -> Iterator[data.Batch]:
        """Yield the validation pairs, padded."""
        valid = self.prepared.valid
        return (data.batching.load(valid, plan) for plan in data.Order(valid.lengths, self.order.budget).epoch(0))

    def facts(self) -> list[tuple[str, str]]:
        """List the model, the data, the vocabulary and the batch size."""
        tokenizers = self.tokenizers
        size, kinds = f"{tokenizers.target.size:,}", (tokenizers.source.kind, tokenizers.target.kind)
        vocabulary = f"{size} pieces, joint" if tokenizers.same_ids else f"{tokenizers.source.size:,} and {size} pieces"
        held_out = f"{len(self.prepared.valid):,} for validation"
        return [
            ("model", f"{self.settings.kind}, {self.parameters:,} parameters"),
            ("data", f"{self.prepared.counts['pairs']:,} pairs, {held_out}"),
            ("vocabulary", f"{vocabulary} ({' and '.join(dict.fromkeys(kinds))})"),
            ("batch", f"up to {self.order.budget:,} tokens per side"),
        ]

    @classmethod
    def evaluate(
        cls,
        run: TrainedRun,
        *,
        test: TextTest | None = None,
        system: str | None = None,
        search: Mapping[str, Any] | None = None,
        say: Say = ignore,
        **options: Any,
    ) -> EvaluationReport:
        """Compare the run's outputs for the lines of `source` with those of `reference`, or measure their perplexity.

        `options` are the arguments of `TextTest.read` and `TextTest.measure`. A `test` that is already read replaces
        those of `TextTest.read`. `search` holds the options of the search, by default a beam of 5 and a length penalty
        of 0.6.
        """
        search = {"beam": 5, "length_penalty": 0.6} if search is None else search
        how = {name: options.pop(name) for name in ("batch_tokens", "keep", "watch") if name in options}
        test = TextTest.read(**options, say=say) if test is None else test
        return test.measure(run, str(run.folder) if system is None else system, say=say, **how, **search)
