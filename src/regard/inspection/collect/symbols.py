"""Words and symbols for the boxes of a graph: what a part is called, and how the paper of its kind writes it.

A model's notation has its paper's, and `symbols.toml` what holds for all.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import chain
from operator import attrgetter
from typing import Any

from torch import nn

from regard.attention import Attention, Attentive, GridSelfAttention, Heads, Learned, ProjectionRows, SlicedProjection
from regard.inspection.collect.trace import Trace, Unit
from regard.models import Layer, MemoryHeads, Notation

HISTORY = ", all steps before"  # behind the words of a unit all of whose outputs so far are read: a tape

TABLES = tomllib.loads(
    resources.files("regard.inspection.collect").joinpath("symbols.toml").read_text(encoding="utf-8")
)
GENERAL = tuple(TABLES["any"].items())  # patterns and their symbols
WORDS: dict[str, dict[str, str]] = TABLES["words"]


def symbol_of(unit: Unit, recorder: Trace) -> str:
    """Return the symbol that a kind's paper has for a unit's result; empty where no paper has one."""
    return number_layer(layer_symbol_of(unit, recorder), *layer_of(unit, recorder))


def layer_symbol_of(unit: Unit, recorder: Trace) -> str:
    """Return the symbol of a unit with ℓ for its layer, which holds for every layer: of the first pattern that fits."""
    text = description(unit, recorder)
    return next((symbol for pattern, symbol in (*own_symbols(recorder), *GENERAL) if re.search(pattern, text)), "")


def own_symbols(recorder: Trace) -> Iterator[tuple[str, str]]:
    """List the patterns and symbols of the paper that a model comes from."""
    notation: Notation | None = getattr(recorder.model, "notation", None)
    return chain.from_iterable(table.items() for table in notation.boxes) if notation is not None else iter(())


def layer_of(unit: Unit, recorder: Trace) -> tuple[int, int]:
    """Return a unit's layer in its stack, from 1, and the number of layers; a unit in no layer is above the top one."""
    if unit.layer is not None:
        return unit.layer
    parts = unit.module.split(".")
    for index, part in enumerate(parts):
        around = recorder.modules.get(".".join(parts[:index]))
        if part.isdigit() and isinstance(around, nn.ModuleList):
            return int(part) + 1, len(around)
    layers = getattr(getattr(recorder.model, "config", None), "layers", 1)
    return layers, layers


def number_layer(symbol: str, layer: int, layers: int) -> str:
    """Replace ℓ in a symbol by its layer: nothing for the top one, and x_t for what the first reads."""
    below, _, top = symbol.partition("‖")
    symbol = top if top and layer == layers else below
    symbol = symbol.replace("h^{(ℓ−1)}_t", "x_t" if layer == 1 else f"h^{{({layer - 1})}}_t")
    number = "" if layer == layers else f"({layer})"
    return symbol.replace("^{(ℓ)}", f"^{{{number}}}" if number else "").replace("(ℓ)", number)


def description(unit: Unit, recorder: Trace) -> str:
    """Describe a unit for patterns: side, module, operation, and a number where the module has several."""
    if unit.kind == "input":
        return f"{unit.phase}:input {unit.operation}"
    if unit.kind == "learned":
        return f"{unit.phase}:{unit.module}.{unit.operation} learned"
    same = attrgetter("phase", "module", "operation", "kind", "layer")
    alike = [
        each.id for each in sorted(recorder.units.values(), key=lambda each: each.time) if same(each) == same(unit)
    ]
    number = alike.index(unit.id) + 1
    operation = (
        f"{unit.operation}()" if unit.kind == "operation" and unit.operation in WORDS["stages"] else unit.operation
    )
    return f"{unit.phase}:{unit.module} {operation}" + (f" {number}" if number > 1 else "")


def label_of(unit: Unit, module: nn.Module | None, modules: Mapping[str, nn.Module]) -> str:
    """Return the label of a unit's box."""
    if unit.kind == "input":
        return unit.operation
    if unit.kind == "learned":
        return "learned query" if isinstance(module, Learned) else unit.operation.replace("_", " ")
    if unit.kind == "stage":
        if unit.operation == "weights":
            return unit.note
        return f"÷ {unit.note}" if unit.operation == "scale" else WORDS["stages"][unit.operation]
    if unit.kind == "operation":
        label = WORDS["operations"].get(unit.operation, unit.operation.strip("_").replace("_", " "))
        if unit.note:
            label = {"multiply": f"× {unit.note}", "divide": f"÷ {unit.note}"}.get(label, label)
        return label
    assert module is not None
    if isinstance(module, Layer) and unit.shape and unit.shape[-1] != module.size:
        return "linear"  # its matrices alone: the gates come after
    return module_label(module, unit.module, modules)


def module_label(module: Any, name: str, modules: Mapping[str, nn.Module]) -> str:
    """Return the label of a module's box."""
    parent, _, key = name.rpartition(".")
    around = modules.get(parent)
    projects = isinstance(module, ProjectionRows | SlicedProjection) or isinstance(around, Heads | GridSelfAttention)
    if projects and key in WORDS["projections"]:
        return WORDS["projections"][key]
    if isinstance(module, Layer):
        return WORDS["cells"][module.kind]
    if isinstance(module, nn.Conv2d):
        return f"{module.kernel_size[0]} × {module.kernel_size[1]} convolution"
    if type(module).__name__ in ("Sinusoidal", "Embedded"):
        return "add positions" if module.join == "add" else "append positions"
    return WORDS["classes"].get(type(module).__name__, type(module).__name__)


def previous_label(unit: Unit, recorder: Trace, history: bool) -> tuple[str, str]:
    """Return the label of a unit's output in the step before, or in all: words, and its symbol with ℓ for the layer."""
    if history:
        text = description(unit, recorder) + HISTORY
        found = (symbol for pattern, symbol in own_symbols(recorder) if re.search(f"{pattern}$", text))
        return "all steps before", next(found, "")
    symbol = layer_symbol_of(unit, recorder).partition(" =")[0]
    before = re.sub(r"_([itn])(?![a-z])", r"_{\1−1}", symbol)
    return "step before", before if before != symbol or not symbol else f"{symbol}, before"


def group_label(module: nn.Module, name: str, modules: Mapping[str, nn.Module]) -> str:
    """Return the label of a frame around boxes."""
    key = name.rpartition(".")[2]
    if isinstance(module, Heads):
        which = {"attention": "self-attention", "cross": "cross-attention"}.get(key, key)
        return f"{which}, {module.heads} heads" if module.heads > 1 else which
    if isinstance(module, GridSelfAttention):
        return "self-attention over places"
    if isinstance(module, Attention):
        usual = {"attention": "attention", "cross": "attention", "intra": "attention to its own past"}
        return usual.get(key, f"attention over {key}" if key in ("words", "sentences") else f"attention: {key}")
    if isinstance(module, MemoryHeads):
        return "heads that write and read the memory"
    if isinstance(module, Attentive):
        return type(module).__name__
    if isinstance(module, nn.Sequential) and key == "feed":
        return "feed-forward"
    if key.isdigit():
        around = name.rpartition(".")[0]
        row = around.rpartition(".")[2]
        named = isinstance(modules[around], nn.ModuleList) and row not in ("", "blocks")
        if row == "scores":
            return "a head's own score"
        return row.removesuffix("s") if named else "layer" if row == "blocks" else "block"
    return key
