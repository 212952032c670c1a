"""SentencePiece's model files, written from a tokenizer.json that has such a segmentation beside its numbering.

The other direction is `regard.interop.sentencepiece`, and `sentencepiece` itself cuts texts with what is written here
as it did with the file that was imported. Words that were added to the vocabulary can be in it as unused pieces: no
text is cut into them, and they can be read back.
"""

import base64
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.data import BYTES, Tokenizer
from regard.interop.sentencepiece import BYTE, CONTROL, FIXED, KINDS, NORMAL, UNKNOWN, UNUSED

FIRST = {"<unk>": (0.0, UNKNOWN), "<s>": (0.0, CONTROL), "</s>": (0.0, CONTROL)}
NUMBERS = {kind: number for number, kind in KINDS.items()}


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
    rows = [field(1, message({1: piece, 2: score, 3: kind})) for piece, (score, kind) in pieces.items()]
    path.write_bytes(b"".join([*rows, field(2, message(training)), field(3, message(normalisation))]))


def message(values: Mapping[int, Any]) -> bytes:
    """Write the fields of a message."""
    return b"".join(field(number, value) for number, value in values.items())


def field(number: int, value: Any) -> bytes:
    """Write a field: a float in single precision, a whole number, a text or bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value) % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Write a number of seven bits a byte."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
