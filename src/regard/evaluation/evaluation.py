"""Read a test set from text files, and score a system's outputs for it, overall and by source length.

Each line is an item. With `alternatives`, lines with the same source form one item with several references, any of
which is correct: words with several pronunciations, or sentences with several translations.

Scores by length follow figure 2 of Bahdanau et al. 2015 (arXiv:1409.0473), which shows that a model without attention
gets worse on long sentences, and one with attention does not.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data import Side, TableTexts
from regard.errors import ArgumentError, DataError
from regard.evaluation.metric import METRICS, Measurement, Score, finite, measure
from regard.evaluation.significance import interval, resample
from regard.evaluation.text import normalise_text, perplexity
from regard.io import Say, display_name, ignore, read_chunks, unequal_lines

ROWS = 8  # the number of buckets that a table aims at
FEW = 10  # with fewer sentences, resampling is meaningless


@dataclass(frozen=True)
class Items:
    """The items of a test set with their references; `line_items` has the item of each line."""

    reference: Path
    sources: list[str] | None
    references: list[tuple[str, ...]]
    line_items: list[int]

    def __len__(self) -> int:
        return len(self.references)

    @property
    def empty(self) -> int:
        """Return the number of sources without words; their outputs are empty, and count like all others."""
        return sum(not text.strip() for text in self.sources or [])

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each source with each of its references, except empty ones; without sources, "" with each reference."""
        for i, texts in enumerate(self.references):
            source = "" if self.sources is None else self.sources[i]
            if self.sources is None or source.strip():
                yield from ((source, reference) for reference in texts if reference.strip())

    def by_line(self, outputs: Sequence[str]) -> list[str]:
        """Return the outputs of items as one output per line of the files."""
        return [outputs[item] for item in self.line_items]

    def read_outputs(self, path: str | Path, say: Say = ignore) -> list[str]:
        """Read a system's outputs from a file with one line per line of the test set, or one per item.

        If several lines belong to one item, the first of their outputs counts.
        """
        texts = read_texts(path, say)
        if len(texts) == len(self.line_items):
            outputs: dict[int, str] = {}
            for item, text in zip(self.line_items, texts, strict=True):
                outputs.setdefault(item, text)
            return [outputs[item] for item in range(len(self))]
        if len(texts) == len(self):
            return texts
        count, expected = len(texts), f"the same number{', or one per item' * (len(self) < len(self.line_items))}"
        raise DataError(
            f"{path} has {count:,} line{'s' * (count != 1)} and {self.reference} has {len(self.line_items):,}; "
            f"expected {expected}"
        )


def read_items(
    source: str | Path | None, reference: str | Path, *, alternatives: bool = False, say: Say = ignore
) -> Items:
    """Read a test set from plain text files or tables of pairs, gzip or not; without a source, read references only.

    Truncated lines are reported to `say`.
    """
    references = read_texts(reference, say, "target")
    if source is None:
        return Items(Path(reference), None, [(text,) for text in references], list(range(len(references))))
    sources = read_texts(source, say, "source")
    if len(sources) != len(references):
        raise unequal_lines(source, len(sources), reference, len(references))
    if not alternatives:
        return Items(Path(reference), sources, [(text,) for text in references], list(range(len(references))))
    numbers: dict[str, int] = {}
    line_items = [numbers.setdefault(normalise_text(text), len(numbers)) for text in sources]
    if len(numbers) == len(sources):
        raise DataError(f"{source}: none of its {len(sources):,} lines occurs twice, so there are no alternatives")
    grouped: list[dict[str, None]] = [{} for _ in numbers]  # equal references count once
    for item, text in zip(line_items, references, strict=True):
        grouped[item][text] = None
    return Items(Path(reference), list(numbers), [tuple(each) for each in grouped], line_items)


def read_texts(path: str | Path, say: Say = ignore, side: Side | None = None) -> list[str]:
    """Read the lines of a text file or a pipe; a file that is empty or not text raises a DataError.

    From a table of pairs, read the texts of one side: column 1 or 2 of a TSV, `source` or `target` of JSON lines.
    """
    texts = None if side is None else TableTexts.of(path if isinstance(path, str) else str(path), None, say, side)
    lines = [line for chunk in read_chunks(path, say=say) for line in (chunk if texts is None else texts(chunk))]
    if not lines:
        raise DataError(f"{display_name(path)}: empty, expected one sentence per line")
    return lines


@dataclass(frozen=True)
class Bucket:
    """The sentences with source lengths from `first` to `last` (None: or longer), and their score."""

    first: int
    last: int | None
    sentences: int
    value: float
    interval: tuple[float, float] | None  # 95 %, by bootstrap; None with too few sentences

    @property
    def name(self) -> str:
        """Return the bucket's range of lengths, such as "10–19"."""
        if self.last is None:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class Lengths:
    """A score by source length; `unit` is "words" or "characters"."""

    metric: str
    unit: str
    buckets: list[Bucket]
    value: float  # over all sentences


@dataclass(frozen=True)
class Evaluation:
    """Scores by key, a score by source length if requested, and the numbers of sentences, lines and empty sources."""

    scores: dict[str, Score]
    lengths: Lengths | None
    sentences: int
    lines: int
    empty: int

    def counted(self) -> str:
        """Describe in words how many sentences were measured."""
        text = f"{self.sentences:,} sentence{'s' * (self.sentences != 1)}"
        text += f" from {self.lines:,} lines" if self.lines != self.sentences else ""
        return text + (f", {self.empty:,} of them with an empty source" if self.empty else "")

    def table(self) -> dict[str, Any]:
        """Return the evaluation as a dictionary for JSON."""
        return {
            "sentences": self.sentences,
            "lines": self.lines,
            "empty": self.empty,
            "scores": {key: {**asdict(score), "value": finite(score.value)} for key, score in self.scores.items()},
            "lengths": None if self.lengths is None else asdict(self.lengths),
        }


def evaluate(
    items: Items,
    outputs: Sequence[str] | None,
    keys: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "auto",
    tokens: Iterable[Sequence[float]] = (),
    tokenizer: str = "",
) -> Evaluation:
    """Score outputs by the metrics that `keys` name (see metric.py).

    "perplexity" uses only `tokens`, the log-probabilities of each reference's tokens, and no outputs. "lengths" is BLEU
    by source length, or chrF if `keys` has chrF but not BLEU.
    """
    if outputs is not None and len(outputs) != len(items):
        raise ArgumentError(f"outputs: {len(outputs)} given, expected one for each of {len(items)} items")
    by_length = "bleu" if "bleu" in keys or "chrf" not in keys else "chrf"
    of_text = dict.fromkeys(by_length if key == "lengths" else key for key in keys if key != "perplexity")
    if of_text and outputs is None:
        raise ArgumentError(f"outputs: none given, expected them for {', '.join(of_text)}")
    measurements = {
        key: measure(key, outputs or [], items.references, lowercase=lowercase, tokenize=tokenize) for key in of_text
    }
    scores = {
        key: perplexity(tokens, tokenizer) if key == "perplexity" else measurements[key].score()
        for key in keys
        if key in METRICS or key == "perplexity"
    }
    lengths = None
    if "lengths" in keys:
        if items.sources is None:
            raise ArgumentError("lengths: no sources given, expected them to measure their lengths")
        lengths = score_by_length(measurements[by_length], items.sources)
    return Evaluation(scores, lengths, len(items), len(items.line_items), items.empty)


def measure_lengths(sources: Sequence[str]) -> tuple[list[int], str]:
    """Return each source's length in words, or in characters if no source has a space, as in Chinese; and the unit."""
    words = [len(text.split()) for text in sources]
    if max(words, default=0) > 1:
        return words, "words"
    return [len(text.strip()) for text in sources], "characters"


def score_by_length(
    measurement: Measurement,
    sources: Sequence[str],
    *,
    width: int | None = None,
    resamples: int = 1000,
) -> Lengths:
    """Score each range of source lengths that has sentences; the lengths determine `width` if it is None.

    Ranges begin at multiples of the width, the last one may be open, and empty sources have their own range.
    """
    lengths, unit = measure_lengths(sources)
    counts = np.array(lengths, dtype=np.int64)
    # Choose the width by the 98 % quantile, so that a few very long sources do not widen all ranges.
    usual = float(np.quantile(counts, 0.98, method="higher")) if len(counts) else 0.0
    if width is None:
        width = next((step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if usual < step * ROWS), 1000)
    top = int(usual) // width  # the open range
    which = np.where(counts == 0, -1, np.minimum(counts // width, top))
    longer = len(counts) > 0 and int(counts.max()) >= (top + 1) * width
    buckets = []
    for number in np.unique(which).tolist():
        members = np.flatnonzero(which == number)
        spread = interval(resample([measurement], resamples, among=members)[0]) if len(members) >= FEW else None
        first = 0 if number < 0 else max(1, number * width)
        last = 0 if number < 0 else None if number == top and longer else (number + 1) * width - 1
        value = measurement.of(measurement.rows[members].sum(0).tolist())
        buckets.append(Bucket(first, last, len(members), value, spread))
    return Lengths(measurement.name, unit, buckets, measurement.score().value)
