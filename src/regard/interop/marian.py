"""Marian's models, above all OPUS-MT's, as Transformers stores them: import and export.

A folder holds config.json, the weights, two SentencePiece models (source.spm, target.spm) and one vocab.json, or one
for each side. Junczys-Dowmunt et al. 2018 (arXiv:1804.00344); Tiedemann and Thottingal 2020. Differences from Regard:

- Decoding begins with <pad>, whose score stays in the softmax. It becomes Regard's START; Regard's own PAD is a new
  piece that is never an output. Most vocabularies have no <s>; if one does (OPUS-MT's tc-big models), it stays a piece
  of its own: decoder_start_token_id names the piece that begins an output.
- A source ends with </s> (tokenizer.after).
- Layers are post-norm, sines come before cosines, and the output layer has a bias (final_logits_bias).

If there is a tokenizer.json and no vocab.json, the vocabulary is that file's, as far as the model has rows. If it
numbers the model's pieces, it replaces vocab.json. If it belongs to another model (that of opus-mt-ar-fr has 32,005
pieces for 64,505 rows), it tokenises texts and numbers pieces nonetheless, as Transformers' PreTrainedTokenizerFast
does, and a note says that it does not fit; rows without a piece get made-up names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import show_value
from regard.data import (
    END,
    PAD,
    START,
    UNKNOWN,
    Tokenizer,
    Tokenizers,
    data_settings,
    open_tokenizer,
    read,
    special_pieces,
    tokenizer_checks,
)
from regard.errors import DataError
from regard.interop import stacks
from regard.interop.export import Opened, reopen
from regard.interop.formats import Imported, read_table
from regard.interop.importing import origin_values, read_origin
from regard.interop.numbering import (
    MADE_UP,
    THEIR_START,
    marian_files,
    marian_rows,
    marian_tokenizers,
    pieces_by_row,
    round_up,
)
from regard.models import TransformerModel
from regard.run import Run

NEVER_SCORE = -1e3  # a lower output bias means that a piece is never an output
FIXED = {  # keys of config.json with a single supported value
    "normalize_before": False,
    "add_final_layer_norm": False,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}
GENERATION = ("bad_words_ids", "forced_eos_token_id", "max_length", "num_beams")  # for generation
TOKENIZER = "tokenizer.json"
NEVER_CUT = -1e6  # the score of a piece that tokenisation never uses


# ---- import


def read_marian(folder: Path) -> Imported:
    """Read one of Marian's folders as a Regard run."""
    listed = not (folder / "vocab.json").is_file() and (folder / TOKENIZER).is_file()
    if listed and not numbers_the_model(folder):
        return read_foreign(folder)
    for name in ("source.spm", "target.spm", TOKENIZER if listed else "vocab.json"):
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: missing, expected Marian's vocabulary")
    imported = read_rows(folder, round_up(marian_tokenizers(folder), str(folder)))
    return replace(imported, files=(*imported.files, folder / "source.spm", folder / "target.spm"))


def read_foreign(folder: Path) -> Imported:
    """Read a folder whose tokenizer.json does not belong to its model."""
    tokenizers, rows, around, note = read_foreign_tokenizer(folder)
    imported = read_rows(folder, round_up(tokenizers, str(folder)), rows)
    tokenizer = {key: value for key, value in imported.table["tokenizer"].items() if key != "after"} | around
    special = {piece: rows[piece] for piece in ("</s>", "<unk>", "<pad>")}
    table = {**imported.table, "tokenizer": tokenizer}
    return replace(imported, table=table, notes=(note,), values={tokenizer_checks.ROWS: special})


def read_rows(folder: Path, tokenizers: Tokenizers, rows: Mapping[str, int] | None = None) -> Imported:
    """Read one of Marian's folders for known tokenizers, without its SentencePiece files.

    Ids are the tokenizers'; `rows`, or otherwise vocab.json, gives the row of each piece.
    """
    path = folder / "config.json"
    config = read_table(path)
    sizes, tied = stacks.read_sizes(config, "post", path), check_config(config, path)
    files = marian_files(folder)
    tables = [marian_rows(folder, file) if rows is None else rows for file in files]
    if tied == "all" and not tokenizers.same_ids:
        raise DataError(f"{path}: share_encoder_decoder_embeddings is true, but there are two vocabularies")
    said = stacks.whole(config, "vocab_size", 2**24, path), config.get("decoder_vocab_size") or config["vocab_size"]
    for table, claimed, file in zip(tables, said, files, strict=True):
        if len(table) != claimed:
            raise DataError(f"{folder / file}: {len(table):,} pieces, expected {claimed}, as config.json says")
    check_special(config, tables[-1], path, files[-1])
    order = [rows_of(side, table) for side, table in zip((tokenizers.source, tokenizers.target), tables, strict=True)]
    for side, table, file in zip(order, tables, files, strict=True):
        stacks.check_rows(side, len(table), folder / file)
    weights, read = stacks.read_model(folder, sizes, tied, [*map(len, tables)], order, sines="halves", biased=True)
    settings = [folder / name for name in ("tokenizer_config.json",) if (folder / name).is_file()]
    kinds = {tokenizers.source.kind, tokenizers.target.kind}
    tokenizer = {"kind": kinds.pop() if len(kinds) == 1 else "auto", "joint": tokenizers.same_ids}
    tokenizer |= {"after": [special_pieces.SPECIAL[END]]}
    form = {"sines": "halves", "tied": tied}
    table = stacks.describe(config, sizes, path, longest=512, scaled=False, tokenizer=tokenizer, **form)
    said_of_texts = read_table(settings[0]) if settings else {}
    source, target = (said_of_texts.get(key) for key in ("source_lang", "target_lang"))
    if isinstance(source, str) and isinstance(target, str) and data_settings.LANGUAGES.fullmatch(f"{source}-{target}"):
        table["data"]["languages"] = f"{source}-{target}"
    there = [name if (folder / name).is_file() else TOKENIZER for name in dict.fromkeys(files)]
    vocabulary_files = (folder / name for name in there)
    return Imported(table, tokenizers, weights, (path, *vocabulary_files, *settings, *read))


def open_marian(folder: Path, run: Run) -> Opened:
    """Open a folder that was written from a run."""
    return reopen(folder, run, "marian", read_rows)


def check_config(config: Mapping[str, Any], path: Path) -> str:
    """Refuse unsupported settings by key; return which tables are tied, in Regard's terms."""
    for key, value in FIXED.items():
        if stacks.flag(config, key, value, path) != value:
            raise DataError(f"{path}: {key} is {str(not value).lower()}, expected {str(value).lower()}")
    shared = stacks.flag(config, "share_encoder_decoder_embeddings", True, path)
    tied = stacks.flag(config, "tie_word_embeddings", True, path)
    if shared and not tied:
        raise DataError(
            f"{path}: tie_word_embeddings is false with share_encoder_decoder_embeddings; expected both, or neither"
        )
    return "all" if shared else "output" if tied else "none"


def check_special(config: Mapping[str, Any], table: Mapping[str, int], path: Path, file: str) -> None:
    """Refuse special pieces whose numbers in config.json differ from the vocabulary's."""
    start = "<pad>" if config.get("decoder_start_token_id") == table["<pad>"] else "<s>"
    for key, piece in (("eos_token_id", "</s>"), ("pad_token_id", "<pad>"), ("decoder_start_token_id", start)):
        if config.get(key) != table.get(piece) or piece not in table:
            value = show_value(config.get(key))
            number = f"is {table[piece]} in {file}" if piece in table else f"is not in {file}"
            raise DataError(f"{path}: {key} is {value}, expected the number of {piece}, which {number}")


def rows_of(tokenizer: Tokenizer, table: Mapping[str, int]) -> list[int | None]:
    """Return Marian's row of each id; None for padding and other pieces that Marian's folder lacks."""
    theirs = tokenizer.library.token_to_id(THEIR_START)
    names = ["<s>" if i == theirs else tokenizer.names[i] for i in range(tokenizer.size)]
    rows: list[int | None] = [table.get(name) for name in names]
    if theirs is not None or rows[START] is None:  # decoding begins with <pad>
        rows[PAD], rows[START] = None, table["<pad>"]
    return rows


# ---- export


@torch.no_grad()
def write_marian(run: Run, folder: Path) -> None:
    """Write a run as a folder that `MarianMTModel.from_pretrained` opens.

    The width is permuted if sines and cosines alternate in the run. The vocabulary is vocab.json. If the run never
    outputs PAD, as after an import from Marian, decoding begins with <pad>, as in Marian.
    """
    model = stacks.transformer_of(run, "marian")
    recorded = read_origin(run).get(tokenizer_checks.ROWS)
    special = recorded if isinstance(recorded, dict) else {}
    order = [order_of(side, model, special) for side in (run.tokenizers.source, run.tokenizers.target)]
    stacks.write_tensors(folder, marian_tensors(model, *order))
    stacks.write_json(folder / "vocab.json", pieces_of(run.tokenizers.source, order[0]))
    if not run.tokenizers.same_ids:
        stacks.write_json(folder / "target_vocab.json", pieces_of(run.tokenizers.target, order[1]))
    write_tokenizers(run.tokenizers, run.settings.data.languages, folder)
    table = {**origin_values(run, "config"), **config_of(run, model, order)}
    stacks.write_json(folder / "config.json", table)
    generation = {key: table[key] for key in ("pad_token_id", "eos_token_id", "decoder_start_token_id")}
    never = sorted({table["pad_token_id"], table["decoder_start_token_id"]})
    generation |= {"bad_words_ids": [[i] for i in never], "max_length": table["max_position_embeddings"]}
    # Without generation_config.json, Transformers reads these values from config.json.
    generation |= {key: table[key] for key in GENERATION if table.get(key) is not None}
    stacks.write_json(folder / "generation_config.json", {**generation, **origin_values(run, "generation")})


def write_tokenizers(tokenizers: Tokenizers, languages: str | None, folder: Path) -> None:
    """Write the files that a MarianTokenizer needs besides vocab.json; `languages` are the run's, such as en-de.

    MarianTokenizer does not support a tokenizer that was trained with Regard; nothing is written for it.
    """
    if any(side.sentencepiece is None for side in (tokenizers.source, tokenizers.target)):
        return
    for name, side in (("source.spm", tokenizers.source), ("target.spm", tokenizers.target)):
        (folder / name).write_bytes(side.model_file())
    table: dict[str, Any] = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": not tokenizers.same_ids}
    if languages is not None:
        table |= dict(zip(("source_lang", "target_lang"), languages.split("-"), strict=True))
    stacks.write_json(folder / "tokenizer_config.json", table)


@torch.no_grad()
def marian_tensors(
    model: TransformerModel, source: Sequence[int] | None = None, target: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """Return a model's weights under MarianMTModel's names, with rows in the order of these ids or unchanged."""
    config = model.config
    expected = {"norm": ["post"], "positions": ["sinusoidal"], "sines": ["halves", "interleaved"]}
    stacks.check_exported(config, expected, "marian")
    sizes = len(model.source.tokens.weight), len(model.target.tokens.weight)
    order = [[*range(size)] if ids is None else [*ids] for size, ids in zip(sizes, (source, target), strict=True)]
    tensors = stacks.tensors_of(model, order)
    bias = model.readout.bias.cpu().float() if config.output_bias else torch.zeros(sizes[1])
    tensors[stacks.BIAS] = bias[order[1]][None]
    if config.sines == "halves":
        return tensors
    evens, odds = torch.arange(0, config.size, 2), torch.arange(1, config.size, 2)
    return stacks.permute_stream(tensors, torch.cat([evens, odds]))


def order_of(tokenizer: Tokenizer, model: TransformerModel, special: Mapping[str, int] = {}) -> list[int]:
    """Return ids in the order of the exported rows: without PAD if it is never an output, otherwise all.

    </s> and <unk> come first and <pad> last, unless they were elsewhere in the folder that the run was imported from.
    """
    ids = [i for i in range(tokenizer.size) if not special_pieces.is_filler(tokenizer.names[i])]
    if not model.config.output_bias or float(model.readout.bias[PAD]) > NEVER_SCORE:
        return [*ids]
    order = ids[len(special_pieces.SPECIAL) :]
    rows = {"</s>": 0, "<unk>": 1, "<pad>": len(order) + 2, **special}
    rows |= tokenizer.content.get("regard", {}).get(tokenizer_checks.ROWS, {})
    for row, i in sorted((rows[piece], i) for piece, i in (("</s>", END), ("<unk>", UNKNOWN), ("<pad>", START))):
        order.insert(row, i)
    return order


def pieces_of(tokenizer: Tokenizer, order: Sequence[int]) -> dict[str, int]:
    """Return the row of every piece; START is called <pad> if PAD is left out."""
    names = ["<pad>" if i == START and PAD not in order else tokenizer.names[i] for i in order]
    names = ["<s>" if name == THEIR_START else name for name in names]
    return {name: row for row, name in enumerate(names)}


def config_of(run: Run, model: TransformerModel, order: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the config.json of a run."""
    config = model.config
    pieces, recorded = pieces_of(run.tokenizers.target, order[1]), origin_values(run, "config")
    return {
        **stacks.config_of(run, config, "MarianMTModel", "marian"),
        "vocab_size": len(order[0]),
        "decoder_vocab_size": len(order[1]),
        "activation_dropout": recorded.get("activation_dropout", 0.0),
        "share_encoder_decoder_embeddings": config.tied == "all",
        "tie_word_embeddings": config.tied != "none",
        **FIXED,
        "pad_token_id": pieces["<pad>"],
        "eos_token_id": pieces["</s>"],
        "decoder_start_token_id": pieces["<s>" if PAD in order[1] else "<pad>"],
        "bos_token_id": recorded.get("bos_token_id", pieces.get("<s>")),
        "forced_eos_token_id": recorded.get("forced_eos_token_id"),
    }


def numbers_the_model(folder: Path) -> bool:
    """Return whether a folder's tokenizer.json numbers the rows of its model, as vocab.json would."""
    config, names = read_table(folder / "config.json"), pieces_by_row(folder)
    rows = {name: row for row, name in enumerate(names)}
    special = (("eos_token_id", "</s>"), ("pad_token_id", "<pad>"))
    right = all(config.get(key) == rows.get(piece) for key, piece in special)
    return right and len(rows) == len(names) == config.get("vocab_size")


def read_foreign_tokenizer(folder: Path) -> tuple[Tokenizers, dict[str, int], dict[str, list[str]], str]:
    """Read a tokenizer.json that does not number the rows of the model.

    Return its tokenizers, the row of each name, the pieces around texts, and a note for the user.
    """
    path = folder / "config.json"
    config, names, content = read_table(path), pieces_by_row(folder), read(folder / TOKENIZER)
    size = stacks.whole(config, "vocab_size", 2**24, path)
    if len(names) > size:
        raise DataError(f"{folder / TOKENIZER}: {len(names):,} pieces, expected at most {size:,}, as config.json says")
    end, start = (whole_row(config, key, size, path) for key in ("eos_token_id", "decoder_start_token_id"))
    model = content["model"]
    unknown = model.get("unk_id")
    unknown = unknown if type(unknown) is int else names.index("<unk>") if "<unk>" in names else -1
    if unknown in (end, start, -1):
        raise DataError(
            f"{folder / TOKENIZER}: no unknown piece in it, expected one beside those that config.json names"
        )
    ids = dict(zip(special_pieces.SPECIAL, range(4), strict=True))
    rows = {"<pad>": start, "</s>": end, "<unk>": unknown}
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
        f"{folder / TOKENIZER} has {len(names):,} pieces, and the model {size:,} rows: it may be another model's, and "
        "cut texts into pieces that this one does not know; put the model's own vocab.json there, and import it again."
    )
    return Tokenizers(open_tokenizer(content, str(folder / TOKENIZER))), rows, around, note


def whole_row(config: Mapping[str, Any], key: str, size: int, path: Path) -> int:
    """Return a row that a configuration names."""
    value = config.get(key)
    if type(value) is not int or not 0 <= value < size:
        raise DataError(f"{path}: {key} is {show_value(value)}, expected a row from 0 to {size - 1:,}")
    return value


def surroundings(content: Mapping[str, Any], names: list[str], own: Mapping[int, str]) -> dict[str, list[str]]:
    """Return the pieces that a template puts before and after a text, by their new names."""
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
