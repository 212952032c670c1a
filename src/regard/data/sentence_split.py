"""Splitting of long texts into parts that a model can read: at sentence ends, else at commas, else between words.

A sentence ends with . ! ? … (or । ؟ ۔), and any closing quotes and brackets, if white space and then no lower-case
letter follow; 。！？ always end one. It does not end after an abbreviation ("Mr.", "z. B.", "J. S. Bach") or a number
of one or two digits ("am 3. Mai"). In doubt a text stays whole: a model can translate two sentences together, but not
half a sentence. A tag such as <2de> at the beginning of a text applies to all of it, so every part gets it.

Texts to translate may be typed without capitals. So `source_sentences` also splits a sentence that begins in lower case
(or with "I") after . ! ? before a lower-case letter, if the word before has at least three letters and is not an
abbreviation.

Whether a run expects one sentence at a time depends on its training. A model trained on single sentences often
translates one of two and omits the other. So a text is split by default, unless more than 5 % of the training sources
(10,000 of them, at even intervals) have several sentences. Training writes these counts to sentences.json; a run
without that file, such as an imported one, counts as trained on single sentences.
"""

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.cache import Encoded
from regard.data.languages import decode_some
from regard.data.tokenizer import Tokenizer
from regard.io import reading

# Part of the cache key of documents; change it whenever `sentences` splits any text differently. The first edition is
# the SHA-256 of the file that wrote the first caches, so that these stay valid.
EDITION = "fb7fa5c09d346e2bc50be0ba6fde982f41766df67bb3ff584cfcd8c1f4585eb0"

Count = Callable[[str], int]  # returns a text's number of tokens

CLOSING = "\"'”’»›)\\]}」』）】》"
OPENING = "\"'“‘„‚«‹(\\[{「『（【《¿¡–—-"
END = re.compile(
    rf"[。！？]+[{CLOSING}]*\s*"  # needs no space after it
    rf"|[.!?…।؟۔]+[{CLOSING}]*(?P<alone>\s+[\"'](?=\s|$))?(?:\s+|$)"  # in tokenised text, a quotation mark stands alone
)
NEXT = re.compile(rf"[\s{OPENING}]*(\S)")
CLAUSE = re.compile(r"[,;:)\]–—](?=\s)|[，；：、]")
ABBREVIATIONS = reading.read_facts("regard.data", "abbreviations.toml")
SHORT = re.compile("|".join(ABBREVIATIONS["short"].split()))
SHORTENED = re.compile("|".join(" ".join(ABBREVIATIONS["shortened"].values()).split()))
PRONOUN = re.compile(r"I(?=['’\s])")
QUOTES = "\"'”’»›」』"


class Piece(NamedTuple):
    """A part of a text, with its start and end."""

    start: int
    end: int
    text: str


def sentences(text: str) -> list[Piece]:
    """Split a text into sentences, without the white space between them."""
    return split_where(text, ends)


def source_sentences(text: str, tags: Sequence[str] = ()) -> list[Piece]:
    """Split a text to translate into sentences; those that begin in lower case may also end before lower case.

    A sentence may begin with one of `tags`.
    """
    found = list[Piece]()
    for piece in sentences(text):
        own = piece.text[len(leading_tag(piece.text, tags) or "") :]
        first = next((place for place, character in enumerate(own) if character.isalpha()), None)
        if first is not None and (own[first].islower() or PRONOUN.match(own, first)):
            parts = split_where(piece.text, ends_in_lowercase)
            found += [Piece(piece.start + part.start, piece.start + part.end, part.text) for part in parts]
        else:
            found.append(piece)
    return found


def has_several(text: str, tags: Sequence[str] = ()) -> bool:
    """Return whether a text to translate has several sentences."""
    return len(source_sentences(text, tags)) > 1


def split_where(text: str, is_end: Callable[[str, int, re.Match[str]], bool]) -> list[Piece]:
    """Split a text at the matches of END for which `is_end(text, start of the sentence, match)` is true."""
    bounds, start = [], 0
    for end in END.finditer(text):
        if end.end() < len(text) and is_end(text, start, end):
            opens = end["alone"] and text.count(end["alone"][-1], start, end.start()) % 2 == 0
            stop = end.start("alone") if opens else end.end()
            bounds.append((start, stop))
            start = stop
    return [piece for each in [*bounds, (start, len(text))] if (piece := stripped(text, *each)).text]


def ends(text: str, start: int, end: re.Match[str]) -> bool:
    """Return whether the match `end` ends the sentence that began at `start`, and not only an abbreviation."""
    mark, following = end[0], NEXT.match(text, end.end())
    if mark[0] in "。！？":
        return True
    if following is None or following[1].islower() or following[1] in ",;:.!?…":
        return False
    if mark[0] != "." or mark.startswith(".."):
        return True
    words = text[max(start, end.start() - 40) : end.start()].rsplit(maxsplit=1)
    if not words or text[end.start() - 1].isspace():  # an isolated full stop
        return True
    word = words[-1].lstrip(OPENING.replace("\\", ""))
    last = word.rsplit(".")[-1]  # the B of "z.B"
    if last.isdigit():
        return len(last) > 2 or last != word
    if word.casefold() == "no" and following[1].isdigit():
        return False
    initial = len(last) == 1 and last.isalpha() and last != "I"
    return not initial and SHORT.fullmatch(word.casefold()) is None


def ends_in_lowercase(text: str, start: int, end: re.Match[str]) -> bool:
    """Return whether a sentence ends here although the next one begins in lower case."""
    mark, following = end[0], NEXT.match(text, end.end())
    if mark[0] not in ".!?" or mark.startswith("..") or following is None or not following[1].islower():
        return False
    if text[end.end()] == following[1] and any(each in QUOTES for each in mark):
        return False  # "Stop!" he said
    words = text[max(start, end.start() - 40) : end.start()].split()
    word = words[-1].strip(OPENING.replace("\\", "") + CLOSING.replace("\\", "")).casefold() if words else ""
    if SHORT.fullmatch(word) or SHORTENED.fullmatch(word):
        return False
    return sum(map(str.isalpha, word.rsplit(".")[-1])) >= 3


def pieces(text: str, count: Count, limit: int, tags: Sequence[str] = ()) -> list[Piece]:
    """Split a text into sentences, and sentences of more than `limit` tokens into pieces that fit."""
    parts: list[Piece] = []
    for sentence in source_sentences(text, tags):
        parts += [sentence] if count(sentence.text) <= limit else fitting(text, sentence, count, limit)
    return parts


def tagged_pieces(
    text: str, count: Count, limit: int, tags: Sequence[str], tag: str | None = None
) -> tuple[list[Piece], str | None]:
    """Split a text into pieces that fit, each with its tag; also return the tag that applies to the following text.

    `tag` applies before the text has one of its own. A piece that is only a tag is left out.
    """
    return put_tags(pieces(text, count, room_beside(leading_tag(text, tags) or tag, count, limit), tags), tags, tag)


def put_tags(parts: Sequence[Piece], tags: Sequence[str], tag: str | None) -> tuple[list[Piece], str | None]:
    """Prepend to each piece its tag, and drop pieces that are only a tag; return the pieces and the last tag."""
    tagged = list[Piece]()
    for piece in parts:
        own = leading_tag(piece.text, tags)
        tag = own or tag
        if own is None or piece.text.strip() != own:
            tagged.append(piece if tag == own or not piece.text else piece._replace(text=f"{tag} {piece.text}"))
    return tagged, tag


def room_beside(tag: str | None, count: Count, limit: int) -> int:
    """Return how many of `limit` tokens remain for a piece after its tag."""
    return limit if tag is None else max(1, limit - count(tag))


def leading_tag(text: str, tags: Sequence[str]) -> str | None:
    """Return the tag that a text begins with, if it is one of `tags`."""
    first = text.split(maxsplit=1)[:1] if tags else []
    return first[0] if first and first[0] in tags else None


def fitting(text: str, sentence: Piece, count: Count, limit: int) -> Iterator[Piece]:
    """Split a long sentence into pieces: up to a comma in the second half of the text that fits, else by words."""
    start = sentence.start
    while start < sentence.end:
        rest = text[start : sentence.end]
        size = head(rest, count, limit)
        if size < len(rest):
            clauses = [clause.end() for clause in CLAUSE.finditer(rest, size // 2, size + 1)]
            size = max([end for end in clauses if end <= size], default=size)
        piece = stripped(text, start, start + size)
        if piece.text:
            yield piece
        start += size


def cut(text: str, count: Count, limit: int) -> str:
    """Truncate a text to as many words as fit into `limit` tokens."""
    return text[: head(text, count, limit)].rstrip()


def head(text: str, count: Count, limit: int) -> int:
    """Return the length of the longest prefix of whole words that has at most `limit` tokens.

    If the first word does not fit, the prefix is a part of it. A word has at least one token, so the search looks at no
    more than `limit` + 1 words.
    """
    words = [word.end() for word in islice(re.finditer(r"\S+", text), limit + 1)]
    if len(words) <= limit and count(text) <= limit:
        return len(text)
    fits = bisect_right(words, limit, key=lambda end: count(text[:end]))
    if fits:
        return words[fits - 1]
    most = limit
    while most < len(text) and count(text[:most]) <= limit:
        most *= 2
    return max(1, bisect_right(range(1, min(most, len(text)) + 1), limit, key=lambda end: count(text[:end])))


def stripped(text: str, start: int, end: int) -> Piece:
    """Return a part of a text without the white space around it."""
    part = text[start:end]
    margin = len(part) - len(part.lstrip())
    return Piece(start + margin, start + margin + len(part.strip()), part.strip())


# ---- the share of a run's sources with several sentences


FILE = "sentences.json"
FORMAT = "regard sentences 1"
SAMPLE = 10_000  # sources in the sample
SINGLE = 0.05  # the share of sources with several sentences up to which a run counts as trained on single ones
MAX_BYTES = 10_000  # maximum size of sentences.json


@dataclass(frozen=True)
class SentenceShare:
    """The number of sources in the sample, and how many of them have several sentences."""

    sources: int = 0
    several: int = 0

    @property
    def single(self) -> bool:
        """Whether a run trained on these sources expects single sentences."""
        return self.several <= SINGLE * self.sources

    def dumps(self) -> str:
        """Return the text of sentences.json."""
        return json.dumps({"format": FORMAT, **asdict(self)}) + "\n"

    @classmethod
    def from_table(cls, table: Any) -> "SentenceShare":
        """Read the counts from a table; both are 0 if they are missing or invalid."""
        sources, several = (table.get("sources"), table.get("several")) if isinstance(table, dict) else (None, None)
        if type(sources) is int and type(several) is int and 0 <= several <= sources:
            return cls(sources, several)
        return cls()

    @classmethod
    def read(cls, folder: Path) -> "SentenceShare":
        """Read the counts of a run folder; both are 0 if the file is missing or damaged."""
        try:
            table = reading.parse_json(reading.read_bytes(folder / FILE, MAX_BYTES))
        except (OSError, reading.Unreadable, ValueError):
            return cls()
        return cls.from_table(table) if isinstance(table, dict) and table.get("format") == FORMAT else cls()


def count_sentences(train: Encoded, tokenizer: Tokenizer, tags: Sequence[str | None]) -> SentenceShare:
    """Count the sources with several sentences in a sample of the training pairs; one of `tags` per corpus."""
    ends, known, several, sources = (*train.starts[1:], len(train)), [tag for tag in tags if tag], 0, 0
    step = max(1, -(-len(train) // SAMPLE))
    for start, end, tag in zip(train.starts, ends, chain(tags, repeat("")), strict=False):
        rows = [train.pair(i)[0] for i in range(start + -start % step, end, step)]
        texts = decode_some(rows, tokenizer, tag or "", most=math.inf)
        sources += len(texts)
        several += sum(has_several(text.strip(), known) for text in texts)
    return SentenceShare(sources, several)


class SentenceCounter:
    """A counter of texts with several sentences, some of which a model may omit."""

    def __init__(self, tags: Sequence[str] = ()):
        self.tags, self.texts, self.several = tags, 0, 0

    def add(self, texts: Iterable[str]) -> None:
        """Count more texts."""
        for text in texts:
            self.texts += 1
            self.several += has_several(text, self.tags)

    def watch(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield texts unchanged, and count them."""
        for text in texts:
            self.add([text])
            yield text


def describe_several(counter: SentenceCounter, what: str, way: str) -> str:
    """Describe in one sentence how many texts have several sentences; `way` tells how to translate all of them."""
    count = f"{counter.several:,} of {counter.texts:,}"
    return f"{what} with several sentences: {count}; trained on single ones, the model may leave some out; {way}"
