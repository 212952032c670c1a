"""Trivial baselines to compare with a run's score on the same validation examples: did the model learn anything?

For pairs, the baselines are a copy of the source, and the target of the most similar training source (cosine of tf-idf
over the run's own pieces). For documents and pictures, the baseline is the most frequent label; documents also have a
logistic regression over tf-idf. All are computed in a few seconds from the encoded data, from a sample of a large
training set, without the model.
"""

# n rows · v pieces · k labels · e entries that are not 0
import contextlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int, Int64

from regard.errors import RegardError
from regard.io import disk, reading
from regard.training import metrics

if TYPE_CHECKING:
    from regard.data import Encoded
    from regard.tasks.task import RunTask

FILE = "baseline.json"
NEIGHBOURS = 50_000  # training pairs to search
WORK = 20_000_000  # training pairs times validation pairs
COMMON = 0.2  # a piece in more than this share of rows does not count for similarity, unless a text has no others
DOCUMENTS = 20_000  # documents that train the regression
ENTRIES = 600_000  # entries of their tf-idf matrix
LABELLED = 20_000_000  # entries times labels
TESTED = 1_000_000  # pieces of the documents that the regression labels
STEPS = 40  # of the regression
PENALTY = 1.0  # L2 penalty on the regression's weights, for all documents together


@dataclass(frozen=True)
class Baselines:
    """The scores of trivial answers by name, with the metric and the number of examples."""

    metric: str
    examples: int
    scores: dict[str, float]

    def as_text(self, what: str, score: float | None) -> str:
        """Format the scores in one line, next to the model's score; `what` names the examples."""
        name = metrics.metric_name(self.metric)
        each = ", ".join(f"{title} {metrics.format_value(self.metric, value)}" for title, value in self.scores.items())
        text = f"baselines on the same {self.examples:,} {what}, {name}: {each}"
        if score is None:
            return text
        text += f"; the model {metrics.format_value(self.metric, score)}"
        return text + ("" if score > max(self.scores.values()) else ", which is no better")


def measure_baselines(task: "RunTask") -> Baselines | None:
    """Measure the baselines of a trained task; return None if it has none, such as a language model."""
    prepared = task.prepared
    if not len(prepared.valid) or not len(prepared.train):
        return None
    if "classify" in task.actions:
        return measure_label_baselines(task)
    if "translate" in task.actions and prepared.tokenizers is not None:
        return measure_pair_baselines(task)
    return None


def measure_pair_baselines(task: "RunTask") -> Baselines | None:
    """Measure copies of the sources, and the targets of the nearest training sources."""
    from regard.evaluation import measure
    from regard.tasks.translate import translation_metric

    prepared, settings = task.prepared, task.settings
    rows = min(settings.training.validate_rows, len(prepared.valid_pairs), len(prepared.valid))
    pairs, target = prepared.valid_pairs[:rows], prepared.tokenizers.target
    references = [target.normalise(text) for _, text in pairs]
    metric: str | None = settings.training.metric
    if metric in (None, "loss"):
        metric = translation_metric(references)
    if not pairs or metric is None or metric == "loss":
        return None
    tags = {corpus.tag for corpus in settings.data.training if corpus.tag}
    tagged = ((source, *source.partition(" ")) for source, _ in pairs)
    copies = [target.normalise(rest if first in tags else source) for source, first, _, rest in tagged]
    queries = [prepared.valid.pair(i)[0] for i in range(rows)]
    most = min(len(prepared.train), NEIGHBOURS, max(1, WORK // rows))
    places = np.linspace(0, len(prepared.train) - 1, most).astype(np.int64)
    nearest = find_nearest(queries, prepared.train, places)
    answers = target.decode_batch([prepared.train.pair(int(i))[1].tolist() for i in nearest])
    outputs = {"a copy of the source": copies, "the target of the nearest training source": answers}
    scores = {name: measure(metric, texts, references).score().value for name, texts in outputs.items()}
    return Baselines(metric, rows, scores)


def measure_label_baselines(task: "RunTask") -> Baselines:
    """Measure the most frequent label and, for documents, a logistic regression."""
    from regard.evaluation import measure_labels

    prepared, labels = task.prepared, task.prepared.labels
    truth, known = labels_of(prepared.valid), labels_of(prepared.train)
    chosen = task.settings.training.metric
    metric = chosen if chosen in ("accuracy", "f1") else "accuracy"
    majority = int(np.bincount(known, minlength=len(labels)).argmax())
    answers = {f"the most frequent label ({labels[majority]})": np.full(len(truth), majority)}
    if prepared.pictures is None:
        most = int(max(1, TESTED / max(1.0, float(np.mean(prepared.valid.lengths[:, 0])))))
        tested = np.linspace(0, len(truth) - 1, min(len(truth), most)).astype(np.int64)
        answers["logistic regression"] = regress(prepared.train, prepared.valid, len(labels), tested)
    scores = dict[str, float]()
    for name, each in answers.items():
        right = truth if len(each) == len(truth) else truth[tested]
        report = measure_labels([labels[i] for i in each], [labels[i] for i in right], labels)
        scores[name] = report.macro_f1 if metric == "f1" else report.accuracy
    return Baselines(metric, len(truth), scores)


def labels_of(encoded: "Encoded") -> Int64[np.ndarray, " n"]:
    """Return the label of each row: the only token of its target."""
    return np.asarray(encoded.tokens[encoded.offsets[1:] - 1], np.int64)


@dataclass(frozen=True)
class Entries:
    """A sparse matrix of texts and weights of their pieces: its non-zero entries, sorted by row."""

    rows: Int64[np.ndarray, " e"]
    pieces: Int64[np.ndarray, " e"]
    weights: Float64[np.ndarray, " e"]


def weigh_pieces(
    sources: Sequence[Int[np.ndarray, " _"]], others: Sequence[Int[np.ndarray, " _"]], least: float = 0.0
) -> tuple[Entries, Entries, int]:
    """Weigh the pieces of sources and of other texts by tf-idf, with rows of length 1; also return the vocabulary size.

    Both use the idf of the n sources: log(n / (1 + rows with the piece)), at least 0, plus `least`; tf: 1 + log(count).
    """
    vocabulary = 1 + max(int(each.max()) for each in (*sources, *others) if len(each))
    weighed, rarity = list[Entries](), np.zeros(0)
    for texts in (sources, others):
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        tokens = np.concatenate([np.zeros(0, np.int64), *(np.asarray(each, np.int64) for each in texts)])
        keys, counts = np.unique(np.repeat(np.arange(len(texts)), lengths) * vocabulary + tokens, return_counts=True)
        rows, pieces = keys // vocabulary, keys % vocabulary
        if not weighed:
            rarity = least + np.maximum(0.0, np.log(len(texts) / (1 + np.bincount(pieces, minlength=vocabulary))))
        weights = (1 + np.log(counts)) * rarity[pieces]
        norms = np.sqrt(np.bincount(rows, weights**2, len(texts)))
        weighed.append(Entries(rows, pieces, weights / np.maximum(norms, 1e-12)[rows]))
    return weighed[0], weighed[1], vocabulary


def find_nearest(
    queries: Sequence[Int[np.ndarray, " _"]], train: "Encoded", places: Int64[np.ndarray, " n"]
) -> list[int]:
    """Find for each query the training row, among those at `places`, with the most similar source."""
    sources = [train.pair(int(i))[0] for i in places]
    known, asked, vocabulary = weigh_pieces(sources, queries)
    order = np.argsort(known.pieces, kind="stable")
    rows, weights = known.rows[order], known.weights[order]
    ends = np.cumsum(np.bincount(known.pieces, minlength=vocabulary))
    starts = np.concatenate([[0], ends[:-1]])
    bounds = np.searchsorted(asked.rows, np.arange(len(queries) + 1))
    nearest = list[int]()
    for first, last in itertools.pairwise(bounds.tolist()):
        scores = np.zeros(len(sources))
        pieces = asked.pieces[first:last]
        rare = [i for i, piece in enumerate(pieces) if ends[piece] - starts[piece] <= COMMON * len(sources)]
        for i in rare or range(len(pieces)):
            part = slice(starts[pieces[i]], ends[pieces[i]])
            scores[rows[part]] += weights[part] * asked.weights[first + i]  # each row occurs once per piece
        nearest.append(int(places[int(scores.argmax())]))
    return nearest


def regress(
    train: "Encoded", valid: "Encoded", labels: int, tested: Int64[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"]:
    """Train a logistic regression over tf-idf, and return its label for the validation documents at `tested`."""
    import torch
    from torch.nn.functional import cross_entropy, embedding_bag

    size = float(np.mean(train.lengths[:, 0]))
    room = min(ENTRIES, LABELLED // labels)
    most = int(min(len(train), DOCUMENTS, max(100, room / max(1.0, size))))
    places = np.linspace(0, len(train) - 1, most).astype(np.int64)
    sources = [train.pair(int(i))[0] for i in places]
    tests = [valid.pair(int(i))[0] for i in tested]
    known, asked, vocabulary = weigh_pieces(sources, tests, 1)

    def bag(entries: Entries, count: int) -> dict[str, Any]:
        """Return the arguments with which `embedding_bag` computes each row's weighted sum."""
        return {
            "input": torch.from_numpy(entries.pieces),
            "offsets": torch.from_numpy(np.searchsorted(entries.rows, np.arange(count))),
            "per_sample_weights": torch.from_numpy(entries.weights),
            "mode": "sum",
        }

    features = bag(known, len(sources))
    truth = torch.from_numpy(labels_of(train)[places])
    with torch.enable_grad():
        weights = torch.zeros(vocabulary, labels, dtype=torch.float64, requires_grad=True)
        bias = torch.zeros(labels, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([weights, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            scores = embedding_bag(weight=weights, **features) + bias
            loss = cross_entropy(scores, truth) + PENALTY / (2 * len(sources)) * weights.square().sum()
            loss.backward()
            return loss

        optimiser.step(closure)
    with torch.no_grad():
        found = embedding_bag(weight=weights, **bag(asked, len(tests))) + bias
    return np.asarray(found.argmax(1).numpy(), np.int64)


def save_baselines(folder: Path, baselines: Baselines | None) -> None:
    """Write the baselines into a run folder; with None, remove those of an earlier training."""
    with contextlib.suppress(OSError):  # a full disk must not make a finished run fail
        if baselines is None:
            (folder / FILE).unlink(missing_ok=True)
            return
        disk.write_whole(folder / FILE, json.dumps(asdict(baselines), ensure_ascii=False, indent=1) + "\n")


def read_baselines(folder: Path) -> Baselines | None:
    """Read the baselines of a run folder; return None if the file is missing or damaged."""
    try:
        table = reading.parse_json(reading.read_bytes(folder / FILE))
        scores = {str(name): float(value) for name, value in table["scores"].items()}
        return Baselines(str(table["metric"]), int(table["examples"]), scores)
    except (OSError, reading.Unreadable, RegardError, KeyError, TypeError, ValueError, AttributeError):
        return None
