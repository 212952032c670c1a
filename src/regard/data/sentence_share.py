"""How many of the sources that a run is trained on have several sentences: whether it expects one at a time.

A model that was trained on single sentences often translates one of two and leaves the other out. So a text is split
into its sentences by default, unless more than 5 % of the training sources (10,000 of them, at even intervals) have
several. Training writes what it counted into sentences.json; a run without that file, such as an imported one, counts
as trained on single sentences.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.data.cache import Encoded
from regard.data.language_profile import decode_some
from regard.data.sentence_split import has_several
from regard.data.tokenizer import Tokenizer
from regard.io import reading

FILE = "sentences.json"
FORMAT = "regard sentences 1"
SAMPLE = 10_000  # sources that are looked at
SINGLE = 0.05  # the share of sources with several sentences, up to which a run counts as trained on single ones
LARGEST = 10_000  # bytes of the file


@dataclass(frozen=True)
class SentenceShare:
    """The sources that were looked at, and how many of them have several sentences."""

    sources: int = 0
    several: int = 0

    @property
    def single(self) -> bool:
        """Whether a run that was trained on them expects single sentences."""
        return self.several <= SINGLE * self.sources

    def dumps(self) -> str:
        """Return the text of sentences.json."""
        return json.dumps({"format": FORMAT, **asdict(self)}) + "\n"

    @classmethod
    def from_table(cls, table: Any) -> "SentenceShare":
        """Read the counts from a table; none where it has none, or what they cannot be."""
        sources, several = (table.get("sources"), table.get("several")) if isinstance(table, dict) else (None, None)
        if type(sources) is int and type(several) is int and 0 <= several <= sources:
            return cls(sources, several)
        return cls()

    @classmethod
    def read(cls, folder: Path) -> "SentenceShare":
        """Read the counts of a run folder; none where it keeps none, or the file is damaged."""
        try:
            table = reading.parse_json(reading.read_bytes(folder / FILE, LARGEST))
        except (OSError, reading.Unreadable, ValueError):
            return cls()
        return cls.from_table(table) if isinstance(table, dict) and table.get("format") == FORMAT else cls()


def count_sentences(train: Encoded, tokenizer: Tokenizer, tags: Sequence[str | None]) -> SentenceShare:
    """Count the sources with several sentences among those that are trained on; `tags`: of each corpus."""
    ends, known, several, sources = (*train.starts[1:], len(train)), [tag for tag in tags if tag], 0, 0
    step = max(1, -(-len(train) // SAMPLE))
    for number, (start, end) in enumerate(zip(train.starts, ends, strict=True)):
        tag = (tags[number] if number < len(tags) else None) or ""
        rows = [train.pair(i)[0] for i in range(start + -start % step, end, step)]
        texts = decode_some(rows, tokenizer, tag, most=math.inf)
        sources += len(texts)
        several += sum(has_several(text.strip(), known) for text in texts)
    return SentenceShare(sources, several)


class SentenceCounter:
    """A counter of texts with several sentences, of which a model may leave some out."""

    def __init__(self, tags: Sequence[str] = ()):
        self.tags, self.texts, self.several = tags, 0, 0

    def add(self, texts: Iterable[str]) -> None:
        """Take in texts."""
        for text in texts:
            self.texts += 1
            self.several += has_several(text, self.tags)

    def watch(self, texts: Iterable[str]) -> Iterator[str]:
        """Pass texts on, and count on the way."""
        for text in texts:
            self.add([text])
            yield text


def describe_several(counter: SentenceCounter, what: str, way: str) -> str:
    """Describe in one sentence that texts have several sentences; `way` is what translates all of them."""
    count = f"{counter.several:,} of {counter.texts:,}"
    return f"{what} with several sentences: {count}; trained on single ones, the model may leave some out; {way}"
