"""Encoders and decoders of BART's family (Marian, M2M-100, NLLB), mapped between Transformers' names and Regard's.

Weights map one to one, except that Transformers has three matrices for queries, keys and values, and Regard one. The
rows of a vocabulary are in another order, given by a list: for each of Regard's ids, the row in Transformers.
"""

# v pieces in Regard · r rows in Transformers · d width
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save
from torch import Tensor

from regard.attention import FIRST, sinusoids
from regard.config import show_value
from regard.errors import ArgumentError, ConfigError, DataError
from regard.interop.formats import read_table
from regard.io import disk
from regard.models import TransformerConfig, TransformerModel, model_config, read_weights
from regard.run import Run

EPSILON = 1e-5  # of layer norms, the formats' default
NEVER = -1e4  # the output bias of a piece that is never an output; in half precision, -∞ minus itself is NaN
NAMED = 5  # tensors listed in a message
ACTIVATIONS: dict[str, Literal["relu", "gelu", "silu"]] = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
}
ATTENTIONS = {"attention": "self_attn", "cross": "encoder_attn"}
NORMS = {
    "attention_norm": "self_attn_layer_norm",
    "cross_norm": "encoder_attn_layer_norm",
    "feed_norm": "final_layer_norm",
}
FEEDS = {"feed.0": "fc1", "feed.2": "fc2"}
SHARED, HEAD, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def read_sizes(config: Mapping[str, Any], norm: Literal["pre", "post"], path: Path) -> TransformerConfig:
    """Read the sizes in a config.json; raise a DataError that names an unsupported key."""
    for key in ("attention_heads", "ffn_dim"):
        one, other = (whole(config, f"{side}_{key}", model_config.WIDEST, path) for side in ("encoder", "decoder"))
        if one != other:
            raise DataError(f"{path}: decoder_{key} is {other}, encoder_{key} {one}; expected the same for both sides")
    name = config.get("activation_function", "gelu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise DataError(f"{path}: activation_function is {show_value(name)}, expected one of {', '.join(ACTIVATIONS)}")
    size = whole(config, "d_model", model_config.WIDEST, path)
    heads = whole(config, "encoder_attention_heads", model_config.HEADS, path)
    layers, others = (whole(config, f"{side}_layers", model_config.DEEPEST, path) for side in ("encoder", "decoder"))
    if size % heads:
        raise DataError(f"{path}: d_model is {size}, which {heads} attention heads do not divide")
    return TransformerConfig(
        size=size,
        heads=heads,
        layers=layers,
        decoder_layers=None if others == layers else others,
        hidden=whole(config, "encoder_ffn_dim", model_config.WIDEST, path),
        activation=ACTIVATIONS[name],
        norm=norm,
    )


def describe(
    config: Mapping[str, Any],
    sizes: TransformerConfig,
    path: Path,
    *,
    longest: int,
    scaled: bool,
    tokenizer: Mapping[str, Any],
    **form: Any,
) -> dict[str, Any]:
    """Return the run's configuration for a config.json with these sizes.

    `form` has the model keys that the family determines; `longest` and `scaled` are the defaults for the number of
    positions and the scaling of embeddings.
    """
    longest = whole(
        {"max_position_embeddings": longest, **config}, "max_position_embeddings", model_config.MAX_POSITIONS, path
    )
    keys = ("size", "heads", "layers", "decoder_layers", "hidden", "activation", "norm")
    model = {key: getattr(sizes, key) for key in keys if getattr(sizes, key) is not None}
    model |= {"kind": "transformer", "positions": "sinusoidal", **form}
    model |= {"scale_embeddings": flag(config, "scale_embedding", scaled, path)}
    model |= {key: share(config, key, path) for key in ("dropout", "attention_dropout")}
    data = {"longest": max(1, longest - 1)}  # a target begins with START
    return {"task": "translate", "data": data, "tokenizer": tokenizer, "model": model}


def config_of(run: Run, config: TransformerConfig, architecture: str, model_type: str) -> dict[str, Any]:
    """Return the entries of a run's config.json that all families share."""
    table: dict[str, Any] = {"architectures": [architecture], "model_type": model_type, "is_encoder_decoder": True}
    table |= {"d_model": config.size, "num_hidden_layers": config.layers}
    for side, layers in depths(config):
        table |= {f"{side}_layers": layers, f"{side}_attention_heads": config.heads, f"{side}_ffn_dim": config.hidden}
    return {
        **table,
        "activation_function": {"silu": "swish"}.get(config.activation, config.activation),
        "max_position_embeddings": run.settings.data.longest + 1,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "scale_embedding": config.scale_embeddings,
        "dtype": "float32",
    }


def whole(config: Mapping[str, Any], key: str, most: int, path: Path) -> int:
    """Return an integer of a config.json, from 1 to `most`."""
    value = config.get(key)
    if type(value) is not int or not 1 <= value <= most:
        raise DataError(f"{path}: {key} is {show_value(value)}, expected a whole number from 1 to {most:,}")
    return value


def flag(config: Mapping[str, Any], key: str, default: bool, path: Path) -> bool:
    """Return a Boolean of a config.json."""
    value = config.get(key, default)
    if value is None:
        return default
    if type(value) is not bool:
        raise DataError(f"{path}: {key} is {show_value(value)}, expected true or false")
    return value


def share(config: Mapping[str, Any], key: str, path: Path) -> float:
    """Return a fraction of a config.json, such as dropout."""
    value = config.get(key, 0.0)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise DataError(f"{path}: {key} is {show_value(value)}, expected a number from 0 to below 1")
    return float(value)


# ---- blocks


def depths(config: TransformerConfig) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return both sides with their numbers of layers."""
    return ("encoder", config.layers), ("decoder", config.decoder_layers or config.layers)


def block_names(config: TransformerConfig) -> Iterator[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """Yield Regard's name of every block weight, its names in Transformers, and the shape of each of those."""
    d, h = config.size, config.hidden
    for side, layers in depths(config):
        for layer in range(layers):
            own, their = f"{side}.blocks.{layer}", f"model.{side}.layers.{layer}"
            for kind, shape in (("weight", (d, d)), ("bias", (d,))):
                for here, there in ATTENTIONS.items():
                    if here == "cross" and side == "encoder":
                        continue
                    three = tuple(f"{their}.{there}.{part}_proj.{kind}" for part in "qkv")
                    yield f"{own}.{here}.projection.{kind}", three, shape
                    yield f"{own}.{here}.output.{kind}", (f"{their}.{there}.out_proj.{kind}",), shape
            for here, there in NORMS.items():
                if here == "cross_norm" and side == "encoder":
                    continue
                for kind in ("weight", "bias"):
                    yield f"{own}.{here}.{kind}", (f"{their}.{there}.{kind}",), (d,)
            for (here, there), wide in zip(FEEDS.items(), ((h, d), (d, h)), strict=True):
                yield f"{own}.{here}.weight", (f"{their}.{there}.weight",), wide
                yield f"{own}.{here}.bias", (f"{their}.{there}.bias",), wide[:1]
        if config.norm == "pre":
            for kind in ("weight", "bias"):
                yield f"{side}.final_norm.{kind}", (f"model.{side}.layer_norm.{kind}",), (d,)


def collect_blocks(tensors: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Return the weights of the blocks by their names in Regard."""
    return {
        own: torch.cat([tensors[name].float() for name in theirs]) if len(theirs) > 1 else tensors[theirs[0]].float()
        for own, theirs, _ in block_names(config)
    }


def spread_blocks(weights: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Return the weights of the blocks by their names in Transformers."""
    tensors: dict[str, Tensor] = {}
    for own, theirs, _ in block_names(config):
        parts = weights[own].detach().cpu().float().chunk(len(theirs))
        tensors |= {name: part.contiguous() for name, part in zip(theirs, parts, strict=True)}
    return tensors


def permute_stream(tensors: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Return a model's tensors with its hidden states permuted: element i becomes the old element order[i].

    Permute the columns of matrices that read a state, and the rows of those that write one; leave layers as they are.
    """
    permuted = {}
    for name, tensor in tensors.items():
        last = name.split(".")[-2] if "." in name else name
        if last in ("q_proj", "k_proj", "v_proj", "fc1"):
            permuted[name] = tensor[:, order] if tensor.ndim == 2 else tensor
        elif last in ("out_proj", "fc2") or last.endswith("layer_norm"):
            permuted[name] = tensor[order]
        elif last in ("shared", "embed_tokens", "lm_head"):
            permuted[name] = tensor[:, order]
        else:
            permuted[name] = tensor
    return {name: tensor.contiguous() for name, tensor in permuted.items()}


def move_rows(tensor: Tensor, rows: Sequence[int | None]) -> Tensor:
    """Return the rows in another order; a row without an origin is zero."""
    index = torch.tensor([-1 if row is None else row for row in rows])
    moved = tensor.float()[index.clamp(min=0)]
    moved[index < 0] = 0
    return moved


# ---- the whole model


def table_names(tied: str) -> dict[str, str]:
    """Return the names, in Regard and in Transformers, of the tables with a row for each piece."""
    if tied == "all":
        return {"source.tokens.weight": SHARED}
    names = {"source.tokens.weight": EMBEDDINGS[0], "target.tokens.weight": EMBEDDINGS[1]}
    return names if tied == "output" else {**names, "readout.weight": HEAD}


def side_of(own: str) -> int:
    """Return the side whose pieces a table has rows for: 0 for the source's, 1 for the target's."""
    return int(not own.startswith("source."))


def read_model(
    folder: Path,
    sizes: TransformerConfig,
    tied: str,
    counts: Sequence[int],
    rows: Sequence[Sequence[int | None]],
    *,
    sines: Literal["halves", "fairseq"],
    biased: bool,
) -> tuple[dict[str, Tensor], tuple[Path, ...]]:
    """Return the weights of a folder by their names in Regard, and the files that they were read from.

    `counts` are the sizes of both sides' vocabularies; `rows` maps each of Regard's ids to a row there, and a piece
    without one is never an output. Positions are computed, not read.
    """
    tensors, files = read_tensors(folder)
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight{'s' * (sines == 'fairseq')}"
        table = tensors.pop(name, None)
        if table is not None and sines == "halves":
            expected = sinusoids(torch.arange(len(table)), sizes.size, sines).float()
            if table.shape != expected.shape or not torch.allclose(table.float(), expected, atol=1e-3):
                raise DataError(f"{files[0]}: {name} holds no sines and cosines, expected those of its positions")
    alike = {"all": (SHARED, *EMBEDDINGS, HEAD), "output": (EMBEDDINGS[1], HEAD), "none": ()}[tied]
    if same := [tensors.pop(name) for name in alike if name in tensors]:
        tensors[alike[0]] = same[0]
    tables = table_names(tied)
    shapes = {name: shape for _, names, shape in block_names(sizes) for name in names}
    shapes |= {name: (counts[side_of(own)], sizes.size) for own, name in tables.items()}
    if biased:
        shapes[BIAS] = (1, counts[1])
        tensors.setdefault(BIAS, torch.zeros(shapes[BIAS]))
    check_tensors(tensors, shapes, files[0])
    weights = collect_blocks(tensors, sizes)
    weights |= {own: move_rows(tensors[name], rows[side_of(own)]) for own, name in tables.items()}
    bias = move_rows(tensors[BIAS].mT, rows[1])[:, 0] if biased else torch.zeros(len(rows[1]))
    weights["readout.bias"] = bias.masked_fill(torch.tensor([row is None for row in rows[1]]), NEVER)
    return weights, files


def tensors_of(model: TransformerModel, order: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Return a model's weights by their names in Transformers; `order` has each side's ids in the order of rows."""
    weights = {name: tensor.cpu().float() for name, tensor in model.state_dict().items()}
    tables = table_names(model.config.tied)
    return spread_blocks(weights, model.config) | {
        name: weights[own][order[side_of(own)]] for own, name in tables.items()
    }


def transformer_of(run: Run, format: str) -> TransformerModel:
    """Return the model of a run to export; refuse other kinds of models."""
    if not isinstance(run.model, TransformerModel):
        raise ArgumentError(
            f"{run.folder}: a model of kind {run.settings.kind} given, but {format} has only transformer"
        )
    return run.model


# ---- files


def write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write weights as Transformers does."""
    (folder / FILES[0]).write_bytes(save(dict(tensors), metadata={"format": "pt"}))


def read_tensors(folder: Path) -> tuple[dict[str, Tensor], tuple[Path, ...]]:
    """Read a folder's weights, preferring safetensors to pickles, which may hold no code; also return the files."""
    found = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if found is None:
        raise DataError(f"{folder}: no weights in it, expected model.safetensors or pytorch_model.bin")
    if found.suffix != ".json":
        return dict(read_weights(str(found))), (found,)
    named: Any = read_table(found).get("weight_map")
    right = isinstance(named, dict) and all(isinstance(name, str) for name in named.values())
    names = sorted(set(named.values())) if right else []
    if not names or any(Path(name).name != name for name in names):
        raise DataError(f"{found}: weight_map is missing, or names no files beside it")
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= read_weights(str(folder / name))
    return tensors, (found, *(folder / name for name in names))


def check_tensors(tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Refuse weights that differ from the configuration, naming up to five of them."""
    if missing := [name for name in shapes if name not in tensors]:
        raise DataError(f"{path}: {listing(missing)} missing, which config.json asks for")
    if unknown := [name for name in tensors if name not in shapes]:
        raise DataError(f"{path}: {listing(unknown)} given, which no part of the model is called")
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            given = list(tensors[name].shape)
            raise DataError(f"{path}: {name} is {given}, expected {list(shape)} as config.json says")


def check_rows(rows: Sequence[int | None], count: int, path: Path) -> None:
    """Refuse a vocabulary in which a row has no piece: its score would be missing."""
    if left := sorted(set(range(count)) - set(rows)):
        raise DataError(f"{path}: {len(left):,} of {count:,} pieces not known here, the first in row {left[0]}")


def listing(names: Sequence[str]) -> str:
    """List names of tensors, up to `NAMED`."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"tensor{'s' * (len(names) > 1)} {', '.join(names[:NAMED])}{more}"


def check_exported(config: TransformerConfig, expected: Mapping[str, Sequence[Any]], format: str) -> None:
    """Refuse a model that the format does not support, by the first key that differs."""
    usual: dict[str, Sequence[Any]] = {"join": ["add"], "score": ["dot"], "scaled": [True], "split": ["projection"]}
    usual |= {
        "mixing": ["attention"],
        "norm_epsilon": [EPSILON],
        "residual": [True],
        "feed_forward": [True],
        "start_as_end": [False],
        "first_position": [None, FIRST.get(config.sines, 0)],
        "depth": [None, config.size // config.heads],
    }
    for key, values in {**usual, **expected}.items():
        if (value := getattr(config, key)) not in values:
            raise ConfigError(
                f"model.{key}", f"{show_value(value)} given, but {format} has only {show_value(values[0])}"
            )


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    """Write a table as indented JSON."""
    disk.write_whole(path, json.dumps(table, indent=2, ensure_ascii=False) + "\n")
