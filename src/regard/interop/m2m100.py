"""M2M-100 and NLLB, as Transformers stores them: in, and out again.

Fan et al. 2021 (arXiv:2010.11125); NLLB team 2022 (arXiv:2207.04672). A source begins with its language and ends with
</s>, a target begins with its language (tokenizer.before, after and first; `--source-language` and `--target-language`
choose them). What else differs from Regard:

- Decoding begins with </s>, which is read in place of Regard's START (model.start_as_end). An output bias keeps START
  and what fills the vocabulary up from being written; training leaves it as it is (model.fixed_bias), so that the run
  can be written back. Their <s>, which no text has, stays a piece of its own, so that every score of the softmax is
  there once.
- Norms stand before each layer and after the last, positions are fairseq's, and the last layer has no bias.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from regard.attention import FIRST
from regard.config import show_value
from regard.data import END, PAD, START, UNKNOWN, Tokenizer, Tokenizers, language_pieces, open_tokenizer, special_pieces
from regard.errors import ArgumentError, ConfigError, DataError
from regard.interop import stacks
from regard.interop.formats import Imported, read_table
from regard.interop.importing import recorded_values
from regard.interop.numbering import THEIR_START, m2m100_rows, m2m100_tokenizers, nllb_rows, nllb_tokenizers, round_up
from regard.interop.tokenizer_files import write_m2m100_files
from regard.models import TransformerModel, model_config
from regard.run import Run

SHARED, HEAD = "model.shared.weight", "lm_head.weight"
ALSO = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", HEAD)  # the same matrix
FIXED = ("model.encoder.embed_positions.weights", "model.decoder.embed_positions.weights")
NUMBERS = {"bos_token_id": "<s>", "pad_token_id": "<pad>", "eos_token_id": "</s>", "decoder_start_token_id": "</s>"}
TOLERANCE = 1e-6
VOCABULARIES = ("vocab.json", "sentencepiece.bpe.model", "tokenizer.json", "special_tokens_map.json")


# ---- in


def read_m2m100(folder: Path) -> Imported:
    """Read a folder of M2M-100 or NLLB as a run of Regard."""
    read_table(folder / "config.json")
    tokenizers, table = read_vocabulary(folder)
    imported = read_rows(folder, tokenizers, table)
    files = [folder / name for name in (*VOCABULARIES, "tokenizer_config.json") if (folder / name).is_file()]
    languages = len(language_pieces.known_languages(tokenizers.source))
    note = f"It knows {languages} languages: choose two with --source-language and --target-language."
    return replace(imported, files=(*imported.files, *files), notes=(note,))


def read_rows(folder: Path, tokenizers: Tokenizers, table: Mapping[str, int]) -> Imported:
    """Read a folder whose pieces are those of known tokenizers, and whose rows are those of a table."""
    path = folder / "config.json"
    config = read_table(path)
    sizes = stacks.StackSizes.read({"activation_function": "relu", **config}, path)
    if not stacks.flag(config, "tie_word_embeddings", True, path):
        raise DataError(f"{path}: tie_word_embeddings is false, expected true")
    copied = has_their_start(tokenizers.target)
    for key, piece in {**NUMBERS, "decoder_start_token_id": "</s>" if copied else "<s>"}.items():
        if config.get(key) != table.get(piece):
            value = show_value(config.get(key))
            raise DataError(f"{path}: {key} is {value}, expected the number of {piece}, which is {table.get(piece)}")
    if stacks.whole(config, "vocab_size", 2**24, path) != len(table):
        raise DataError(f"{path}: vocab_size is {config['vocab_size']}, expected {len(table)}, as the vocabulary has")
    tensors, read = stacks.read_tensors(folder)
    there = [name for name in (SHARED, *ALSO) if name in tensors]
    weights = {name: tensor for name, tensor in tensors.items() if name not in (*ALSO, *FIXED)}
    if there:
        weights[SHARED] = tensors[there[0]]
    shapes = {name: shape for _, names, shape in stacks.block_names(sizes, True) for name in names}
    stacks.check_tensors(weights, {**shapes, SHARED: (len(table), sizes.size)}, read[0])
    own = stacks.collect_blocks(weights, sizes, True)
    rows = rows_of(tokenizers.target, table)
    stacks.check_rows(rows, len(table), path)
    own["source.tokens.weight"] = stacks.move_rows(weights[SHARED], rows)
    never = torch.tensor([i for i, row in enumerate(rows) if row is None or (copied and i == START)], dtype=torch.long)
    own["readout.bias"] = torch.zeros(len(rows)).index_fill(0, never, stacks.NEVER)
    settings = settings_of(config, sizes, tokenizers, path)
    if (first := table["<pad>"] + 1) != FIRST["fairseq"]:  # positions are counted from behind the padding
        settings["model"]["first_position"] = first
    return Imported(settings, tokenizers, own, (path, *read))


def read_vocabulary(folder: Path) -> tuple[Tokenizers, dict[str, int]]:
    """Return the tokenizers, their <s> among the pieces, and the row of every piece: M2M-100 has a vocab.json."""
    if (folder / "vocab.json").is_file():
        tokenizers, table = m2m100_tokenizers(folder), m2m100_rows(folder)
    elif any((folder / name).is_file() for name in VOCABULARIES[1:3]):
        tokenizers, table = nllb_tokenizers(folder), nllb_rows(folder)
    else:
        raise DataError(f"{folder / VOCABULARIES[1]}: missing, expected the vocabulary of M2M-100 or NLLB")
    content = copy.deepcopy(tokenizers.source.content)
    own = set(tokenizers.source.names)
    for piece in [THEIR_START, *(piece for piece in table if piece not in own)]:
        number = tokenizers.source.size + len(content["added_tokens"]) - len(tokenizers.source.content["added_tokens"])
        content["added_tokens"].append(special_pieces.describe(number, piece, special=True))
    return round_up(Tokenizers(open_tokenizer(content, str(folder))), str(folder)), table


def rows_of(tokenizer: Tokenizer, table: Mapping[str, int]) -> list[int | None]:
    """Return their row of each id; START begins with </s>, where their <s> is a piece of its own."""
    rows: list[int | None] = [table.get(tokenizer.names[i]) for i in range(tokenizer.size)]
    if has_their_start(tokenizer):
        rows[START] = table["</s>"]
        rows[number_of(tokenizer, THEIR_START)] = table["<s>"]
    return rows


def has_their_start(tokenizer: Tokenizer) -> bool:
    """Return whether their <s> is a piece of its own, as in a run that was imported."""
    return tokenizer.library.token_to_id(THEIR_START) is not None


def number_of(tokenizer: Tokenizer, piece: str) -> int:
    """Return the id of a piece that is there."""
    number = tokenizer.library.token_to_id(piece)
    assert number is not None
    return int(number)


def settings_of(
    config: Mapping[str, Any], sizes: stacks.StackSizes, tokenizers: Tokenizers, path: Path
) -> dict[str, Any]:
    """Return the configuration of the run."""
    longest = stacks.whole(
        {"max_position_embeddings": 1024, **config}, "max_position_embeddings", model_config.LONGEST, path
    )
    model = {key: value for key, value in sizes.table().items() if value is not None}
    model |= {"kind": "transformer", "norm": "pre", "positions": "sinusoidal", "sines": "fairseq", "tied": "all"}
    copied = has_their_start(tokenizers.target)
    model |= {"start_as_end": copied, "fixed_bias": True}
    model |= {"scale_embeddings": stacks.flag(config, "scale_embedding", True, path)}
    model |= {key: stacks.share(config, key, path) for key in ("dropout", "attention_dropout")}
    tokenizer = {"kind": tokenizers.source.kind, "joint": True, "after": [special_pieces.SPECIAL[END]]}
    return {"task": "translate", "data": {"longest": max(1, longest - 1)}, "tokenizer": tokenizer, "model": model}


# ---- out


@torch.no_grad()
def write_m2m100(run: Run, folder: Path) -> None:
    """Write a run as a folder that `M2M100ForConditionalGeneration.from_pretrained` opens."""
    if not isinstance(run.model, TransformerModel):
        raise ArgumentError(f"{run.folder}: a model of kind {run.settings.kind} given, but m2m100 has only transformer")
    config, tokenizer = run.model.config, run.tokenizers.target
    copied = has_their_start(tokenizer)
    expected = {"norm": ["pre"], "positions": ["sinusoidal"], "sines": ["fairseq"], "tied": ["all"]}
    stacks.check_exported(config, {**expected, "start_as_end": [False, True] if copied else [False]}, "m2m100")
    weights = {name: tensor.cpu().float() for name, tensor in run.model.state_dict().items()}
    first = number_of(tokenizer, THEIR_START) if copied else START
    rest = [
        i
        for i in range(len(special_pieces.SPECIAL), tokenizer.size)
        if i != first and not special_pieces.is_filler(tokenizer.names[i])
    ]
    order = [first, PAD, END, UNKNOWN, *rest]
    check_bias(weights, order, copied and not config.start_as_end)
    tensors: dict[str, Tensor] = stacks.spread_blocks(weights, stacks.StackSizes.of(config), True)
    tensors[SHARED] = weights["source.tokens.weight"][order]
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    names = ["<s>" if i == first else tokenizer.names[i] for i in order]
    write_m2m100_files(run.tokenizers, names, folder)
    recorded = recorded_values(run, "config")
    table = {
        **recorded,
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "is_encoder_decoder": True,
        **stacks.StackSizes.of(config).config(),
        "vocab_size": len(order),
        "max_position_embeddings": run.settings.data.longest + 1,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        **{key: recorded.get(key, 0.0) for key in ("activation_dropout", "encoder_layerdrop", "decoder_layerdrop")},
        "scale_embedding": config.scale_embeddings,
        "tie_word_embeddings": True,
        **{key: row for row, key in enumerate(("bos_token_id", "pad_token_id", "eos_token_id"))},
        "decoder_start_token_id": 2 if copied else 0,
        "dtype": "float32",
    }
    stacks.write_json(folder / "config.json", table)
    generation = {key: table[key] for key in (*list(NUMBERS)[:3], "decoder_start_token_id")}
    generation["max_length"] = table["max_position_embeddings"]
    if len(tokenizer.before) == 1:
        generation["forced_bos_token_id"] = order.index(tokenizer.before[0])
    stacks.write_json(folder / "generation_config.json", {**recorded_values(run, "generation"), **generation})


def check_bias(weights: Mapping[str, Tensor], written: Sequence[int], own_start: bool) -> None:
    """Refuse what has no place in a last layer without a bias, and a START that is no </s> any more."""
    bias = weights.get("readout.bias")
    others = None if bias is None else bias[list(written)]
    if others is not None and bool(others.abs().max() > TOLERANCE):
        raise ConfigError("model.output_bias", "it was trained, but m2m100 has none; export to another format")
    embeddings = weights["source.tokens.weight"]
    if own_start and not torch.allclose(embeddings[START], embeddings[END], rtol=0, atol=TOLERANCE):
        raise ConfigError(
            "model.tied", "START and </s> were trained apart, but are one in m2m100; export to another format"
        )
