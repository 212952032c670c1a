"""The four special pieces of every tokenizer, their ids in files made elsewhere, and fillers.

Fillers are unused pieces that pad the vocabulary to a multiple of eight: a GPU multiplies a matrix with an odd number
of rows at half the speed. No text contains a filler, no search outputs one (it scores like padding), and no export
includes any.
"""

from typing import Any

from regard.data.tokenizer_checks import check_vocabulary
from regard.errors import DataError

PAD, START, END, UNKNOWN = 0, 1, 2, 3
MULTIPLE = 8  # the vocabulary size is padded to a multiple of this
FILLER = "<no piece {}>"  # the name of a filler
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
ALSO = (  # names of the four in files made elsewhere
    ("<pad>", "[PAD]", "<|pad|>"),
    ("<s>", "<bos>", "[BOS]", "[CLS]"),
    ("</s>", "<eos>", "[EOS]", "[SEP]"),
    ("<unk>", "[UNK]", "<|unk|>"),
)


def adopt(content: Any, place: str) -> dict[str, Any]:
    """Move the padding, start, end and unknown pieces of a tokenizer.json to the ids 0 to 3.

    They swap ids with the pieces there and keep their names. A file without one of them raises a DataError, because a
    model cannot be trained with it. A post-processor, which adds pieces around a text, is removed.
    """
    check_vocabulary(content, place)
    model = content["model"]
    added = [dict(token) for token in content.get("added_tokens") or ()]
    vocabulary = model["vocab"]
    listed = isinstance(vocabulary, list)
    ids = {row[0]: i for i, row in enumerate(vocabulary)} if listed else dict(vocabulary)
    # A piece marked as special takes precedence over one that was learned from a text containing such a word.
    special = {token["content"]: token["id"] for token in added if token.get("special")}
    ids |= {token["content"]: token["id"] for token in added}
    trade: dict[int, int] = {}
    for number, also in enumerate(ALSO):
        name = next((name for table in (special, ids) for name in also if name in table), None)
        if name is None:
            raise DataError(
                f"{place}: no {also[0]} in its vocabulary (nor {' or '.join(also[1:])}); expected a tokenizer with "
                "pieces for padding, start, end and unknown"
            )
        trade[ids[name]] = number
    if all(old == new for old, new in trade.items()) and content.get("post_processor") is None:
        return content
    # Ordinary pieces with the ids 0 to 3 move to the former ids of the special pieces.
    displaced = [new for new in range(4) if new not in trade]
    vacated = sorted(old for old in trade if old > UNKNOWN)
    trade |= dict(zip(displaced, vacated, strict=True))
    for token in added:
        token["id"] = trade.get(token["id"], token["id"])
    if listed:
        moved = list(vocabulary)
        if max(trade) >= len(moved):
            raise DataError(f"{place}: its special pieces are outside the unigram vocabulary, expected inside")
        for old, new in trade.items():
            moved[new] = vocabulary[old]
        model = {**model, "vocab": moved, "unk_id": UNKNOWN}
    else:
        model = {**model, "vocab": {piece: trade.get(i, i) for piece, i in vocabulary.items()}}
    return {**content, "model": model, "added_tokens": sorted(added, key=lambda t: t["id"]), "post_processor": None}


def describe(i: int, piece: str, *, special: bool, single_word: bool = False) -> dict[str, Any]:
    """Describe an added token as tokenizer.json does; one that is special and a single word occurs in texts."""
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": piece, "single_word": single_word, **flags, "special": special}


def is_filler(piece: str) -> bool:
    """Return whether a piece is a filler."""
    return piece.startswith(FILLER.partition("{")[0]) and piece.endswith(">")
