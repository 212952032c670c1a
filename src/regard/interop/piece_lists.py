"""Lists of pieces become tokenizers: a folder of CTranslate2 says which pieces there are, and not how texts are cut.

A tokenizer.json beside the lists that has the same pieces (Regard's own exports) cuts texts; else SentencePiece's
models do; else single characters, where all pieces are that; else texts are read as pieces with spaces between them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import show_value
from regard.data import MARK, Tokenizers, open_tokenizer, sentencepiece, special_pieces, tokenizer_checks
from regard.errors import DataError
from regard.interop.numbering import THEIR_START
from regard.io import reading

MODELS = (("source.spm", "target.spm"), ("sentencepiece.model",) * 2, ("sentencepiece.bpe.model",) * 2)
PADDING = ("<pad>", "<blank>")  # what it is called in lists of pieces
UNCUT = (
    "The folder does not say how texts are cut: give them as its pieces, with spaces between. To have it done, put "
    "SentencePiece's models (source.spm and target.spm, or sentencepiece.model) beside model.bin, and import it again."
)


class PieceList(NamedTuple):
    """The pieces of one side, by row, and the file that they are from."""

    pieces: list[str]
    path: Path


class SideRows(NamedTuple):
    """The special pieces of one side by their rows; None for one that has none, and is new here."""

    pad: int | None
    start: int | None
    end: int
    unknown: int


def read_lists(folder: Path, unknown: str) -> tuple[PieceList, PieceList]:
    """Read the vocabularies of both sides, or the one that they share."""
    shared = read_list(folder, "shared_vocabulary", unknown)
    if shared is not None:
        return shared, shared
    for name in ("source_1_vocabulary.json", "source_1_vocabulary.txt"):
        if (folder / name).is_file():
            raise DataError(f"{folder / name}: a vocabulary of several for one source, expected one; it has features")
    sides = [read_list(folder, f"{side}_vocabulary", unknown) for side in ("source", "target")]
    if sides[0] is None or sides[1] is None:
        missing = "source" if sides[0] is None else "target"
        raise DataError(
            f"{folder / f'{missing}_vocabulary.json'}: missing, as is shared_vocabulary.json; copy it there"
        )
    return sides[0], sides[1]


def read_list(folder: Path, name: str, unknown: str) -> PieceList | None:
    """Read a list of pieces in JSON, or as lines; the unknown piece comes last where the file does not have it."""
    path = next((folder / f"{name}{end}" for end in (".json", ".txt") if (folder / f"{name}{end}").is_file()), None)
    if path is None:
        return None
    try:
        content = reading.read_bytes(path, tokenizer_checks.MAX_BYTES)
        if path.suffix == ".json":
            pieces = reading.parse_json(content)
        else:
            pieces = content.decode().removesuffix("\n").split("\n")
            if all(piece.endswith("\r") for piece in pieces):
                pieces = [piece[:-1] for piece in pieces]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start:,} is not UTF-8, expected a piece per line") from None
    except reading.Unreadable as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if not isinstance(pieces, list) or not all(
        isinstance(piece, str) and len(piece) <= tokenizer_checks.PIECE for piece in pieces
    ):
        raise DataError(f"{path}: not a list of pieces, each a text")
    return PieceList(pieces if unknown in pieces else [*pieces, unknown], path)


def tokenizers_of(
    folder: Path, lists: Sequence[PieceList], rows: Sequence[SideRows]
) -> tuple[Tokenizers, list[list[int | None]], tuple[str, ...]]:
    """Return the tokenizers of both sides, the row of every id of each, and what a person has to know of them."""
    tables = [number(side, own) for side, own in zip(lists, rows, strict=True)]
    both = [table for table, _ in tables]
    notes: tuple[str, ...] = ()
    own = own_tokenizers(folder, both)
    if own is None:
        models = next((pair for pair in MODELS if all((folder / name).is_file() for name in pair)), None)
        sides = []
        for i, table in enumerate(both):
            if models is not None:
                content = sentencepiece.convert(folder / models[i], table, tags=tags_of(table))
            else:
                single = all(len(piece) == 1 for piece in table if not special(piece))
                notes = notes if single else (UNCUT,)
                content = characters(table) if single else words(table)
            sides.append(open_tokenizer(content, str(lists[i].path)))
        own = Tokenizers(*sides) if sides[0].content != sides[1].content else Tokenizers(sides[0])
    numbered = zip((own.source, own.target), tables, strict=True)
    # None for what a tokenizer has besides.
    return own, [[ids.get(i) for i in range(side.size)] for side, (_, ids) in numbered], notes


def number(side: PieceList, own: SideRows) -> tuple[dict[str, int], dict[int, int | None]]:
    """Return the id of every piece under a name of its own, and the row of every id: special pieces come first."""
    ids = dict(zip(special_pieces.SPECIAL, range(4), strict=True))
    rows: dict[int, int | None] = dict(enumerate(own))
    for row, piece in enumerate(side.pieces):
        if row in own:
            continue
        name = (
            THEIR_START
            if piece == "<s>"
            else f"<their-{piece.strip('<>')}>"
            if piece in special_pieces.SPECIAL
            else piece
        )
        name = f"<their-{row}>" if not name or name in ids else name
        rows[len(ids)] = row
        ids[name] = len(ids)
    return ids, rows


def own_tokenizers(folder: Path, tables: Sequence[Mapping[str, int]]) -> Tokenizers | None:
    """Return the tokenizers of a tokenizer.json in the folder, where they number the same pieces alike."""
    if not (folder / "tokenizer.json").is_file():
        return None
    found = Tokenizers.load(folder / "tokenizer.json")
    for tokenizer, table in zip((found.source, found.target), tables, strict=True):
        names = list(table)
        if tokenizer.size != len(names) or any(
            mine != name and not name.startswith("<") for mine, name in zip(tokenizer.names, names, strict=True)
        ):
            return None
    return found


def special(piece: str) -> bool:
    """Return whether a piece is of no text: it has a name in angle brackets."""
    return len(piece) > 2 and piece.startswith("<") and piece.endswith(">")


def tags_of(table: Mapping[str, int]) -> list[str]:
    """Return the pieces that name languages, as >>deu<<, __de__ and deu_Latn do."""
    pairs = ((">>", "<<"), ("__", "__"))
    return [
        piece for piece in table if any(piece.startswith(a) and piece.endswith(b) and len(piece) > 4 for a, b in pairs)
    ]


def characters(table: Mapping[str, int]) -> dict[str, Any]:
    """Return a tokenizer.json that cuts texts into characters; a mark among them stands for a space."""
    content = parts(table, {"type": "BPE", "unk_token": special_pieces.SPECIAL[3], "fuse_unk": False, "merges": []})
    content["decoder"] = {"type": "Fuse"}
    if MARK in table and " " not in table:
        content["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
        back = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
        content["decoder"] = {"type": "Sequence", "decoders": [back, content["decoder"]]}
    return content


def words(table: Mapping[str, int]) -> dict[str, Any]:
    """Return a tokenizer.json that cuts texts at spaces."""
    content = parts(table, {"type": "WordLevel", "unk_token": special_pieces.SPECIAL[3]})
    content["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    return content


def parts(table: Mapping[str, int], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tokenizer.json with a vocabulary and nothing that cuts texts; its special pieces are of no text."""
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    names = [piece for piece in table if piece in special_pieces.SPECIAL or piece.startswith("<their-")]
    added = [special_pieces.describe(table[piece], piece, special=True) for piece in names]
    return json.loads(
        json.dumps({"version": "1.0", **empty, "added_tokens": added, "model": {**model, "vocab": table}})
    )


def find_row(side: PieceList, piece: Any, key: str) -> int:
    """Return the row of a piece that a configuration names."""
    if not isinstance(piece, str) or piece not in side.pieces:
        raise DataError(
            f"{side.path}: no {show_value(piece)} in it, expected the piece that config.json names as {key}"
        )
    return side.pieces.index(piece)


def special_rows(
    lists: tuple[PieceList, PieceList], config: Mapping[str, Any], zero: bool
) -> tuple[list[SideRows], bool]:
    """Return the rows of the special pieces on both sides, and whether a target begins with END's embedding."""
    rows, first, same = [], config["decoder_start_token"], lists[0] is lists[1]
    as_end = first == config["eos_token"] and not zero
    if first is None and not zero:
        path = lists[1].path.with_name("config.json")
        raise DataError(f"{path}: decoder_start_token is null, expected the piece that a target begins with")
    for side, found in zip(("encoder", "decoder"), lists, strict=True):
        end, unknown = (find_row(found, config[key], key) for key in ("eos_token", "unk_token"))
        begin: int | None = None
        if side == "decoder" or same:
            begin = None if zero or as_end else find_row(found, first, "decoder_start_token")
        elif config["bos_token"] in found.pieces:
            begin = find_row(found, config["bos_token"], "bos_token")
        pad = next((found.pieces.index(piece) for piece in PADDING if piece in found.pieces), None)
        rows.append(SideRows(None if pad in (begin, end, unknown) else pad, begin, end, unknown))
    return rows, as_end
