"""Words and symbols for the boxes of a graph: what a part is called, and how the paper of its kind writes it.

In symbols `_` and `^` begin an index below and above, one letter or several in braces: "h_j", "s_{i−1}". `(ℓ)` is the
number of a layer, which the top one goes without, as the papers write it; h^{(ℓ−1)}_t is what a layer reads, which the
first one calls x_t. What stands behind a ‖ is the top layer's.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from torch import nn

from regard.attention import Attention, Attentive, GridSelfAttention, Heads, Learned, ProjectionRows, SlicedProjection
from regard.inspection.collect.tiny_pass import TinyPass
from regard.inspection.collect.trace import Unit
from regard.models import Layer, MemoryHeads

HISTORY = ", all steps before"  # behind the words of a unit all of whose outputs so far are read: a tape

# A pattern of side, module and operation, and the symbol; the first that fits is taken.
BLOCKS = (
    (r"input source", "x"),
    (r"input target", "y, shifted right"),
    (r"tokens Embedding", "E x_i"),
    (r"positions Sinusoidal2D", "a_{yx} + p_{yx}"),
    (r"positions (Sinusoidal|Embedded)", "x_i + p_i"),
    (r"score(\.scores\.\d+)?\.query ", "W q_i"),
    (r"score(\.scores\.\d+)?\.key ", "U k_j"),
    (r"\.query (ProjectionRows|SlicedProjection|Linear)", "Q"),
    (r"\.key (ProjectionRows|SlicedProjection|Linear)", "K"),
    (r"\.value (ProjectionRows|SlicedProjection|Linear)", "V"),
    (r"rotary ", "R_i q_i, R_j k_j"),
    (r" score$", "e_{ij}"),
    (r" scale$", "e_{ij} / √d_k"),
    (r" bias$", "e_{ij} − m |i − j|"),
    (r" mask$", "−∞ where it is forbidden"),
    (r" weights$", "a_{ij}"),
    (r" sum$", "c_i = Σ_j a_{ij} v_j"),
    (r" concatenate$", "[c^1; …; c^h]"),
    (r"feed\.0 ", "x W_1 + b_1"),
    (r"feed\.1 ", "max(0, ·)"),
    (r"feed\.2 ", "· W_2 + b_2"),
    (r" dropout_add", "x + f(x)"),
    (r"readout ", "logits"),
    (r" softmax$", "p"),
)
SEARCH = (
    (r"encoder:input", "x_1 … x_m"),
    (r"decoder:input", "y_0 … y_{n−1}"),
    (r"source Embedding", "E x_j"),
    (r"target Embedding", "E y_{i−1}"),
)
SYMBOLS: dict[str, tuple[tuple[str, str], ...]] = {
    "transformer": (
        (r"decoder:target.tokens ", "E y_i"),
        (r"decoder:target.positions", "y_i + p_i"),
        (r"decoder: softmax$", "p(y_i | y_{<i}, x)"),
    ),
    "encoder": (
        (r"decoder:input", "x_1 … x_n"),
        (r"decoder: softmax$", "p(x_{i+1} | x_{≤i})"),
        (r"encoder: softmax$", "p(label | x)"),
    ),
    "rnn": (
        *SEARCH,
        (r"encoder\.layers\.\d+ Layer", "h^{(ℓ)}_j"),
        (r"begin", "V h^{(ℓ)}_m"),
        (r"encoder: tanh", "s_0"),
        (r"decoder: cat$", "[E y_{i−1}; c]"),
        (r"decoder\.layers\.\d+ Layer", "s^{(ℓ)}_i"),
        (r"decoder: cat 2", "[s_i; E y_{i−1}; c]"),
        (r"deep", "t̃_i"),
        (r"maxout", "t_i"),
        (r" softmax$", "p(y_i | y_{<i}, x)"),
    ),
    "rnnsearch": (
        *SEARCH,
        (r"forwards\.\d+ Layer", "→h^{(ℓ)}_j"),
        (r"backwards\.\d+ Layer", "←h^{(ℓ)}_j"),
        (r"encoder cat", "h^{(ℓ)}_j = [→h^{(ℓ)}_j; ←h^{(ℓ)}_j]"),
        (r"encoder\.layers\.\d+ Layer", "h^{(ℓ)}_j"),
        (r"final_norm", "h_j"),
        (r"begin", "W_s ←h_1"),
        (r"encoder: tanh", "s_0"),
        (r"decoder:attention\.score\.query", "W_a s_{i−1}"),
        (r"decoder:attention\.score\.key", "U_a h_j"),
        (r"decoder:attention score$", "e_{ij} = v_a^⊤ tanh(W_a s_{i−1} + U_a h_j)"),
        (r"decoder:attention weights$", "α_{ij}"),
        (r"decoder:attention sum$", "c_i = Σ_j α_{ij} h_j"),
        (r"cell ", "s_i = f(s_{i−1}, y_{i−1}, c_i)"),
        (r"decoder: cat$", "[s_i; E y_{i−1}; c_i]"),
        (r"deep ", "t̃_i"),
        (r"maxout", "t_i"),
        (r"readout", "W_o t_i"),
        (r" softmax$", "p(y_i | y_{<i}, x)"),
    ),
    "luong": (
        (r"encoder:input", "x_1 … x_m"),
        (r"decoder:input", "y_0 … y_{n−1}"),
        (r"source Embedding", "E x_s"),
        (r"target Embedding", "E y_{t−1}"),
        (r"forwards\.\d+ Layer", "→h^{(ℓ)}_s"),
        (r"backwards\.\d+ Layer", "←h^{(ℓ)}_s"),
        (r"encoder cat$", "h̄^{(ℓ)}_s = [→h^{(ℓ)}_s; ←h^{(ℓ)}_s]"),
        (r"encoder\.layers\.\d+ Layer", "h̄^{(ℓ)}_s"),
        (r"final_norm", "h̄_s"),
        (r"begin", "W_0 h̄_m"),
        (r"encoder: tanh", "h_0"),
        (r"decoder\.layers\.\d+ Layer", "h^{(ℓ)}_t"),
        (r"decoder:attention\.score General", "W_a h̄_s"),
        (r"decoder:attention\.score\.query", "W_a [h_t; 0]"),
        (r"decoder:attention\.score\.key", "W_a [0; h̄_s]"),
        (r"decoder:attention score$", "score(h_t, h̄_s)"),
        (r"decoder:attention weights$", "a_t(s)"),
        (r"decoder:attention sum$", "c_t = Σ_s a_t(s) h̄_s"),
        (r"decoder: cat$", "[c_t; h_t]"),
        (r"attentional", "W_c [c_t; h_t]"),
        (r"decoder: tanh", "h̃_t"),
        (r"readout", "W_s h̃_t"),
        (r" softmax$", "p(y_t | y_{<t}, x)"),
    ),
    "pointer": (
        (r"encoder:input", "P_1 … P_m"),
        (r"decoder:input", "C_0 … C_{n−1}"),
        (r"forwards\.\d+ Layer", "→e_j"),
        (r"backwards\.\d+ Layer", "←e_j"),
        (r"encoder cat$", "e_j = [→e_j; ←e_j]"),
        (r"encoder\.layers\.\d+ Layer", "e_j"),
        (r"decoder\.layers\.\d+ Layer", "d_i"),
        (r"score\.query", "W_2 d_i"),
        (r"score\.key", "W_1 e_j"),
        (r" score$", "u^i_j = v^⊤ tanh(W_1 e_j + W_2 d_i)"),
        (r" weights$", "p(C_i = j)"),
        (r" sum$", "Σ_j p(C_i = j) 1_j"),
        (r"scatter_add", "p(y) = Σ_{j: x=y} p(C_i = j)"),
        (r"decoder: log$", "log p(y)"),
    ),
    "captioner": (
        (r"encoder:input", "pixels"),
        (r"decoder:input", "y_0 … y_{n−1}"),
        (r"backbone relu", "a_1 … a_L"),
        (r"decoder mean", "ā"),
        (r"encoder:decoder tanh", "c_0, h_0 = f_{init}(ā)"),
        (r"words Embedding", "E y_{t−1}"),
        (r"score\.query", "W h_{t−1}"),
        (r"score\.key", "U a_i"),
        (r"cross score$", "e_{ti} = f_{att}(a_i, h_{t−1})"),
        (r"decoder\.cross weights$", "α_{ti}"),
        (r"decoder\.cross sum$", "Σ_i α_{ti} a_i"),
        (r"gate Linear", "f_β(h_{t−1})"),
        (r"decoder sigmoid", "β_t"),
        (r"decoder mul", "ẑ_t"),
        (r"cells\.layers\.\d+ ", "h^{(ℓ)}_t"),
        (r"said", "L_h h_t"),
        (r"shown", "L_z ẑ_t"),
        (r"readout", "L_o (…)"),
        (r" softmax$", "p(y_t | a, y_{<t})"),
    ),
    "han": (
        (r"input", "w_{it}"),
        (r"embedding", "x_{it} = W_e w_{it}"),
        (r"word_states\.forwards", "→h_{it}"),
        (r"word_states\.backwards", "←h_{it}"),
        (r"word_states cat", "h_{it} = [→h_{it}; ←h_{it}]"),
        (r"word_layer", "W_w h_{it} + b_w"),
        (r"encoder: tanh$", "u_{it}"),
        (r"(words|pooling)\.query", "u_w"),
        (r"(words|pooling) score", "u_{it}^⊤ u_w"),
        (r"(words|pooling) weights", "α_{it}"),
        (r"words sum", "s_i = Σ_t α_{it} h_{it}"),
        (r"pooling sum", "v = Σ_t α_t h_t"),
        (r"sentence_states\.forwards", "→h_i"),
        (r"sentence_states\.backwards", "←h_i"),
        (r"sentence_states cat", "h_i = [→h_i; ←h_i]"),
        (r"sentence_layer", "W_s h_i + b_s"),
        (r"encoder: tanh 2$", "u_i"),
        (r"sentences\.query", "u_s"),
        (r"sentences score", "u_i^⊤ u_s"),
        (r"sentences weights", "α_i"),
        (r"sentences sum", "v = Σ_i α_i h_i"),
        (r"readout", "W_c v + b_c"),
        (r" softmax$", "p(label | document)"),
    ),
    "lstmn": (
        (r"encoder:input", "x_1 … x_m"),
        (r"decoder:input", "y_0 … y_{n−1}"),
        (r"(source|target) Embedding", "x_t"),
        (r"layers\.\d+ cat", "[h^{(ℓ−1)}_t; h̃^{(ℓ)}_{t−1}]"),
        (r"intra\.score\.query", "W_x h^{(ℓ−1)}_t + W_h̃ h̃^{(ℓ)}_{t−1}"),
        (r"intra\.score\.key", "W_h h^{(ℓ)}_i"),
        (r"intra score$", "a^{t(ℓ)}_i = v^⊤ tanh(…)"),
        (r"intra weights$", "s^{t(ℓ)}_i"),
        (r"intra sum$", "[h̃^{(ℓ)}_t; c̃^{(ℓ)}_t] = Σ_i s^{t(ℓ)}_i [h^{(ℓ)}_i; c^{(ℓ)}_i]"),
        (r"cell Layer", "W [h̃^{(ℓ)}_t; h^{(ℓ−1)}_t]"),
        (rf"step_lstm{HISTORY}", "H^{(ℓ)}_{t−1}, C^{(ℓ)}_{t−1}"),
        (r"step_lstm", "[h^{(ℓ)}_t; c^{(ℓ)}_t]"),
        (r"attention\.score\.query", "W h_t"),
        (r"attention\.score\.key", "W_γ γ_j"),
        (r"attention score$", "b^t_j = u^⊤ tanh(…)"),
        (r"attention weights$", "p^t_j"),
        (r"attention sum$", "γ̃_t = Σ_j p^t_j γ_j"),
        (r"decoder: cat", "[γ̃_t; h_t]"),
        (r"gate Linear", "W_r [γ̃_t; h^{(ℓ−1)}_t]"),
        (r"decoder: sigmoid", "r_t"),
        (r"decoder: mul", "r_t ∘ α̃_t"),
        (r"encoder: sum$", "Σ_t h_t / m"),
        (r"decoder: softmax$", "p(y_t | y_{<t})"),
        (r"encoder: softmax$", "p(label | x)"),
    ),
    "ntm": (
        (r"encoder:input", "x_1 … x_m"),
        (r"decoder:input", "y_0 … y_{n−1}"),
        (r"(source|target) Embedding", "x_t"),
        (r"controller\.net Linear", "W [x_t; r_{t−1}]"),
        (r"controller", "h_t"),
        (r"steer", "k_t, β_t, g_t, s_t, γ_t, e_t, a_t"),
        (r"content Cosine", "β_t cos(k_t, M_{t−1}(i))"),
        (r"heads softmax 2", "s_t"),
        (r"heads softmax", "w^c_t"),
        (r"heads sigmoid 2", "e_t"),
        (r"heads sigmoid", "g_t"),
        (r"lerp", "w^g_t = g_t w^c_t + (1 − g_t) w_{t−1}"),
        (r"shift", "w̃_t"),
        (r"softplus", "γ_t"),
        (r"sharpen", "w_t"),
        (r"heads mul", "M̃_t"),
        (r"baddbmm", "M_t"),
        (r"heads matmul 2", "r_t"),
        (r"heads matmul", "w_t e_t^⊤"),
        (r"first_reads", "r_0"),
        (r"decoder: cat$", "[h_t; r_t]"),
        (r" softmax$", "p(y_t)"),
    ),
    "convnet": (
        (r"input", "pixels"),
        (r"attention\.query", "f(x) = W_f x"),
        (r"attention\.key", "g(x) = W_g x"),
        (r"attention\.value", "h(x) = W_h x"),
        (r"attention score$", "s_{ij} = f(x_i)^⊤ g(x_j)"),
        (r"attention weights$", "β_{j,i}"),
        (r"attention sum$", "Σ_i β_{j,i} h(x_i)"),
        (r"attention\.output", "o_j = W_v (…)"),
        (r"gamma", "γ"),
        (r"attention mul", "γ o_j"),
        (r"attention add", "y_j = γ o_j + x_j"),
        (r" softmax$", "p(label | pixels)"),
    ),
}
GENERAL = ((r"learned", ""), *BLOCKS)
# Options that change what a box holds: the kind, the option and its value, and what then is written otherwise.
VARIANTS: tuple[tuple[str, str, object, tuple[tuple[str, str], ...]], ...] = (
    *(
        (kind, "activation", name, ((r"feed\.1 ", symbol),))
        for kind in ("transformer", "encoder")
        for name, symbol in (("gelu", "· Φ(·)"), ("silu", "· σ(·)"))
    ),
    ("rnnsearch", "output", "previous", ((r"decoder: cat", "[s_{i−1}; E y_{i−1}; c_i]"),)),
    ("rnnsearch", "has_recurrent_encoder", False, ((r"begin", "W_s Σ_j h_j / m"),)),
    ("rnnsearch", "bidirectional", False, ((r"begin", "W_s h_m"),)),
    ("luong", "has_recurrent_encoder", False, ((r"begin", "W_0 Σ_s h̄_s / m"),)),
    ("luong", "score", "dot", ((r"decoder:attention score$", "score(h_t, h̄_s) = h_t^⊤ h̄_s"),)),
    ("luong", "score", "general", ((r"decoder:attention score$", "score(h_t, h̄_s) = h_t^⊤ W_a h̄_s"),)),
    ("luong", "score", "concat", ((r"decoder:attention score$", "score(h_t, h̄_s) = v_a^⊤ tanh(W_a [h_t; h̄_s])"),)),
    ("luong", "score", "location", ((r"decoder:attention score$", "W_a h_t"),)),
    (
        "luong",
        "span",
        "local-p",
        ((r"decoder:attention weights$", "align(h_t, h̄_s)"), (r"decoder:attention gate$", "a_t(s)")),
    ),
    (
        "captioner",
        "decoder",
        "transformer",
        (
            (r"decoder:.*tokens Embedding", "E y_i"),
            (r"decoder:.*positions (Sinusoidal|Embedded)", "y_i + p_i"),
            (r"readout", "logits"),
            (r"decoder: softmax$", "p(y_i | y_{<i}, a)"),
        ),
    ),
    ("lstmn", "intra", False, ((r"cell Layer", "W [h^{(ℓ)}_{t−1}; h^{(ℓ−1)}_t]"),)),
    (
        "lstmn",
        "job",
        "translate",
        (
            (r"encoder\.layers\.\d+ step_lstm$", "[h^{(ℓ)}_t; c^{(ℓ)}_t]‖[γ_t; α_t] = [h_t; c_t]"),
            (r"decoder: softmax$", "p(y_t | y_{<t}, x)"),
        ),
    ),
    (
        "lstmn",
        "fusion",
        "deep",
        (
            (r"attention\.score\.query", "W_x h^{(ℓ−1)}_t + W_γ̃ γ̃_{t−1}"),
            (r"decoder: cat$", "[h^{(ℓ−1)}_t; γ̃_{t−1}]"),
            (r"decoder: cat 2", "[γ̃_t; h^{(ℓ−1)}_t]"),
            (r"attention sum$", "[γ̃_t; α̃_t] = Σ_j p^t_j [γ_j; α_j]"),
        ),
    ),
)
OPERATIONS = {
    "dropout_add": "add",
    "__add__": "add",
    "add_": "add",
    "sub": "subtract",
    "mul": "multiply",
    "__mul__": "multiply",
    "div": "divide",
    "cat": "concatenate",
    "relu": "ReLU",
    "gelu": "GELU",
    "silu": "SiLU",
    "sigmoid": "σ",
    "matmul": "matrix product",
    "bmm": "matrix product",
    "baddbmm": "write",
    "amax": "maximum",
    "maximum": "maximum",
    "log": "log",
    "lerp": "gate",
    "glu": "gated linear unit",
    "pool_mean": "mean",
    "pool_max": "maximum",
    "shift_weights": "shift",
    "sharpen_weights": "sharpen",
    "step_lstm": "LSTM gates i, f, o",
    "scatter_add": "sum over places of a word",
    "avg_pool2d": "average pool",
    "sum": "sum",
}
STAGES = {
    "score": "score",
    "scale": "scale",
    "bias": "add bias",
    "mask": "mask",
    "gate": "gate",
    "sum": "weighted sum",
    "concatenate": "concatenate",
}
PROJECTIONS = {"query": "W_Q", "key": "W_K", "value": "W_V", "output": "W_O"}
CELLS = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}
CLASSES = {
    "Embedding": "embedding",
    "Linear": "linear",
    "LayerNorm": "layer norm",
    "PlaceNorm": "norm at each place",
    "BatchNorm2d": "batch norm",
    "ReLUDropout": "ReLU",
    "ReLU": "ReLU",
    "GELUDropout": "GELU",
    "GELU": "GELU",
    "SiLUDropout": "SiLU",
    "SiLU": "SiLU",
    "Tanh": "tanh",
    "Cosine": "score",
    "General": "linear",
    "Rotary": "rotate by position",
    "Sinusoidal2D": "add positions",
}


def symbol_of(unit: Unit, passed: TinyPass) -> str:
    """Return the symbol that a kind's paper has for a unit's result; empty where no paper has one."""
    return number_layer(layer_symbol_of(unit, passed), *layer_of(unit, passed))


def layer_symbol_of(unit: Unit, passed: TinyPass) -> str:
    """Return the symbol of a unit with ℓ for its layer, which holds for every layer of a stack."""
    return find_symbol(description(unit, passed), passed)


def find_symbol(text: str, passed: TinyPass) -> str:
    """Find the symbol of the first pattern that fits a unit's description."""
    kind = "" if passed.kind is None else passed.kind.name
    config = getattr(passed.trace.model, "config", None)
    changed = [
        pair
        for name, option, value, pairs in VARIANTS
        if name == kind and getattr(config, option, None) == value
        for pair in pairs
    ]
    rows = (*changed, *SYMBOLS.get(kind, ()), *GENERAL)
    return next((symbol for pattern, symbol in rows if re.search(pattern, text)), "")


def layer_of(unit: Unit, passed: TinyPass) -> tuple[int, int]:
    """Return a unit's layer in its stack, from 1, and the number of layers; a unit in no layer is above the top one."""
    if unit.layer is not None:
        return unit.layer
    parts = unit.module.split(".")
    for index, part in enumerate(parts):
        around = passed.trace.modules.get(".".join(parts[:index]))
        if part.isdigit() and isinstance(around, nn.ModuleList):
            return int(part) + 1, len(around)
    layers = getattr(getattr(passed.trace.model, "config", None), "layers", 1)
    return layers, layers


def number_layer(symbol: str, layer: int, layers: int) -> str:
    """Replace ℓ in a symbol by its layer: nothing for the top one, and x_t for what the first reads."""
    below, _, top = symbol.partition("‖")
    symbol = top if top and layer == layers else below
    symbol = symbol.replace("h^{(ℓ−1)}_t", "x_t" if layer == 1 else f"h^{{({layer - 1})}}_t")
    number = "" if layer == layers else f"({layer})"
    return symbol.replace("^{(ℓ)}", f"^{{{number}}}" if number else "").replace("(ℓ)", number)


def description(unit: Unit, passed: TinyPass) -> str:
    """Describe a unit for patterns: side, module, operation, and a number where the module has several."""
    if unit.kind == "input":
        return f"{unit.phase}:input {unit.operation}"
    if unit.kind == "learned":
        return f"{unit.phase}:{unit.module}.{unit.operation} learned"
    same = attrgetter("phase", "module", "operation", "kind", "layer")
    alike = [
        each.id for each in sorted(passed.trace.units.values(), key=lambda each: each.time) if same(each) == same(unit)
    ]
    number = alike.index(unit.id) + 1
    operation = f"{unit.operation}()" if unit.kind == "operation" and unit.operation in STAGES else unit.operation
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
        return f"÷ {unit.note}" if unit.operation == "scale" else STAGES[unit.operation]
    if unit.kind == "operation":
        label = OPERATIONS.get(unit.operation, unit.operation.strip("_").replace("_", " "))
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
    if projects and key in PROJECTIONS:
        return PROJECTIONS[key]
    if isinstance(module, Layer):
        return CELLS[module.kind]
    if isinstance(module, nn.Conv2d):
        return f"{module.kernel_size[0]} × {module.kernel_size[1]} convolution"
    if type(module).__name__ in ("Sinusoidal", "Embedded"):
        return "add positions" if module.join == "add" else "append positions"
    return CLASSES.get(type(module).__name__, type(module).__name__)


def previous_label(unit: Unit, passed: TinyPass, history: bool) -> tuple[str, str]:
    """Return the label of a unit's output in the step before, or in all: words, and its symbol with ℓ for the layer."""
    if history:
        text = description(unit, passed) + HISTORY
        rows = () if passed.kind is None else SYMBOLS.get(passed.kind.name, ())
        return "all steps before", next((symbol for pattern, symbol in rows if re.search(f"{pattern}$", text)), "")
    symbol = layer_symbol_of(unit, passed).partition(" =")[0]
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
