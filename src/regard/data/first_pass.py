"""The first pass over the training pairs: how many there are, which are held out, and the tokenizer's sample.

What is held out is chosen by a hash of the pair's text: the k smallest. So a repetition of a held-out pair is never
trained on, the choice does not depend on the order of the lines, and mostly stays when lines are added.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from regard.data.corpus import pairs
from regard.data.settings import CorpusSettings, DataSettings
from regard.errors import DataError

SAMPLE = 20_000_000  # characters that a tokenizer is trained on, both sides together
MOST_LABELS = 10_000


@dataclass
class FirstPass:
    """The results of the first pass."""

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
    training: Iterable[CorpusSettings],
    data: DataSettings,
    *,
    hold_out: bool,
    sample: bool,
    rows: Callable[[CorpusSettings], Iterable[tuple[str, ...]]] = pairs,
    what: str = "pairs",
    files: str = "--valid-source and --valid-target",
    labels: bool = False,
    remarks: Sequence[str] = (),
) -> FirstPass:
    """Count the pairs, choose the hash up to which they are held out, and draw a sample for the tokenizer.

    `labels`: targets are a few labels, and each is remembered. `remarks` is what was said of the files meanwhile.
    """
    survey, characters, mask = FirstPass(), 0, 0
    # The smallest hashes, negative as heapq keeps the least first; twice as many as may be held out, to know the half.
    smallest, among, room = list[int](), set[int](), 2 * data.held_out_most
    for corpus in training:
        for source, target in rows(corpus):
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
        why = [f"all {survey.pairs:,} are blank"] * bool(survey.pairs) + list(remarks)
        raise DataError(f"{names(training)}: no {what} to train on{': ' * bool(why)}{'; '.join(why)}")
    if hold_out:
        # Never more than half of the different pairs, where those are few.
        count = min(data.held_out_count(survey.pairs - survey.blank), len(smallest) // 2)
        if not count:
            raise DataError(
                f"{names(training)}: one {what.removesuffix('s')} is too few to train on and to hold out for "
                f"validation; give {files}"
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
