"""Import of CTranslate2's folders: a Transformer becomes a run (https://opennmt.net/CTranslate2).

A folder holds model.bin, vocabularies and, since version 6 of that file, a config.json. Each weight of the
specification goes where the same matrix product is computed; float16, bfloat16, int8 and int16 become float32. A part
that Regard's Transformer does not support is refused by the name of its variable. If no position table is stored,
CTranslate2 computes fairseq's sinusoids, which begin with number 1.

model.bin holds the version of the format, the name and the revision of a specification, the variables, and aliases for
some of them; it contains no code to run. Numbers are little-endian. Version 4 added types, version 3 aliases; in older
files the item size alone determines the type. Bytes after the end of the content are refused.

The vocabularies list the pieces, but not how to tokenise texts. A tokenizer.json beside them with the same pieces (as
in Regard's own exports) does so; otherwise SentencePiece's models; otherwise, if all pieces are single characters, the
text is split into characters; otherwise texts must be given as pieces separated by spaces.
"""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.attention import FIRST, Sines, sinusoids
from regard.config import show_value
from regard.data import END, MARK, START, Tokenizers, open_tokenizer, sentencepiece, special_pieces, tokenizer_checks
from regard.errors import DataError
from regard.interop.formats import Imported, read_table
from regard.interop.numbering import THEIR_START
from regard.interop.stacks import EPSILON, NEVER, move_rows
from regard.io import reading
from regard.models import model_config

SPECIFICATIONS = {"TransformerSpec": None, "TransformerBase": 8, "TransformerBig": 16}  # and its number of heads
NEWEST = 7  # revision of the specification
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
OTHERS = {1: "GELU by tanh", 4: "GELU by a sigmoid", 5: "tanh", 6: "sigmoid"}
TOLERANCE = 5e-3  # between positions, which may be stored in half precision
SIDES = ("encoder", "decoder")
ATTENTIONS = {"self_attention": ("attention", "attention_norm", 2), "attention": ("cross", "cross_norm", 3)}
ZERO = {  # attributes of a side or of a layer that must be zero
    "alibi": "it has biases by distance (ALiBi)",
    "scale_outputs": "its outputs are scaled",
    "final_logit_softcapping": "its scores are capped",
    "with_relative_position": "it has relative positions",
    "layernorm_embedding": "it has a norm behind its embeddings",
    "multi_query_attention": "its heads share keys and values",
    "parallel_residual": "its residuals are parallel",
    "sliding_window": "its attention is limited to a window",
    "merged_encoder_attention": "its two attentions are merged",
}
UNUSED = ("alibi_use_positive_positions", "scale_alibi", "alignment_heads", "alignment_layer", "embeddings_merge")
DEFAULTS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
BINARY = "model.bin"
NEWEST_FORMAT = 6  # version of the file format
BESIDE = ("config.json", "tokenizer.json", "source.spm", "target.spm", "sentencepiece.model", "sentencepiece.bpe.model")
TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16, np.uint16)  # by number; the last holds bfloat16
BFLOAT16 = 5
BY_SIZE = {4: np.float32, 2: np.int16, 1: np.int8}  # before version 4
GLOBAL_SCALE = np.float32(1000)  # scale of int16 numbers stored without one
MODELS = (("source.spm", "target.spm"), ("sentencepiece.model",) * 2, ("sentencepiece.bpe.model",) * 2)
PADDING = ("<pad>", "<blank>")  # its names in lists of pieces
TAG = re.compile(r">>.+<<|__.+__", re.DOTALL)  # a piece that names a language
UNCUT = (
    "The folder does not say how texts are cut: give them as its pieces, with spaces between. To have it done, put "
    "SentencePiece's models (source.spm and target.spm, or sentencepiece.model) beside model.bin, and import it again."
)


def read_ctranslate2(folder: Path) -> Imported:
    """Read a CTranslate2 folder as a Regard run."""
    reader = SpecificationReader(folder / BINARY)
    config = reader.config(folder)
    lists = read_lists(folder, config["unk_token"])
    reader.check_attributes()
    sizes, weights = reader.sizes(), reader.blocks()
    embeddings = reader.embeddings()
    output, bias = reader.tensor("decoder/projection/weight", 2), reader.bias("decoder/projection")
    for side, table, found in zip(("source", "target"), (*embeddings,), lists, strict=True):
        if table.shape != (len(found.pieces), sizes["size"]):
            expected = [len(found.pieces), sizes["size"]]
            raise DataError(f"{reader.path}: the {side} embeddings are {list(table.shape)}, expected {expected}")
    if output.shape != embeddings[1].shape:
        problem = f"decoder/projection/weight is {list(output.shape)}, expected {list(embeddings[1].shape)}"
        raise DataError(f"{reader.path}: {problem}")
    zero = reader.flag("decoder/start_from_zero_embedding", False)
    rows, as_end = special_rows(lists, config, zero)
    tokenizers, ids, notes = tokenizers_of(folder, lists, rows)
    positions, vectors = reader.positions(sizes["size"])
    alike = embeddings[0].shape == embeddings[1].shape and torch.equal(*embeddings)
    alike = alike and tokenizers.same_ids and ids[0] == ids[1] and len({id(each) for each in vectors}) <= 1
    tied = "none" if not torch.equal(embeddings[1], output) else "all" if alike else "output"
    weights["source.tokens.weight"] = move_embeddings(embeddings[0], ids[0], as_end)
    if tied != "all":
        weights["target.tokens.weight"] = move_embeddings(embeddings[1], ids[1], as_end)
    if tied == "none":
        weights["readout.weight"] = move_embeddings(output, ids[1], False)
    scores = move_rows(torch.zeros(len(output), 1) if bias is None else bias[:, None], ids[1])[:, 0]
    scores[torch.tensor([row is None for row in ids[1]])] = NEVER
    biased = bias is not None or None in ids[1]
    weights |= {"readout.bias": scores} if biased else {}
    for side, table in zip(("source", "target") if tied != "all" else ("source",), vectors, strict=False):
        weights[f"{side}.positions.vectors"] = table
    reader.check_used()
    model = {"kind": "transformer", **sizes, **positions, "tied": tied, "start_as_end": as_end, "dropout": 0.1}
    model |= {"scaled": reader.scaled, "output_bias": biased}
    epsilon = config["layer_norm_epsilon"]
    if epsilon is not None and not math.isclose(epsilon, EPSILON, rel_tol=1e-4):
        model["norm_epsilon"] = epsilon
    tokenizer = {"kind": "auto", "joint": tokenizers.same_ids}
    around = {"before": ("add_source_bos", START), "after": ("add_source_eos", END)}  # pieces around every source
    tokenizer |= {key: [special_pieces.SPECIAL[number]] for key, (name, number) in around.items() if config[name]}
    longest = {"longest": max(1, positions["length"] - 1)} if "length" in positions else {}
    settings = {"task": "translate", "data": longest, "tokenizer": tokenizer, "model": model}
    files = [folder / BINARY, *dict.fromkeys(each.path for each in lists)]
    files += [folder / name for name in BESIDE if (folder / name).is_file()]
    return Imported(settings, tokenizers, weights, tuple(files), notes)


def move_embeddings(table: Tensor, rows: list[int | None], as_end: bool) -> Tensor:
    """Return the rows of a table in the order of the ids, with END's row for START if targets begin with END."""
    return move_rows(table, [rows[END] if as_end and i == START else row for i, row in enumerate(rows)])


class SpecificationReader:
    """The variables of a Transformer's specification, read by name, so that none is left over unnoticed."""

    def __init__(self, path: Path):
        """Read the file, and refuse other specifications."""
        self.path = path
        file = read_model_file(path)
        if file.specification not in SPECIFICATIONS:
            name = show_value(file.specification)
            raise DataError(f"{path}: CTranslate2's {name}, expected a TransformerSpec: encoder and decoder of text")
        if not 2 <= file.revision <= NEWEST:
            raise DataError(f"{path}: revision {file.revision} of {file.specification}, expected 2 to {NEWEST}")
        self.version, self.variables = file.version, dict(file.variables)
        for alias, name in file.aliases.items():
            self.variables[alias] = self.variables[name]
            if f"{name}_scale" in self.variables:
                self.variables[f"{alias}_scale"] = self.variables[f"{name}_scale"]
        heads = SPECIFICATIONS[file.specification]
        if heads is not None and "num_heads" not in self.variables:
            self.variables["num_heads"] = np.asarray(heads, np.int8)
        for name in [name for name in self.variables if "/" not in name]:  # shared by both sides, before revision 5
            for side in SIDES:
                self.variables.setdefault(f"{side}/{name}", self.variables[name])
        self.used = {name for name in self.variables if "/" not in name}
        self.scaled = True

    # ---- attributes

    def config(self, folder: Path) -> dict[str, Any]:
        """Return the settings of special pieces: from config.json, or from attributes of the model in older files."""
        config: dict[str, Any] = {**DEFAULTS, "layer_norm_epsilon": None}
        config |= {"add_source_bos": False, "add_source_eos": False}
        if self.version >= 6:
            config |= {"decoder_start_token": "<s>", **read_table(folder / "config.json", optional=True)}
        else:
            config |= {key: self.text(key, value) for key, value in DEFAULTS.items()}
            config |= {f"add_source_{key}": self.flag(f"with_source_{key}", False) for key in ("bos", "eos")}
            first = config["bos_token" if self.flag("with_target_bos", True) else "eos_token"]
            config["decoder_start_token"] = None if self.flag("user_decoder_start_tokens", False) else first
        place = folder / "config.json"
        kinds = {**dict.fromkeys(DEFAULTS, str), "add_source_bos": bool, "add_source_eos": bool}
        for key, kind in kinds.items():
            if type(config[key]) is not kind:
                what = "a piece" if kind is str else "true or false"
                raise DataError(f"{place}: {key} is {show_value(config[key])}, expected {what}")
        epsilon = config["layer_norm_epsilon"]
        if epsilon is not None and not (type(epsilon) is float and 0 < epsilon <= 1):
            raise DataError(
                f"{place}: layer_norm_epsilon is {show_value(epsilon)}, expected a number above 0, at most 1"
            )
        for key in ("multi_query_attention", "quantization_type"):
            if value := config.get(key):
                raise DataError(f"{place}: {key} is {show_value(value)}, which Regard's Transformer has no form for")
        return config

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a single number."""
        value = self.variables.get(name)
        self.used.add(name)
        if value is None:
            return default
        if value.size != 1:
            raise DataError(f"{self.path}: {name} is {list(value.shape)}, expected one number")
        return float(np.asarray(value).reshape(()))

    def flag(self, name: str, default: bool) -> bool:
        """Return an attribute that is a Boolean."""
        return bool(self.number(name, float(default)))

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is a text."""
        value = self.variables.get(name)
        return default if value is None else bytes(value.astype(np.uint8)).decode(errors="replace")

    def check_attributes(self) -> None:
        """Refuse attributes that Regard does not support, by name."""
        for name in list(self.variables):
            reason = ZERO.get(name.rpartition("/")[2])
            if reason is not None and "/" in name and (self.variables[name].size != 1 or self.flag(name, False)):
                raise DataError(f"{self.path}: {name} is given: {reason}, which Regard's Transformer has no form for")
        self.used |= {f"{side}/{name}" for side in SIDES for name in UNUSED}

    def check_used(self) -> None:
        """Refuse variables that were not read: a part of the model would be missing."""
        left = sorted(name for name in self.variables if name not in self.used and not name.endswith("_scale"))
        left = [name for name in left if "/" in name and name.split("/")[0] in SIDES]
        if left:
            raise DataError(
                f"{self.path}: {left[0]} is given{f' and {len(left) - 1:,} more' if len(left) > 1 else ''}, which "
                "Regard's Transformer has no form for"
            )

    def both(self, name: str, default: float) -> float:
        """Return an attribute that must have the same value on both sides."""
        one, other = (self.number(f"{side}/{name}", default) for side in SIDES)
        if one != other:
            raise DataError(f"{self.path}: decoder/{name} is {other:g}, encoder/{name} {one:g}; expected the same")
        return one

    def sizes(self) -> dict[str, Any]:
        """Return the sizes as keys of a [model] table."""
        layers = [self.count_layers(side) for side in SIDES]
        heads, activation = int(self.both("num_heads", 8)), int(self.both("activation", 0))
        pre = self.both("pre_norm", 1)
        hidden, size = self.tensor("encoder/layer_0/ffn/linear_0/weight", 2).shape
        for what, value, most in (
            ("heads", heads, model_config.HEADS),
            ("width", size, model_config.WIDEST),
            ("inner width", hidden, model_config.WIDEST),
        ):
            if not 1 <= value <= most:
                raise DataError(f"{self.path}: its {what} is {value:,}, expected 1 to {most:,}")
        if activation not in ACTIVATIONS:
            name = OTHERS.get(activation, str(activation))
            raise DataError(f"{self.path}: its activation is {name}, expected {', '.join(ACTIVATIONS.values())}")
        if size % heads:
            raise DataError(f"{self.path}: its width is {size}, which {heads} heads do not divide")
        table: dict[str, Any] = {"size": size, "heads": heads, "layers": layers[0], "hidden": hidden}
        table |= {} if layers[1] == layers[0] else {"decoder_layers": layers[1]}
        table |= {"activation": ACTIVATIONS[activation], "norm": "pre" if pre else "post"}
        return {**table, "scale_embeddings": self.scales_embeddings(size)}

    def count_layers(self, side: str) -> int:
        """Count the layers of a side, which are numbered from 0."""
        found = {int(match[1]) for name in self.variables if (match := re.match(rf"{side}/layer_(\d{{1,6}})/", name))}
        if not found or found != set(range(len(found))) or len(found) > model_config.DEEPEST:
            raise DataError(
                f"{self.path}: {len(found):,} layers of the {side}, expected 1 to "
                f"{model_config.DEEPEST:,}, numbered from 0"
            )
        return len(found)

    def scales_embeddings(self, size: int) -> bool:
        """Return whether embeddings are multiplied by √size."""
        answers = set()
        for side in SIDES:
            names = [f"{side}/{name}" for name in ("scale_embeddings", "embeddings/multiply_by_sqrt_depth")]
            names += [f"{side}/embeddings_0/multiply_by_sqrt_depth"]
            name = next((name for name in names if name in self.variables), names[0])
            self.used |= set(names)
            value = self.number(name, 1.0)
            whole = name not in self.variables or self.variables[name].dtype == np.int8
            factor = (math.sqrt(size) if value else 1.0) if whole else value
            if not any(math.isclose(factor, each, rel_tol=1e-3) for each in (1.0, math.sqrt(size))):
                raise DataError(f"{self.path}: {name} is {factor:g}, expected 1 or √{size}")
            answers.add(math.isclose(factor, math.sqrt(size), rel_tol=1e-3))
        if len(answers) > 1:
            raise DataError(f"{self.path}: scale_embeddings differs between encoder and decoder, expected the same")
        return answers.pop()

    # ---- weights

    def tensor(self, name: str, rank: int) -> Tensor:
        """Return a variable in float32, with `rank` dimensions."""
        if name not in self.variables:
            raise DataError(f"{self.path}: {name} is missing, which the model needs")
        self.used.add(name)
        value = dequantise(self.variables, name, self.path)
        if value.ndim != rank:
            raise DataError(f"{self.path}: {name} is {list(value.shape)}, expected {rank} dimensions")
        return torch.from_numpy(value)

    def bias(self, scope: str) -> Tensor | None:
        """Return the bias of a layer, if it has one."""
        name = f"{scope}/bias"
        return self.tensor(name, 1) if name in self.variables else None

    def embeddings(self) -> tuple[Tensor, Tensor]:
        """Return the embeddings of both sides."""
        names = ("encoder/embeddings/weight", "encoder/embeddings_0/weight")
        listed = [name for name in names if name in self.variables]
        if "encoder/embeddings_1/weight" in self.variables or not listed:
            problem = "encoder/embeddings_1 is given: its sources have features" if listed else "it has no embeddings"
            raise DataError(f"{self.path}: {problem}, expected one table of embeddings")
        return self.tensor(listed[0], 2), self.tensor("decoder/embeddings/weight", 2)

    def positions(self, size: int) -> tuple[dict[str, Any], list[Tensor]]:
        """Return the settings of positions, and the tables of learned ones."""
        names = [f"{side}/position_encodings/encodings" for side in SIDES]
        tables = [self.tensor(name, 2) for name in names if name in self.variables]
        if self.rotary(size):
            return {"positions": "rotary"}, []
        if not tables:
            return {"positions": "sinusoidal", "sines": "fairseq", "first_position": 1}, []
        if len(tables) < len(names) or tables[0].shape[1] != size or tables[1].shape[1] != size:
            raise DataError(f"{self.path}: position_encodings of the two sides differ in form, expected the same")
        forms = [find_sines(table) for table in tables]
        if forms[0] is not None and forms[0] == forms[1]:
            return forms[0], []
        if tables[0].shape != tables[1].shape or len(tables[0]) > model_config.MAX_POSITIONS:
            shapes = " and ".join(str(list(table.shape)) for table in tables)
            most = f"at most {model_config.MAX_POSITIONS:,}"
            raise DataError(f"{self.path}: position_encodings are {shapes}, expected the same, {most}")
        same = torch.equal(tables[0], tables[1])
        return {"positions": "learned", "length": len(tables[0])}, [tables[0], tables[0] if same else tables[1]]

    def rotary(self, size: int) -> bool:
        """Return whether queries and keys are rotated; refuse rotations other than Regard's."""
        names = [name for name in self.variables if name.rpartition("/")[2].startswith("rotary_")]
        heads = int(self.number("encoder/num_heads", 8))
        right = {"rotary_dim": (0, size // heads), "rotary_interleave": (1,), "rotary_base": (10000,)}
        for name in names:
            key = name.rpartition("/")[2]
            if key not in right or self.number(name, 0) not in right[key]:
                raise DataError(f"{self.path}: {name} is given, which rotary positions have no form for here")
        given = [name for name in names if name.endswith("rotary_dim")]
        attentions = sum(self.count_layers(side) for side in SIDES)
        if given and len(given) != attentions:
            raise DataError(f"{self.path}: {len(given)} of {attentions} layers have rotary positions, expected all")
        return bool(given)

    def blocks(self) -> dict[str, Tensor]:
        """Return the weights of both stacks, by their names in Regard."""
        weights: dict[str, Tensor] = {}
        pre = self.both("pre_norm", 1)
        for side in SIDES:
            for layer in range(self.count_layers(side)):
                there, here = f"{side}/layer_{layer}", f"{side}.blocks.{layer}"
                for name, (own, norm, count) in ATTENTIONS.items():
                    if name == "attention" and side == "encoder":
                        continue
                    weights |= self.attention(f"{there}/{name}", f"{here}.{own}", count)
                    weights |= self.norm(f"{there}/{name}/layer_norm", f"{here}.{norm}")
                for number, own in enumerate(("feed.0", "feed.2")):
                    weights |= self.linear([f"{there}/ffn/linear_{number}"], f"{here}.{own}")
                weights |= self.norm(f"{there}/ffn/layer_norm", f"{here}.feed_norm")
            last = f"{side}/layer_norm"
            if pre:
                weights |= self.norm(last, f"{side}.final_norm")
            elif f"{last}/gamma" in self.variables:
                raise DataError(
                    f"{self.path}: {last} is given with pre_norm of 0, expected no norm behind the last layer"
                )
        return weights

    def attention(self, there: str, here: str, count: int) -> dict[str, Tensor]:
        """Return the projections of an attention, with queries, keys and values in one matrix."""
        name = f"{there}/queries_scale"
        if name in self.variables:
            size = self.tensor(f"{there}/linear_0/weight", 2).shape[1]
            usual, value = 1 / math.sqrt(size / self.number("encoder/num_heads", 8)), self.number(name, 1)
            if not any(math.isclose(value, each, rel_tol=1e-3) for each in (1.0, usual)):
                raise DataError(f"{self.path}: {name} is {value:g}, expected 1, or {usual:g} as usual")
            self.scaled = math.isclose(value, usual, rel_tol=1e-3)
        linear = [f"{there}/linear_{number}" for number in range(count)]
        return self.linear(linear[:-1], f"{here}.projection") | self.linear(linear[-1:], f"{here}.output")

    def linear(self, scopes: list[str], name: str) -> dict[str, Tensor]:
        """Return a matrix, joined from its parts, and its bias; a missing bias is zero."""
        matrices = [self.tensor(f"{scope}/weight", 2) for scope in scopes]
        if len({matrix.shape[1] for matrix in matrices}) > 1:
            raise DataError(f"{self.path}: the matrices of {scopes[0]} and {scopes[1]} differ in width")
        biases = [self.bias(scope) for scope in scopes]
        parts = [torch.zeros(len(m)) if b is None else b for m, b in zip(matrices, biases, strict=True)]
        return {f"{name}.weight": torch.cat(matrices), f"{name}.bias": torch.cat(parts)}

    def norm(self, scope: str, name: str) -> dict[str, Tensor]:
        """Return the gain and the bias of a layer norm."""
        for part in ("gamma", "beta"):
            if f"{scope}/{part}" not in self.variables:
                why = (
                    "the norm that Regard's Transformer has there"
                    if part == "gamma"
                    else "it is a root mean square norm"
                )
                raise DataError(f"{self.path}: {scope}/{part} is missing: {why}; expected a layer norm")
        gain, bias = (self.tensor(f"{scope}/{part}", 1) for part in ("gamma", "beta"))
        return {f"{name}.weight": gain, f"{name}.bias": bias}


def find_sines(table: Tensor) -> dict[str, Any] | None:
    """Return the settings of positions without a table: none, or sinusoids in one of 3 forms; None for learned ones."""
    if not table.any():
        return {"positions": "none"}
    index = torch.arange(len(table))
    forms: list[tuple[Sines, int]] = [("interleaved", 0), ("halves", 0), *(("fairseq", first) for first in range(4))]
    for sines, first in forms:
        if torch.allclose(table, sinusoids(index, table.shape[1], sines, first).float(), rtol=0, atol=TOLERANCE):
            form = {"positions": "sinusoidal", "sines": sines}
            return form if first == FIRST.get(sines, 0) else {**form, "first_position": first}
    return None


class ModelFile(NamedTuple):
    """The contents of a model.bin: variables as NumPy arrays, and aliases for some of them."""

    version: int
    specification: str
    revision: int
    variables: dict[str, np.ndarray]
    aliases: Mapping[str, str]


def read_model_file(path: Path) -> ModelFile:
    """Read a whole model.bin; raise a DataError for a damaged one."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise reading.Unreadable("not a file")
        return parse_model_file(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (struct.error, ValueError) as error:  # struct and NumPy raise these when data ends early
        problem = error if isinstance(error, reading.Unreadable) else "it is cut short"
        raise DataError(f"{path}: not a model of CTranslate2: {problem}; copy or convert it again") from None


def parse_model_file(content: bytes) -> ModelFile:
    """Parse a model.bin; its arrays are views of the bytes."""
    place = 0

    def number(form: str) -> int:
        nonlocal place
        (value,) = struct.unpack_from(f"<{form}", content, place)
        place += struct.calcsize(f"<{form}")
        return int(value)

    def text() -> str:  # its length, then its bytes, of which the last is 0
        nonlocal place
        size = number("H")
        data, place = content[place : place + size], place + size
        name = data[:-1].decode(errors="replace")
        if data[-1:] != b"\0" or not name.isprintable():
            raise reading.Unreadable("a name in it has no end")
        return name

    def variable(name: str) -> np.ndarray:  # its shape, type and numbers
        nonlocal place
        shape = [number("I") for _ in range(number("B"))]
        kind, size = number("B"), number("I")
        if (version >= 4 and kind >= len(TYPES)) or (version < 4 and kind not in BY_SIZE):
            raise reading.Unreadable(f"{name} has numbers of type {kind}, which is not known")
        dtype = np.dtype(TYPES[kind] if version >= 4 else BY_SIZE[kind]).newbyteorder("<")
        size = size if version >= 4 else size * kind
        if math.prod(shape) * dtype.itemsize != size:
            raise reading.Unreadable(f"{name} has {size:,} bytes, which is not what its shape {shape} takes")
        numbers, place = np.frombuffer(content, dtype, math.prod(shape), place).reshape(shape), place + size
        whole = version < 4 or kind != BFLOAT16
        return numbers if whole else (numbers.astype(np.uint32) << 16).view(np.float32)

    version = number("I")
    if not 2 <= version <= NEWEST_FORMAT:
        raise reading.Unreadable(f"its format has version {version}, expected 2 to {NEWEST_FORMAT}")
    specification, revision, variables = text(), number("I"), dict[str, np.ndarray]()
    for _ in range(number("I")):
        name = text()
        variables[name] = variable(name)
    aliases = {text(): text() for _ in range(number("I"))} if version >= 3 else {}
    if place < len(content):
        raise reading.Unreadable(f"{len(content) - place:,} bytes behind its end")
    if unknown := next((name for name in aliases.values() if name not in variables), None):
        raise reading.Unreadable(f"a name stands for {unknown}, which it has not")
    return ModelFile(version, specification, revision, variables, aliases)


def dequantise(variables: Mapping[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    """Return a weight in float32; divide integers by their scale, one for all or one per row."""
    weight = variables[name]
    if weight.dtype.kind == "f":
        return weight.astype(np.float32)
    if weight.dtype.itemsize > 2:
        raise DataError(f"{path}: {name} has {weight.dtype.name} numbers, expected floats, int8 or int16")
    scale = variables.get(f"{name}_scale")
    if scale is None and weight.dtype.itemsize == 1:
        raise DataError(f"{path}: {name} is int8, and {name}_scale is missing, which says what it stands for")
    scale = np.asarray(GLOBAL_SCALE if scale is None else scale, np.float32)
    if scale.shape not in ((), (1,), weight.shape[:1]) or not (np.isfinite(scale) & (scale != 0)).all():
        raise DataError(f"{path}: {name}_scale is {list(scale.shape)}, expected a number other than 0 for each row")
    return weight.astype(np.float32) / (scale.reshape(-1, *(1,) * (weight.ndim - 1)) if scale.size > 1 else scale)


# ---- lists of pieces


class PieceList(NamedTuple):
    """The pieces of one side, by row, and their file."""

    pieces: list[str]
    path: Path


class SideRows(NamedTuple):
    """The rows of one side's special pieces; None for a piece that the folder lacks."""

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
    """Read a list of pieces in JSON, or one per line; append the unknown piece if the file lacks it."""
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
    """Return the tokenizers of both sides, the row of each id on each side, and notes for the user."""
    tables = [number(side, own) for side, own in zip(lists, rows, strict=True)]
    both = [table for table, _ in tables]
    notes: tuple[str, ...] = ()
    own = Tokenizers.load(folder / "tokenizer.json") if (folder / "tokenizer.json").is_file() else None
    if own is None or not all(
        side.size == len(table)
        and all(mine == name or name.startswith("<") for mine, name in zip(side.names, table, strict=True))
        for side, table in zip((own.source, own.target), both, strict=True)
    ):
        models = next((pair for pair in MODELS if all((folder / name).is_file() for name in pair)), None)
        sides = []
        for i, table in enumerate(both):
            if models is not None:
                content = sentencepiece.convert(folder / models[i], table, tags=list(filter(TAG.fullmatch, table)))
            else:
                single = all(len(piece) == 1 or re.fullmatch("<.+>", piece, re.DOTALL) for piece in table)
                notes = notes if single else (UNCUT,)
                content = make_tokenizer(table, single)
            sides.append(open_tokenizer(content, str(lists[i].path)))
        own = Tokenizers(*sides) if sides[0].content != sides[1].content else Tokenizers(sides[0])
    numbered = zip((own.source, own.target), tables, strict=True)
    # None for ids that only the tokenizer has.
    return own, [[ids.get(i) for i in range(side.size)] for side, (_, ids) in numbered], notes


def number(side: PieceList, own: SideRows) -> tuple[dict[str, int], dict[int, int | None]]:
    """Return the id of every piece, under a unique name, and the row of every id; special pieces come first."""
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


def make_tokenizer(table: Mapping[str, int], single: bool) -> dict[str, Any]:
    """Return a tokenizer.json that splits texts at spaces or, if `single`, into characters.

    Special pieces match no text. If the mark is one of the characters, it stands for a space.
    """
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    names = [piece for piece in table if piece in special_pieces.SPECIAL or piece.startswith("<their-")]
    added = [special_pieces.describe(table[piece], piece, special=True) for piece in names]
    content: dict[str, Any] = {"version": "1.0", **empty, "added_tokens": added}
    model = {"unk_token": special_pieces.SPECIAL[3]}
    if not single:
        content["pre_tokenizer"] = {"type": "WhitespaceSplit"}
        return {**content, "model": {"type": "WordLevel", **model, "vocab": table}}
    content["decoder"] = {"type": "Fuse"}
    if MARK in table and " " not in table:
        content["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
        back = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
        content["decoder"] = {"type": "Sequence", "decoders": [back, content["decoder"]]}
    return {**content, "model": {"type": "BPE", **model, "fuse_unk": False, "merges": [], "vocab": table}}


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
    """Return the rows of the special pieces on both sides, and whether targets begin with END's embedding."""
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
