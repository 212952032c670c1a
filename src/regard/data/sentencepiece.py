"""SentencePiece models: read from model files, stored in tokenizer.json, run by the package, and written again.

A tokenizer.json with such a model has two parts that need not agree. `model` is the numbering: an id for every piece
of the vocabulary. `regard.sentencepiece` is the segmentation: how to normalise a text and split it into pieces. Two
models over one numbering (as in Marian's folders) are two files with the same `model`. A piece of the segmentation
without an id is unknown. SentencePiece returns each run of characters without a piece as one piece, which is looked up
by its text like any other: the numbering may have a piece that this side's segmentation does not.

The package `sentencepiece` is an optional dependency, imported when such a file is opened. It reads a model file of the
segmentation, a protocol buffer (sentencepiece_model.proto); this module reads and writes only the few fields that
determine how a text is split. The `tokenizers` library would return other ids: it adds up scores in double precision,
and its normaliser loses combining marks.
"""

import base64
import codecs
import functools
import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.config import visible
from regard.data import special_pieces, tokenizer_checks
from regard.data.pre_tokenizer import MARK, AddedWords
from regard.errors import DataError, MissingExtraError
from regard.io import reading

UNKNOWN = 3  # as in `regard.data.tokenizer`, which imports this module
NORMAL, UNKNOWN_TYPE, CONTROL, FIXED, UNUSED, BYTE = range(1, 7)  # types of pieces
KINDS = {"unigram": 1, "bpe": 2}
SURFACE = " \u2047 "  # the default text of an unknown piece
FIRST = {"<unk>": (0.0, UNKNOWN_TYPE), "<s>": (0.0, CONTROL), "</s>": (0.0, CONTROL)}
BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
CODE = re.compile(">>.*?<<", re.DOTALL)


# ---- from a model file to tokenizer.json


def convert(path: Path, ids: Mapping[str, int] | None = None, *, tags: Collection[str] = ()) -> dict[str, Any]:
    """Return the content of a tokenizer.json that splits texts like a SentencePiece model file.

    `ids` maps every piece of the vocabulary to its id, with the special pieces <pad>, <s>, </s>, <unk> at 0 to 3.
    Without it, pieces keep SentencePiece's order, and the special pieces swap ids with those at 0 to 3. `tags` are
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
        parts, numbering = tokenizer_checks.NUMBERING
        vocabulary = dict(sorted(ids.items(), key=lambda item: item[1]))
        tagged = sorted(tags, key=ids.__getitem__)
        theirs = [piece for piece in ids if piece.startswith("<their-")]  # special in the folder only
        added = [special_pieces.describe(ids[piece], piece, special=True) for piece in special_pieces.SPECIAL]
        added += [special_pieces.describe(ids[tag], tag, special=False) for tag in tagged]
        added += [special_pieces.describe(ids[piece], piece, special=True) for piece in theirs]
        content = {**parts, "added_tokens": added, "model": {**numbering, "vocab": vocabulary}}
        tokenizer_checks.check_vocabulary(content, str(path))
    by_type = {  # scores are the shortest decimals with the same single-precision value
        kind: {piece: float(str(np.float32(score))) for piece, score, own in model.pieces if own == kind}
        for kind in (NORMAL, FIXED, UNUSED, CONTROL)
    }
    written = content["model"]["vocab"].keys() - {*special_pieces.SPECIAL}
    section = {
        **model.settings,
        "leading": any(is_code(tag) for tag in tags),
        "unknown": model.unknown,
        "control": sorted(by_type[CONTROL].keys() & written),
        "charsmap": base64.b64encode(model.charsmap).decode(),
        "fixed": by_type[FIXED],
        "unused": by_type[UNUSED],
        "pieces": by_type[NORMAL],
    }
    content = {**content, "regard": {"sentencepiece": section}}
    tokenizer_checks.check_form(content, str(path))
    return content


def is_code(tag: str) -> bool:
    """Return whether a piece is a language code in Marian's form: >>deu<<."""
    return tag.startswith(">>") and tag.endswith("<<")


def number_pieces(model: "ModelFile", place: str) -> dict[str, Any]:
    """Number pieces in SentencePiece's order, except the special ones, and return a tokenizer.json content."""
    names = dict(zip(model.names, special_pieces.SPECIAL[:3], strict=True))
    special = {i: names.get(piece) for i, (piece, _, kind) in enumerate(model.pieces) if kind == CONTROL}
    special |= {i: special_pieces.SPECIAL[3] for i, (_, _, kind) in enumerate(model.pieces) if kind == UNKNOWN_TYPE}
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


# ---- from tokenizer.json to ids, and back to text


class SentencePiece:
    """A segmentation and a numbering of its pieces."""

    def __init__(
        self,
        section: Mapping[str, Any],
        vocabulary: Mapping[str, int],
        tags: Mapping[str, int],
        words: Mapping[str, int] | None = None,
    ):
        """Take `regard.sentencepiece` of a tokenizer.json, and the ids of all pieces.

        `tags` stand alone; `words` are added words, which are found where nothing but punctuation follows them.
        """
        self.section, self.vocabulary = section, vocabulary
        self.kind: str = section["kind"]
        self.prefix, self.suffix, self.squeeze = section["prefix"], section["suffix"], section["squeeze"]
        try:
            self.model = open_model(model_of(section, vocabulary))
        except RuntimeError:
            raise DataError("its table of characters is damaged") from None
        chosen = {*section["pieces"], *section["fixed"]}
        silent = {*section["control"], *section["unused"], *tags, *(words or ())} - chosen
        numbered = {piece: i for piece, i in vocabulary.items() if i > UNKNOWN and piece not in silent}
        # The keys are bytes, as a damaged table of characters may produce invalid UTF-8.
        self.ids = {piece.encode(errors="surrogatepass"): i for piece, i in numbered.items()}
        self.leading: bool = section["leading"]
        self.tag_ids = dict(tags)
        anywhere = [tag for tag in tags if not (self.leading and CODE.fullmatch(tag))]
        longest_first = "|".join(map(re.escape, sorted(anywhere, key=len, reverse=True)))
        self.tags = re.compile(f"({longest_first})") if anywhere else None
        # The output of each id: a text, or the value of a byte.
        spelled: Mapping[str, int] = BYTES if section["bytes"] else {}
        self.surface: dict[int, str | int] = {i: spelled.get(piece, piece) for piece, i in vocabulary.items()}
        self.surface |= {vocabulary[piece]: "" for piece in section["control"] if piece in vocabulary}
        self.surface[UNKNOWN] = section["unknown"]
        self.added = AddedWords(words, self.cut_rest) if words else None
        self.bare: Any = None  # a model with the same pieces for text that is already normalised

    @functools.cached_property
    def separable(self) -> bool:
        """Return whether words are split independently: no piece extends across a word boundary."""
        section, inside = self.section, re.compile(f"[^{MARK}]{MARK}")
        plain = section["escape"] and self.prefix and self.squeeze and not self.suffix
        undone = self.kind == "bpe" and section["unused"]
        choices = (*section["pieces"], *section["fixed"], *section["unused"])
        across = any(map(inside.search, choices)) or any(" " in piece for piece in section["fixed"])
        return plain and not undone and not across and self.tidy("1 1") == "1 1"

    # ---- text to ids

    def normalise(self, text: str) -> str:
        """Return the text that decoding a text's ids gives if no piece is unknown."""
        parts = [(tag, self.tidy(part)) for tag, part in self.split_tags(text)]
        if len(parts) == 1:
            return parts[0][1]
        return " ".join(filter(None, (part.strip(" ") if tag is None else tag for tag, part in parts)))

    def tidy(self, text: str) -> str:
        """Normalise a text without tags; marks become spaces again."""
        text = self.model.normalize(text.encode()).decode(errors="replace")
        text = text.lstrip(MARK) if self.squeeze else text.removeprefix(MARK) if self.prefix else text
        return text.replace(MARK, " ")

    def split_tags(self, text: str) -> Iterator[tuple[str | None, str]]:
        """Yield the tags of a text as (tag, ""), and the parts between them as (None, part)."""
        if self.leading and (code := CODE.match(text)) is not None:
            yield code[0], ""
            text = text[code.end() :]
        if self.tags is not None:
            for i, part in enumerate(self.tags.split(text)):
                yield (part, "") if i % 2 else (None, part)
        else:
            yield None, text

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids."""
        if not self.leading and self.tags is None:
            return self.encode_part(text)
        ids: list[int] = []
        for tag, part in self.split_tags(text):
            ids += self.encode_part(part) if tag is None else [self.tag_ids.get(tag, UNKNOWN)]
        return ids

    def encode_part(self, text: str) -> list[int]:
        """Encode a text without tags: the added words, and the text between them."""
        if self.added is None:
            return self.cut(self.model, text)
        ids, between = list[int](), list[str]()
        for word in text.split(" "):
            tidied = self.tidy(word)
            own = self.added.encode(tidied)
            if own is None or self.tidy(f"1 {word} 1") != f"1 {tidied} 1":  # or it depends on neighbours
                between.append(word)
            else:
                ids += [*self.cut(self.model, " ".join(between)), *own]
                between = []
        return ids + self.cut(self.model, " ".join(between))

    def cut(self, model: Any, text: str) -> list[int]:
        """Split a text into pieces and return their ids."""
        ids = self.ids
        return [ids.get(piece, UNKNOWN) for piece in model.encode(text, out_type=bytes)]

    def cut_rest(self, text: str) -> list[int]:
        """Split the normalised text directly after an added word, without a mark at its start."""
        if self.bare is None:
            section = {**self.section, "charsmap": "", "prefix": False, "squeeze": False}
            self.bare = open_model(model_of(section, {}))
        return self.cut(self.bare, text)

    # ---- ids to text

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids: turn marks into spaces, join byte pieces, and drop the mark that encoding put at the start."""
        text: list[str] = []
        pending = bytearray()
        beginning = self.prefix or self.squeeze
        for i in ids:
            piece = self.surface.get(i, "")
            if isinstance(piece, int):
                pending.append(piece)
                continue
            if pending:
                text.append(pending.decode(errors="regard.each_byte"))
                pending.clear()
                beginning = False
            if beginning and i != UNKNOWN and piece.startswith(MARK):
                piece = piece[len(MARK) :]
                beginning = self.squeeze  # if so, marks at the beginning never stand for spaces of the text
            if piece:
                beginning = False
                text.append(piece.replace(MARK, " "))
        text.append(pending.decode(errors="regard.each_byte"))
        return "".join(text)

    def pieces(self) -> list[str]:
        """Return the pieces in the order of the model file."""
        return list(list_pieces(self.section, self.vocabulary))


# Replace one invalid byte at a time, and continue to decode after it.
codecs.register_error("regard.each_byte", lambda error: ("\ufffd", error.start + 1))  # type: ignore[attr-defined]


# ---- model files


class ModelFile(NamedTuple):
    """The content of a model file that determines how a text is split."""

    pieces: list[tuple[str, float, int]]  # piece, score and type, in the order of ids
    settings: dict[str, Any]  # as in tokenizer.json
    names: tuple[str, ...]  # names of padding, start and end
    unknown: str  # the text of an unknown piece
    charsmap: bytes  # the table of characters for normalisation


def read_model(path: Path) -> ModelFile:
    """Read a model file; raise a DataError if it is invalid."""
    try:
        data = reading.read_bytes(path, tokenizer_checks.MAX_BYTES)
        model = parse(data)
        open_model(data)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (reading.Unreadable, RuntimeError) as error:
        problem = visible(str(error).removeprefix("INTERNAL: "))
        raise DataError(f"{path}: not a SentencePiece model: {problem}") from None
    return model


def open_model(data: bytes) -> Any:
    """Open the content of a model file with the package, which raises a RuntimeError if it is invalid."""
    try:
        import sentencepiece
    except ModuleNotFoundError:
        raise MissingExtraError("sentencepiece", "import") from None
    return sentencepiece.SentencePieceProcessor(model_proto=data)


def parse(data: bytes) -> ModelFile:
    """Parse a ModelProto; raise Unreadable if it is damaged, or has features that Regard does not support."""
    pieces, parts = list[tuple[str, float, int]](), dict[int, dict[int, Any]]()
    for number, value in read_fields(data):
        if number == 1:
            fields, i = dict(read_fields(value)), len(pieces)
            piece, score, sort = text(fields.get(1), ""), fields.get(2, b"\0\0\0\0"), fields.get(3, NORMAL)
            if not isinstance(score, bytes) or len(score) != 4 or not isinstance(sort, int):
                raise reading.Unreadable(f"piece {i} has no score or type")
            (score,) = struct.unpack("<f", score)
            sized = 0 < len(piece) <= tokenizer_checks.LONGEST_PIECE
            if not sized or not math.isfinite(score) or not NORMAL <= sort <= BYTE:
                what = "has no text or a long one, no finite score or an unknown type"
                raise reading.Unreadable(f"piece {i} ({visible(piece[:40])}) {what}")
            pieces.append((piece, score, sort))
        elif number in (2, 3, 5):
            parts[number] = parts.get(number, {}) | dict(read_fields(value))
    if not pieces or 2 not in parts or 3 not in parts:
        what = "no pieces" if not pieces else "no settings behind its pieces, it may be cut short"
        raise reading.Unreadable(what)
    training, normalisation = parts[2], parts[3]
    if parts.get(5, {}).get(2):
        raise reading.Unreadable("it changes texts after decoding, which is not served")
    kind = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}.get(training.get(3, 1), "another kind")
    if kind not in KINDS:
        raise reading.Unreadable(f"its kind is {kind}, expected unigram or bpe")
    flags = {"bytes": (training, 35, 0), "prefix": (normalisation, 3, 1), "suffix": (training, 24, 0)}
    flags |= {"squeeze": (normalisation, 4, 1), "escape": (normalisation, 5, 1)}
    settings = {"kind": kind} | {name: bool(part.get(number, usual)) for name, (part, number, usual) in flags.items()}
    names = tuple(text(training.get(n), name) for n, name in ((48, "<pad>"), (46, "<s>"), (47, "</s>")))
    return ModelFile(pieces, settings, names, text(training.get(44), SURFACE), normalisation.get(2, b""))


def text(value: Any, default: str) -> str:
    """Decode a text field; return `default` if it is missing."""
    if value is None:
        return default
    try:
        return bytes.decode(value)
    except (TypeError, UnicodeDecodeError):
        raise reading.Unreadable("a text in it is not UTF-8") from None


def read_fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer message, (number, value): varints as int, others as bytes."""
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
    """Read a varint at index `at`; return its value and the index after it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise reading.Unreadable("it is cut short" if at >= len(data) else f"byte {at:,} begins no number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def list_pieces(section: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, tuple[float, int]]:
    """Return the pieces of a segmentation with scores and types: <unk>, <s>, </s>, then the others in order of ids.

    Pieces without an id come last.
    """
    tables = {"pieces": NORMAL, "fixed": FIXED, "unused": UNUSED}
    pieces = {piece: (float(score), kind) for key, kind in tables.items() for piece, score in section[key].items()}
    pieces |= dict.fromkeys(section["control"], (0.0, CONTROL))
    pieces |= dict.fromkeys(BYTES if section["bytes"] else (), (0.0, BYTE))
    ordered = sorted(pieces, key=lambda piece: vocabulary.get(piece, math.inf))
    return {**FIRST, **{piece: pieces[piece] for piece in ordered if piece not in FIRST}}


def model_of(section: Mapping[str, Any], vocabulary: Mapping[str, int], words: Iterable[str] = ()) -> bytes:
    """Return the content of a segmentation's model file, with `words` as additional unused pieces at the end."""
    pieces = list_pieces(section, vocabulary)
    # In BPE, merges into these come last and are undone, as the pieces are unused; so no other split changes.
    lowest = min(score for score, _ in pieces.values()) - 1
    pieces |= {word: (lowest, UNUSED) for word in words if word not in pieces}
    training = {
        3: KINDS[section["kind"]],
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
    rows = [write_message(1, {1: piece, 2: score, 3: kind}) for piece, (score, kind) in pieces.items()]
    return b"".join([*rows, write_message(2, training), write_message(3, normalisation)])


def write_message(number: int, fields: Mapping[int, Any]) -> bytes:
    """Serialise a message as field `number`; its fields are single-precision floats, integers, texts or bytes."""
    parts = []
    for field, value in fields.items():
        if isinstance(value, float):
            parts += [write_varint(field << 3 | 5), struct.pack("<f", value)]
        elif isinstance(value, int):
            parts += [write_varint(field << 3), write_varint(value % (1 << 64))]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [write_varint(field << 3 | 2), write_varint(len(data)), data]
    message = b"".join(parts)
    return write_varint(number << 3 | 2) + write_varint(len(message)) + message


def write_varint(value: int) -> bytes:
    """Serialise an integer as a varint."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
