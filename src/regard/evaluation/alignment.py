"""Scores of word alignments against gold alignments: alignment error rate, precision, recall and F1.

Och and Ney 2003 (A Systematic Comparison of Various Statistical Alignment Models), section 5. An annotator marks each
gold link as sure (S) or as possible (P, which includes S). For a system's links A,

    precision = |A ∩ P| / |A|,  recall = |A ∩ S| / |S|,  AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

over all sentences together. F1 is the harmonic mean of precision and recall. Without predicted links precision is 1,
without sure links recall is 1, and without either AER is 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import regard
from regard.errors import ArgumentError, DataError
from regard.evaluation.metric import Measurement
from regard.io import Link, Say, Slips, ignore, parse_marked_links, read_chunks, unequal_lines

VALUES = {"aer": "AER", "precision": "alignment precision", "recall": "alignment recall", "f1": "alignment F1"}


@dataclass(frozen=True)
class Gold:
    """The gold links of a sentence; every sure link is also possible."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", self.possible | self.sure)


def parse_links(text: str, *, first: int = 0) -> Gold:
    """Read a line in Pharaoh's format: `3-4` is sure, `3?4` and `3p4` possible; words are numbered from `first`."""
    sure, possible = set[Link](), set[Link]()
    for (source, target), is_sure, piece in parse_marked_links(text):
        if min(source, target) < first:
            raise DataError(f"{piece!r} given, expected words that are counted from {first}")
        (sure if is_sure else possible).add((source - first, target - first))
    return Gold(frozenset(sure), frozenset(possible))


def read_links(path: str | Path, *, first: int = 0, say: Say = ignore) -> list[Gold]:
    """Read gold links from a file, plain or gzip, one line per sentence; errors name the file and the line.

    A few malformed links are skipped and reported to `say`; too many raise an error.
    """
    gold, slips = list[Gold](), Slips(path)
    for chunk in read_chunks(path, say=say):
        for line in chunk:
            sure, possible, problem = set[Link](), set[Link](), None
            for piece in line.split():
                try:
                    one = parse_links(piece, first=first)
                except DataError as error:
                    problem = problem or str(error)
                    continue
                sure |= one.sure
                possible |= one.possible
            gold.append(Gold(frozenset(sure), frozenset(possible)))
            if line.strip():
                slips.add(len(gold), problem)
    if not gold:
        raise DataError(f"{path}: empty, expected links such as 0-0 1-2, one line per sentence")
    slips.end(say, "it is skipped")
    return gold


def check_links(path: str | Path, gold: Sequence[Gold], sources: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return warnings of links to words that a sentence does not have; too many such links raise an error."""
    if len(gold) != len(sources):
        raise unequal_lines(str(path), len(gold), "the text", len(sources))
    lines, slips = list[str](), Slips(path)
    for number, (each, source, target) in enumerate(zip(gold, sources, targets, strict=True), 1):
        sizes = len(source.split()), len(target.split())
        wrong = [
            f"{link[0]}-{link[1]} given, but the {side} has {size} word{'s' * (size != 1)} there, counted from 0"
            for link in sorted(each.possible)
            for word, size, side in zip(link, sizes, ("source", "target"), strict=True)
            if word >= size
        ]
        if each.possible:
            slips.add(number, wrong[0] if wrong else None)
    slips.end(lines.append, "it counts as a link that was missed")
    return lines


def measure_links(alignments: Iterable[Iterable[Link]], gold: Sequence[Gold]) -> dict[str, Measurement]:
    """Measure a system's links, one sentence after another; the keys are aer, precision, recall and f1."""
    rows = []
    for links, each in zip(alignments, gold, strict=False):
        predicted = set(links)
        rows.append((len(predicted), len(each.sure), len(predicted & each.sure), len(predicted & each.possible)))
    if len(rows) != len(gold):
        raise ArgumentError(f"found: links of {len(rows):,} sentences given, expected those of {len(gold):,}")
    counts = np.array(rows, np.float64).reshape(-1, 4)
    ways = {"aer": error_rate, "precision": precision, "recall": recall, "f1": f1}
    graded = "sure+possible" if any(each.possible != each.sure for each in gold) else "sure"
    signature = f"links:{int(counts[:, 1].sum())}|gold:{graded}|regard:{regard.__version__}"
    return {
        key: Measurement(name, counts, ways[key], signature, unit="share", higher=key != "aer")
        for key, name in VALUES.items()
    }


def error_rate(counts: Sequence[float]) -> float:
    """Return AER from |A|, |S|, |A ∩ S| and |A ∩ P|."""
    predicted, sure, hit, allowed = counts
    return 1 - (hit + allowed) / (predicted + sure) if predicted + sure else 0.0


def precision(counts: Sequence[float]) -> float:
    """Return the share of predicted links that are possible."""
    predicted, _, _, allowed = counts
    return allowed / predicted if predicted else 1.0


def recall(counts: Sequence[float]) -> float:
    """Return the share of sure links that were predicted."""
    _, sure, hit, _ = counts
    return hit / sure if sure else 1.0


def f1(counts: Sequence[float]) -> float:
    """Return the harmonic mean of precision and recall."""
    both = precision(counts), recall(counts)
    return 2 * both[0] * both[1] / sum(both) if sum(both) else 0.0
