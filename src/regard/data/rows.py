"""The way from the rows of a corpus to encoded pairs: a `Reading`, of which the plain one has two texts per row.

`data.documents` has one of labelled documents, `data.alignments.prepare` one of texts with links between words.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.data import cache
from regard.data.corpus import pairs
from regard.data.first_pass import FirstPass, run_first_pass
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train_both
from regard.errors import DataError
from regard.io import LONGEST, check_file

Pair = tuple[str, ...]  # source and target, and what else a reading has of a row


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

    def rows(self, corpus: CorpusSettings) -> Iterator[Pair]:
        """Yield every row of a corpus; a message may follow at its end."""
        return pairs(corpus, say=self.remarks.append)

    def facts(self) -> dict[str, object]:
        """Return what the encoded rows depend on beside the files, the tokenizer and the usual settings."""
        return {}

    def survey(self, training: Sequence[CorpusSettings], *, hold_out: bool, tokenizer: bool) -> FirstPass:
        """Run the first pass, before anything is encoded; `tokenizer`: one is to be trained."""
        if not hold_out and not tokenizer:
            return FirstPass()
        remark = self.remarks.append
        return run_first_pass(
            training,
            self.data,
            hold_out=hold_out,
            sample=tokenizer,
            rows=lambda corpus: pairs(corpus, say=remark),
            remarks=self.remarks,
        )

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
        shorter = [min(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        longer = [max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        # A line that was cut is half of a pair, even where it is one unknown word.
        whole = [max(map(len, row[:2])) < LONGEST for row in real]
        fits = [
            low > 0 and high <= self.data.longest and all_of_it
            for low, high, all_of_it in zip(shorter, longer, whole, strict=True)
        ]
        empty = shorter.count(0)  # to a tokenizer made elsewhere, a text may be nothing
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
            valid_dropped = self.dropped(counts, "valid_")
            return f"{text}; {counts['valid']:,} for validation" + (
                f" (dropped {valid_dropped})" if valid_dropped else ""
            )
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
