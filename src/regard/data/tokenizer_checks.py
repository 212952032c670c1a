"""Checks of tokenizer files before the `tokenizers` library loads them: some make it panic, abort or use huge memory.

Every file needs pieces of limited length with ids from 0 on without gaps. A file in the form that Regard writes is then
loaded directly. Any other file may have normalisers that make a text much longer, patterns that run endlessly, or parts
that crash the library. Regard checks these parts, and tries the file in a separate process with limits of memory and
time.
"""

import base64
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import models

from regard.config import visible
from regard.data.pre_tokenizer import describe_parts, mark_words, normalise, unmark_words, words
from regard.errors import DataError

MAX_BYTES = 64 * 2**20  # maximum size of a tokenizer.json
PIECE = 2**16  # maximum characters of a piece
ADDED = 10_000  # maximum added tokens, which are searched for in every text
PARTS = 64  # maximum normalisers, pre-tokenizers and decoders in total
TEXT = 4096  # maximum characters of a pattern or its replacement
GROWTH = 4096  # maximum factor by which a text may become longer
LARGEST_SCORE = 2.0**64
LONGEST_PIECE = 1000  # maximum characters of a piece for SentencePiece's algorithms
LONGEST_WORD = 1000  # maximum characters of a word whose parts a WordPiece model compares
WALL = 60  # maximum seconds of a trial
ODD = "é漢\U0001f600\u0301\x00\u200b<0xE2>▁Ġ##"
PROBES = ("Hello, world!", ODD, "", " ", "a" * 400, "a" * 400 + "!", " " * 400, "1" * 400, ODD * 40, "ab" * 200 + "!")


def check_form(content: Mapping[str, Any], place: str) -> None:
    """Raise a DataError, which calls the file `place`, if the library cannot load and use a tokenizer.json."""
    if "regard" in content:
        check_sentencepiece(content, place)
        return
    if is_written_here(content):
        return
    model = content["model"]
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        value = model.get(name)
        if value is not None and (not isinstance(value, str) or len(value) > 64):
            raise DataError(f"{place}: its model.{name} is {short(value)}, expected a text of at most 64 characters")
    most = model.get("max_input_chars_per_word", 100)
    if type(most) is not int or not 0 <= most <= LONGEST_WORD:
        name, expected = "max_input_chars_per_word", f"expected at most {LONGEST_WORD}"
        raise DataError(f"{place}: its model.{name} is {short(most)}, {expected}")
    growth, parts = 1.0, list_parts(content)  # parts can make a text much longer, or take quadratic time
    if len(parts) > PARTS:
        raise DataError(f"{place}: more than {PARTS} normalisers, pre-tokenizers and decoders")
    for key, part in parts:
        growth *= growth_of(part, place)
        if growth > GROWTH:
            raise DataError(f"{place}: its {key} makes a text more than {GROWTH:,} times as long")
    problem = trial(json.dumps(loaded_part(content)))
    if problem is not None:
        raise DataError(f"{place}: not a tokenizer: {problem}")


def loaded_part(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a tokenizer.json without the parts that Regard does not pass to the library."""
    used = {key: value for key, value in content.items() if key != "regard"}
    return {**used, "truncation": None, "padding": None, "post_processor": None}


def check_vocabulary(content: Any, place: str) -> None:
    """Raise a DataError if the pieces or ids of a tokenizer.json are invalid."""
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise DataError(f"{place}: not a tokenizer.json: its model has no vocabulary")
    vocabulary, ids = model["vocab"], dict[str, Any]()
    if isinstance(vocabulary, list):
        for i, row in enumerate(vocabulary):
            scored = isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)
            if not scored or type(row[1]) not in (int, float) or not math.isfinite(row[1]):
                raise DataError(f"{place}: piece {i} of its vocabulary is not a text with a finite score")
            ids[row[0]] = i
        if len(ids) < len(vocabulary):
            raise DataError(f"{place}: a piece occurs twice in its vocabulary")
    else:
        ids = dict(vocabulary)
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > ADDED:
        raise DataError(f"{place}: its added_tokens are not a list of at most {ADDED:,}")
    for token in added:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str) or not token["content"]:
            raise DataError(f"{place}: one of its added_tokens has no content")
        piece, own = token["content"], token.get("id")
        if type(own) is not int or ids.setdefault(piece, own) != own:
            raise DataError(f"{place}: its added token {short(piece)} has another id than in the vocabulary, or none")
    check_ids(ids, place)


def check_ids(ids: Mapping[str, Any], place: str) -> None:
    """Raise a DataError for ids with gaps or duplicates, as a model has a row per piece, and for too long pieces."""
    long = next((piece for piece in ids if len(piece) > PIECE), None)
    if long is not None:
        raise DataError(f"{place}: a piece of {len(long):,} characters given, expected at most {PIECE:,}")
    used: set[int] = set()
    for piece, i in ids.items():
        if type(i) is not int or not 0 <= i < len(ids):
            raise DataError(
                f"{place}: piece {short(piece)} has the id {short(i)}, expected 0 to {len(ids) - 1} without a gap"
            )
        if i in used:
            raise DataError(f"{place}: piece {short(piece)} has the id {i}, as another piece does")
        used.add(i)


def short(value: Any) -> str:
    """Shorten a value for an error message."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"


# ---- the form that Regard writes


def is_written_here(content: Mapping[str, Any]) -> bool:
    """Return whether a file has the form that `regard.data.vocabulary` writes, apart from its pieces."""
    model = {key: value for key, value in content["model"].items() if key not in ("vocab", "merges")}
    merges = content["model"].get("merges", [])
    parts = {key: value for key, value in content.items() if key not in ("model", "added_tokens")}
    whole = isinstance(merges, list) and all(
        isinstance(merge, list) and [*map(type, merge)] == [str, str] for merge in merges
    )
    return whole and flags_off(content) and (parts, model) in forms()


def flags_off(content: Mapping[str, Any]) -> bool:
    """Return whether added tokens match texts exactly, without stripping, and only special ones are single words."""
    return all(
        set(token) == {"id", "content", "single_word", "special", *OFF}
        and not any(token[key] for key in OFF)
        and token["single_word"] in (False, token["special"] is True)
        for token in content.get("added_tokens") or []
    )


OFF = ("lstrip", "rstrip", "normalized")


@cache
def forms() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the parts and model options of every kind that Regard writes: everything but the pieces."""
    bpe = json.loads(library.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True)).to_str())["model"]
    pieces = {key: value for key, value in bpe.items() if key not in ("vocab", "merges")}
    unigram = {"type": "Unigram", "unk_id": 3, "byte_fallback": True}
    kinds: list[tuple[Any, Any, dict[str, Any]]] = [
        (mark_words(cut=True), unmark_words(prepended=True), pieces),
        (mark_words(cut=True), unmark_words(prepended=True), unigram),
        (mark_words(cut=False), unmark_words(prepended=False), pieces),
        (words(), None, {"type": "WordLevel", "unk_token": "<unk>"}),
    ]
    variants = [(describe_parts(normalise(low), *parts), model) for low in (False, True) for *parts, model in kinds]
    return [
        ({k: v for k, v in parts.items() if k not in ("model", "added_tokens")}, model) for parts, model in variants
    ]


# ---- SentencePiece's form


ROWS = "rows"  # the key next to `sentencepiece`
FLAGS_OF_SENTENCEPIECE = ("bytes", "escape", "leading", "prefix", "squeeze", "suffix")
KEYS_OF_SENTENCEPIECE = {"kind", "pieces", "fixed", "unused", "control", "unknown", "charsmap", *FLAGS_OF_SENTENCEPIECE}


def check_sentencepiece(content: Mapping[str, Any], place: str) -> None:
    """Raise a DataError if a tokenizer.json has an invalid SentencePiece segmentation (`regard.data.sentencepiece`)."""
    both = content["regard"]
    section = both.get("sentencepiece") if isinstance(both, dict) and {*both} <= {"sentencepiece", ROWS} else None
    if not isinstance(section, dict):
        raise DataError(f"{place}: its key regard is {short(both)}, expected a table with sentencepiece alone")
    rows = both.get(ROWS, {})  # the original rows of special pieces in an imported vocabulary
    named = isinstance(rows, dict) and {*rows} <= {"<pad>", "</s>", "<unk>"}
    if not named or not all(type(i) is int and 0 <= i < MAX_BYTES for i in rows.values()):
        raise DataError(f"{place}: its regard.{ROWS} is {short(rows)}, expected the rows of special pieces")
    odd = sorted({*section} ^ KEYS_OF_SENTENCEPIECE)
    if odd:
        state = "unknown" if odd[0] in section else "missing"
        raise DataError(f"{place}: its key regard.sentencepiece.{short(odd[0])[1:-1]} is {state}")

    def expect(key: str, right: bool, what: str) -> None:
        if not right:
            raise DataError(f"{place}: its regard.sentencepiece.{key} is {short(section[key])}, expected {what}")

    expect("kind", section["kind"] in ("unigram", "bpe"), "unigram or bpe")
    for key in FLAGS_OF_SENTENCEPIECE:
        expect(key, isinstance(section[key], bool), "true or false")
    for key in ("pieces", "fixed", "unused"):
        scored = isinstance(section[key], dict) and all(
            piece and is_text(piece, LONGEST_PIECE) and type(score) in (int, float) and abs(score) < LARGEST_SCORE
            for piece, score in section[key].items()  # this refuses NaN, too
        )
        expect(key, scored, f"pieces of 1 to {LONGEST_PIECE:,} characters, each with a score")
    expect("unknown", is_text(section["unknown"], 64), "at most 64 characters")
    control = section["control"]
    expect("control", isinstance(control, list) and all(is_text(each, PIECE) for each in control), "a list of pieces")
    table = decode_charsmap(section["charsmap"], f"{place}: its regard.sentencepiece.charsmap")
    if longest_text(table) > GROWTH:
        raise DataError(f"{place}: its regard.sentencepiece.charsmap makes a text more than {GROWTH:,} times as long")
    rest = {key: value for key, value in content.items() if key not in ("regard", "model", "added_tokens")}
    model = {key: value for key, value in content["model"].items() if key != "vocab"}
    if (rest, model) != NUMBERING or not flags_off(content):
        raise DataError(f"{place}: its parts beside regard.sentencepiece are not the numbering that stands there")


def is_text(value: Any, longest: int) -> bool:
    """Return whether a value is a text of at most `longest` characters without lone surrogates."""
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


NUMBERING = (
    {"version": "1.0", "truncation": None, "padding": None}
    | dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder")),
    {"type": "WordLevel", "unk_token": "<unk>"},
)


# ---- any other form


def list_parts(content: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """List the normalisers, pre-tokenizers and decoders, including nested ones, each with its top-level key."""

    def parts_of(value: Any) -> Iterator[dict[str, Any]]:  # JSON's depth is limited
        if isinstance(value, dict):
            yield value
            value = [each for key, each in value.items() if key != "pattern"]
        for each in value if isinstance(value, list) else ():
            yield from parts_of(each)

    keys = ("normalizer", "pre_tokenizer", "decoder")
    return [(key, part) for key in keys for part in parts_of(content.get(key))]


def growth_of(part: Mapping[str, Any], place: str) -> float:
    """Return an upper bound of the factor by which a part can make a text longer."""
    kind, pattern = str(part.get("type")), part.get("pattern")
    if kind == "Precompiled":
        table = decode_charsmap(part.get("precompiled_charsmap") or "", f"{place}: its precompiled_charsmap")
        return longest_text(table)
    for text in (*part.values(), *(pattern.values() if isinstance(pattern, dict) else ())):
        if isinstance(text, str) and len(text) > TEXT:
            raise DataError(
                f"{place}: its {short(kind)} has a text of {len(text):,} characters, expected at most {TEXT:,}"
            )
    content = part.get("content") if kind == "Replace" else part.get("prepend") if kind == "Prepend" else None
    if isinstance(content, str):
        old = pattern.get("String") if isinstance(pattern, dict) else None  # a regex may match empty strings
        return max(1.0, len(content) / len(old)) if isinstance(old, str) and old else 1.0 + len(content)
    return 2.0 if kind in ("ByteLevel", "Metaspace", "NFD", "NFKD", "NFKC") else 1.0


def decode_charsmap(text: Any, name: str) -> bytes:
    """Decode SentencePiece's table of characters from base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise DataError(f"{name} is not base64") from None


def longest_text(table: bytes) -> float:
    """Return the length of the longest text in SentencePiece's table of characters, at least 1."""
    texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
    return float(max(map(len, texts), default=1) or 1)


@cache
def trial(tokenizer: str) -> str | None:
    """Load and use a tokenizer.json in a separate process; describe what is wrong with it, or return None."""
    # Repetitions of a pattern's own characters may be slow to match.
    patterns = [part.get("pattern") for _, part in list_parts(json.loads(tokenizer))]
    texts = [str(text) for pattern in patterns if isinstance(pattern, dict) for text in pattern.values()]
    signs = [*dict.fromkeys("".join(texts))][:50]
    request = {"tokenizer": tokenizer, "texts": [*PROBES, *(sign * 200 + end for sign in signs for end in ("", "\n!"))]}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
    try:
        process = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).with_name("tokenizer_trial.py"))],
            input=json.dumps(request).encode() + b"\n",
            capture_output=True,
            timeout=WALL,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {WALL} s to load and to encode a few short texts"
    except OSError as error:
        return f"cannot start a process to test it: {error.strerror}"
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        return "it crashes, or takes more memory or time than any tokenizer needs"
    reason = (process.stderr.decode(errors="replace").strip().splitlines() or ["it fails"])[-1]
    return visible(reason.removeprefix("Exception: ").removeprefix("pyo3_runtime.PanicException: ")[:200])
