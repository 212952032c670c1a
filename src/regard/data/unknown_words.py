"""Unknown words: words that did not occur in training are reported, so that people know where the model guesses.

A run keeps the words that it was trained to read in words.txt, where they are not too many: those of its sources, or of
the texts of a language model, which reads what it writes; in lower case, one per line, under a heading with their
checksum. A word of an input is unknown where one of its parts (letters between apostrophes,
hyphens and the like) is not among them, or where the tokenizer has no piece for it, or none for one of its letters.
Numbers, and scripts without spaces, have no words to look for. Models of characters are asked for letters alone.
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
MAX_BYTES = 4 * 2**20  # bytes of the list: a corpus with more has none
MAX_WORDS = 400_000  # words while they are collected
LISTED = 6  # words that a message names
SHOWN_CHARACTERS = 40  # characters of one that are shown
REMEMBERED = 100_000  # words whose verdict is kept
COUNTED = 10_000  # different unknown words that are kept
BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class WordCollector:
    """A collector of the words of a corpus, as long as they are not too many."""

    def __init__(self) -> None:
        self.words: set[str] | None = set()
        self.texts: set[str] = set()  # words between spaces whose parts are there

    def add(self, texts: Iterable[str]) -> None:
        """Take in the words of texts."""
        if self.words is None:
            return
        fresh = {word for text in texts for word in text.split()} - self.texts
        self.texts |= fresh
        for word in fresh:
            self.words.update(PARTS.findall(word.lower()))
        if len(self.texts) > MAX_WORDS:
            self.words, self.texts = None, set()


def format_words(words: Iterable[str]) -> str | None:
    """Return the text of words.txt, or None where it would be too large."""
    body = "".join(f"{word}\n" for word in sorted(words))
    if len(body.encode()) > MAX_BYTES:
        return None
    return f"{HEADING}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def read_words(folder: Path, name: str = FILE) -> frozenset[str] | None:
    """Read the words that a run was trained on; None where it keeps none, or the file is damaged."""
    try:
        heading, _, body = reading.read_bytes(folder / name, MAX_BYTES + 1000).decode().partition("\n")
    except (OSError, reading.Unreadable, UnicodeDecodeError):
        return None
    whole = heading == HEADING + hashlib.sha256(body.encode()).hexdigest()
    return frozenset(body.split("\n")) - {""} if whole else None


class UnknownWords:
    """A collector of input words that did not occur in training, which reports them once."""

    def __init__(
        self, tokenizer: Tokenizer, known_words: frozenset[str] | None, say: Callable[[str], None] | None = None
    ):
        self.tokenizer, self.say = tokenizer, say
        self.known_words = known_words if tokenizer.kind in ("bpe", "unigram") else None
        self.verdicts: dict[str, bool] = {}
        self.remembered = REMEMBERED  # verdicts that are kept
        self.words: dict[str, None] = {}  # unknown ones, in their order
        self.report_count = 0

    def add(self, texts: Iterable[str]) -> None:
        """Check the words of texts, and report new unknown ones."""
        self.look(texts)
        self.tell()

    def watch(self, texts: Iterable[str]) -> Iterator[str]:
        """Pass texts on, and check their words on the way."""
        for text in texts:
            self.look([text])
            yield text
        self.tell()

    def look(self, texts: Iterable[str]) -> None:
        """Check the words of texts, and report nothing yet."""
        for text in texts:
            for word in text.split():
                if self.judge(word) and len(self.words) < COUNTED:
                    self.words.setdefault(strip_marks(word)[: SHOWN_CHARACTERS + 1])

    def list_words(self, text: str) -> list[str]:
        """List the unknown words of one text, each once, without marks around it; they are not kept for a report."""
        return list(dict.fromkeys(strip_marks(word) for word in text.split() if self.judge(word)))

    def judge(self, word: str) -> bool:
        """Return whether a word did not occur in training, and remember that; marks alone are no words."""
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
            if len(word) <= SHOWN_CHARACTERS:  # a longer one hardly comes again, and may be as long as a book
                self.verdicts[word] = unknown
        return unknown

    def tell(self) -> None:
        """Report the unknown words that were not reported yet."""
        if self.say is not None and len(self.words) > self.report_count:
            self.say(describe(list(self.words)[self.report_count :]))
            self.report_count = len(self.words)

    def message(self) -> str | None:
        """Return one sentence that names all unknown words; None where there are none."""
        return describe(list(self.words)) if self.words else None


class IgnoredWords(UnknownWords):
    """A collector that keeps no word: for a run that reads texts for ever, whose unknown words nobody asks for."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(tokenizer, None)

    def look(self, texts: Iterable[str]) -> None:
        """Leave texts unread."""


def strip_marks(word: str) -> str:
    """Strip a word of the punctuation around it; one with markup in it stays as it was typed."""
    if re.search("[<>&]", word):
        return word
    parts = re.findall(r"\w.*\w|\w", word)
    return parts[0] if parts else word


def describe(words: list[str]) -> str:
    """Name words that did not occur in training, no more than fit on a line."""
    shortened = (word if len(word) <= SHOWN_CHARACTERS else f"{word[:SHOWN_CHARACTERS]}…" for word in words[:LISTED])
    names = [*map(visible, shortened)]
    *first, last = names if len(words) == len(names) else [*names, f"{len(words) - len(names):,} more"]
    listed = " and ".join(filter(None, (", ".join(first), last)))
    return f"{listed} {'was' if len(words) == 1 else 'were'} never seen in training"
