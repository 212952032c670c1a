"""CTranslate2: a Transformer as a folder that `ctranslate2.Translator` opens (https://opennmt.net/CTranslate2).

Its specification is OpenNMT's Transformer: Regard's weights go where the same matrix product is computed. Additive
positions become a table, as long as the run needs; rotary ones stay rotary. A setting without support is refused by
key.

CTranslate2 returns attention weights of one layer: the mean over some number of its first heads. So the head from which
a run's alignments are read is moved to the front of its layer: the rows of its queries, keys and values, and the
columns of the output that reads them, are permuted, which changes no result.
"""

# d width · n positions
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.alignment import extraction
from regard.attention import Heads
from regard.data import END, START, UNKNOWN, Tokenizer, run_languages, unknown_words
from regard.decoding import ROOM
from regard.errors import ArgumentError, CommandError
from regard.io import packs, reading
from regard.models import Model, TransformerConfig, TransformerModel
from regard.plugins import import_extra
from regard.run import Run

COMPUTE_TYPES = ("float32", "float16", "int8", "int8_float16")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}  # CTranslate2's names
MAX_BYTES = 2**28  # of a file of words
POSITIONS = 1024  # minimum rows of a sinusoidal table
FORMS: dict[str, tuple[Any, ...]] = {  # values of the keys of `model` that CTranslate2 supports
    "mixing": ("attention",),
    "score": ("dot",),
    "split": ("projection",),
    "join": ("add",),
    "positions": ("sinusoidal", "learned", "rotary", "none"),
    "norm": ("pre", "post"),
    "residual": (True,),
    "feed_forward": (True,),
}


class AlignmentHead(NamedTuple):
    """The attention from which alignments are read: a decoder layer and one of its heads, or the mean of all."""

    layer: int
    head: int | None


def write_ctranslate2(run: Run, folder: Path, quantize: str | None = None) -> dict[str, Any]:
    """Write an opened run into an empty folder; return its facts for the manifest."""
    quantize = "float32" if quantize is None else quantize
    if quantize not in COMPUTE_TYPES:
        raise CommandError(f"--quantize: {quantize} given, expected {', '.join(COMPUTE_TYPES)}")
    module, model = library(), check_model(run.model, str(run.folder))
    alignment, config = run.alignment_settings, model.config
    layer = extraction.LAYER.search(alignment.view)
    assert layer is not None
    positions = position_count(config, 2 * run.settings.data.longest + ROOM + 1)
    convert(
        model,
        folder,
        pieces_of(run.tokenizers.source),
        pieces_of(run.tokenizers.target),
        quantize=quantize,
        positions=positions,
        alignment=AlignmentHead(int(layer[1]), alignment.head),
    )
    run.tokenizers.save(folder / "tokenizer.json")
    alignment.write(folder)
    if packs.is_file(run.folder / unknown_words.FILE):
        (folder / unknown_words.FILE).write_bytes(reading.read_bytes(run.folder / unknown_words.FILE, MAX_BYTES))
    table, data = run.settings.table(), run.settings.data  # without the paths of files on this machine
    table["data"] = {"longest": data.longest, "lowercase": data.lowercase}
    if (languages := run_languages.languages_of(data)) is not None and len(languages[1]) == 1:
        table["data"]["languages"] = f"{languages[0]}-{languages[1][0]}"
    table["tokenizer"] = {key: each for key, each in table["tokenizer"].items() if not key.endswith("file")}
    table["training"] = {"guided": 0.0}
    versions = {"ctranslate2": module.__version__, "torch": torch.__version__}
    return {"quantize": quantize, "positions": positions, "versions": versions, "settings": table}


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """Return a unique name for each piece of a vocabulary, by number; a duplicate is named after its number."""
    names: dict[str, int] = {}
    for i, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
        names[f"<{i}>" if piece in names else piece] = i
    return list(names)


def library(module: str = "ctranslate2") -> Any:
    """Import CTranslate2, or name the extra that installs it."""
    return import_extra(module, "export")


def check_model(model: Model, place: str = "") -> TransformerModel:
    """Refuse a model that CTranslate2 does not support, naming the key that differs."""
    before = f"{place}: " if place else ""
    if not isinstance(model, TransformerModel):
        kind = type(model).__name__.removesuffix("Model").lower()
        raise ArgumentError(f"{before}model.kind: {kind} given, expected transformer: CTranslate2 has no form for it")
    config = model.config
    for key, forms in FORMS.items():
        value = getattr(config, key)
        if value not in forms:
            expected = " or ".join(str(form).lower() for form in forms)
            raise ArgumentError(
                f"{before}model.{key}: {str(value).lower()} given, expected {expected}: CTranslate2 has no form for it"
            )
    if config.depth not in (None, config.size // config.heads):
        raise ArgumentError(
            f"{before}model.depth: {config.depth} given, expected {config.size // config.heads}, the width of a head: "
            "CTranslate2 has no form for another"
        )
    return model


def position_count(config: TransformerConfig, longest: int) -> int | None:
    """Return the number of positions of an export, for sources of at most `longest` tokens; None: any number."""
    if config.positions == "rotary":
        return None
    return config.length if config.positions == "learned" else max(POSITIONS, longest)


def convert(
    model: TransformerModel,
    folder: Path,
    source: list[str],
    target: list[str],
    *,
    quantize: str = "float32",
    positions: int | None = POSITIONS,
    alignment: AlignmentHead | None = None,
) -> None:
    """Write a Regard Transformer to a folder that `ctranslate2.Translator` opens.

    `source` and `target` are the pieces of the two vocabularies, by number; `positions` is a position table's length.
    """
    config = check_model(model).config
    spec = make_spec(config, len(model.encoder.blocks), len(model.decoder.blocks), alignment)
    for embedding, words, stack, part in (
        (model.source, spec.encoder.embeddings[0], spec.encoder, model.encoder),
        (model.target, spec.decoder.embeddings, spec.decoder, model.decoder),
    ):
        words.weight = array(table_of(embedding.tokens.weight, config))
        if config.positions != "rotary":
            nothing = embedding.tokens.weight.new_zeros(1, positions or POSITIONS, config.size)
            added = nothing if embedding.positions is None else embedding.positions(nothing)
            stack.position_encodings.encodings = array(added[0])
        if config.norm == "pre":
            set_norm(stack.layer_norm, part.final_norm)
        layers: Iterable[tuple[int, tuple[Any, Any]]] = enumerate(zip(stack.layer, part.blocks, strict=True))
        for number, (layer, block) in layers:
            set_attention(layer.self_attention, block.attention, block.attention_norm, config.scaled)
            if block.cross is not None:
                first = alignment.head if alignment is not None and alignment.layer == number else None
                set_attention(layer.attention, block.cross, block.cross_norm, config.scaled, first)
            set_linear(layer.ffn.linear_0, block.feed[0].weight, block.feed[0].bias)
            set_linear(layer.ffn.linear_1, block.feed[2].weight, block.feed[2].bias)
            set_norm(layer.ffn.layer_norm, block.feed_norm)
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.scale_embeddings
    set_linear(spec.decoder.projection, table_of(model.readout.weight, config), model.readout.bias)
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.bos_token = spec.config.decoder_start_token = target[START]
    spec.config.eos_token, spec.config.unk_token = target[END], target[UNKNOWN]
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=None if quantize == "float32" else quantize)
    spec.save(str(folder))


def table_of(weight: Tensor, config: TransformerConfig) -> Tensor:
    """Return an embedding table, with END's row for START if targets begin with END; START is never an output."""
    rows = torch.arange(len(weight), device=weight.device)
    return weight[rows.masked_fill(rows == START, END)] if config.start_as_end else weight


def make_spec(config: TransformerConfig, encoder: int, decoder: int, alignment: AlignmentHead | None) -> Any:
    """Create an empty model specification with so many layers on each side."""
    specs = library("ctranslate2.specs")
    activation = specs.Activation[ACTIVATIONS[config.activation]]
    shared: dict[str, Any] = {"pre_norm": config.norm == "pre", "activation": activation}
    if config.positions == "rotary":
        shared |= {"rotary_dim": config.size // config.heads, "rotary_interleave": True}
    chosen: dict[str, Any] = {}
    if alignment is not None:
        heads = config.heads if alignment.head is None else 1
        chosen = {"alignment_layer": alignment.layer, "alignment_heads": heads}
    parts = (
        specs.transformer_spec.TransformerEncoderSpec(encoder, config.heads, **shared),
        specs.transformer_spec.TransformerDecoderSpec(decoder, config.heads, **shared, **chosen),
    )
    if config.positions == "rotary":
        del parts[0].position_encodings  # the decoder has none
    return specs.TransformerSpec(*parts)


def set_attention(spec: Any, heads: Heads, norm: Any, scaled: bool, first: int | None = None) -> None:
    """Set an attention's projections and norm; move the head `first` before the others."""
    assert heads.projection is not None
    assert heads.output is not None
    sizes = (heads.query_size, heads.query_size, heads.value_size)
    split = zip(heads.projection.weight.split(sizes), heads.projection.bias.split(sizes), strict=True)
    query, keys, values = (list(part) for part in split)
    weight, bias = heads.output.weight, heads.output.bias
    if first is not None:
        order = torch.tensor([first, *(head for head in range(heads.heads) if head != first)])
        query, keys, values = ([rows_by_head(x, heads.heads, order) for x in part] for part in (query, keys, values))
        weight = rows_by_head(weight.mT, heads.heads, order).mT
    parts = [query, keys, values] if len(spec.linear) == 2 else [keys, values]
    joined = [torch.cat([part[i] for part in parts]) for i in (0, 1)]
    if len(spec.linear) == 3:
        set_linear(spec.linear[0], *query)
    set_linear(spec.linear[-2], *joined)
    set_linear(spec.linear[-1], weight, bias)
    set_norm(spec.layer_norm, norm)
    if not scaled:
        spec.queries_scale = np.float32(1)


def rows_by_head(x: Tensor, heads: int, order: Tensor) -> Tensor:
    """Reorder heads, each of which is a block of consecutive rows."""
    return x.unflatten(0, (heads, -1))[order].flatten(0, 1)


def set_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Set a layer's weight, and its bias if it has one."""
    spec.weight = array(weight)
    if bias is not None:
        spec.bias = array(bias)


def set_norm(spec: Any, norm: Any) -> None:
    """Set a layer norm's gain and bias."""
    spec.gamma, spec.beta = array(norm.weight), array(norm.bias)


def array(x: Tensor) -> np.ndarray:
    """Copy a tensor to a NumPy array in float32."""
    return x.detach().to("cpu", torch.float32).numpy().copy()
