"""Reports of unknown words, which did not occur in training, so that users know where the model guesses.

Unless there are too many, a run stores the words that it learned to read in words.txt: those of its sources, or of a
language model's texts; in lower case, one per line, after a heading with their checksum. An input word is unknown if
one of its parts (letters between apostrophes, hyphens and the like) is not in the list, or if the tokenizer has no
piece for the word or one of its letters. Numbers and scripts without spaces are not looked up. For tokenizers other
than BPE and unigram, such as characters, only missing pieces count.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from regard.config import visible
from regard.data.tokenizer import UNKNOWN, Tokenizer
from regard.data.vocabulary import is_unspaced
from regard.io import reading

FILE = "words.txt"
HEADING = "regard words 1 sha256 "
PARTS = re.compile(r"[^\W\d_]+")
MAX_BYTES = 4 * 2**20  # maximum size of words.txt; runs with more words have no such file
MAX_WORDS = 400_000  # maximum words while collecting
LISTED = 6  # maximum words that a message names
SHOWN_CHARACTERS = 40  # maximum characters of a word in a message
REMEMBERED = 100_000  # maximum words with a cached verdict
COUNTED = 10_000  # maximum different unknown words to keep
BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class WordCollector:
    """A collector of a corpus's words, which gives up if there are too many."""

    def __init__(self) -> None:
        self.words: set[str] | None = set()
        self.texts: set[str] = set()  # words between spaces whose parts are in `words`

    def add(self, texts: Iterable[str]) -> None:
        """Add the words of texts."""
        if self.words is None:
            return
        fresh = {word for text in texts for word in text.split()} - self.texts
        self.texts |= fresh
        for word in fresh:
            self.words.update(PARTS.findall(word.lower()))
        if len(self.texts) > MAX_WORDS:
            self.words, self.texts = None, set()


def format_words(words: Iterable[str]) -> str | None:
    """Return the text of words.txt, or None if it would be too large."""
    body = "".join(f"{word}\n" for word in sorted(words))
    if len(body.encode()) > MAX_BYTES:
        return None
    return f"{HEADING}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def read_words(folder: Path, name: str = FILE) -> frozenset[str] | None:
    """Read the words that a run was trained on; None if the file is missing or damaged."""
    try:
        heading, _, body = reading.read_bytes(folder / name, MAX_BYTES + 1000).decode().partition("\n")
    except (OSError, reading.Unreadable, UnicodeDecodeError):
        return None
    whole = heading == HEADING + hashlib.sha256(body.encode()).hexdigest()
    return frozenset(body.split("\n")) - {""} if whole else None


class UnknownWords:
    """A collector of input words that did not occur in training, which reports each of them once."""

    def __init__(
        self, tokenizer: Tokenizer, known_words: frozenset[str] | None, say: Callable[[str], None] | None = None
    ):
        self.tokenizer, self.say = tokenizer, say
        self.known_words = known_words if tokenizer.kind in ("bpe", "unigram") else None
        self.verdicts: dict[str, bool] = {}
        self.remembered = REMEMBERED  # maximum size of the cache of verdicts
        self.words: dict[str, None] = {}  # unknown words, in order of occurrence
        self.report_count = 0

    def add(self, texts: Iterable[str]) -> None:
        """Check the words of texts, and report new unknown ones."""
        self.look(texts)
        self.tell()

    def watch(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield texts unchanged, check their words, and report unknown ones at the end."""
        for text in texts:
            self.look([text])
            yield text
        self.tell()

    def look(self, texts: Iterable[str]) -> None:
        """Check the words of texts, without a report."""
        for text in texts:
            for word in text.split():
                if self.judge(word) and len(self.words) < COUNTED:
                    self.words.setdefault(strip_marks(word)[: SHOWN_CHARACTERS + 1])

    def list_words(self, text: str) -> list[str]:
        """List the unknown words of one text, each once and without punctuation; do not keep them for a report."""
        return list(dict.fromkeys(strip_marks(word) for word in text.split() if self.judge(word)))

    def judge(self, word: str) -> bool:
        """Return whether a word did not occur in training, and cache the verdict; punctuation alone is not a word."""
        unknown = self.verdicts.get(word)
        if unknown is None:
            if len(self.verdicts) >= self.remembered:
                self.verdicts.clear()
            ids, known_words = self.tokenizer.encode(word), self.known_words
            unknown = re.search(r"\w", word) is not None and (
                UNKNOWN in ids
                or any(map(BYTE.fullmatch, self.tokenizer.pieces(ids)))
                or any(
                    known_words is not None and part not in known_words and not any(map(is_unspaced, part))
                    for part in PARTS.findall(word.lower())
                )
            )
            if len(word) <= SHOWN_CHARACTERS:  # a longer word rarely recurs, and may be as long as a book
                self.verdicts[word] = unknown
        return unknown

    def tell(self) -> None:
        """Report the unknown words that have not been reported yet."""
        if self.say is not None and len(self.words) > self.report_count:
            self.say(describe(list(self.words)[self.report_count :]))
            self.report_count = len(self.words)

    def message(self) -> str | None:
        """Return one sentence that names the unknown words, shortened if there are many; None if there are none."""
        return describe(list(self.words)) if self.words else None


class IgnoredWords(UnknownWords):
    """A collector that ignores all words, for servers, which run indefinitely and report no unknown words."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(tokenizer, None)

    def look(self, texts: Iterable[str]) -> None:
        """Ignore the texts."""


def strip_marks(word: str) -> str:
    """Return a word without the punctuation around it; a word that contains markup stays unchanged."""
    if re.search("[<>&]", word):
        return word
    parts = re.findall(r"\w.*\w|\w", word)
    return parts[0] if parts else word


def describe(words: list[str]) -> str:
    """Describe in one sentence the words that did not occur in training, naming at most six."""
    shortened = (word if len(word) <= SHOWN_CHARACTERS else f"{word[:SHOWN_CHARACTERS]}…" for word in words[:LISTED])
    names = [*map(visible, shortened)]
    *first, last = names if len(words) == len(names) else [*names, f"{len(words) - len(names):,} more"]
    listed = " and ".join(filter(None, (", ".join(first), last)))
    return f"{listed} {'was' if len(words) == 1 else 'were'} never seen in training"
