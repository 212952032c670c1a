"""The parts shared by tasks that predict the next token: translation, language modelling and captions."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from regard import data
from regard.errors import ConfigError, NotFiniteError
from regard.evaluation import measure
from regard.plugins import added
from regard.tasks.evaluation import EvaluationReport, evaluate_texts
from regard.tasks.settings import Settings
from regard.tasks.task import RunTask, TrainedRun, build_model, halve, spread_out
from regard.training import Prediction, Sample


class NextToken(RunTask):
    """A task whose model writes text, token by token, from a source or from nothing."""

    can_prefetch = True

    def __init__(self, settings: Settings, prepared: data.Prepared, budget: int):
        self.settings, self.prepared = settings, prepared
        torch.manual_seed(settings.training.seed)
        self.model = build_model(settings, prepared.tokenizers, prepared.labels)
        self.objective = self.make_objective()
        self.metric = settings.training.metric or self.suitable_metric()
        self.order = self.make_order(budget)
        self.validation_samples: list[Sample] = []  # of the last validation

    def make_objective(self) -> nn.Module:
        """Make the module around the model that turns a batch into a loss."""
        raise NotImplementedError

    def suitable_metric(self) -> str:
        """Choose the metric that decides the best checkpoint, where none is set."""
        return "loss"

    def make_order(self, budget: int) -> data.Order:
        """Make the order of batches of every epoch."""
        raise NotImplementedError

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

    def stream(self, position: data.Position) -> Iterator[tuple[data.Position, Any]]:
        """Yield batches by a token budget, as indices of examples."""
        return self.order.stream(position)

    def count(self, plan: Any) -> int:
        """Count the target tokens, including the END of each sentence."""
        return int(self.prepared.train.lengths[plan, 1].sum()) + len(plan)

    def validate(self) -> dict[str, float]:
        """Measure the loss per token over all validation examples, and score the outputs for the first ones."""
        figures = self.loss()
        rows = min(self.settings.training.validate_rows, len(self.prepared.valid))
        self.validation_samples = []
        if rows and math.isfinite(figures["loss"]):  # a model without finite scores says nothing
            try:
                self.validation_samples, scores = self.write(rows)
            except NotFiniteError:  # though what is given to it has a finite loss
                return figures
            figures |= scores | self.plugin_scores()
        return figures

    def plugin_scores(self) -> dict[str, float]:
        """Score the outputs of the last validation by the metrics of plugins."""
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
        """Return three outputs of the last validation, the same three every time, of different lengths."""
        samples = self.validation_samples
        by_length = sorted(range(len(samples)), key=lambda i: (len(samples[i].source), i))
        return [samples[i] for i in spread_out(by_length)]

    def fingerprint(self) -> dict[str, Any]:
        """The model's options, the tokenizer and the data, with its weights."""
        return {**super().fingerprint(), "weights": list(self.prepared.weights)}


class TextPairs(NextToken):
    """A task of pairs of texts, in batches by a token budget, packed or padded."""

    def __init__(self, settings: Settings, prepared: data.Prepared, budget: int):
        super().__init__(settings, prepared, budget)
        training, dropout = settings.training, settings.tokenizer.dropout
        self.linking = data.Linking(self.tokenizers) if training.guided else None
        self.form: str | None = None  # of batches, where it is not as it comes
        self.dropout = data.BpeDropout(self.tokenizers, dropout, seed=training.seed) if dropout else None

    @property
    def tokenizers(self) -> data.Tokenizers:
        """The tokenizers of source and target."""
        assert self.prepared.tokenizers is not None
        return self.prepared.tokenizers

    def make_objective(self) -> nn.Module:
        """Make the objective of predicting the next token."""
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
        """Load the pairs' tokens, with their links where a head is guided."""
        train, longest = self.prepared.train, self.settings.data.longest
        if self.form == "packed":
            sides, lengths, _ = data.batching.read(train, plan, self.dropout, position.epoch, longest)
            return data.packing.pack(sides[0], sides[1], lengths, data.packing.step_of(self.order.budget))
        batch = data.batching.load(train, plan, self.dropout, position.epoch, longest, self.linking)
        return batch if self.form is None else data.packing.pad_up(batch)

    def limit_shapes(self, half: bool) -> None:
        """Pack batches where the model serves them as they lie; otherwise pad them a little more."""
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
        """Model, data and vocabulary."""
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
    def evaluate(cls, run: TrainedRun, **options: Any) -> EvaluationReport:
        """Compare what the run writes for `source` with `reference`, or measure how likely that is: lines of files."""
        return evaluate_texts(run, **options)
