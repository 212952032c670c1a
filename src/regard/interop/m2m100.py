"""M2M-100 and NLLB, as Transformers stores them: import and export.

Fan et al. 2021 (arXiv:2010.11125); NLLB team 2022 (arXiv:2207.04672). A source begins with its language and ends with
</s>, a target begins with its language (tokenizer.before, after and first; `--source-language` and `--target-language`
choose them). Other differences from Regard:

- Decoding begins with </s>, whose embedding Regard uses for START (model.start_as_end). An output bias suppresses START
  and the pieces that pad the vocabulary; training does not change it (model.fixed_bias), so that the run can be
  exported again. Their <s>, which no text contains, stays a piece of its own, so that the softmax has each of its
  scores once.
- Layers are pre-norm, with a norm after the last; positions are fairseq's, and the output layer has no bias.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.attention import FIRST
from regard.config import show_value
from regard.data import END, PAD, START, UNKNOWN, Tokenizer, Tokenizers, run_languages, special_pieces
from regard.errors import ConfigError, DataError
from regard.interop import stacks
from regard.interop.export import Opened, reopen
from regard.interop.formats import Imported, read_table
from regard.interop.importing import origin_values
from regard.interop.numbering import (
    LANGUAGE_CODES,
    MADE_UP,
    MODEL,
    THEIR_START,
    add_pieces,
    export_rows,
    m2m100_rows,
    m2m100_tokenizers,
    round_up,
)
from regard.run import Run

NUMBERS = {"bos_token_id": "<s>", "pad_token_id": "<pad>", "eos_token_id": "</s>", "decoder_start_token_id": "</s>"}
TOLERANCE = 1e-6
VOCABULARIES = ("vocab.json", "sentencepiece.bpe.model", "tokenizer.json", "special_tokens_map.json")


# ---- import


def read_m2m100(folder: Path) -> Imported:
    """Read a folder of M2M-100 or NLLB as a Regard run."""
    read_table(folder / "config.json")
    if not any((folder / name).is_file() for name in VOCABULARIES[:3]):
        raise DataError(f"{folder / VOCABULARIES[1]}: missing, expected the vocabulary of M2M-100 or NLLB")
    own, table = m2m100_tokenizers(folder).source, m2m100_rows(folder)
    known = set(own.names)
    others = [THEIR_START, *(piece for piece in table if piece not in known)]
    tokenizers = round_up(Tokenizers(add_pieces(own, others, str(folder))), str(folder))
    imported = read_rows(folder, tokenizers, table)
    files = [folder / name for name in (*VOCABULARIES, "tokenizer_config.json") if (folder / name).is_file()]
    languages = len(run_languages.known_languages(tokenizers.source))
    note = f"It knows {languages} languages: choose two with --source-language and --target-language."
    return replace(imported, files=(*imported.files, *files), notes=(note,))


def read_rows(folder: Path, tokenizers: Tokenizers, table: Mapping[str, int]) -> Imported:
    """Read a folder for known tokenizers, with its rows from a table."""
    path = folder / "config.json"
    config = read_table(path)
    sizes = stacks.read_sizes({"activation_function": "relu", **config}, "pre", path)
    if not stacks.flag(config, "tie_word_embeddings", True, path):
        raise DataError(f"{path}: tie_word_embeddings is false, expected true")
    copied = tokenizers.target.library.token_to_id(THEIR_START) is not None
    for key, piece in {**NUMBERS, "decoder_start_token_id": "</s>" if copied else "<s>"}.items():
        if config.get(key) != table.get(piece):
            value = show_value(config.get(key))
            raise DataError(f"{path}: {key} is {value}, expected the number of {piece}, which is {table.get(piece)}")
    if stacks.whole(config, "vocab_size", 2**24, path) != len(table):
        raise DataError(f"{path}: vocab_size is {config['vocab_size']}, expected {len(table)}, as the vocabulary has")
    rows = rows_of(tokenizers.target, table)
    stacks.check_rows(rows, len(table), path)
    counts = [len(table)] * 2
    weights, read = stacks.read_model(folder, sizes, "all", counts, [rows, rows], sines="fairseq", biased=False)
    if copied:
        weights["readout.bias"][START] = stacks.NEVER
    tokenizer = {"kind": tokenizers.source.kind, "joint": True, "after": [special_pieces.SPECIAL[END]]}
    form = {"sines": "fairseq", "tied": "all", "start_as_end": copied, "fixed_bias": True}
    settings = stacks.describe(config, sizes, path, longest=1024, scaled=True, tokenizer=tokenizer, **form)
    if (first := table["<pad>"] + 1) != FIRST["fairseq"]:  # positions are counted from after the padding
        settings["model"]["first_position"] = first
    return Imported(settings, tokenizers, weights, (path, *read))


def open_m2m100(folder: Path, run: Run) -> Opened:
    """Open a folder that was written from a run."""
    return reopen(folder, run, "m2m_100", lambda place, tokenizers: read_rows(place, tokenizers, export_rows(place)))


def rows_of(tokenizer: Tokenizer, table: Mapping[str, int]) -> list[int | None]:
    """Return the folder's row of each id; START has </s>'s row if their <s> is a piece of its own."""
    rows: list[int | None] = [table.get(tokenizer.names[i]) for i in range(tokenizer.size)]
    if (own := tokenizer.library.token_to_id(THEIR_START)) is not None:
        rows[START], rows[own] = table["</s>"], table["<s>"]
    return rows


# ---- export


@torch.no_grad()
def write_m2m100(run: Run, folder: Path) -> None:
    """Write a run as a folder that `M2M100ForConditionalGeneration.from_pretrained` opens."""
    model, tokenizer = stacks.transformer_of(run, "m2m100"), run.tokenizers.target
    config = model.config
    own = tokenizer.library.token_to_id(THEIR_START)
    copied, first = own is not None, START if own is None else own
    expected = {"norm": ["pre"], "positions": ["sinusoidal"], "sines": ["fairseq"], "tied": ["all"]}
    stacks.check_exported(config, {**expected, "start_as_end": [False, True] if copied else [False]}, "m2m100")
    rest = [
        i
        for i in range(len(special_pieces.SPECIAL), tokenizer.size)
        if i != first and not special_pieces.is_filler(tokenizer.names[i])
    ]
    order = [first, PAD, END, UNKNOWN, *rest]
    bias, embeddings = model.readout.bias, model.source.tokens.weight
    if bias is not None and bool(bias[order].abs().max() > TOLERANCE):
        raise ConfigError("model.output_bias", "it was trained, but m2m100 has none; export to another format")
    own_start = copied and not config.start_as_end
    if own_start and not torch.allclose(embeddings[START], embeddings[END], rtol=0, atol=TOLERANCE):
        raise ConfigError(
            "model.tied", "START and </s> were trained apart, but are one in m2m100; export to another format"
        )
    stacks.write_tensors(folder, stacks.tensors_of(model, [order, order]))
    names = ["<s>" if i == first else tokenizer.names[i] for i in order]
    write_tokenizers(run.tokenizers, names, folder)
    recorded = origin_values(run, "config")
    table = {
        **recorded,
        **stacks.config_of(run, config, "M2M100ForConditionalGeneration", "m2m_100"),
        "vocab_size": len(order),
        **{key: recorded.get(key, 0.0) for key in ("activation_dropout", "encoder_layerdrop", "decoder_layerdrop")},
        "tie_word_embeddings": True,
        **{key: row for row, key in enumerate(("bos_token_id", "pad_token_id", "eos_token_id"))},
        "decoder_start_token_id": 2 if copied else 0,
    }
    stacks.write_json(folder / "config.json", table)
    generation = {key: table[key] for key in NUMBERS}
    generation["max_length"] = table["max_position_embeddings"]
    if len(tokenizer.before) == 1:
        generation["forced_bos_token_id"] = order.index(tokenizer.before[0])
    stacks.write_json(folder / "generation_config.json", {**origin_values(run, "generation"), **generation})


def write_tokenizers(tokenizers: Tokenizers, names: Sequence[str], folder: Path) -> None:
    """Write the vocabulary of an M2M100Tokenizer or an NllbTokenizer; `names` are the pieces by row.

    M2M-100's vocab.json has no languages, and NLLB has no vocab.json. A run in neither form gets a vocab.json with all
    pieces, as does a tokenizer that was trained with Regard: neither class tokenises as it does.
    """
    table = m2m100_table(tokenizers, names) or nllb_table(tokenizers, names)
    if table is None:
        stacks.write_json(folder / "vocab.json", {name: row for row, name in enumerate(names)})
        return
    listed = "language_codes" in table  # NLLB's rows follow its SentencePiece model, so added words would shift them
    if listed:
        count = names.index(LANGUAGE_CODES[table["language_codes"]][0])
        stacks.write_json(folder / "vocab.json", {name: row for row, name in enumerate(names[:count])})
    (folder / MODEL).write_bytes(tokenizers.source.model_file(words=listed))
    stacks.write_json(folder / "tokenizer_config.json", table)


def m2m100_table(tokenizers: Tokenizers, names: Sequence[str]) -> dict[str, Any] | None:
    """Return the tokenizer_config.json of M2M-100, whose languages follow the pieces in a fixed order."""
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
    """Return the tokenizer_config.json of NLLB: SentencePiece's pieces, languages, <mask>, and added pieces."""
    tokenizer = tokenizers.source
    if tokenizer.sentencepiece is None:
        return None
    pieces = tokenizer.sentencepiece.pieces()[3:]  # without <unk>, <s> and </s>
    first = len(special_pieces.SPECIAL) + len(pieces)
    if list(names[len(special_pieces.SPECIAL) : first]) != pieces:
        return None
    languages = run_languages.known_languages(tokenizer)
    table = {"tokenizer_class": "NllbTokenizer"}
    special = {"additional_special_tokens": [name for name in names if name in languages]}
    return {**table, **special, **describe_added(tokenizer, names, first), **language_choice(tokenizers)}


def describe_added(tokenizer: Tokenizer, names: Sequence[str], first: int) -> dict[str, Any]:
    """Describe the pieces after all others, by row, for Transformers' tokenizers; words are not special."""
    words = tokenizer.pieces(tokenizer.added.values())
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    rows = {row: name for row, name in enumerate(names) if row >= first}
    added = {str(row): {"content": name, **flags, "special": name not in words} for row, name in rows.items()}
    return {"added_tokens_decoder": added} if added else {}


def language_choice(tokenizers: Tokenizers) -> Mapping[str, str]:
    """Return the languages that the run translates from and to, if it has chosen them."""
    sides = {"src_lang": tokenizers.source, "tgt_lang": tokenizers.target}
    around = {key: side.pieces(side.before) for key, side in sides.items()}
    codes = {key: run_languages.split_piece(pieces[0])[1] for key, pieces in around.items() if len(pieces) == 1}
    return {key: code for key, code in codes.items() if code}
