r"""Language profiles: letter trigrams of both sides of a corpus, by which the language of a text is detected.

Training writes the profiles of its source and of its targets into languages.json, a few tens of kilobytes. A text is
cut into words of letters, in lower case, with a space at both ends. $P(\text{trigram})$ is its share in the profile,
and for one that the profile does not list it is $(1 - \sum P)\prod P(\text{letter})$. A language is as likely as the
product of these over the trigrams of the text. Trigrams overlap, so that the product is surer than it should be: its
logarithm is divided by SURENESS before it becomes a probability. That compares the languages that are known; a text may
be in none of them. So confidence is the probability times $\sigma(\frac{\sqrt n}{2}(\text{STRANGER} - d))$, with $n$
trigrams and $d$ how much less likely one of them is, in logarithms, than one of the profile's own texts. A text without
letters has none.
"""

import functools
import hashlib
import json
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data.cache import Encoded
from regard.data.tokenizer import SPECIAL, UNKNOWN, Tokenizer, Tokenizers
from regard.io import reading

FILE = "languages.json"
FORMAT = "regard languages 1"
LISTED = 1_500  # trigrams of a profile
LETTERS = 1_000  # of a profile: those of an alphabet, or the most frequent of Chinese
PAIRS = 5_000  # of a corpus that are looked at, at even intervals
CHARACTERS = 300_000  # of each side of it, at most
TEXT = 5_000  # characters of a text that are looked at
LARGEST = 8 * 2**20  # bytes of the file
STRANGE = 1e-5  # the share of a letter that a profile does not list
SURENESS = 2.0
STRANGER = 1.8  # between another subject (1.1 to 1.5) and another language (1.5 to 4)


@functools.lru_cache(8192)
def is_letter(character: str) -> bool:
    """Return whether a character is a letter, or a mark on one."""
    return character.isalpha() or unicodedata.category(character)[0] == "M"


def list_trigrams(text: str) -> list[str]:
    """List the letter trigrams of a text, in lower case; words are of letters alone, with a space at both ends."""
    text = unicodedata.normalize("NFC", text.lower())
    words = "".join(c if is_letter(c) else " " for c in text).split()
    return [padded[i : i + 3] for word in words for padded in (f" {word} ",) for i in range(len(word))]


@dataclass(frozen=True)
class LanguageProfile:
    """The frequent trigrams and letters of a language, with their shares."""

    trigrams: Mapping[str, float]
    letters: Mapping[str, float]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "LanguageProfile | None":
        """Profile texts of one language; None where they have no letters."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(list_trigrams(text))
        letters: Counter[str] = Counter()
        for trigram, count in counts.items():
            for letter in trigram:
                letters[letter] += count
        if not counts:
            return None
        return cls(shares(counts, LISTED), shares(letters, LETTERS))

    @functools.cached_property
    def rest(self) -> float:
        """The share of trigrams that are not listed: at least a little, as others will come."""
        return max(0.01, 1 - sum(self.trigrams.values()))

    def log_prob(self, trigram: str) -> float:
        """The logarithm of a trigram's share."""
        share = self.trigrams.get(trigram)
        if share is None:
            share = self.rest * math.prod(self.letters.get(letter, STRANGE) for letter in trigram)
        return math.log(share)

    @functools.cached_property
    def own_log_prob(self) -> float:
        """What `log_prob` is on average for trigrams of the profile's own texts."""
        listed = sum(share * math.log(share) for share in self.trigrams.values())
        letters = sum(share * math.log(share) for share in self.letters.values())
        return listed + max(0.0, 1 - sum(self.trigrams.values())) * (math.log(self.rest) + 3 * letters)

    def familiarity(self, trigrams: Sequence[str]) -> float:
        """How much a text looks like the profile's own, from 0 to 1; the more of it there is, the more it tells."""
        if not any(all(letter in self.letters for letter in each) for each in trigrams):
            return 0.0
        strangeness = self.own_log_prob - sum(map(self.log_prob, trigrams)) / len(trigrams)
        return 1 / (1 + math.exp(min(700.0, math.sqrt(len(trigrams)) / 2 * (strangeness - STRANGER))))

    def as_table(self) -> dict[str, Any]:
        """Return the profile as JSON holds it: shares in millionths."""
        return {
            name: {key: round(1e6 * share) for key, share in table.items()}
            for name, table in (("trigrams", self.trigrams), ("letters", self.letters))
        }

    @classmethod
    def from_table(cls, table: Any) -> "LanguageProfile":
        """Read a profile; what is no profile raises ValueError."""
        tables = []
        for name, length in (("trigrams", 3), ("letters", 1)):
            shares = table[name]
            if not all(len(key) == length and isinstance(share, int) and share >= 0 for key, share in shares.items()):
                raise ValueError(f"{name}: expected shares in millionths")
            tables.append({key: max(share, 1) / 1e6 for key, share in shares.items()})
        return cls(*tables)


def shares(counts: Counter[str], most: int) -> dict[str, float]:
    """The shares of the most frequent keys; of those that are as frequent as each other, the first by code point."""
    total = counts.total()
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return {key: count / total for key, count in ranked if 1e6 * count >= total}


def merge_profiles(profiles: Sequence[LanguageProfile]) -> LanguageProfile:
    """The profile of a language that several runs have one of: the mean of their shares."""
    if len(profiles) == 1:
        return profiles[0]
    trigrams, letters = dict[str, float](), dict[str, float]()
    for profile in profiles:
        for total, table in ((trigrams, profile.trigrams), (letters, profile.letters)):
            for key, share in table.items():
                total[key] = total.get(key, 0.0) + share / len(profiles)
    return LanguageProfile(trigrams, letters)


def detect_language(text: str, profiles: Mapping[str, LanguageProfile]) -> list[tuple[str, float]]:
    """The languages of a text with their confidence from 0 to 100, the likeliest first; 0 for all where nothing tells.

    Of a long text the beginning is looked at.
    """
    trigrams = list_trigrams(text[:TEXT])
    if not trigrams or not profiles:
        return [(language, 0.0) for language in profiles]
    logs = {language: sum(map(profile.log_prob, trigrams)) / SURENESS for language, profile in profiles.items()}
    top = max(logs.values())
    weights = {language: math.exp(log - top) for language, log in logs.items()}
    total = sum(weights.values())
    found = [
        (language, 100 * weight / total * profiles[language].familiarity(trigrams))
        for language, weight in weights.items()
    ]
    return sorted(found, key=lambda pair: -logs[pair[0]])


# ---- of a run


@dataclass(frozen=True)
class RunLanguages:
    """The profiles of what a run was trained on: its source, and its targets by the tag that asks for each."""

    source: LanguageProfile | None = None
    targets: Mapping[str, LanguageProfile] = field(default_factory=dict)  # without tags its name is empty

    def dumps(self) -> str:
        """Return the text of languages.json, which holds its own checksum."""
        body = {
            "source": None if self.source is None else self.source.as_table(),
            "targets": {tag: profile.as_table() for tag, profile in self.targets.items()},
        }
        text = json.dumps({"format": FORMAT, "sha256": checksum(body), **body}, ensure_ascii=False, indent=0)
        return f"{text}\n"

    @classmethod
    def read(cls, folder: Path) -> "RunLanguages":
        """Read the profiles of a run folder; none where it keeps none, or the file is damaged."""
        try:
            table = reading.parse_json(reading.read_bytes(folder / FILE, LARGEST))
            body = {"source": table["source"], "targets": table["targets"]}
            if table["format"] != FORMAT or table["sha256"] != checksum(body):
                return cls()
            source = None if body["source"] is None else LanguageProfile.from_table(body["source"])
            return cls(source, {tag: LanguageProfile.from_table(each) for tag, each in body["targets"].items()})
        except (OSError, reading.Unreadable, ValueError, TypeError, KeyError, AttributeError):
            return cls()


def checksum(body: Mapping[str, Any]) -> str:
    """Hash the profiles of a run."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def profile_corpus(train: Encoded, tokenizers: Tokenizers, tags: Sequence[str | None]) -> RunLanguages:
    """Profile both sides of what is trained on, a sample of each corpus at even intervals; `tags`: of each corpus."""
    sources, targets = list[str](), dict[str, list[str]]()
    ends = (*train.starts[1:], len(train))
    for number, (start, end) in enumerate(zip(train.starts, ends, strict=True)):
        tag = (tags[number] if number < len(tags) else None) or ""
        pairs = [train.pair(i) for i in range(start, end, max(1, (end - start) // PAIRS))]
        sources += decode_some([pair[0] for pair in pairs], tokenizers.source, tag)
        targets.setdefault(tag, []).extend(decode_some([pair[1] for pair in pairs], tokenizers.target))
    profiles = {tag: LanguageProfile.of(texts) for tag, texts in targets.items()}
    return RunLanguages(
        LanguageProfile.of(sources), {tag: profile for tag, profile in profiles.items() if profile is not None}
    )


def decode_some(rows: Sequence[Any], tokenizer: Tokenizer, tag: str = "", most: float = CHARACTERS) -> list[str]:
    """The texts of rows of tokens up to `most` characters, without a tag and without what stands for unknown words."""
    texts, characters = list[str](), 0
    for first in range(0, len(rows), 500):
        for text in tokenizer.decode_batch([row.tolist() for row in rows[first : first + 500]]):
            texts.append(text.removeprefix(tag).replace(SPECIAL[UNKNOWN], " "))
            characters += len(text)
        if characters >= most:
            break
    return texts
