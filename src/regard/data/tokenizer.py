"""Tokenizers: text to pieces and back, trained on the corpus or read from a file, stored in one tokenizer.json.

Text is normalised first: to NFC, with single spaces, none at the ends, and with "_" in place of "▁", which marks the
start of a word. Then it is split by kind:

- bpe, unigram: words are split between letters, digits and punctuation, digits one by one, and each part into learned
  pieces. A character without a piece is encoded as bytes (256 pieces), so that decoding restores any text.
- character: one piece per character, and bytes as above.
- word: one piece per word between spaces; other words are unknown.

A file may also hold a SentencePiece segmentation (`regard.data.sentencepiece`).

`<` is always a part of its own in bpe and unigram, so no text can contain a special piece; ids of special pieces never
come from text.
"""

import copy
import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, SupportsInt

import numpy as np
import tokenizers as library

from regard.config import show_value, visible
from regard.data.pre_tokenizer import MARK, AddedWords, separable
from regard.data.sentencepiece import SentencePiece, model_of
from regard.data.special_pieces import END, PAD, SPECIAL, START, UNKNOWN, adopt
from regard.data.tokenizer_checks import MAX_BYTES, check_form, loaded_part
from regard.errors import ConfigError, DataError
from regard.io import disk, reading

__all__ = ["END", "PAD", "SPECIAL", "START", "UNKNOWN", "Tokenizer", "Tokenizers", "adopt"]

BYTE_MARK = "Ġ"  # MARK in byte-level tokenizers made elsewhere
REFUSED = "a text that the tokenizer cannot encode"
REMEMBERED = 100_000  # maximum words in the cache
SHORT = 100  # maximum characters of a cached word
LONGEST_WORD = 100_000  # longer words are truncated: the library needs more than a hundred bytes per character
TOGETHER = 500_000  # characters encoded at a time, for the same reason
WORD = re.compile(r"\S+")
ODD = re.compile("[\x1c-\x1f]")  # white space to Python, but not to Unicode


class Tokenizer:
    """The tokenizer of one side: a `tokenizers.Tokenizer` whose first four ids are <pad>, <s>, </s>, <unk>."""

    def __init__(self, content: dict[str, Any]):
        """Build a tokenizer from `content`, a parsed tokenizer.json with the special pieces in place (see `adopt`)."""
        self.library = call_library("not a tokenizer", library.Tokenizer.from_str, json.dumps(loaded_part(content)))
        self.library.encode_special_tokens = True  # a "</s>" in a text is not special
        self.library.no_padding()
        self.library.no_truncation()
        self.content = content
        self.separable, tokens = separable(content), content.get("added_tokens") or ()
        added = [token for token in tokens if token["id"] > UNKNOWN]
        self.tags = {token["id"]: token["content"] for token in added if not token.get("special")}
        # Added words (`regard.data.extension`), without marks; they take precedence over other pieces.
        words = [token for token in tokens if token.get("special") and token.get("single_word")]
        words = words if "regard" in content or self.separable else []
        self.added: dict[str, int] = {token["content"].removeprefix(MARK): token["id"] for token in words}
        special = {token["id"] for token in added if token.get("special")}
        self.hidden = frozenset(special.difference(self.added.values()))  # special pieces that never occur in texts
        self.before: tuple[int, ...] = ()  # the ids before and after every text that is not empty
        self.after: tuple[int, ...] = ()
        self.sentencepiece: SentencePiece | None = None
        if "regard" in content:  # the file has a SentencePiece segmentation
            ids = {**content["model"]["vocab"], **{token["content"]: token["id"] for token in tokens}}
            tags = {tag: i for i, tag in self.tags.items()}
            self.sentencepiece = SentencePiece(content["regard"]["sentencepiece"], ids, tags, self.added)
        self.kind = kind_of(content["model"]) if self.sentencepiece is None else self.sentencepiece.kind
        # Pieces that are always separate words: tags, and SentencePiece's unknown piece.
        self.alone = {*self.tags, *((UNKNOWN,) if self.sentencepiece is not None else ())}
        self.finder = AddedWords(self.added, None if self.kind == "word" else self.encode_rest) if self.added else None
        self.cache: dict[str, list[int]] = {}
        self.remembered = REMEMBERED

    @property
    def size(self) -> int:
        """The number of pieces."""
        return self.library.get_vocab_size()

    def __len__(self) -> int:
        return self.size

    def normalise(self, text: str) -> str:
        """Return the text that `decode(encode(text))` gives if no piece is unknown."""
        text, normaliser = clean_text(text), self.library.normalizer
        if self.sentencepiece is not None:
            return self.sentencepiece.normalise(text)
        return text if normaliser is None else call_library(REFUSED, normaliser.normalize_str, text)

    def surround(self, before: Iterable[int] = (), after: Iterable[int] = ()) -> "Tokenizer":
        """Return a copy of the tokenizer that puts ids around every text; they belong to no word."""
        other = copy.copy(self)
        other.before, other.after = tuple(before), tuple(after)
        return other

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids, without start and end; an empty text has no ids, not even `before` and `after`."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts; use a cache of words if words are encoded independently of each other."""
        rows = self.encode_bare(texts)
        if self.before or self.after:
            rows = [[*self.before, *row, *self.after] if row else row for row in rows]
        return rows

    def encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode the texts that outputs have to begin with; an empty text gives only the ids in `before`."""
        return [ids or [*self.before] for ids in self.encode_batch(texts)]

    def encode_bare(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts, without `before` and `after`."""
        if self.sentencepiece is not None:
            return [self.sentencepiece.encode(clean_text(text)) for text in texts]
        if not self.separable:
            return self.encode_threaded(texts)
        split = [text.split() if not ODD.search(text) else [text] for text in texts]
        cache = self.cache
        try:  # in most batches, the cache has all words
            return [list(chain.from_iterable(map(cache.__getitem__, row))) for row in split]
        except KeyError:
            words = {word for row in split for word in row}
        missing = sorted(word for word in words if word not in cache)
        if len(cache) + len(missing) > self.remembered:  # replace it, as another thread may still read the old one
            cache, missing = {}, sorted(words)
            self.cache = cache
        encoded: dict[str, list[int]] = {}
        if self.finder is not None:  # encode added words here, and all others with the library
            whole = [word for word in missing if not any(tag in word for tag in self.tags.values())]  # a tag splits it
            ours = ((word, self.finder.encode(self.normalise(word))) for word in whole)
            encoded = {word: ids for word, ids in ours if ids is not None}
        others = [word for word in missing if word not in encoded]
        encoded |= zip(others, self.encode_threaded(others), strict=True)
        cache.update((word, ids) for word, ids in encoded.items() if len(word) <= SHORT)
        if any(len(word) > SHORT for word in missing):
            cache = {**cache, **encoded}  # for this call only
        return [[i for word in row for i in cache[word]] for row in split]

    def encode_rest(self, text: str) -> list[int]:
        """Encode the text directly after an added word with the library, but without the mark at its start."""
        parts = [part for part, _ in self.library.pre_tokenizer.pre_tokenize_str(text)]
        parts[0] = parts[0].removeprefix(MARK)
        return [token.id for part in parts if part for token in self.library.model.tokenize(part)]

    def encode_threaded(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts with the library, which uses several threads."""
        ids, part, characters = list[list[int]](), list[str](), 0
        for end, text in enumerate(texts, 1):
            part.append(clean_text(text))
            characters += len(text)
            if characters >= TOGETHER or end == len(texts):
                encoded = call_library(REFUSED, self.library.encode_batch_fast, part, add_special_tokens=False)
                ids += ([i if i > END else UNKNOWN for i in each.ids] for each in encoded)
                part, characters = [], 0
        return ids

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to text without padding, start, end, `before` and `after`; unknown pieces are shown."""
        real = self.visible([*map(int, ids)])
        if not self.tags:
            return self.decode_run(real)
        # A tag is a separate word, whether or not the pieces around it have marks.
        runs: list[list[int]] = [[]]
        for i in real:
            if i in self.tags:
                runs += [[i], []]
            else:
                runs[-1].append(i)
        texts = (self.decode_run(run).strip(" ") for run in runs)
        return " ".join(filter(None, texts))

    def decode_run(self, ids: Sequence[int]) -> str:
        """Decode ids between tags, without padding, start and end."""
        if self.sentencepiece is not None:
            return self.sentencepiece.decode(ids)
        text: str = call_library(REFUSED, self.library.decode, ids, skip_special_tokens=False)
        return text

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode many texts; equivalent to `decode` of each row."""
        if self.tags or self.sentencepiece is not None:
            return [self.decode(row) for row in rows]
        real = [self.visible(row) for row in rows]
        texts: list[str] = call_library(REFUSED, self.library.decode_batch, real, skip_special_tokens=False)
        return texts

    def visible(self, ids: Sequence[int]) -> list[int]:
        """Return the ids of the text itself, without padding, start, end, hidden pieces, `before` and `after`."""
        if not self.before and not self.after:  # a fast path for decoding every output
            return [i for i in ids if i > END and i not in self.hidden]
        return list(itertools.compress(ids, self.are_visible(ids)))

    def are_visible(self, ids: Sequence[int]) -> list[bool]:
        """Return for each id whether it belongs to the text; a piece of `before` or `after` may occur in texts, too."""
        before, after = len(self.before), len(self.after)
        start = before if before and tuple(ids[:before]) == self.before[: len(ids)] else 0
        end = len(ids) - (after if after and tuple(ids[start:][-after:]) == self.after else 0)
        return [start <= place < end and i > END and i not in self.hidden for place, i in enumerate(ids)]

    def pieces(self, ids: Iterable[SupportsInt]) -> list[str]:
        """Return the pieces of ids as in the vocabulary: "▁" begins a word, <0xE2> is a byte."""
        names, numbers = self.names, list[Any](ids)
        try:
            return [names[i] for i in numbers]
        except (IndexError, TypeError):
            return [names[i] if 0 <= i < len(names) else SPECIAL[UNKNOWN] for i in map(int, numbers)]

    @functools.cached_property
    def names(self) -> list[str]:
        """The pieces of all ids, in order."""
        ids = self.library.get_vocab(with_added_tokens=True)
        names = [SPECIAL[UNKNOWN]] * (max(ids.values(), default=-1) + 1)
        for piece, i in ids.items():
            names[i] = piece
        return names

    def words(self, ids: Iterable[SupportsInt]) -> list[int | None]:
        """Return each piece's word, as an index in `decode(ids).split()`; None for pieces that `decode` leaves out."""
        numbers, word_of = [*map(int, ids)], list[int | None]()
        word, filled, fresh = -1, True, True  # a word of marks alone is not complete: the next mark continues it
        pieces = self.pieces(numbers)
        known = zip(numbers, pieces, self.begin_words(numbers, pieces), self.are_visible(numbers), strict=True)
        for i, piece, begins, shown in known:
            if not shown:
                word_of.append(None)
                continue
            starts = fresh or begins
            word += starts and filled
            filled = piece not in (MARK, BYTE_MARK) or (filled and not starts)
            fresh = i in self.alone  # the piece after a tag begins a word, with or without a mark
            word_of.append(word)
        return word_of if filled else [None if each == word else each for each in word_of]

    def begin_words(self, numbers: Iterable[int], pieces: Iterable[str]) -> list[bool]:
        """Return for each piece whether it always begins a word, independently of the piece before it."""
        alone, words, parts = self.alone, self.kind == "word", self.kind == "wordpiece"
        return [
            words or i in alone or piece.startswith((MARK, BYTE_MARK)) or (parts and not piece.startswith("##"))
            for i, piece in zip(numbers, pieces, strict=True)
        ]

    def beginnings(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return flags for every piece of the vocabulary: begins a word, is a mark, stands alone, is not text."""
        pieces = self.pieces(range(self.library.get_vocab_size()))
        begins = self.begin_words(range(len(pieces)), pieces)
        marks = [piece in (MARK, BYTE_MARK) for piece in pieces]
        alone = [i in self.alone for i in range(len(pieces))]
        nothing = [i <= END or i in self.hidden for i in range(len(pieces))]
        return np.array(begins), np.array(marks), np.array(alone), np.array(nothing)

    def model_file(self, *, words: bool = True) -> bytes:
        """Return the SentencePiece model file of a tokenizer with such a segmentation, with or without added words."""
        assert self.sentencepiece is not None
        model = self.sentencepiece
        return model_of(model.section, model.vocabulary, self.pieces(self.added.values()) if words else ())

    def dumps(self) -> str:
        """Return the text of tokenizer.json, in the format of the `tokenizers` library."""
        return json.dumps(self.content, ensure_ascii=False, sort_keys=False, separators=(",", ":"))


def clean_text(text: str) -> str:
    """Replace lone surrogates, which no tokenizer accepts, and truncate words of more than LONGEST_WORD characters."""
    if len(text) > LONGEST_WORD:
        text = WORD.sub(lambda word: word[0][:LONGEST_WORD], text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def kind_of(model: dict[str, Any]) -> str:
    """Return Regard's name for the kind of model in a tokenizer.json."""
    kind = str(model.get("type", "BPE"))
    if kind == "BPE" and not model.get("merges"):
        return "character"
    return {"BPE": "bpe", "Unigram": "unigram", "WordLevel": "word", "WordPiece": "wordpiece"}.get(kind, kind.lower())


class Tokenizers:
    """The tokenizers of both sides; they are the same object if the vocabulary is joint."""

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        self.source, self.target = source, source if target is None else target

    @property
    def joint(self) -> bool:
        """Return whether both sides share one tokenizer, regardless of the pieces around texts."""
        return self.source.content is self.target.content

    def surround(
        self, before: Sequence[str] = (), after: Sequence[str] = (), first: Sequence[str] = ()
    ) -> "Tokenizers":
        """Return tokenizers that put pieces around every source, and at the beginning of every target."""
        if not (before or after or first):
            return self
        around = find_pieces(self.source, before, "before"), find_pieces(self.source, after, "after")
        return Tokenizers(self.source.surround(*around), self.target.surround(find_pieces(self.target, first, "first")))

    @property
    def same_ids(self) -> bool:
        """Return whether both sides have the same pieces with the same ids, even if they split texts differently."""
        return self.joint or self.source.names == self.target.names

    def dumps(self) -> str:
        """Return the text of tokenizer.json: the library's format if joint, otherwise an object with one per side."""
        if self.joint:
            return self.source.dumps()
        return f'{{"source":{self.source.dumps()},"target":{self.target.dumps()}}}'

    @property
    def hash(self) -> str:
        """Compute the SHA-256 of `dumps()`, which is equal for equal tokenizers."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json atomically."""
        disk.write_whole(path, self.dumps())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizers":
        """Load a tokenizer.json written by Regard or by `tokenizers`; raise a DataError if it is invalid."""
        content = read(path)
        if "source" in content and "target" in content:
            return cls(*(open_tokenizer(content[side], f"{path}, {side}") for side in ("source", "target")))
        return cls(open_tokenizer(content, str(path)))

    @classmethod
    def pair(cls, source: str | Path, target: str | Path) -> "Tokenizers":
        """Load one tokenizer.json per side; the result is joint if their contents are equal."""
        first, second = open_tokenizer(read(source), str(source)), open_tokenizer(read(target), str(target))
        return cls(first) if first.content == second.content else cls(first, second)


def find_pieces(tokenizer: Tokenizer, pieces: Sequence[str], name: str) -> list[int]:
    """Return the ids of pieces; a ConfigError for the key tokenizer.NAME names a piece that does not exist."""
    ids = [tokenizer.library.token_to_id(piece) for piece in pieces]
    for piece, i in zip(pieces, ids, strict=True):
        if i is None:
            raise ConfigError(f"tokenizer.{name}", f"{show_value(piece)} given, which is no piece of the vocabulary")
    return ids


def open_tokenizer(content: Any, place: str) -> Tokenizer:
    """Check and open a parsed tokenizer.json from any source; errors call it `place`."""
    content = adopt(content, place)
    check_form(content, place)
    try:
        return Tokenizer(content)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def read(path: str | Path) -> dict[str, Any]:
    """Read a tokenizer.json as a dictionary."""
    content = reading.read_json(path, DataError, MAX_BYTES, damaged="not a tokenizer.json: ")
    if not isinstance(content, dict) or not ("model" in content or {"source", "target"} <= content.keys()):
        raise DataError(f"{path}: not a tokenizer.json: no model in it")
    return content


# ---- calls of the library


def call_library(problem: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of the library; raise its errors as DataError, and its panics, which are no `Exception`s, too."""
    try:
        return function(*arguments, **options)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{problem}: {visible(message[:200])}") from None


# The library's threads do not survive a fork, so the child has to encode on a single thread. Without this setting, the
# library warns on every fork, and a child that encodes a batch could hang.
PARALLEL = "TOKENIZERS_PARALLELISM"
before_fork: list[str | None] = []  # the user's setting, during a fork


def quiet_fork() -> None:
    """Disable the library's threads in the child, unless the user has set the variable."""
    before_fork.append(os.environ.get(PARALLEL))
    os.environ.setdefault(PARALLEL, "false")


def restore_threads() -> None:
    """Restore the setting in the parent after a fork."""
    if before_fork.pop() is None:
        os.environ.pop(PARALLEL, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=quiet_fork, after_in_parent=restore_threads)
