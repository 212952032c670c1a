"""Classification: assigning one of a few labels to a document or a picture."""

# b documents or pictures · k labels · h w height and width
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from regard.data import (
    Encoded,
    Order,
    Position,
    Prepared,
    batching,
    caption_files,
    document_texts,
    pairs,
    picture_corpus,
    prepare_images,
)
from regard.decoding import Options, batches, source_of
from regard.errors import ArgumentError, DataError
from regard.evaluation import measure_labels
from regard.models import KINDS, Documents, Model, Pictures, Source, Tokens
from regard.tasks import forcing
from regard.tasks.baseline import labels_of
from regard.tasks.evaluation import EvaluationReport, Table
from regard.tasks.forcing import ForcedExample, Item
from regard.tasks.settings import Settings
from regard.tasks.task import PICTURES, Classified, RunTask, TrainedRun, halve, pick_three
from regard.training import Loss, Sample

SHOWN = 240  # characters of a displayed document
WIDEST = 12  # labels in the columns of a confusion matrix, at most
MAJORITY = 0.8  # share of the most frequent label from which always predicting it has a misleadingly high accuracy


@dataclass(frozen=True, eq=False)
class LabelBatch(batching.TensorBatch):
    """A batch of documents or pictures, with the index of each one's label."""

    one = "one"
    source: Source
    labels: Int64[Tensor, " b"]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, first: int, last: int) -> "LabelBatch":
        """Return some rows of the batch; this copies lengths from the device to the host."""
        return LabelBatch(part_of(self.source, first, last), self.labels[first:last])

    def map_tensors(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to every tensor of the batch."""
        source: Source
        if isinstance(self.source, Pictures):
            source = Pictures(move(self.source.pixels))
        elif isinstance(self.source, Documents):
            words = self.source.words
            source = Documents(Tokens.of(move(words.ids), move(words.lengths)), move(self.source.sentences))
        else:
            source = Tokens.of(move(self.source.ids), move(self.source.lengths))
        return replace(self, source=source, labels=move(self.labels))


def part_of(source: Source, first: int, last: int) -> Source:
    """Return some of the documents or pictures, without unnecessary padding."""
    if isinstance(source, Pictures):
        return Pictures(source.pixels[first:last])
    if isinstance(source, Documents):
        before, inside = int(source.sentences[:first].sum()), int(source.sentences[first:last].sum())
        words = part_of(source.words, before, before + inside)
        assert isinstance(words, Tokens)
        return Documents(words, source.sentences[first:last])
    lengths = source.lengths[first:last]
    return Tokens.of(source.ids[first:last, : max(1, int(lengths.max()))], lengths)


class Classification(nn.Module):
    """The objective of classification: label-smoothed cross-entropy, optionally with a weight for each label."""

    weights: Tensor | None

    def __init__(self, model: Model, smoothing: float = 0.0, weights: Sequence[float] | None = None):
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.register_buffer("weights", None if weights is None else torch.tensor(weights), persistent=False)

    def forward(self, batch: LabelBatch) -> Loss:
        """Sum the loss over the batch; `nll` is the sum without smoothing and weights."""
        scores = self.scores(batch)
        nll = F.cross_entropy(scores.detach(), batch.labels, reduction="sum")
        if not self.training:
            return Loss(nll, {"nll": nll})
        each = F.cross_entropy(scores, batch.labels, reduction="none", label_smoothing=self.smoothing)
        if self.weights is not None:
            each = each * self.weights[batch.labels].to(each)
        return Loss(each.sum(), {"nll": nll})

    def scores(self, batch: LabelBatch) -> Float[Tensor, "b k"]:
        """Compute the logits of every label."""
        scores = self.model.classify(self.model.encode(batch.source))
        return scores if scores.dtype == torch.float64 else scores.float()


class Classify(RunTask):
    """The task of classifying documents or pictures."""

    actions = ("classify",)

    objective: Classification
    unit, can_prefetch = "examples", True

    def __init__(self, settings: Settings, prepared: Prepared, budget: int):
        super().__init__(settings, prepared, budget)
        self.dropout = self.make_dropout()
        self.predictions: list[str] = []  # of the last validation

    def make_objective(self) -> Classification:
        """Create the objective; with class_weights = "balanced" give rare labels larger weights."""
        training, prepared = self.settings.training, self.prepared
        weights = None
        if training.class_weights == "balanced":  # n / (k n_label), whose mean over the examples is 1
            counts = np.bincount(labels_of(prepared.train), minlength=len(prepared.labels))
            weights = [float(len(prepared.train) / (len(prepared.labels) * max(1, count))) for count in counts]
        return Classification(self.model, training.smoothing, weights)

    def suitable_metric(self) -> str:
        """Choose the metric that suits the held-out labels."""
        return label_metric(labels_of(self.prepared.valid).tolist())

    def make_order(self, budget: int) -> Order:
        """Group examples of similar length."""
        training, prepared = self.settings.training, self.prepared
        rows = training.batch_rows or (PICTURES if prepared.pictures is not None else None)
        return Order(prepared.train.lengths, budget, seed=training.seed, rows=rows)

    @classmethod
    def prepare(cls, settings: Settings, *, labels: Sequence[str] = (), **how: Any) -> Prepared:
        """Prepare documents or pictures, and their labels."""
        data, label_names = settings.data, tuple(labels) or None
        if data.reads == "pictures":
            return prepare_images(data, settings.tokenizer, settings.task, labels=label_names, labelled=True, **how)
        if data.reads == "documents":
            return document_texts.prepare_documents(data, settings.tokenizer, labels=label_names, **how)
        return super().prepare(settings, **how)  # no data are named: this raises the error

    def batch(self, plan: Any, position: Position) -> LabelBatch:
        """Load the documents' tokens, or the pictures' pixels; BPE dropout and crops differ in every epoch."""
        return self.load(self.prepared.train, plan, train=True, epoch=position.epoch)

    def load(self, encoded: Encoded, plan: Any, *, train: bool, epoch: int = 0) -> LabelBatch:
        """Load a batch of the examples of `plan`."""
        if self.prepared.pictures is not None:
            seed, data = self.settings.training.seed, self.settings.data
            pictures = batching.load_pictures(
                self.prepared, encoded, plan, train=train, data=data, seed=seed, epoch=epoch
            )
            return LabelBatch(Pictures(pictures.pixels), pictures.labels)
        pairs = [encoded.pair(int(i)) for i in plan]
        rows: list[Any] = [source for source, _ in pairs]
        if train and self.dropout is not None:
            indexed = zip(plan, rows, strict=True)
            rows = [self.dropout.pair(row.tolist(), (), epoch=epoch, index=int(i))[0] for i, row in indexed]
        labels = torch.tensor([int(target[0]) for _, target in pairs])
        return LabelBatch(source_of(rows, KINDS[self.settings.kind].reads), labels)

    def halves(self, batch: Any) -> Sequence[LabelBatch]:
        """Split the batch into halves of its documents or pictures."""
        what = "picture: lower data.image_size" if self.prepared.pictures else "document: lower data.document_tokens"
        return halve(batch, f"out of memory with one {what} or the model's size")

    def validate(self) -> dict[str, float]:
        """Measure the loss per document or picture, accuracy and macro-F1, over all held-out examples."""
        valid, labels = self.prepared.valid, self.prepared.labels
        if not len(valid):
            return {}
        total = 0.0
        right, prediction_ids = np.zeros(len(valid), np.int64), np.zeros(len(valid), np.int64)
        for plan in Order(valid.lengths, self.order.budget, rows=self.order.rows).epoch(0):
            batch = self.load(valid, plan, train=False).to(self.device)
            with torch.no_grad():
                scores = self.objective.scores(batch)
            total += float(F.cross_entropy(scores, batch.labels, reduction="sum"))
            right[plan], prediction_ids[plan] = batch.labels.cpu().numpy(), scores.argmax(-1).cpu().numpy()
        self.predictions = [labels[i] for i in prediction_ids]
        report = measure_labels(self.predictions, [labels[i] for i in right], labels)
        return {"loss": total / len(valid), "accuracy": report.accuracy, "f1": report.macro_f1}

    def samples(self) -> list[Sample]:
        """Return three examples of the last validation, always the same three, of different lengths."""
        rows = list(zip(self.prepared.valid_pairs, self.predictions, strict=False))
        by_length = sorted(range(len(rows)), key=lambda i: (len(rows[i][0][0]), i))
        chosen = [(*rows[i][0], rows[i][1]) for i in pick_three(by_length)]
        cut = [text[:SHOWN].rsplit(maxsplit=1)[0] + " …" if len(text) > SHOWN else text for text, _, _ in chosen]
        return [Sample(text, *each[1:], label=True) for text, each in zip(cut, chosen, strict=True)]

    def facts(self) -> list[tuple[str, str]]:
        """List the model, the data, the labels, the vocabulary and the batch size."""
        counts, labels, tokenizers = self.prepared.counts, self.prepared.labels, self.prepared.tokenizers
        pictured = self.prepared.pictures is not None
        what = "pictures" if pictured else "documents"
        listed = ", ".join(labels[:5]) + (", …" if len(labels) > 5 else "")
        facts = [
            ("model", f"{self.settings.kind}, {self.parameters:,} parameters"),
            ("data", f"{counts['pairs']:,} {what}, {len(self.prepared.valid):,} for validation"),
            ("labels", f"{len(labels):,}: {listed}"),
        ]
        if tokenizers is not None:
            facts.append(("vocabulary", f"{tokenizers.source.size:,} pieces ({tokenizers.source.kind})"))
        if missing := sorted({*labels} - {labels[i] for i in labels_of(self.prepared.valid)}):
            facts.append(("not validated", f"labels without an example held out: {caption_files.list_names(missing)}"))
        size = f"{self.order.rows:,} pictures" if pictured else f"{self.order.budget:,} tokens"
        return [*facts, ("batch", f"up to {size}")]

    def fingerprint(self) -> dict[str, Any]:
        """Return the common values, the labels and their weights, and the options that resize and crop pictures."""
        common, data = super().fingerprint(), self.settings.data
        return {
            "task": common["task"],
            "model": common["model"],
            "labels": list(self.prepared.labels),
            **common,
            "class_weights": self.settings.training.class_weights,
            "pictures": [data.image_size, data.crop, data.flip] if self.prepared.pictures is not None else None,
        }

    def example(self) -> tuple[Item, str | None] | None:
        """Return a short document of the validation set."""
        if self.settings.data.reads != "documents" or not self.prepared.valid_pairs:
            return None
        texts = sorted((text for text, _ in self.prepared.valid_pairs), key=len)
        return texts[len(texts) // 4], None

    @classmethod
    def force(cls, run: TrainedRun, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return a document or a picture and its label for a teacher-forced pass."""
        if target is not None and target not in run.labels:
            raise ArgumentError(f"target: {target!r} given, expected a label of {run.folder}: {', '.join(run.labels)}")
        source: Source
        pixels, reads = None, KINDS[run.settings.kind].reads
        if reads == "pictures":
            pixels, sides = forcing.read_pixels(run.settings.data, item), dict[str, forcing.Side]()
            source = Pictures(pixels[None].to(run.device))
        else:
            tokenizer, split = run.tokenizers.source, document_texts.splitter_of(run.settings.data)
            (row,), _ = document_texts.encode_documents([str(item)], tokenizer, run.settings.data, split)
            forcing.check_length(row, "text")
            sides = forcing.document_sides(tokenizer, row, split(str(item)), ends=reads == "text")
            source = source_of([row], reads).to(run.device)
        likely = likeliest_label(run.labels, batches.label_log_probs(run.model, source)[0])
        label = likely.label if target is None else target
        title = document_texts.without_breaks(str(item)) if pixels is None else forcing.name_item(item)
        return ForcedExample(source, sides, title, label, None, run.labels.index(label), likely.probabilities, pixels)

    @classmethod
    def evaluate(  # type: ignore[override]
        cls,
        run: TrainedRun,
        *,
        documents: str | Path | None = None,
        images: str | Path | None = None,
        labels: str | Path | None = None,
    ) -> EvaluationReport:
        """Classify the documents of a file, or the pictures of a folder, with labels from a file or from subfolders."""
        if documents is not None:
            return evaluate_documents(run, documents if isinstance(documents, str) else str(documents))
        if images is None:
            raise ArgumentError("documents: missing, expected a file of labelled documents, or a folder of images")
        return evaluate_pictures(run, images, labels)


def label_metric(labels: Sequence[int]) -> str:
    """Choose the metric: accuracy, macro-F1 if one label dominates, or the loss if all labels are equal."""
    counts = Counter(labels)
    if len(counts) < 2:
        return "loss"
    return "f1" if max(counts.values()) >= MAJORITY * len(labels) else "accuracy"


def classify(
    run: TrainedRun, items: Iterable[Item], splitter: Callable[[str], Sequence[str]] | None = None
) -> list[Classified | None]:
    """Classify each document or picture, as `Run.classify` describes."""
    if isinstance(items, str):
        raise ArgumentError("items: one text given, expected a list")
    data = run.settings.data
    if data.reads == "pictures":
        scores = batches.label_pictures(run.model, picture_corpus.read_pictures(data, items), device=run.device)
        return [likeliest_label(run.labels, row) for row in scores]
    rows, _ = document_texts.encode_documents(
        [str(item) for item in items], run.tokenizers.source, data, document_texts.splitter_of(data, splitter)
    )
    scores = batches.label_in_batches(run.model, rows, KINDS[run.settings.kind].reads, run.device)
    return [likeliest_label(run.labels, each) if row else None for row, each in zip(rows, scores, strict=True)]


def likeliest_label(labels: Sequence[str], log_probs: Tensor) -> Classified:
    """Return the most probable label, and the probability of each label."""
    each = dict(zip(labels, log_probs.exp().tolist(), strict=True))
    label = max(each, key=lambda name: each[name])
    return Classified(label, each[label], each)


def evaluate_pictures(run: TrainedRun, images: str | Path, labels: str | Path | None = None) -> EvaluationReport:
    """Classify the pictures of a test set; the true labels come from a file, or from the pictures' folders."""
    notes: list[str] = []
    right = (
        caption_files.read_labels(labels, notes.append)
        if labels is not None
        else picture_corpus.folders(caption_files.list_pictures(images))
    )
    known, unknown = split_labels(run, right)
    pictures, unread = picture_corpus.read_test_pictures(run.settings.data, images, list(known))
    if not pictures:
        raise DataError(f"{images}: no picture with a known label in it can be read")
    predictions = dict(zip(pictures, classify(run, pictures.values()), strict=True))
    return compare_labels(run, "pictures", known, predictions, notes + unknown + unread)


def evaluate_documents(run: TrainedRun, path: str) -> EvaluationReport:
    """Classify the documents of a file of the same format as the training data."""
    notes: list[str] = []
    data = replace(run.settings.data, encoding=None)  # the configured encoding is that of the training files
    stream = pairs(data.labelled(path), labelled=True, say=notes.append)
    rows = {f"{path}, line {i:,}": row for i, row in enumerate(stream, 1)}
    unlabelled = [place for place, (text, label) in rows.items() if text and not label]
    if unlabelled:
        notes.append(f"{len(unlabelled):,} documents have no label: {caption_files.list_names(unlabelled)}")
    known, unknown = split_labels(run, {place: label for place, (_, label) in rows.items() if label})
    predictions = dict(zip(known, classify(run, [rows[place][0] for place in known]), strict=True))
    omissions = notes + unknown
    if empty := [place for place, each in predictions.items() if each is None]:
        omissions.append(f"{len(empty):,} documents have no words: {caption_files.list_names(empty)}")
    if len(empty) == len(predictions):
        why = f"{': ' * bool(notes)}{'; '.join(notes)}"
        raise DataError(f"{path}: no document with words and a known label in it{why}")
    return compare_labels(run, "documents", known, predictions, omissions)


def split_labels(run: TrainedRun, right: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the items whose label occurred in training, and notes about the others."""
    strange = {label for label in right.values() if label not in run.labels}
    known = {place: label for place, label in right.items() if label not in strange}
    if not strange:
        return known, []
    count = len(right) - len(known)
    return known, [
        f"{count:,} of {len(right):,} have a label that did not occur in training: {caption_files.list_names(strange)}"
    ]


def compare_labels(
    run: TrainedRun, what: str, known: dict[str, str], predictions: dict[str, Classified | None], notes: list[str]
) -> EvaluationReport:
    """Compare predicted labels with the true ones, and report scores and a confusion matrix."""
    labels = {place: each.label for place, each in predictions.items() if each is not None}
    report = measure_labels(list(labels.values()), [known[place] for place in labels], run.labels)
    facts = report.table()
    each = [
        (name, f"{row['count']:,}", *(f"{row[key]:.2%}" for key in ("precision", "recall", "f1")))
        for name, row in facts["labels"].items()
    ]
    shares = [f"accuracy {report.accuracy:.2%}", f"macro-F1 {report.macro_f1:.2%}"]
    if run.settings.training.metric == "f1":
        shares.reverse()  # list first the metric that selected the best checkpoint
    tables = [Table(", ".join(shares), ("label", what, "precision", "recall", "F1"), each, blank_line=True)]
    if len(each) <= WIDEST:
        counts = zip(run.labels, facts["confusion"], strict=True)
        rows = [(name, *(f"{count:,}" for count in row)) for name, row in counts]
        tables.append(Table("predicted label (across) for each true label (down)", ("", *run.labels), rows))
    heading = f"{run.folder}: {len(labels):,} {what}"
    return EvaluationReport(heading, tables, {"system": str(run.folder), what: len(labels), **facts}, labels, notes)
