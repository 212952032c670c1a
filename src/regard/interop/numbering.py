"""Piece numbers in the folders of three families: Marian's (OPUS-MT), M2M-100's and NLLB's.

Each function reads a folder's vocabulary and returns Regard's id of every piece: <pad>, <s>, </s> and <unk> are 0 to 3,
and all others follow in the folder's order. The row of a piece in the weight matrices is looked up by name.
"""

import copy
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from regard.config import show_value
from regard.data import (
    MARK,
    Tokenizer,
    Tokenizers,
    open_tokenizer,
    read,
    sentencepiece,
    special_pieces,
    tokenizer_checks,
)
from regard.errors import DataError
from regard.interop.formats import read_table

MODEL = "sentencepiece.bpe.model"  # of M2M-100 and NLLB
THEIR_START = "<their-s>"  # new name of a folder's <s>, if its outputs begin with another piece
FILLED = 8  # unused rows after M2M-100's languages
LANGUAGES = {
    family: codes.split()
    for family, codes in tomllib.loads(
        resources.files("regard.interop").joinpath("languages.toml").read_text(encoding="utf-8")
    ).items()
}
LANGUAGE_CODES = {  # the pieces of M2M-100's languages, by the list's name in tokenizer_config.json
    name: [f"__{code}__" for code in LANGUAGES[name]] for name in ("m2m100", "wmt21")
}
DIGITS = 10  # a row's number has fewer digits
MADE_UP = "madeupword"  # prefix of the names of unused rows


def marian_files(folder: Path) -> tuple[str, str]:
    """Return the names of the vocabulary files of both sides, which may be the same."""
    return "vocab.json", "target_vocab.json" if (folder / "target_vocab.json").exists() else "vocab.json"


def marian_rows(folder: Path, file: str = "vocab.json") -> dict[str, int]:
    """Return the row of every piece in one of Marian's folders: from its vocab.json, and added later."""
    size_key = "vocab_size" if file == "vocab.json" else "decoder_vocab_size"  # in config.json
    if not (folder / file).exists() and (folder / "tokenizer.json").exists():  # it replaces vocab.json
        return fill_up({piece: row for row, piece in enumerate(pieces_by_row(folder))}, 0, folder, size_key)
    rows = read_vocabulary(folder / file)
    rows = append_added(rows, folder) if file == "vocab.json" else rows
    return fill_up(rows, 0, folder, size_key)


def pieces_by_row(folder: Path) -> list[str]:
    """Return the pieces of a folder's tokenizer.json by row."""
    path = folder / "tokenizer.json"
    content = read(path)
    vocabulary = content["model"].get("vocab") if isinstance(content["model"], dict) else None
    if isinstance(vocabulary, list) and all(
        isinstance(row, list) and row and isinstance(row[0], str) for row in vocabulary
    ):
        names = [row[0] for row in vocabulary]
    elif isinstance(vocabulary, dict):
        tokenizer_checks.check_ids(vocabulary, str(path))
        names = sorted(vocabulary, key=vocabulary.__getitem__)
    else:
        raise DataError(f"{path}: its model has no vocabulary, expected pieces numbered from 0 on")
    added = content.get("added_tokens") or []
    for token in added if isinstance(added, list) else []:
        row, piece = (token.get("id"), token.get("content")) if isinstance(token, dict) else (None, None)
        if type(row) is not int or not isinstance(piece, str) or not 0 <= row <= len(names):
            raise DataError(f"{path}: its added token {show_value(piece)} has no row, expected one for each")
        names += [piece] if row == len(names) else []
    return names


def marian_ids(folder: Path, file: str = "vocab.json") -> dict[str, int]:
    """Return the ids of Marian's pieces, with START, although most of its folders have no <s>.

    If decoding begins with another piece, as in OPUS-MT's tc-big models, a folder's <s> is an ordinary piece.
    """
    rows = marian_rows(folder, file)
    own = marian_rows(folder, marian_files(folder)[1]).get("<s>")
    config = read_table(folder / "config.json", optional=True)
    if own is None or config.get("decoder_start_token_id", own) != own:  # config.json decides, not the vocabulary
        rows = {THEIR_START if piece == "<s>" else piece: row for piece, row in rows.items()}
    return renumber(rows, str(folder / file), optional=("<s>",))


def marian_tokenizers(folder: Path) -> Tokenizers:
    """Return the tokenizers of both sides: two segmentations, and one numbering unless there are two vocabularies."""
    added, sides = added_texts(folder), []
    for name, file in zip(("source.spm", "target.spm"), marian_files(folder), strict=True):
        ids = marian_ids(folder, file)
        tags = [piece for piece in ids if sentencepiece.is_code(piece) or piece in added]
        content = sentencepiece.convert(folder / name, ids, tags=tags)
        if rows := special_rows(marian_rows(folder, file)):
            content["regard"][tokenizer_checks.ROWS] = rows
        sides.append(open_tokenizer(content, str(folder / name)))
    return Tokenizers(*sides) if sides[0].content != sides[1].content else Tokenizers(sides[0])


def special_rows(rows: Mapping[str, int]) -> dict[str, int]:
    """Return the rows of </s>, <unk> and <pad> unless they are the first two and the last, as in most folders."""
    usual = {"</s>": 0, "<unk>": 1, "<pad>": len(rows) - 1}
    own = {piece: rows[piece] for piece in usual}
    return {} if own == usual else own


def round_up(tokenizers: Tokenizers, place: str) -> Tokenizers:
    """Add filler pieces until the number of pieces is a multiple of eight.

    On a GPU, products with a matrix that has an odd number of rows run at half the speed. No text contains a filler, no
    search outputs it (its score is that of the padding), and no export has it.
    """
    sides = []
    for side in dict.fromkeys((tokenizers.source, tokenizers.target)):
        size = -(-side.size // special_pieces.MULTIPLE) * special_pieces.MULTIPLE
        sides.append(add_pieces(side, map(special_pieces.FILLER.format, range(side.size, size)), place))
    return Tokenizers(*sides)


def add_pieces(tokenizer: Tokenizer, pieces: Iterable[str], place: str) -> Tokenizer:
    """Add special pieces after all others of a tokenizer."""
    content = copy.deepcopy(tokenizer.content)
    added = [special_pieces.describe(i, piece, special=True) for i, piece in enumerate(pieces, tokenizer.size)]
    return open_tokenizer({**content, "added_tokens": [*content.get("added_tokens", []), *added]}, place)


def m2m100_rows(folder: Path) -> dict[str, int]:
    """Return the row of every piece in a folder of M2M-100, which has a vocab.json, or of NLLB.

    After M2M-100's pieces come its languages and filler rows. NLLB's rows are those of its tokenizer.json. Without one,
    four special pieces come first, then SentencePiece's pieces, as fairseq numbers them, then the languages and <mask>.
    """
    listed, size = folder / "vocab.json", 0
    if listed.exists():
        rows = append(read_vocabulary(listed), folder_languages(folder))
        size = len(rows) + FILLED
    elif (folder / "tokenizer.json").exists():
        path = folder / "tokenizer.json"
        content = read(path)
        tokenizer_checks.check_vocabulary(content, str(path))
        vocabulary = content["model"]["vocab"]
        if not isinstance(vocabulary, dict):
            raise DataError(f"{path}: not NLLB's: its pieces are a list, expected a table")
        added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
        return fill_up({**vocabulary, **added}, 0, folder)
    else:
        pieces = [piece for piece, _, _ in sentencepiece.read_model(folder / MODEL).pieces[3:]]
        behind = [*folder_languages(folder), "<mask>"]
        rows = append({}, ["<s>", "<pad>", "</s>", "<unk>", *pieces])
        rows = append(rows, behind if not added_rows(folder).keys() >= {*behind} else ())
    return fill_up(append_added(rows, folder), size, folder)


def m2m100_tokenizers(folder: Path) -> Tokenizers:
    """Return the tokenizer of both sides; languages (__de__, deu_Latn) are matched as whole pieces anywhere in a text.

    An NLLB folder without a SentencePiece model uses its tokenizer.json.
    """
    listed, own = folder / "vocab.json", folder / "tokenizer.json"
    if not listed.exists() and not (folder / MODEL).exists() and own.exists():
        return Tokenizers.load(own)
    ids = renumber(m2m100_rows(folder), str(listed if listed.exists() else folder))
    alone = {*folder_languages(folder), *added_texts(folder)}
    content = sentencepiece.convert(folder / MODEL, ids, tags=[piece for piece in ids if piece in alone])
    return Tokenizers(open_tokenizer(content, str(folder / MODEL)))


def folder_languages(folder: Path) -> list[str]:
    """Return the languages of a folder in the order of their rows.

    M2M-100 has a hundred, or the eight of WMT 2021; NLLB has those that its settings list, or the 202 of NLLB-200.
    """
    settings = read_settings(folder)
    if (folder / "vocab.json").exists():
        return LANGUAGE_CODES["wmt21" if settings.get("language_codes") == "wmt21" else "m2m100"]
    none = (*special_pieces.SPECIAL, "<mask>")
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if isinstance(named := settings.get(key), list):
            texts = [token["content"] if isinstance(token, dict) else token for token in named]
            if languages := [text for text in texts if isinstance(text, str) and text not in none]:
                return languages
    return LANGUAGES["nllb"]


def export_rows(folder: Path) -> dict[str, int]:
    """Return the row of every piece in a folder that Regard wrote for M2M-100 or NLLB."""
    native = (folder / "vocab.json").exists() and "language_codes" not in read_settings(folder)
    return read_vocabulary(folder / "vocab.json") if native else m2m100_rows(folder)


# ---- shared helpers


def renumber(rows: Mapping[str, int], place: str, optional: Iterable[str] = ()) -> dict[str, int]:
    """Renumber pieces: the special ones first, the others in the order of their rows."""
    missing = next((piece for piece in special_pieces.SPECIAL if piece not in rows and piece not in optional), None)
    if missing is not None:
        raise DataError(
            f"{place}: no {missing} in its vocabulary, expected a piece for each of {', '.join(special_pieces.SPECIAL)}"
        )
    others = sorted((piece for piece in rows if piece not in special_pieces.SPECIAL), key=rows.__getitem__)
    return {piece: i for i, piece in enumerate((*special_pieces.SPECIAL, *others))}


def append(rows: Mapping[str, int], pieces: Iterable[str]) -> dict[str, int]:
    """Add pieces after all others."""
    rows = dict(rows)
    for piece in pieces:
        rows.setdefault(piece, len(rows))
    return rows


def added_rows(folder: Path) -> dict[str, int]:
    """Return the rows given in added_tokens.json and tokenizer_config.json, in ascending order."""
    rows: dict[str, int] = {}
    for piece, number in read_table(folder / "added_tokens.json", optional=True).items():
        if type(number) is not int or not 0 <= number < 10**DIGITS or not piece:
            path = folder / "added_tokens.json"
            raise DataError(f"{path}: {show_value(piece)} has no row, expected pieces with theirs")
        rows[piece] = number
    table = read_settings(folder).get("added_tokens_decoder")
    for row, token in table.items() if isinstance(table, dict) else ():
        named = isinstance(token, dict) and isinstance(token.get("content"), str)
        if not (named and row.isdecimal() and len(row) < DIGITS):
            path = folder / "tokenizer_config.json"
            raise DataError(f"{path}: added_tokens_decoder has {show_value(row)}, expected rows with their pieces")
        rows[token["content"]] = int(row)
    return dict(sorted(rows.items(), key=lambda item: item[1]))


def append_added(rows: Mapping[str, int], folder: Path) -> dict[str, int]:
    """Add the pieces whose rows other files of a folder give, if those rows come after all others."""
    rows = dict(rows)
    for piece, row in added_rows(folder).items():
        if piece in rows:
            continue
        if not len(rows) <= row <= len(rows) + MOST_FILLED:
            other = next((name for name, own in rows.items() if own == row), None)
            taken = "which no row leads up to" if other is None else f"which is that of {show_value(other)}"
            raise DataError(
                f"{folder}: the added piece {show_value(piece)} has row {row:,}, {taken}; give it one behind the "
                f"{len(rows):,} others"
            )
        rows = make_up(rows, row)
        rows[piece] = row
    return rows


def make_up(rows: Mapping[str, int], size: int) -> dict[str, int]:
    """Add names for unused rows after all others, up to a size."""
    first = sum(name.startswith(MADE_UP) for name in rows)
    return append(rows, [f"{MADE_UP}{first + i:04d}" for i in range(size - len(rows))])


def added_texts(folder: Path) -> set[str]:
    """Return the later additions that are matched in texts, as in Transformers; no words and no made-up names."""
    none = (*special_pieces.SPECIAL, "<mask>")
    return {piece for piece in added_rows(folder) if piece not in none and not piece.startswith((MARK, MADE_UP))}


def fill_up(rows: Mapping[str, int], size: int, folder: Path, key: str = "vocab_size") -> dict[str, int]:
    """Name the rows after all pieces, up to the size in config.json under `key`, or else up to `size`."""
    said = read_table(folder / "config.json", optional=True).get(key)
    # The matrix was trained with config.json's size, which may exceed the vocabulary's, but never be smaller.
    size = max(said, len(rows)) if type(said) is int and said <= len(rows) + MOST_FILLED else max(size, len(rows))
    return make_up(rows, size)


MOST_FILLED = 10_000


def read_settings(folder: Path) -> dict[str, Any]:
    """Return a folder's tokenizer settings."""
    return {
        **read_table(folder / "special_tokens_map.json", optional=True),
        **read_table(folder / "tokenizer_config.json", optional=True),
    }


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a vocabulary: the row of every piece, from 0 without gaps."""
    rows = read_table(path)
    tokenizer_checks.check_ids(rows, str(path))
    return rows
