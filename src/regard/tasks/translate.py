"""The tasks that predict the next token: translation, and the language model.

A language model reads the target side of its corpus; the source is not looked at.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from regard.data.alignments.links import Linking
from regard.data.batching import Order, Position, load, read
from regard.data.bpe_dropout import BpeDropout
from regard.data.packing import PackedBatch, pack, pad_up, step_of
from regard.data.prepare import Prepared
from regard.data.tokenizer import Tokenizers
from regard.decoding.batches import greedy_in_batches
from regard.errors import ArgumentError, ConfigError, NotFiniteError, TrainingError
from regard.evaluation.text import bleu, chrf, exact
from regard.models.contract import Model
from regard.models.kinds import KINDS, build
from regard.tasks.guided import Guided, guided_at
from regard.tasks.metric_choice import translation_metric
from regard.tasks.settings import Settings
from regard.training.objective import Prediction
from regard.training.sample import Sample
from regard.training.task import Task

__all__ = ["LanguageModel", "Translate", "model_of", "vocabulary_sizes"]


class Translate(Task):
    """From source to target."""

    ahead = True

    def __init__(self, settings: Settings, prepared: Prepared, budget: int):
        self.settings, self.prepared = settings, prepared
        tokenizers, training = prepared.tokenizers, settings.training
        torch.manual_seed(training.seed)
        self.model = model_of(settings, tokenizers)
        self.objective, self.linking = self.objective_of(), Linking(tokenizers) if training.guided else None
        self.metric = training.metric or self.suitable_metric()
        self.order = Order(
            prepared.train.lengths,
            budget,
            seed=training.seed,
            rows=training.batch_rows,
            starts=prepared.train.starts,
            weights=prepared.weights,
        )
        self.form: str | None = None  # of batches, where it is not as it comes
        dropout = settings.tokenizer.dropout
        self.dropout = BpeDropout(tokenizers, dropout, seed=training.seed) if dropout else None

    def suitable_metric(self) -> str:
        """What says which checkpoint is best, where nothing else is said."""
        rows = self.settings.training.validate_rows
        return translation_metric([target for _, target in self.prepared.valid_pairs]) if rows else "loss"

    def objective_of(self) -> Prediction:
        """The next token, and where one head should look if it is told."""
        training, train = self.settings.training, self.prepared.train
        if not training.guided:
            return Prediction(self.model, training.smoothing)
        if train.links is None or not len(train.links):
            raise ConfigError(
                "training.guided", f"{training.guided} given, but no pair has word links (data.alignment)"
            )
        return Guided(self.model, training.smoothing, training.guided, *guided_at(self.model, training))

    def stream(self, position: Position) -> Iterator[tuple[Position, Any]]:
        """Batches by a token budget, as indices of pairs."""
        return self.order.stream(position)

    def count(self, plan: Any) -> int:
        """Target tokens, the END of each sentence among them."""
        return int(self.prepared.train.lengths[plan, 1].sum()) + len(plan)

    def batch(self, plan: Any, position: Position) -> Any:
        """The pairs' tokens, with their links where a head is guided."""
        train, longest = self.prepared.train, self.settings.data.longest
        if self.form == "packed":
            sides, lengths, _ = read(train, plan, self.dropout, position.epoch, longest)
            return pack(sides[0], sides[1], lengths, step_of(self.order.budget))
        batch = load(train, plan, self.dropout, position.epoch, longest, self.linking)
        return batch if self.form is None else pad_up(batch)

    def few_shapes(self, half: bool) -> None:
        """Packed where the model serves such batches as they lie, otherwise padded by a little more."""
        if self.linking is None:
            self.form = "packed" if half and self.model.packs else "padded"

    def halves(self, batch: Any) -> Sequence[Any]:
        """Half of the sentences each."""
        try:
            halves: tuple[Any, Any] = batch.halves()
        except ArgumentError:
            size = (
                batch.longest if isinstance(batch, PackedBatch) else max(batch.source.shape[1], batch.target.shape[1])
            )
            raise TrainingError(
                f"out of memory with one sentence of {size} tokens: set data.longest or the model's size lower"
            ) from None
        return halves

    def move(self, batch: Any, device: torch.device) -> Any:
        """The batch on a device."""
        return batch.to(device, non_blocking=device.type == "cuda")

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def validate(self) -> dict[str, float]:
        """The loss a token over all validation pairs, and scores of the first translations."""
        figures = self.loss()
        rows = min(self.settings.training.validate_rows, len(self.prepared.valid))
        self.translated: list[tuple[str, str, str]] = []
        if rows and math.isfinite(figures["loss"]):  # a model without finite scores says nothing
            sources, references = self.texts(rows)
            try:
                outputs = self.translate(sources)
            except NotFiniteError:  # though what is told to it has a finite loss
                return figures
            figures |= {
                "bleu": bleu(outputs, references),
                "chrf": chrf(outputs, references),
                "exact": exact(outputs, references),
            }
            self.translated = list(zip(sources, references, outputs, strict=True))
        return figures

    def loss(self) -> dict[str, float]:
        """The negative log-likelihood of a validation token, without smoothing and dropout."""
        valid = self.prepared.valid
        if not len(valid):
            return {}
        total, count = 0.0, 0
        for plan in Order(valid.lengths, self.order.budget).epoch(0):
            batch = load(valid, plan)
            total += float(self.objective(batch.to(self.device)).parts["nll"])
            count += batch.tokens
        return {"loss": total / count}

    def texts(self, rows: int) -> tuple[list[str], list[str]]:
        """The first validation pairs; references as the tokenizer writes text, since outputs can be no other."""
        pairs, normalise = self.prepared.valid_pairs[:rows], self.prepared.tokenizers.target.normalise
        return [source for source, _ in pairs], [normalise(target) for _, target in pairs]

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Greedy translations."""
        tokenizers = self.prepared.tokenizers
        found = greedy_in_batches(self.model, tokenizers.source.encode_batch(list(texts)), self.device)
        return [tokenizers.target.decode(ids) for ids in found]

    def samples(self) -> list[Sample]:
        """Three translations of the last validation: the same three every time, of different lengths."""
        translated = getattr(self, "translated", [])
        if not translated:
            return []
        by_length = sorted(range(len(translated)), key=lambda i: (len(translated[i][0]), i))
        chosen = sorted({by_length[len(by_length) * part // 4] for part in (1, 2, 3)})
        return [Sample(*translated[i]) for i in chosen]

    def facts(self) -> list[tuple[str, str]]:
        """Model, data and vocabulary."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        tokenizers, counts = self.prepared.tokenizers, self.prepared.counts
        size, kinds = f"{tokenizers.target.size:,}", (tokenizers.source.kind, tokenizers.target.kind)
        vocabulary = f"{size} pieces, joint" if tokenizers.joint else f"{tokenizers.source.size:,} and {size} pieces"
        return [
            ("model", f"{self.settings.kind}, {parameters:,} parameters"),
            ("data", f"{counts['pairs']:,} pairs, {len(self.prepared.valid):,} for validation"),
            ("vocabulary", f"{vocabulary} ({' and '.join(dict.fromkeys(kinds))})"),
            ("batch", f"up to {self.order.budget:,} tokens a side"),
        ]

    def fingerprint(self) -> dict[str, Any]:
        """The model's options, the tokenizer and the data."""
        return {
            "task": self.settings.task,
            "model": self.settings.table()["model"],
            "tokenizer": self.prepared.tokenizers.hash,
            "data": self.prepared.hash,
            "batch_tokens": self.order.budget,
            "batch_rows": self.order.rows,
            "weights": list(self.prepared.weights),
            "dropout": self.settings.tokenizer.dropout,
            "seed": self.settings.training.seed,
        }


class LanguageModel(Translate):
    """The target side alone."""

    def suitable_metric(self) -> str:
        """The loss: nothing is searched for."""
        return "loss"

    def validate(self) -> dict[str, float]:
        """The loss a token, and its exponential."""
        figures = self.loss()
        return figures | {"perplexity": float(np.exp(min(figures["loss"], 700.0)))} if figures else figures

    def samples(self) -> list[Sample]:
        """None: there is nothing to compare with."""
        return []


def model_of(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> Model:
    """A new model for these vocabularies: a language model reads what it writes, and a classifier says labels."""
    source, target = vocabulary_sizes(settings, tokenizers, labels)
    if tokenizers is not None and not tokenizers.joint and settings.task == "translate":
        if getattr(settings.model, "tied", None) == "all":
            raise ConfigError("model.tied", '"all" given with two vocabularies, expected "output" or one for both')
        if KINDS[settings.kind].shares_vocabulary:
            raise ConfigError(
                "tokenizer.joint", f"two vocabularies given, expected one: a {settings.kind} says what it reads"
            )
    return build(settings.kind, settings.model, source, target)


def vocabulary_sizes(settings: Settings, tokenizers: Tokenizers | None, labels: Sequence[str] = ()) -> tuple[int, int]:
    """How many tokens a model reads, none where it reads pictures, and how many tokens or labels it says."""
    if tokenizers is None:  # pictures, and labels
        return 0, len(labels)
    target = len(labels) if settings.task == "classify" else tokenizers.target.size
    return target if settings.task == "language-model" else tokenizers.source.size, target
