"""SentencePiece's model files become tokenizers of Regard, which need no `sentencepiece` to run, and are written again.

Of the file, a protocol buffer, the few fields are read here that decide how a text is cut: the pieces with scores and
types, the kind of model, and the normalisation with its table of characters (sentencepiece_model.proto).

A tokenizer.json that has such a segmentation beside its numbering is written as a model file, with which
`sentencepiece` itself cuts texts as it did with the file that was imported. Words that were added to the vocabulary can
be in it as unused pieces: no text is cut into them, and they can be read back.
"""

import base64
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import visible
from regard.data import BYTES, Charsmap, Tokenizer, special_pieces, tokenizer_checks
from regard.errors import DataError
from regard.io import reading

NORMAL, UNKNOWN, CONTROL, FIXED, UNUSED, BYTE = range(1, 7)
KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
SURFACE = " \u2047 "  # what an unknown piece is written as
FIRST = {"<unk>": (0.0, UNKNOWN), "<s>": (0.0, CONTROL), "</s>": (0.0, CONTROL)}
NUMBERS = {kind: number for number, kind in KINDS.items()}


@dataclass
class SentencePieceModel:
    """What a model file says of cutting text."""

    pieces: list[tuple[str, float, int]] = field(default_factory=list)  # in the order of their ids: score and type
    kind: str = "unigram"
    names: tuple[str, str, str] = ("<pad>", "<s>", "</s>")  # of padding, start and end
    unknown: str = SURFACE
    charsmap: bytes = b""
    bytes: bool = False
    suffix: bool = False
    prefix: bool = True
    squeeze: bool = True
    escape: bool = True


def convert(path: Path, ids: Mapping[str, int] | None = None, *, tags: Collection[str] = ()) -> dict[str, Any]:
    """Return the content of a tokenizer.json that cuts texts as a SentencePiece model does.

    `ids` is the number of every piece that can be written, the special pieces <pad>, <s>, </s>, <unk> at 0 to 3;
    without it, pieces keep SentencePiece's order and the special ones trade places with what stands there. `tags` are
    pieces that stand alone: those of the form >>deu<< at the beginning of a text, others anywhere.
    """
    model = read_model(path)
    if ids is None:
        content = number_pieces(model, str(path))
    else:
        if any(ids.get(piece) != i for i, piece in enumerate(special_pieces.SPECIAL)):
            raise DataError(
                f"{path}: the special pieces {', '.join(special_pieces.SPECIAL)} have other ids than 0 to 3, or none"
            )
        content = assemble(ids, tags)
        tokenizer_checks.check_vocabulary(content, str(path))
    vocabulary = content["model"]["vocab"]
    by_type = {  # scores as the shortest decimals that are the same in single precision
        kind: {piece: float(str(np.float32(score))) for piece, score, own in model.pieces if own == kind}
        for kind in (NORMAL, FIXED, UNUSED, CONTROL)
    }
    section = {
        "kind": model.kind,
        "bytes": model.bytes,
        "prefix": model.prefix,
        "suffix": model.suffix,
        "squeeze": model.squeeze,
        "escape": model.escape,
        "leading": any(is_code(tag) for tag in tags),
        "unknown": model.unknown,
        "control": sorted(
            piece for piece in by_type[CONTROL] if piece in vocabulary and piece not in special_pieces.SPECIAL
        ),
        "charsmap": base64.b64encode(model.charsmap).decode(),
        "fixed": by_type[FIXED],
        "unused": by_type[UNUSED],
        "pieces": by_type[NORMAL],
    }
    content = {**content, "regard": {"sentencepiece": section}}
    tokenizer_checks.check_form(content, str(path))
    return content


def is_code(tag: str) -> bool:
    """Return whether a piece is a language code as Marian's folders write them: >>deu<<."""
    return tag.startswith(">>") and tag.endswith("<<")


def assemble(ids: Mapping[str, int], tags: Collection[str]) -> dict[str, Any]:
    """Return a tokenizer.json with a numbering alone."""
    parts, model = tokenizer_checks.NUMBERING
    vocabulary = dict(sorted(ids.items(), key=lambda item: item[1]))
    added = [special_pieces.describe(i, piece, special=True) for i, piece in enumerate(special_pieces.SPECIAL)]
    added += [special_pieces.describe(ids[tag], tag, special=False) for tag in sorted(tags, key=ids.__getitem__)]
    theirs = [piece for piece in ids if piece.startswith("<their-")]  # special pieces of a folder that are others here
    added += [special_pieces.describe(ids[piece], piece, special=True) for piece in theirs]
    return {**parts, "added_tokens": added, "model": {**model, "vocab": vocabulary}}


def number_pieces(model: SentencePieceModel, place: str) -> dict[str, Any]:
    """Number pieces in SentencePiece's order, but for the special ones."""
    names = dict(zip(model.names, special_pieces.SPECIAL[:3], strict=True))
    special = {i: names.get(piece) for i, (piece, _, kind) in enumerate(model.pieces) if kind == CONTROL}
    special |= {i: special_pieces.SPECIAL[3] for i, (_, _, kind) in enumerate(model.pieces) if kind == UNKNOWN}
    ids = {special.get(i) or piece: i for i, (piece, _, _) in enumerate(model.pieces)}
    missing = [piece for piece in special_pieces.SPECIAL if piece not in special.values()]
    if missing:
        raise DataError(
            f"{place}: no {missing[0]} among its special pieces; train it with pad_id, bos_id, eos_id and unk_id "
            "of 0 to 3, or give the ids of a vocabulary that has it"
        )
    parts, numbering = tokenizer_checks.NUMBERING
    added = [special_pieces.describe(ids[piece], piece, special=True) for piece in special_pieces.SPECIAL]
    return special_pieces.adopt({**parts, "added_tokens": added, "model": {**numbering, "vocab": ids}}, place)


# ---- the file


def read_model(path: Path) -> SentencePieceModel:
    """Read a model file; a DataError says in a sentence what is wrong with it."""
    try:
        return parse(reading.read_bytes(path, tokenizer_checks.LARGEST))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except reading.Unreadable as error:
        raise DataError(f"{path}: not a SentencePiece model: {error}") from None


def parse(data: bytes) -> SentencePieceModel:
    """Parse a ModelProto."""
    model, parts = SentencePieceModel(), dict[int, dict[int, Any]]()
    for number, value in read_fields(data):
        if number == 1:
            model.pieces.append(parse_piece(value, len(model.pieces)))
        elif number in (2, 3, 5):
            parts[number] = parts.get(number, {}) | dict(read_fields(value))
    if not model.pieces or 2 not in parts or 3 not in parts:
        what = "no pieces" if not model.pieces else "no settings behind its pieces, it may be cut short"
        raise reading.Unreadable(what)
    training, normalisation = parts[2], parts[3]
    if parts.get(5, {}).get(2):
        raise reading.Unreadable("it changes texts after decoding, which is not served")
    kind = KINDS.get(training.get(3, 1), "another kind")
    if kind not in ("unigram", "bpe"):
        raise reading.Unreadable(f"its kind is {kind}, expected unigram or bpe")
    model.kind, model.bytes, model.suffix = kind, bool(training.get(35)), bool(training.get(24))
    model.names = tuple(text(training.get(n), name) for n, name in ((48, "<pad>"), (46, "<s>"), (47, "</s>")))  # type: ignore[assignment]
    model.unknown = text(training.get(44), SURFACE)
    model.charsmap = normalisation.get(2, b"")
    model.prefix, model.squeeze, model.escape = (bool(normalisation.get(n, 1)) for n in (3, 4, 5))
    check(model)
    return model


def check(model: SentencePieceModel) -> None:
    """Refuse a model that no text can be cut with."""
    names = [piece for piece, _, _ in model.pieces]
    if len({*names}) < len(names):
        raise reading.Unreadable("a piece occurs twice")
    unknown = sum(kind == UNKNOWN for _, _, kind in model.pieces)
    if unknown != 1:
        raise reading.Unreadable(f"{unknown or 'no'} unknown pieces in it, expected one")
    if model.bytes:
        spelled = {piece for piece, _, kind in model.pieces if kind == BYTE}
        missing = [byte for byte in BYTES if byte not in spelled]
        if missing:
            raise reading.Unreadable(f"it spells characters in bytes, but has no piece {missing[0]}")
    try:
        Charsmap(model.charsmap)
    except DataError as error:
        raise reading.Unreadable(str(error)) from None


def parse_piece(data: Any, i: int) -> tuple[str, float, int]:
    """Parse a piece: its text, score and type."""
    values = dict(read_fields(data))
    piece, score, kind = text(values.get(1), ""), values.get(2, b"\0\0\0\0"), values.get(3, NORMAL)
    if not isinstance(score, bytes) or len(score) != 4 or not isinstance(kind, int):
        raise reading.Unreadable(f"piece {i} has no score or type")
    value: float = struct.unpack("<f", score)[0]
    if not 0 < len(piece) <= tokenizer_checks.LONGEST_PIECE or not math.isfinite(value) or not NORMAL <= kind <= BYTE:
        raise reading.Unreadable(
            f"piece {i} ({visible(piece[:40])}) has no text or a long one, no finite score or an unknown type"
        )
    return piece, value, kind


def text(value: Any, default: str) -> str:
    """Return a field that is a text."""
    if value is None:
        return default
    try:
        return bytes.decode(value)
    except (TypeError, UnicodeDecodeError):
        raise reading.Unreadable("a text in it is not UTF-8") from None


def read_fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers as int, anything else as bytes."""
    if not isinstance(data, bytes):
        raise reading.Unreadable("a field has another type than expected")
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = read_varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise reading.Unreadable(f"byte {at:,} begins no field")
        if number == 0 or at + size > len(data):
            raise reading.Unreadable("it is cut short" if number else f"byte {at:,} begins no field")
        yield number, data[at : at + size]
        at += size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, and return where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise reading.Unreadable("it is cut short" if at >= len(data) else f"byte {at:,} begins no number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def list_pieces(tokenizer: Tokenizer) -> dict[str, tuple[float, int]]:
    """Return the pieces of a model file with scores and types: <unk>, <s> and </s>, then all in the order of their ids.

    Pieces that the vocabulary does not have come last.
    """
    section, vocabulary = tokenizer.content["regard"]["sentencepiece"], tokenizer.content["model"]["vocab"]
    pieces = {piece: (float(score), NORMAL) for piece, score in section["pieces"].items()}
    pieces |= {piece: (float(score), FIXED) for piece, score in section["fixed"].items()}
    pieces |= {piece: (float(score), UNUSED) for piece, score in section["unused"].items()}
    pieces |= dict.fromkeys(section["control"], (0.0, CONTROL))
    if section["bytes"]:
        pieces |= dict.fromkeys(BYTES, (0.0, BYTE))
    ordered = sorted(pieces, key=lambda piece: vocabulary.get(piece, math.inf))
    return {**FIRST, **{piece: pieces[piece] for piece in ordered if piece not in FIRST}}


def write_model(tokenizer: Tokenizer, path: Path, words: Iterable[str] = ()) -> None:
    """Write the model file of a tokenizer; `words` are pieces to have behind its own."""
    section = tokenizer.content["regard"]["sentencepiece"]
    pieces = list_pieces(tokenizer)
    # The last of all merges, which is taken back: no other cut changes.
    lowest = min(score for score, _ in pieces.values()) - 1
    pieces |= {word: (lowest, UNUSED) for word in words if word not in pieces}
    training = {
        3: NUMBERS[section["kind"]],
        4: len(pieces),
        24: section["suffix"],
        35: section["bytes"],
        **{number: place for place, number in enumerate((40, 41, 42))},  # ids of <unk>, <s> and </s>
        43: -1,  # no padding
        44: section["unknown"],
        **{number: piece for piece, number in zip(FIRST, (45, 46, 47), strict=True)},
    }
    normalisation = {1: "regard", 2: base64.b64decode(section["charsmap"])}
    normalisation |= {3: section["prefix"], 4: section["squeeze"], 5: section["escape"]}
    rows = [write_field(1, write_message({1: piece, 2: score, 3: kind})) for piece, (score, kind) in pieces.items()]
    path.write_bytes(
        b"".join([*rows, write_field(2, write_message(training)), write_field(3, write_message(normalisation))])
    )


def write_message(values: Mapping[int, Any]) -> bytes:
    """Write the fields of a message."""
    return b"".join(write_field(number, value) for number, value in values.items())


def write_field(number: int, value: Any) -> bytes:
    """Write a field: a float in single precision, a whole number, a text or bytes."""
    if isinstance(value, float):
        return write_varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return write_varint(number << 3) + write_varint(int(value) % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return write_varint(number << 3 | 2) + write_varint(len(data)) + data


def write_varint(value: int) -> bytes:
    """Write a number of seven bits a byte."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
