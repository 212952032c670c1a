"""The way from the rows of a corpus to encoded pairs: a `Reading`, of which the plain one has two texts per row.

`data.documents` has one of labelled documents, `data.alignments` one of texts with links between words. The first pass
over the training pairs finds how many there are, which are held out, and the tokenizer's sample. What is held out is
chosen by a hash of the pair's text: the k smallest. So a repetition of a held-out pair is never trained on, the choice
does not depend on the order of the lines, and mostly stays when lines are added.
"""

import hashlib
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.data import cache
from regard.data.corpus import pairs
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train_both
from regard.errors import DataError
from regard.io import LONGEST, check_file

Pair = tuple[str, ...]  # source and target, and what else a reading has of a row
SAMPLE = 20_000_000  # characters that a tokenizer is trained on, both sides together
MOST_LABELS = 10_000


@dataclass
class FirstPass:
    """The results of the first pass over the training pairs."""

    pairs: int = 0
    blank: int = 0
    cutoff: int = -1  # pairs whose hash is at most this are held out
    sample: list[tuple[int, str, str]] = field(default_factory=list)  # hash, source, target
    largest: dict[str, int] = field(default_factory=dict)  # of every label, the largest hash of its rows

    def training_texts(self) -> tuple[list[str], list[str]]:
        """Return both sides of the sample without what is held out, and free the sample."""
        pairs = [(source, target) for h, source, target in self.sample if h > self.cutoff]
        self.sample.clear()
        return [source for source, _ in pairs], [target for _, target in pairs]

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the targets of the pairs that are not held out, sorted."""
        return tuple(sorted(label for label, h in self.largest.items() if h > self.cutoff))


def run_first_pass(
    reading: "Reading", training: Iterable[CorpusSettings], *, hold_out: bool, sample: bool, labels: bool = False
) -> FirstPass:
    """Count the pairs, choose the hash up to which they are held out, and draw a sample for the tokenizer.

    `labels`: targets are a few labels, and each is remembered.
    """
    data, what = reading.data, reading.what
    survey, characters, mask = FirstPass(), 0, 0
    # The smallest hashes, negative as heapq keeps the least first; twice as many as may be held out, to know the half.
    smallest, among, room = list[int](), set[int](), 2 * data.held_out_most
    for corpus in training:
        for source, target in reading.plain_rows(corpus):
            survey.pairs += 1
            if not source or not target:
                survey.blank += 1
                continue
            h = hash_of(source, target, data.lowercase)
            if labels and survey.largest.get(target, -1) < h:
                survey.largest[target] = h
                if len(survey.largest) > MOST_LABELS:
                    raise DataError(
                        f"{names(training)}: more than {MOST_LABELS:,} different labels, the last {target[:30]!r}; is "
                        "data.label_column right?"
                    )
            if hold_out and h not in among and (len(smallest) < room or h < -smallest[0]):
                among.add(h)
                heapq.heappush(smallest, -h)
                if len(smallest) > room:
                    among.remove(-heapq.heappop(smallest))
            if sample and not h & mask:
                survey.sample.append((h, source, target))
                characters += len(source) + len(target)
                while characters > SAMPLE:  # keep about half, by one more bit of the hash
                    mask = mask << 1 | 1
                    survey.sample = [row for row in survey.sample if not row[0] & mask]
                    characters = sum(len(s) + len(t) for _, s, t in survey.sample)
    if survey.pairs == survey.blank:
        why = [f"all {survey.pairs:,} are blank"] * bool(survey.pairs) + reading.remarks
        raise DataError(f"{names(training)}: no {what} to train on{': ' * bool(why)}{'; '.join(why)}")
    if hold_out:
        # Never more than half of the different pairs, where those are few.
        count = min(data.held_out_count(survey.pairs - survey.blank), len(smallest) // 2)
        if not count:
            raise DataError(
                f"{names(training)}: one {what.removesuffix('s')} is too few to train on and to hold out for "
                f"validation; give {reading.files}"
            )
        survey.cutoff = sorted(-h for h in smallest)[count - 1]
    return survey


def hash_of(source: str, target: str, lowercase: bool = False) -> int:
    """Hash a pair's text to 64 bits, the same on every machine; runs of white space count as one space."""
    text = f"{' '.join(source.split())}\n{' '.join(target.split())}"
    digest = hashlib.blake2b((text.lower() if lowercase else text).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def names(corpora: Iterable[CorpusSettings]) -> str:
    """Name the files of corpora, for a message."""
    return ", ".join(path for corpus in corpora for path in corpus.files)


class Reading:
    """The way from the rows of a corpus to encoded pairs: here, two texts."""

    what = "pairs"
    linked = False  # whether links between words are kept beside the pairs
    files = "--valid-source and --valid-target"  # the options that would choose what is held out

    def __init__(self, data: DataSettings, settings: TokenizerSettings):
        self.data, self.settings = data, settings
        self.training, self.validation, self.earlier = data.training, data.validation, data.rehearsed
        self.remarks: list[str] = []  # about lines that were cut, or could not be read

    @property
    def reasons(self) -> dict[str, str]:
        """Return the reasons why a row may be dropped, by the name of its count."""
        return {"blank": "blank", "long": f"longer than {self.data.longest} tokens"}

    def plain_rows(self, corpus: CorpusSettings) -> Iterator[Pair]:
        """Yield source and target of every row of a corpus; a message may follow at its end."""
        return pairs(corpus, say=self.remarks.append)

    def rows(self, corpus: CorpusSettings) -> Iterator[Pair]:
        """Yield every row of a corpus, with what else this reading has of it."""
        return self.plain_rows(corpus)

    def facts(self) -> dict[str, object]:
        """Return what the encoded rows depend on beside the files, the tokenizer and the usual settings."""
        return {}

    def survey(self, training: Sequence[CorpusSettings], *, hold_out: bool, tokenizer: bool) -> FirstPass:
        """Run the first pass, before anything is encoded; `tokenizer`: one is to be trained."""
        if not hold_out and not tokenizer:
            return FirstPass()
        return run_first_pass(self, training, hold_out=hold_out, sample=tokenizer)

    def train_tokenizers(self, training: Sequence[CorpusSettings], survey: FirstPass) -> Tokenizers:
        """Train tokenizers on the survey's sample."""
        tags = [corpus.tag for corpus in training if corpus.tag]
        return train_both(*survey.training_texts(), self.settings, lowercase=self.data.lowercase, tags=tags)

    def encode(self, rows: list[Pair], tag: str | None, tokenizers: Tokenizers, counts: Counter[str]) -> "Rows":
        """Encode the rows that are neither blank nor too long; the others are counted."""
        before = f"{tag} " if tag else ""
        real = [(before + source, target, *more) for source, target, *more in rows if source and target]
        sources = tokenizers.source.encode_batch([row[0] for row in real])
        targets = tokenizers.target.encode_batch([row[1] for row in real])
        sizes = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        # A line that was cut is half of a pair, even where it is one unknown word.
        whole = [max(map(len, row[:2])) < LONGEST for row in real]
        fits = [all(n) and max(n) <= self.data.longest and uncut for n, uncut in zip(sizes, whole, strict=True)]
        empty = sum(0 in each for each in sizes)  # to a tokenizer made elsewhere, a text may be nothing
        counts["blank"] += len(rows) - len(real) + empty
        counts["long"] += len(fits) - sum(fits) - empty
        return Rows(real, sources, targets).only(fits)

    def manifest(self) -> dict[str, Any]:
        """Return what the cache's manifest keeps beside the counts."""
        return {}

    def summary(self, counts: Mapping[str, int], manifest: Mapping[str, Any]) -> str:
        """Summarise in one line what was kept and dropped."""
        text = f"{counts['pairs']:,} {self.what}" + self.beside(counts, manifest)
        if counts.get("earlier"):
            text += f", {counts['earlier']:,} of them from earlier corpora ({self.data.rehearsal:.0%} of an epoch)"
        if dropped := self.dropped(counts, ""):
            text += f"; dropped {dropped}"
        if not counts["valid"]:
            return f"{text}; none for validation"
        if self.validation or self.data.builtin:
            dropped = self.dropped(counts, "valid_")
            return f"{text}; {counts['valid']:,} for validation{f' (dropped {dropped})' if dropped else ''}"
        again = f", and {counts['repeated']:,} repetitions of them dropped" if counts["repeated"] else ""
        files = "--valid-pairs" if self.data.corpora else self.files
        return f"{text}; {counts['valid']:,} held out for validation{again} (by hash; give {files} to choose them)"

    def beside(self, counts: Mapping[str, int], manifest: Mapping[str, Any]) -> str:
        """Describe what else is worth knowing about the pairs that were kept."""
        return ""

    def dropped(self, counts: Mapping[str, int], which: str) -> str:
        """Describe how many were dropped, and why."""
        kinds = self.reasons.items()
        return ", ".join(f"{counts[which + name]:,} {words}" for name, words in kinds if counts.get(which + name))


@dataclass(frozen=True)
class Rows:
    """Rows as they are, and encoded."""

    texts: list[Pair]
    sources: list[list[int]]
    targets: list[list[int]]
    links: list[list[tuple[int, int]]] = field(default_factory=list)  # one for each row, where a reading has them

    def only(self, fits: Sequence[bool]) -> "Rows":
        """Return the rows that fit."""
        only = itertools.compress
        parts = (self.texts, self.sources, self.targets, self.links)
        return Rows(*(list(only(part, fits)) for part in parts))  # type: ignore[arg-type]


def content(path: str) -> str:
    """Hash a file, or raise a DataError that names it."""
    check_file(path)
    try:
        return cache.digest(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
