"""What Transformers' tokenizers read beside a model: SentencePiece's files and tokenizer_config.json.

They can be written for a run that was imported, and for those that began with it; a tokenizer that was trained here has
another way to cut texts, for which Transformers' MarianTokenizer, M2M100Tokenizer and NllbTokenizer have no form, and
vocab.json alone is written.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data import Tokenizer, Tokenizers, language_pieces, special_pieces
from regard.interop.numbering import LANGUAGE_CODES, MADE_UP, MODEL
from regard.interop.sentencepiece import FIRST, list_pieces, write_model
from regard.interop.stacks import write_json


def write_marian_files(tokenizers: Tokenizers, languages: str | None, folder: Path) -> None:
    """Write what a MarianTokenizer needs beside vocab.json; `languages` are those of the run, such as en-de."""
    if any(side.sentencepiece is None for side in (tokenizers.source, tokenizers.target)):
        return
    for name, side in (("source.spm", tokenizers.source), ("target.spm", tokenizers.target)):
        write_model(side, folder / name, words_of(side))
    table: dict[str, Any] = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": not tokenizers.same_ids}
    if languages is not None:
        table |= dict(zip(("source_lang", "target_lang"), languages.split("-"), strict=True))
    write_json(folder / "tokenizer_config.json", table)


def write_m2m100_files(tokenizers: Tokenizers, names: Sequence[str], folder: Path) -> None:
    """Write the vocabulary of an M2M100Tokenizer or an NllbTokenizer; `names` are the pieces in the order of rows.

    M2M-100's vocab.json has no languages, and NLLB has no vocab.json. A run that has the form of neither gets a
    vocab.json with all pieces.
    """
    table = m2m100_table(tokenizers, names) or nllb_table(tokenizers, names)
    if table is None:
        write_json(folder / "vocab.json", {name: row for row, name in enumerate(names)})
        return
    words: Collection[str] = ()  # NLLB's rows are those of its SentencePiece model, which words would move
    if "language_codes" in table:
        words = words_of(tokenizers.source)
        count = names.index(LANGUAGE_CODES[table["language_codes"]][0])
        write_json(folder / "vocab.json", {name: row for row, name in enumerate(names[:count])})
    write_model(tokenizers.source, folder / MODEL, words)
    write_json(folder / "tokenizer_config.json", table)


def m2m100_table(tokenizers: Tokenizers, names: Sequence[str]) -> dict[str, Any] | None:
    """Return the tokenizer_config.json of M2M-100: its languages stand in their order behind the pieces."""
    for key, languages in LANGUAGE_CODES.items():
        first = names.index(languages[0]) if languages[0] in names else len(names)
        behind = first + len(languages)
        if tokenizers.source.sentencepiece is not None and names[first:behind] == languages:
            made_up = sum(name.startswith(MADE_UP) for name in names[behind:])
            table = {"tokenizer_class": "M2M100Tokenizer", "language_codes": key, "num_madeup_words": made_up}
            return {
                **table,
                **describe_added(tokenizers.source, names, behind + made_up),
                **language_choice(tokenizers),
            }
    return None


def nllb_table(tokenizers: Tokenizers, names: Sequence[str]) -> dict[str, Any] | None:
    """Return the tokenizer_config.json of NLLB: SentencePiece's pieces, languages, <mask>, and what was added."""
    tokenizer = tokenizers.source
    if tokenizer.sentencepiece is None:
        return None
    pieces = [piece for piece in list_pieces(tokenizer) if piece not in FIRST]
    first = len(special_pieces.SPECIAL) + len(pieces)
    if list(names[len(special_pieces.SPECIAL) : first]) != pieces:
        return None
    languages = language_pieces.known_languages(tokenizer)
    table = {"tokenizer_class": "NllbTokenizer"}
    special = {"additional_special_tokens": [name for name in names if name in languages]}
    return {**table, **special, **describe_added(tokenizer, names, first), **language_choice(tokenizers)}


def describe_added(tokenizer: Tokenizer, names: Sequence[str], first: int) -> dict[str, Any]:
    """Describe the pieces behind all others, by their rows, as Transformers' tokenizers read them; words are text."""
    words = words_of(tokenizer)
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    rows = {row: name for row, name in enumerate(names) if row >= first}
    added = {str(row): {"content": name, **flags, "special": name not in words} for row, name in rows.items()}
    return {"added_tokens_decoder": added} if added else {}


def words_of(tokenizer: Tokenizer) -> list[str]:
    """Return the pieces that are words which were added."""
    return tokenizer.pieces(tokenizer.added.values())


def language_choice(tokenizers: Tokenizers) -> Mapping[str, str]:
    """Return the languages that the run translates from and to, where it has chosen them."""
    sides = {"src_lang": tokenizers.source, "tgt_lang": tokenizers.target}
    codes = {key: [language_pieces.code_of(piece) for piece in side.pieces(side.before)] for key, side in sides.items()}
    return {key: languages[0] for key, languages in codes.items() if len(languages) == 1 and languages[0]}
