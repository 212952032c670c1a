r"""The languages of a run: their names in the configuration, their pieces in the vocabulary, and language detection.

Pieces: a multilingual model reads a language piece before a source, or begins a target with one. A language is a code
such as de or deu_Latn; its piece is the code itself (NLLB), __de__ (M2M-100), >>deu<< (OPUS-MT) or <2de>. The last two
precede the source and name the target's language; the others precede the text in that language.

Detection compares a text with profiles of letter trigrams. Training writes the profiles of its source and its targets
to languages.json, a few tens of kilobytes. A text is lowercased and cut into words of letters, with a space at both
ends. $P(\text{trigram})$ is the trigram's share in the profile or, for a trigram that is not listed,
$(1 - \sum P)\prod P(\text{letter})$. The likelihood of a language is the product of these over the text's trigrams.
Trigrams overlap, which makes the product overconfident, so its logarithm is divided by SURENESS before normalisation
over the known languages. As a text may be in none of them, the confidence is this probability times
$\sigma(\frac{\sqrt n}{2}(\text{STRANGER} - d))$, where $n$ is the number of trigrams, and $d$ is the mean
log-probability of trigrams in the profile's own texts minus that in the text. Without letters, the confidence is 0.
"""

import functools
import hashlib
import itertools
import json
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.config import show_value, suggestion
from regard.data.builtin import has_pair
from regard.data.cache import Encoded
from regard.data.settings import LANGUAGES, DataSettings
from regard.data.tokenizer import END, SPECIAL, UNKNOWN, Tokenizer, Tokenizers
from regard.errors import CommandError
from regard.io import reading

PACKED = (".gz", ".txt", ".tok", ".lc")  # suffixes that do not name a language


def languages_of(data: DataSettings, given: str | None = None) -> tuple[str, tuple[str, ...]] | None:
    """Return the source language and the target languages; None if they are unknown.

    `given`, such as en-de, takes precedence over `data.languages`, then come the pair of a built-in corpus and the
    suffixes of the files (train.en, train.de). A corpus's tag, such as <2de>, names a target language.
    """
    tags = tuple(dict.fromkeys(language for corpus in data.corpora if (language := tag_language(corpus.tag))))
    built_in = data.pair if data.builtin is not None and has_pair(data.builtin) else None
    for text in (given, data.languages, built_in):
        if text is not None:
            source, _, target = text.partition("-")  # a code may have a region, as in pt_BR-en
            return source, tags or (target,)
    files = [(data.source, data.target), *((corpus.source, corpus.target) for corpus in data.corpora)]
    for source_file, target_file in files:
        ends = file_language(source_file), file_language(target_file)
        if ends[0] and (ends[1] or tags) and ends[0] != ends[1]:
            return ends[0], tags or (ends[1] or "",)
    return None


def parse_given(texts: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """Parse model=pair options, such as demo=en-de; return the pair of each model."""
    pairs = {}
    for text in texts:
        name, _, pair = text.partition("=")
        if not LANGUAGES.fullmatch(pair):
            raise CommandError(
                f"--languages: {show_value(text)} given, expected a model and its languages, such as demo=en-de"
            )
        if name not in names:
            raise CommandError(f"--languages: {name} is not served{suggestion(name, names)}")
        pairs[name] = pair
    return pairs


def file_language(path: str | None) -> str | None:
    """Return the language in a file's suffix: two or three lower-case letters, as in train.en, or as in x.pt_BR."""
    if path is None:
        return None
    name = Path(path)
    while name.suffix in PACKED:
        name = name.with_suffix("")
    ending = name.suffix[1:]
    letters = ending.partition("_")[0]
    return ending if 2 <= len(letters) <= 3 and letters.isascii() and letters.islower() and letters.isalpha() else None


def tag_language(tag: str | None) -> str | None:
    """Return the language that a tag such as <2de> or >>deu<< names."""
    return (tag or "").strip("<>").removeprefix("2") or None


# ---- pieces of languages


OWN = ("{}", "__{}__")  # before a text in the language
REQUESTS = (">>{}<<", "<2{}>")  # before a source to translate into the language
FLAGS = ("--source-language", "--target-language")  # the options that set languages


def choose_languages(
    tokenizers: Tokenizers, source: str | None, target: str | None, flags: Sequence[str] = FLAGS
) -> dict[str, tuple[str, ...]]:
    """Return the pieces around texts (tokenizer.before, after and first) for these languages.

    Pieces that do not name a language stay as they are. A CommandError names a language without a piece in the
    vocabulary, and the option or field that set it.
    """
    reads, writes = tokenizers.source, tokenizers.target
    around = {"before": reads.pieces(reads.before), "after": reads.pieces(reads.after)}
    around["first"] = writes.pieces(writes.before)
    if source is not None:
        piece = find_piece(reads, source, OWN, flags[0])
        around["before"] = replace_language(reads, around["before"], piece, OWN)
    if target is not None:
        piece = find_piece(writes, target, (*OWN, *REQUESTS), flags[1])
        if split_piece(piece)[0] in REQUESTS:
            around["before"] = replace_language(reads, around["before"], piece, REQUESTS)
        else:
            around["first"] = replace_language(writes, around["first"], piece, OWN)
    return {name: tuple(pieces) for name, pieces in around.items()}


def find_piece(tokenizer: Tokenizer, language: str, forms: Sequence[str], flag: str) -> str:
    """Return the piece of a language, or raise a CommandError; ordinary words that look like a code do not count."""
    languages = known_languages(tokenizer)
    for form in forms:
        if (piece := form.format(language)) in languages:
            return piece
    known = sorted({code for form, code in map(split_piece, languages) if form in forms})
    if not known:
        raise CommandError(f"{flag}: {show_value(language)} given, but the vocabulary has no pieces for languages")
    hint = suggestion(language, known)
    raise CommandError(f"{flag}: {show_value(language)} given, which the run does not know{hint}")


def spoken_languages(tokenizers: Tokenizers) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sorted languages of sources and of targets; no source languages if sources need no language piece."""
    sources, targets = (map(split_piece, known_languages(each)) for each in (tokenizers.source, tokenizers.target))
    spoken = {code for form, code in sources if form in OWN}, {code for _, code in targets}
    return tuple(sorted(spoken[0])), tuple(sorted(spoken[1]))


def known_languages(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the vocabulary's language pieces with their codes."""
    special = {*tokenizer.pieces(sorted(tokenizer.hidden)), *tokenizer.tags.values()}
    starts = tuple(form.partition("{")[0] for form in REQUESTS)  # a quick test, as few pieces pass it
    special |= {piece for piece in tokenizer.names if piece.startswith(starts) and split_piece(piece)[0] in REQUESTS}
    special -= set(tokenizer.pieces(range(END + 1)))
    return {piece: code for piece in special if (code := split_piece(piece)[1])}


def split_piece(piece: str) -> tuple[str, str]:
    """Return the form of a language piece, with {} in place of its code, and the code; both empty if it has none."""
    for form in (*OWN[1:], *REQUESTS):
        begin, end = form.split("{}")
        if piece.startswith(begin) and piece.endswith(end) and len(piece) > len(begin) + len(end):
            return form, piece[len(begin) : len(piece) - len(end)]
    return ("", "") if piece.startswith("<") else ("{}", piece)


def replace_language(tokenizer: Tokenizer, pieces: Sequence[str], piece: str, forms: Sequence[str]) -> list[str]:
    """Put a language's piece first, and remove the previous language pieces of these forms."""
    languages = known_languages(tokenizer)
    return [piece, *(each for each in pieces if each not in languages or split_piece(each)[0] not in forms)]


# ---- profiles


FILE = "languages.json"
FORMAT = "regard languages 1"
LISTED = 1_500  # maximum trigrams of a profile
LETTERS = 1_000  # maximum letters of a profile: a whole alphabet, or the most frequent Chinese characters
PAIRS = 5_000  # about how many pairs of a corpus are profiled, at even intervals
CHARACTERS = 300_000  # about how many characters of each side of a corpus are profiled
TEXT = 5_000  # characters of a text used for detection
MAX_BYTES = 8 * 2**20  # maximum size of languages.json
STRANGE = 1e-5  # the share of a letter that a profile does not list
SURENESS = 2.0
STRANGER = 1.8  # between values of d for another subject (1.1 to 1.5) and for another language (1.5 to 4)


@functools.lru_cache(8192)
def is_letter(character: str) -> bool:
    """Return whether a character is a letter or a combining mark."""
    return character.isalpha() or unicodedata.category(character)[0] == "M"


def list_trigrams(text: str) -> list[str]:
    """List the letter trigrams of a text in lower case; words consist only of letters, with a space at both ends."""
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
        """Profile texts of one language; return None if they contain no letters."""
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
        """The share of trigrams that are not listed: at least 1 %, as new texts have new trigrams."""
        return max(0.01, 1 - sum(self.trigrams.values()))

    def log_prob(self, trigram: str) -> float:
        """Return the logarithm of a trigram's share."""
        share = self.trigrams.get(trigram)
        if share is None:
            share = self.rest * math.prod(self.letters.get(letter, STRANGE) for letter in trigram)
        return math.log(share)

    @functools.cached_property
    def own_log_prob(self) -> float:
        """The mean `log_prob` of trigrams in the profile's own texts."""
        listed = sum(share * math.log(share) for share in self.trigrams.values())
        letters = sum(share * math.log(share) for share in self.letters.values())
        return listed + max(0.0, 1 - sum(self.trigrams.values())) * (math.log(self.rest) + 3 * letters)

    def familiarity(self, trigrams: Sequence[str]) -> float:
        """Return how similar a text is to the profile's own texts, from 0 to 1; a longer text gives clearer values."""
        if not any(all(letter in self.letters for letter in each) for each in trigrams):
            return 0.0
        strangeness = self.own_log_prob - sum(map(self.log_prob, trigrams)) / len(trigrams)
        return 1 / (1 + math.exp(min(700.0, math.sqrt(len(trigrams)) / 2 * (strangeness - STRANGER))))

    def as_table(self) -> dict[str, Any]:
        """Return the profile as JSON data, with shares in millionths."""
        return {
            name: {key: round(1e6 * share) for key, share in table.items()}
            for name, table in (("trigrams", self.trigrams), ("letters", self.letters))
        }

    @classmethod
    def from_table(cls, table: Any) -> "LanguageProfile":
        """Read a profile from JSON data; raise ValueError if it is invalid."""
        tables = []
        for name, length in (("trigrams", 3), ("letters", 1)):
            shares = table[name]
            if not all(len(key) == length and isinstance(share, int) and share >= 0 for key, share in shares.items()):
                raise ValueError(f"{name}: expected shares in millionths")
            tables.append({key: max(share, 1) / 1e6 for key, share in shares.items()})
        return cls(*tables)


def shares(counts: Counter[str], most: int) -> dict[str, float]:
    """Return the shares of the `most` most frequent keys; ties are sorted by code point."""
    total = counts.total()
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return {key: count / total for key, count in ranked if 1e6 * count >= total}


def merge_profiles(profiles: Sequence[LanguageProfile]) -> LanguageProfile:
    """Average the profiles that several runs have of one language."""
    if len(profiles) == 1:
        return profiles[0]
    tables = dict[str, float](), dict[str, float]()
    for profile in profiles:
        for total, table in zip(tables, (profile.trigrams, profile.letters), strict=True):
            total |= {key: total.get(key, 0.0) + share / len(profiles) for key, share in table.items()}
    return LanguageProfile(*tables)


def detect_language(text: str, profiles: Mapping[str, LanguageProfile]) -> list[tuple[str, float]]:
    """Return the languages of a text with their confidence from 0 to 100, most likely first; 0 without evidence.

    Only the beginning of a long text is used.
    """
    trigrams = list_trigrams(text[:TEXT])
    if not trigrams or not profiles:
        return [(language, 0.0) for language in profiles]
    logs = {language: sum(map(profile.log_prob, trigrams)) / SURENESS for language, profile in profiles.items()}
    top = max(logs.values())
    weights = {language: math.exp(log - top) for language, log in logs.items()}
    total = sum(weights.values())
    ranked = sorted(logs, key=lambda language: -logs[language])
    return [(each, 100 * weights[each] / total * profiles[each].familiarity(trigrams)) for each in ranked]


# ---- the profiles of a run


@dataclass(frozen=True)
class RunLanguages:
    """The profiles of a run's training texts: of its sources, and of its targets by their tag."""

    source: LanguageProfile | None = None
    targets: Mapping[str, LanguageProfile] = field(default_factory=dict)  # the key is empty without a tag

    def dumps(self) -> str:
        """Return the text of languages.json, including its checksum."""
        body = {
            "source": None if self.source is None else self.source.as_table(),
            "targets": {tag: profile.as_table() for tag, profile in self.targets.items()},
        }
        text = json.dumps({"format": FORMAT, "sha256": checksum(body), **body}, ensure_ascii=False, indent=0)
        return f"{text}\n"

    @classmethod
    def read(cls, folder: Path) -> "RunLanguages":
        """Read the profiles of a run folder; return empty ones if the file is missing or damaged."""
        try:
            table = reading.parse_json(reading.read_bytes(folder / FILE, MAX_BYTES))
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
    """Profile both sides of the training pairs, a sample of each corpus at even intervals; one of `tags` per corpus."""
    sources, targets = list[str](), dict[str, list[str]]()
    ends = (*train.starts[1:], len(train))
    for start, end, tag in zip(train.starts, ends, itertools.chain(tags, itertools.repeat("")), strict=False):
        pairs = [train.pair(i) for i in range(start, end, max(1, (end - start) // PAIRS))]
        sources += decode_some([pair[0] for pair in pairs], tokenizers.source, tag or "")
        targets.setdefault(tag or "", []).extend(decode_some([pair[1] for pair in pairs], tokenizers.target))
    profiles = {tag: profile for tag, texts in targets.items() if (profile := LanguageProfile.of(texts)) is not None}
    return RunLanguages(LanguageProfile.of(sources), profiles)


def decode_some(rows: Sequence[Any], tokenizer: Tokenizer, tag: str = "", most: float = CHARACTERS) -> list[str]:
    """Decode rows of tokens until `most` characters are reached, without the tag and unknown pieces."""
    texts, characters = list[str](), 0
    for first in range(0, len(rows), 500):
        for text in tokenizer.decode_batch([row.tolist() for row in rows[first : first + 500]]):
            texts.append(text.removeprefix(tag).replace(SPECIAL[UNKNOWN], " "))
            characters += len(text)
        if characters >= most:
            break
    return texts
