"""Tokenizers: text to pieces and back, trained on the corpus or read from a file, kept in one tokenizer.json.

Text is normalised first: NFC, white space runs to one space, none at the ends, and "▁" (the mark that a word starts) to
"_". Then, by kind:

- bpe, unigram: words are cut where letters, digits and punctuation meet, digits one by one, and each part into learned
  pieces. A character without a piece is spelled in bytes (256 pieces), so that any text comes back as it was.
- character: a piece a character, and bytes as above.
- word: a piece a word between spaces; other words are unknown.

A file may also have SentencePiece's way to cut texts beside its pieces (`regard.data.sentencepiece`).

`<` always stands alone in bpe and unigram, so that no text can spell a special piece; such ids never come from text.
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
REMEMBERED = 100_000  # words whose pieces are kept
SHORT = 100  # characters of such words
LONGEST_WORD = 100_000  # characters of a word that are read: the library takes more than a hundred bytes for each
TOGETHER = 500_000  # characters of the texts that are encoded at a time, for the same reason
WORD = re.compile(r"\S+")
ODD = re.compile("[\x1c-\x1f]")  # Python calls these white space, Unicode does not


class Tokenizer:
    """The tokenizer of one side: a `tokenizers.Tokenizer` whose first four ids are <pad>, <s>, </s>, <unk>."""

    def __init__(self, content: dict[str, Any]):
        """Build a tokenizer from `content`, a parsed tokenizer.json with the special pieces in place (see `adopt`)."""
        self.library = call_library("not a tokenizer", library.Tokenizer.from_str, json.dumps(loaded_part(content)))
        self.library.encode_special_tokens = True  # "</s>" in a text is text
        self.library.no_padding()
        self.library.no_truncation()
        self.content = content
        self.separable, tokens = separable(content), content.get("added_tokens") or ()
        added = [token for token in tokens if token["id"] > UNKNOWN]
        self.tags = {token["id"]: token["content"] for token in added if not token.get("special")}
        # Pieces that are words (`regard.data.extension`), without marks, found before all others.
        words = [token for token in tokens if token.get("special") and token.get("single_word")]
        words = words if "regard" in content or self.separable else []
        self.added: dict[str, int] = {token["content"].removeprefix(MARK): token["id"] for token in words}
        special = {token["id"] for token in added if token.get("special")}
        self.hidden = frozenset(special.difference(self.added.values()))  # of no text
        self.before: tuple[int, ...] = ()  # what stands around every text that is not empty
        self.after: tuple[int, ...] = ()
        self.sentencepiece: SentencePiece | None = None
        if "regard" in content:  # a segmentation beside the numbering
            ids = {**content["model"]["vocab"], **{token["content"]: token["id"] for token in tokens}}
            tags = {tag: i for i, tag in self.tags.items()}
            self.sentencepiece = SentencePiece(content["regard"]["sentencepiece"], ids, tags, self.added)
        self.kind = kind_of(content["model"]) if self.sentencepiece is None else self.sentencepiece.kind
        # Words of their own, whatever stands beside them: tags, and the sign that SentencePiece writes for unknown.
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
        """Return the text that `decode(encode(text))` gives, where nothing is unknown."""
        text, normaliser = clean_text(text), self.library.normalizer
        if self.sentencepiece is not None:
            return self.sentencepiece.normalise(text)
        return text if normaliser is None else call_library(REFUSED, normaliser.normalize_str, text)

    def surround(self, before: Iterable[int] = (), after: Iterable[int] = ()) -> "Tokenizer":
        """Return the tokenizer with ids that stand around every text; there they are of no word."""
        other = copy.copy(self)
        other.before, other.after = tuple(before), tuple(after)
        return other

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids, without start and end; an empty text has none, and nothing around it."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts. Words met before are looked up, where a word's pieces do not depend on its neighbours."""
        rows = self.encode_bare(texts)
        if self.before or self.after:
            rows = [[*self.before, *row, *self.after] if row else row for row in rows]
        return rows

    def encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts that outputs begin with; an empty one is what every output begins with."""
        return [ids or [*self.before] for ids in self.encode_batch(texts)]

    def encode_bare(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts, without what stands around them."""
        if self.sentencepiece is not None:
            return [self.sentencepiece.encode(clean_text(text)) for text in texts]
        if not self.separable:
            return self.encode_threaded(texts)
        split = [text.split() if not ODD.search(text) else [text] for text in texts]
        cache = self.cache
        try:  # most words were met before, and each is looked up once
            return [list(chain.from_iterable(map(cache.__getitem__, row))) for row in split]
        except KeyError:
            words = {word for row in split for word in row}
        missing = sorted(word for word in words if word not in cache)
        if len(cache) + len(missing) > self.remembered:  # another thread may still read the old one
            cache, missing = {}, sorted(words)
            self.cache = cache
        encoded: dict[str, list[int]] = {}
        if self.finder is not None:  # words that were added; all others are the library's
            whole = [word for word in missing if not any(tag in word for tag in self.tags.values())]  # a tag splits one
            ours = ((word, self.finder.encode(self.normalise(word))) for word in whole)
            encoded = {word: ids for word, ids in ours if ids is not None}
        others = [word for word in missing if word not in encoded]
        encoded |= zip(others, self.encode_threaded(others), strict=True)
        cache.update((word, ids) for word, ids in encoded.items() if len(word) <= SHORT)
        if any(len(word) > SHORT for word in missing):
            cache = {**cache, **encoded}  # for this once
        return [[i for word in row for i in cache[word]] for row in split]

    def encode_rest(self, text: str) -> list[int]:
        """Encode what follows an added word: as the library does, but without the mark of a word's start."""
        parts = [part for part, _ in self.library.pre_tokenizer.pre_tokenize_str(text)]
        parts[0] = parts[0].removeprefix(MARK)
        return [token.id for part in parts if part for token in self.library.model.tokenize(part)]

    def encode_threaded(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts with the library, on several threads."""
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
        """Decode ids to text, without padding, start, end and what stands around it; unknown pieces are shown."""
        real = self.visible([*map(int, ids)])
        if not self.tags:
            return self.decode_run(real)
        # A tag is a word of its own, whatever the pieces around it say of spaces.
        runs: list[list[int]] = [[]]
        for i in real:
            if i in self.tags:
                runs += [[i], []]
            else:
                runs[-1].append(i)
        texts = (self.decode_run(run).strip(" ") for run in runs)
        return " ".join(filter(None, texts))

    def decode_run(self, ids: Sequence[int]) -> str:
        """Decode ids between tags, none of which is padding, start or end."""
        if self.sentencepiece is not None:
            return self.sentencepiece.decode(ids)
        text: str = call_library(REFUSED, self.library.decode, ids, skip_special_tokens=False)
        return text

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode many texts, as `decode` does each."""
        if self.tags or self.sentencepiece is not None:
            return [self.decode(row) for row in rows]
        real = [self.visible(row) for row in rows]
        texts: list[str] = call_library(REFUSED, self.library.decode_batch, real, skip_special_tokens=False)
        return texts

    def visible(self, ids: Sequence[int]) -> list[int]:
        """Return the ids of what people read: neither padding, start and end, nor what stands around a text."""
        if not self.before and not self.after:  # of every output that is written
            return [i for i in ids if i > END and i not in self.hidden]
        return list(itertools.compress(ids, self.are_visible(ids)))

    def are_visible(self, ids: Sequence[int]) -> list[bool]:
        """Return for each id whether it is of the text; what stands around it may be a piece of the text, too."""
        before, after = len(self.before), len(self.after)
        start = before if before and tuple(ids[:before]) == self.before[: len(ids)] else 0
        end = len(ids) - (after if after and tuple(ids[start:][-after:]) == self.after else 0)
        return [start <= place < end and i > END and i not in self.hidden for place, i in enumerate(ids)]

    def pieces(self, ids: Iterable[SupportsInt]) -> list[str]:
        """Return the pieces as they are in the vocabulary: "▁" begins a word, <0xE2> is a byte."""
        names, numbers = self.names, list[Any](ids)
        try:
            return [names[i] for i in numbers]
        except (IndexError, TypeError):
            return [names[i] if 0 <= i < len(names) else SPECIAL[UNKNOWN] for i in map(int, numbers)]

    @functools.cached_property
    def names(self) -> list[str]:
        """The piece of every id."""
        ids = self.library.get_vocab(with_added_tokens=True)
        names = [SPECIAL[UNKNOWN]] * (max(ids.values(), default=-1) + 1)
        for piece, i in ids.items():
            names[i] = piece
        return names

    def words(self, ids: Iterable[SupportsInt]) -> list[int | None]:
        """Return each piece's word, as an index in `decode(ids).split()`; None for those that `decode` leaves out."""
        numbers, word_of = [*map(int, ids)], list[int | None]()
        word, filled, fresh = -1, True, True  # a word of marks alone is not one yet: the next mark is of the same
        pieces = self.pieces(numbers)
        known = zip(numbers, pieces, self.begin_words(numbers, pieces), self.are_visible(numbers), strict=True)
        for i, piece, begins, shown in known:
            if not shown:
                word_of.append(None)
                continue
            starts = fresh or begins
            word += starts and filled
            filled = piece not in (MARK, BYTE_MARK) or (filled and not starts)
            fresh = i in self.alone  # what follows a tag begins a word, marked or not
            word_of.append(word)
        return word_of if filled else [None if each == word else each for each in word_of]

    def begin_words(self, numbers: Iterable[int], pieces: Iterable[str]) -> list[bool]:
        """Return whether each piece begins a word, whatever stands before it."""
        alone, words, parts = self.alone, self.kind == "word", self.kind == "wordpiece"
        return [
            words or i in alone or piece.startswith((MARK, BYTE_MARK)) or (parts and not piece.startswith("##"))
            for i, piece in zip(numbers, pieces, strict=True)
        ]

    def beginnings(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return flags for every piece of the vocabulary: it begins a word, is a mark, is a tag, is of no word."""
        pieces = self.pieces(range(self.library.get_vocab_size()))
        begins = self.begin_words(range(len(pieces)), pieces)
        marks = [piece in (MARK, BYTE_MARK) for piece in pieces]
        alone = [i in self.alone for i in range(len(pieces))]
        nothing = [i <= END or i in self.hidden for i in range(len(pieces))]
        return np.array(begins), np.array(marks), np.array(alone), np.array(nothing)

    def model_file(self, *, words: bool = True) -> bytes:
        """Return SentencePiece's model file of a tokenizer that has one, with the words that were added, or without."""
        assert self.sentencepiece is not None
        model = self.sentencepiece
        return model_of(model.section, model.vocabulary, self.pieces(self.added.values()) if words else ())

    def dumps(self) -> str:
        """Return the text of a tokenizer.json that `tokenizers` reads."""
        return json.dumps(self.content, ensure_ascii=False, sort_keys=False, separators=(",", ":"))


def clean_text(text: str) -> str:
    """Remove lone surrogates, which no tokenizer takes, and cut words that are too long to read."""
    if len(text) > LONGEST_WORD:
        text = WORD.sub(lambda word: word[0][:LONGEST_WORD], text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def kind_of(model: dict[str, Any]) -> str:
    """Name the model of a tokenizer.json in Regard's words."""
    kind = str(model.get("type", "BPE"))
    if kind == "BPE" and not model.get("merges"):
        return "character"
    return {"BPE": "bpe", "Unigram": "unigram", "WordLevel": "word", "WordPiece": "wordpiece"}.get(kind, kind.lower())


class Tokenizers:
    """The tokenizers of both sides, one and the same where the vocabulary is joint."""

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        self.source, self.target = source, source if target is None else target

    @property
    def joint(self) -> bool:
        """Return whether both sides have one tokenizer, whatever it puts around a text of each."""
        return self.source.content is self.target.content

    def surround(
        self, before: Sequence[str] = (), after: Sequence[str] = (), first: Sequence[str] = ()
    ) -> "Tokenizers":
        """Return the tokenizers with pieces around every source, and pieces that every target begins with."""
        if not (before or after or first):
            return self
        around = find_pieces(self.source, before, "before"), find_pieces(self.source, after, "after")
        return Tokenizers(self.source.surround(*around), self.target.surround(find_pieces(self.target, first, "first")))

    @property
    def same_ids(self) -> bool:
        """Return whether both sides number the same pieces alike, though they may cut texts differently."""
        return self.joint or self.source.names == self.target.names

    def dumps(self) -> str:
        """Return the text of tokenizer.json: the library's own form where joint, else one for each side."""
        if self.joint:
            return self.source.dumps()
        return f'{{"source":{self.source.dumps()},"target":{self.target.dumps()}}}'

    @property
    def hash(self) -> str:
        """Compute the SHA-256 of the content; equal for equal tokenizers."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json, whole or not at all."""
        disk.write_whole(path, self.dumps())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizers":
        """Read tokenizer.json, written here or by `tokenizers`; a DataError says what is wrong with it."""
        content = read(path)
        if "source" in content and "target" in content:
            return cls(*(open_tokenizer(content[side], f"{path}, {side}") for side in ("source", "target")))
        return cls(open_tokenizer(content, str(path)))

    @classmethod
    def pair(cls, source: str | Path, target: str | Path) -> "Tokenizers":
        """Load a tokenizer.json for each side; joint if they are the same."""
        first, second = open_tokenizer(read(source), str(source)), open_tokenizer(read(target), str(target))
        return cls(first) if first.content == second.content else cls(first, second)


def find_pieces(tokenizer: Tokenizer, pieces: Sequence[str], name: str) -> list[int]:
    """Find the ids of pieces by their names, given as the key tokenizer.NAME."""
    ids = [tokenizer.library.token_to_id(piece) for piece in pieces]
    for piece, i in zip(pieces, ids, strict=True):
        if i is None:
            raise ConfigError(f"tokenizer.{name}", f"{show_value(piece)} given, which is no piece of the vocabulary")
    return ids


def open_tokenizer(content: Any, place: str) -> Tokenizer:
    """Open and check a tokenizer.json, wherever it was made; errors call it `place`."""
    content = adopt(content, place)
    check_form(content, place)
    try:
        return Tokenizer(content)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def read(path: str | Path) -> dict[str, Any]:
    """Read a tokenizer.json as plain data."""
    content = reading.read_json(path, DataError, MAX_BYTES, damaged="not a tokenizer.json: ")
    if not isinstance(content, dict) or not ("model" in content or {"source", "target"} <= content.keys()):
        raise DataError(f"{path}: not a tokenizer.json: no model in it")
    return content


# ---- calls of the library


def call_library(problem: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of the library; its panics, which are no `Exception` in Python, become a DataError too."""
    try:
        return function(*arguments, **options)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{problem}: {visible(message[:200])}") from None


# The library's threads do not survive in a forked child, which encodes on one thread: without this the library warns on
# every fork, and a child that encodes a batch could wait for ever.
PARALLEL = "TOKENIZERS_PARALLELISM"
before_fork: list[str | None] = []  # what a person has set, while a process is forked


def quiet_fork() -> None:
    """Keep the library from threads in the child, unless a person has decided."""
    before_fork.append(os.environ.get(PARALLEL))
    os.environ.setdefault(PARALLEL, "false")


def restore_threads() -> None:
    """Let the library have threads again, as before the fork."""
    if before_fork.pop() is None:
        os.environ.pop(PARALLEL, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=quiet_fork, after_in_parent=restore_threads)
