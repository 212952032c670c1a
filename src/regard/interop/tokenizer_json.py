"""A Marian folder with a tokenizer.json and no vocab.json: the vocabulary is the file's, as far as the model's rows go.

Where the file numbers the pieces of the model, it stands for vocab.json. Where it is another tokenizer's (the one of
opus-mt-ar-fr has 32,005 pieces for 64,505 rows), it cuts texts and numbers pieces all the same, as Transformers'
PreTrainedTokenizerFast does with it, and a note says that it does not fit; rows without a piece get names of their own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import show_value
from regard.data import Tokenizers, open_tokenizer, read, special_pieces
from regard.errors import DataError
from regard.interop.formats import read_table
from regard.interop.numbering import MADE_UP, listed_pieces
from regard.interop.stacks import whole

FILE = "tokenizer.json"
NEVER_CUT = -1e6  # the score of a piece that no text is cut into


class Foreign(NamedTuple):
    """A tokenizer that is not the model's own: its tokenizers, the row of each name, and what stands around texts."""

    tokenizers: Tokenizers
    rows: dict[str, int]
    around: dict[str, list[str]]
    note: str


def numbers_the_model(folder: Path) -> bool:
    """Return whether a folder's tokenizer.json numbers the rows of its model, as vocab.json would."""
    config, names = read_table(folder / "config.json"), listed_pieces(folder)
    rows = {name: row for row, name in enumerate(names)}
    special = (("eos_token_id", "</s>"), ("pad_token_id", "<pad>"))
    right = all(config.get(key) == rows.get(piece) for key, piece in special)
    return right and len(rows) == len(names) == config.get("vocab_size")


def read_foreign(folder: Path) -> Foreign:
    """Read a tokenizer.json that does not number the rows of the model."""
    path = folder / "config.json"
    config, names, content = read_table(path), listed_pieces(folder), read(folder / FILE)
    size = whole(config, "vocab_size", 2**24, path)
    if len(names) > size:
        raise DataError(f"{folder / FILE}: {len(names):,} pieces, expected at most {size:,}, as config.json says")
    end, start = (whole_row(config, key, size, path) for key in ("eos_token_id", "decoder_start_token_id"))
    model = content["model"]
    unknown = model.get("unk_id")
    unknown = unknown if type(unknown) is int else names.index("<unk>") if "<unk>" in names else -1
    if unknown in (end, start, -1):
        raise DataError(f"{folder / FILE}: no unknown piece in it, expected one beside those that config.json names")
    ids, rows = (
        dict(zip(special_pieces.SPECIAL, range(4), strict=True)),
        {"<pad>": start, "</s>": end, "<unk>": unknown},
    )
    own = dict(zip(rows.values(), rows, strict=True))  # the name of every row
    hidden = {token["content"] for token in content.get("added_tokens") or [] if token.get("special")}
    for row in range(size):
        if row in own:
            continue
        name = names[row] if row < len(names) else f"{MADE_UP}{row - len(names):05d}"
        name = f"<their-{row}>" if name in ids or name in hidden else name
        ids[name], rows[name], own[row] = len(ids), row, name
    if isinstance(model["vocab"], list):
        scores = {own[row]: scored[1] for row, scored in enumerate(model["vocab"]) if row < len(names)}
        vocabulary: Any = [
            [name, 0.0 if name in special_pieces.SPECIAL else scores.get(name, NEVER_CUT)] for name in ids
        ]
        model = {**model, "type": "Unigram", "vocab": vocabulary, "unk_id": ids["<unk>"]}
    else:
        model = {**model, "vocab": ids}
    special = [name for name in ids if name in special_pieces.SPECIAL or name.startswith("<their-")]
    added = [special_pieces.describe(ids[name], name, special=True) for name in special]
    around = surroundings(content, names, own)
    content = {**content, "model": model, "added_tokens": added, "post_processor": None}
    note = (
        f"{folder / FILE} has {len(names):,} pieces, and the model {size:,} rows: it may be another model's, and cut "
        "texts into pieces that this one does not know; put the model's own vocab.json there, and import it again."
    )
    return Foreign(Tokenizers(open_tokenizer(content, str(folder / FILE))), rows, around, note)


def whole_row(config: Mapping[str, Any], key: str, size: int, path: Path) -> int:
    """Return a row that a configuration names."""
    value = config.get(key)
    if type(value) is not int or not 0 <= value < size:
        raise DataError(f"{path}: {key} is {show_value(value)}, expected a row from 0 to {size - 1:,}")
    return value


def surroundings(content: Mapping[str, Any], names: list[str], own: Mapping[int, str]) -> dict[str, list[str]]:
    """Return what a template puts before and after a text, under the names here."""
    template = content.get("post_processor")
    single = (
        template.get("single") if isinstance(template, dict) and template.get("type") == "TemplateProcessing" else None
    )
    around: dict[str, list[str]] = {"before": [], "after": []}
    side = "before"
    for part in single if isinstance(single, list) else []:
        if isinstance(part, dict) and "Sequence" in part:
            side = "after"
        elif isinstance(part, dict) and isinstance(part.get("SpecialToken"), dict):
            piece = part["SpecialToken"].get("id")
            if piece in names:
                around[side].append(own[len(names) - 1 - names[::-1].index(piece)])
    return {key: pieces for key, pieces in around.items() if pieces}
