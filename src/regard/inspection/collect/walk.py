"""The walk of one word: all intermediate numbers of a pass from the word's input to the likeliest words.

    exhibit_of(load("runs/demo"), "I ate pizza yesterday.", walk=Which("decoder.blocks.1.cross", head=0, row=2)).walk

From the context, a walk continues with the concatenated heads, add and norm, the feed-forward net, the layers above and
the likeliest words. All numbers are outputs of the modules in the pass itself. A recurrent model describes its stages
in its `notation`. Its walk includes states and gates for each word; as PyTorch's layers return only h, gates are
recomputed from the layer's weights and inputs.
"""

# b rows of a batch · n positions · g gates · p parts of a state · d width · v words or labels
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Block, GridSelfAttention, Heads
from regard.data import START
from regard.errors import ArgumentError
from regard.inspection.collect.attention_stages import attention_stages, block_of, call_of, input_stages, one
from regard.inspection.collect.exhibit import Gates, Stage, State, View, Walk, find_view
from regard.inspection.collect.forward_pass import (
    MEMORY_VIEWS,
    CellStep,
    ForwardPass,
    ModuleCall,
    Recording,
    memory_stages,
)
from regard.kernels import linear
from regard.models import Documents, Layer, Reading
from regard.tasks import TrainedRun

WORDS, SENTENCES = "The words of each sentence", "The sentences"  # headings of stages of a document
Vocabulary = Callable[[Sequence[int]], Sequence[str]]  # maps output numbers to pieces or labels
LIKELIEST = 5
TOGETHER, BLOCK, ABOVE = "Heads together", "Add, norm, feed-forward", "Through the layers above"
STEP, READOUT, WORD = "The cell's step", "To the readout", "The likeliest"
NUMBER = re.compile(r"\.(?:blocks|layers|forwards|backwards)\.(\d+)")


@dataclass(frozen=True)
class Which:
    """The choice of a walk: a view by name or title, one of its heads, and one of its rows, by number or by word.

    All numbers count from 0. The default is the attention to the source, its first head, and the first word.
    """

    view: str | None = None
    head: int | None = None
    row: int | None = None
    word: int | None = None


def vocabulary_of(run: TrainedRun) -> Vocabulary:
    """Return a function from output numbers to names: a run's labels, or the pieces of its target tokenizer."""
    if run.labels:
        return lambda numbers: [run.labels[number] for number in numbers]
    return run.tokenizers.target.pieces


@torch.no_grad()
def walk_of(
    forward: ForwardPass,
    views: Sequence[View],
    which: Which = Which(),  # noqa: B008
    vocabulary: Vocabulary = lambda numbers: list(map(str, numbers)),
) -> Walk:
    """Build the walk of a recorded pass, with states and gates."""
    recurrent = states_of(forward), gates_of(forward)
    if not views:
        if which.view is not None or which.head is not None:
            raise ArgumentError("view: given, but the model has no attention to walk through")
        row = 0 if forward.forced.target is None else find_row(forward.sides["written"].words, which, "the output")
        if forward.forced.target is not None:
            check_number("row", row, len(forward.logits), "the output")
        stages = [*reading_stages(forward, None, row), *word_stages(forward, None, row, vocabulary)]
        return Walk("", 0, row, tuple(stages), *recurrent)
    view = find_view(views, which.view)
    head, side = which.head or 0, forward.sides.get(view.rows)
    words = tuple(range(view.weights.shape[1])) if side is None else side.words
    if which.row is None and which.word is None:  # the first word with a nonzero weight
        looks = (view.weights.abs().sum((0, 2)) > 0).tolist()
        row = next((row for row, word in enumerate(words) if word is not None and looks[row]), 0)
    else:
        row = find_row(words, which, view.title)
    check_number("head", head, len(view.weights), view.title)
    check_number("row", row, view.weights.shape[1], view.title)
    stages = [*looking_stages(forward, views, view, head, row), *word_stages(forward, view, row, vocabulary)]
    return Walk(view.name, head, row, tuple(stages), *recurrent)


def check_number(name: str, number: int, count: int, where: str) -> None:
    """Raise an error if a head or a row does not exist."""
    if not 0 <= number < count:
        raise ArgumentError(f"{name} {number + 1}: {where} has {count} {name}s, numbered 1 to {count}")


def looking_stages(forward: ForwardPass, views: Sequence[View], view: View, head: int, row: int) -> list[Stage]:
    """List the stages between the input of a view's row and the readout."""
    columns = forward.names(view.columns, view.weights.shape[2])
    if view.name in MEMORY_VIEWS:
        step = forward.head_steps[row if view.rows == "source" else len(forward.forced.sides["source"].pieces) + row]
        return [*memory_stages(step, view.name, head, columns), *reading_stages(forward, view, row)]
    call, at = call_of(forward, view.name, row)
    each_sentence = forward.by_sentence(view.name)
    contexts = forward.sides["sentences"].pieces if each_sentence else ("context",)
    notation = forward.model.notation.of(view.name)
    stages = attention_stages(call, head, at, columns, contexts, notation)
    if each_sentence:
        stages = [replace(stage, part=WORDS) for stage in stages]
        for other in (each for each in views if each.columns == "sentences"):
            call, at = call_of(forward, other.name, 0)
            columns_of = forward.names(other.columns, other.weights.shape[2])
            notation = forward.model.notation.of(other.name)
            for stage in attention_stages(call, 0, at, columns_of, ("document",), notation):
                symbol, formula = f"{stage.symbol} of sentences", stage.formula or stage.symbol
                stages.append(replace(stage, symbol=symbol, formula=formula, part=SENTENCES))
    return [*input_stages(forward, view.name, head, row, columns), *stages, *after_stages(forward, view, row)]


def find_row(words: Sequence[int | None], which: Which, where: str) -> int:
    """Return the chosen row: by its own number, or the first piece of the chosen word; 0 by default."""
    if which.row is not None:
        return which.row
    if which.word is None:
        return 0
    if which.word not in words:
        count = len({word for word in words if word is not None})
        raise ArgumentError(f"word {which.word + 1}: {where} has only {count} words")
    return words.index(which.word)


def after_stages(forward: ForwardPass, view: View, row: int) -> list[Stage]:
    """List the stages from a row's context to the readout."""
    name, module, recording = view.name, forward.looks.modules[view.name], forward.recording
    if isinstance(module, GridSelfAttention):
        maps = (recording.calls[each][0].output[0] for each in (f"{name}.output", name))
        back, added = (each.flatten(1)[:, row] for each in maps)
        words = f"added to the features of this place, γ = {float(module.gamma):.3f}"
        return [
            one("y", "back to the channels of the map", back, "y = W_v Σ a v", TOGETHER),
            one("x + γ y", words, added, part=TOGETHER),
            *reading_stages(forward, view, row),
        ]
    if not isinstance(module, Heads):
        return tape_stages(forward, name, row) + reading_stages(forward, view, row)
    result = recording.output(name, row)
    together = result if module.output is None else recording.input(f"{name}.output", row)
    names = tuple(f"head {number + 1}" for number in range(module.heads))
    last = str(module.heads).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
    stages = [
        Stage("concat", "the contexts of all heads, side by side", together.unflatten(-1, (module.heads, -1)), names,
              f"[{'head₁; …; ' if module.heads > 1 else ''}head{last}]", TOGETHER)
    ]  # fmt: skip
    if module.output is not None:
        stages.append(one("y", "what the attention gives", result, "y = concat W_O + b_O", TOGETHER))
    block = block_of(forward, name)
    return stages if block is None else stages + block_stages(forward, *block, row) + stack_stages(forward, view, row)


# ---- blocks


def block_stages(forward: ForwardPass, name: str, block: Block, part: str, row: int) -> list[Stage]:
    """List the stages of a block after one of its attentions: residual and norm, in the block's order."""
    recording, stages = forward.recording, list[Stage]()
    parts = ["attention", *["cross"] * (block.cross is not None), *["feed"] * (block.feed is not None)]
    for each, following in zip(parts, [*parts[1:], None], strict=True):
        if parts.index(each) < parts.index(part):
            continue
        y = "FFN" if each == "feed" else "y" if each == part else "y′"
        if each == "feed":
            stages += feed_stages(recording, name, block, row)
        elif each != part:
            words = "what the attention to the source gives, in the same block"
            stages.append(one("y′", words, recording.output(f"{name}.cross", row), part=BLOCK, main=False))
        stream, reader = ("r", following) if block.norm == "pre" else ("x", each)  # the part whose norm reads the sum
        end = recording.output(name, row) if reader is None else recording.input(f"{name}.{reader}_norm", row)
        if block.has_residual:
            words = "added to the residual stream"
            stages.append(one(f"{stream} + {y}", words, end, part=BLOCK, main=block.norm != "post"))
        if block.norm == "post":
            summed = f"x + {y}" if block.has_residual else y
            normed = recording.output(f"{name}.{each}_norm", row)
            words = "and normalised: the residual stream from here on"
            stages.append(one(f"LN({summed})", words, normed, f"LayerNorm({summed})", BLOCK))
    return stages


def feed_stages(recording: Recording, name: str, block: Block, row: int) -> list[Stage]:
    """List the stages of the feed-forward net, layer by layer."""
    x = "LayerNorm(r)" if block.norm == "pre" else "x"
    feed_input, hidden = recording.input(f"{name}.feed.0", row), recording.output(f"{name}.feed.0", row)
    active, result = recording.output(f"{name}.feed.1", row), recording.output(f"{name}.feed.2", row)
    stages = [one("z", "the input of the feed-forward net", feed_input, f"z = {x}", BLOCK, main=False)]
    stages.append(one("z W₁", "its hidden layer", hidden, "z W₁ + b₁", BLOCK, main=False))
    assert block.feed is not None
    smooth = {nn.GELU: "GELU", nn.SiLU: "SiLU"}
    activation = next((name for kind, name in smooth.items() if isinstance(block.feed[1], kind)), "ReLU")
    formula = "max(0, z W₁ + b₁)" if activation == "ReLU" else f"{activation}(z W₁ + b₁)"
    counted = f"{int((active > 0).sum())} of {len(active)} units are {'active' if activation == 'ReLU' else 'positive'}"
    stages.append(one(activation, counted, active, formula, BLOCK, main=False))
    return [*stages, one("FFN", "what the feed-forward net gives", result, f"FFN = {formula} W₂ + b₂", BLOCK)]


def stack_stages(forward: ForwardPass, view: View, row: int) -> list[Stage]:
    """List the stages of the residual stream through the blocks above, up to the end of the stack."""
    recording = forward.recording
    stack, _, number = view.name.rpartition(".")[0].rpartition(".")
    top = len(forward.model.get_submodule(stack)._modules)
    stages = [
        one(f"layer {above + 1}", "the residual stream behind this layer", recording.output(f"{stack}.{above}", row),
            part=ABOVE, main=False)
        for above in range(int(number) + 1, top)
    ]  # fmt: skip
    final = f"{stack.rpartition('.')[0]}.final_norm"
    if not isinstance(forward.model.get_submodule(final), nn.Identity):
        stages.append(one("LN(r)", "the last norm of the stack", recording.output(final, row), "LayerNorm(r)", ABOVE))
    if writes(view):
        return stages
    if forward.forced.target is None:
        pooled = recording.input("readout", 0)
        pools = any(each.rpartition(".")[2] == "pooling" for each in forward.looks)  # attention pooling
        words = "the document: its words, weighed and summed" if pools else "the mean of all words"
        return [*stages, one("pooled", words, pooled, part=ABOVE)]
    last = recording.output(final, row)
    return [*stages, one("m", "the memory of this word: what the decoder looks at", last, part=ABOVE)]


def writes(view: View) -> bool:
    """Return whether a view's rows are positions at which the model writes a word."""
    return view.rows in ("written", "read")


# ---- recurrent models


def tape_stages(forward: ForwardPass, name: str, row: int) -> list[Stage]:
    """List the stages of a cell's step that starts from the output of its own attention, as in an LSTMN."""
    recording, owner = forward.recording, name.rpartition(".")[0]
    if not owner or owner not in recording.steps:
        return []
    step, cell = recording.steps[owner][row], forward.model.get_submodule(owner).cell
    assert isinstance(cell, Layer)
    values = cell_gates(cell, step.projected, step.before, step.added)
    words = {
        "i": ("i = σ(W_i [h̃_t; x_t] + b)", "the input gate: how much is written"),
        "f": ("f = σ(W_f [h̃_t; x_t] + b)", "the forget gate: how much of c̃ is kept"),
        "o": ("o = σ(W_o [h̃_t; x_t] + b)", "the output gate: how much is shown"),
        "ĉ": ("ĉ_t = tanh(W_c [h̃_t; x_t] + b)", "what could be written"),
        "c": ("c_t = f ∘ c̃_t + i ∘ ĉ_t" + " + r ∘ α̃_t" * (step.added is not None), "the next entry of the memory tape"),
        "h": ("h_t = o ∘ tanh(c_t)", "the next entry of the hidden tape"),
    }
    return [
        one(symbol, text, values[symbol][0], formula, STEP, symbol in "ch") for symbol, (formula, text) in words.items()
    ]


def reading_stages(forward: ForwardPass, view: View | None, row: int) -> list[Stage]:
    """List the stages between the context and the readout, as named by the model's notation."""
    if view is not None and not writes(view) and forward.forced.target is not None:
        return []  # the row is a source word and writes nothing
    row = row if forward.forced.target is not None else 0
    stages = list[Stage]()
    for reading in forward.model.notation.readout:
        values = read(forward.recording, reading, row)
        if values is not None:
            stages.append(
                one(reading.formula.split(" = ")[0], reading.words, values, reading.formula, READOUT, reading.main)
            )
    return stages


def read(recording: Recording, reading: Reading, row: int) -> Tensor | None:
    """Return the numbers of a reading; None if its module did not run with these options."""
    name = reading.module
    if name.endswith(".*"):
        ran = {each for each in (*recording.calls, *recording.steps) if each.rpartition(".")[0] == name[:-2]}
        name = max(ran, key=lambda each: int(each.rpartition(".")[2]))  # the last layer
    if reading.what == "state":
        if name in recording.steps:
            return recording.steps[name][row].after[0, 0].float().cpu()
        return recording.calls[name][0].output[0][0, row].float().cpu() if name in recording.calls else None
    if name not in recording.calls:
        return None
    return recording.input(name, row) if reading.what == "input" else recording.output(name, row)


# ---- words


def word_stages(forward: ForwardPass, view: View | None, row: int, vocabulary: Vocabulary) -> list[Stage]:
    """List the stages of the logits and of the probabilities, for the five likeliest words or labels."""
    label = forward.forced.target is None
    if not label and view is not None and not writes(view):
        return []
    logits = forward.logits[0 if label else row].cpu()
    best = logits.topk(min(LIKELIEST, len(logits))).indices
    names = tuple(vocabulary(best.tolist()))
    what, verb = ("labels", "named") if label else ("next words", "written")
    output = forward.forced.output if label else forward.sides["written"].pieces[row]
    words, formula = f"the scores of the likeliest {what}, of {len(logits):,}", "logits = W readout + b"
    if getattr(getattr(forward.model, "readout", None), "bias", None) is None:
        formula = "logits = W readout"
    if forward.model.points:
        words, formula = "of the weights of all its places together", "log p(y)"
    probability = "p(y) = Σ p(C_i = j), x_j = y" if forward.model.points else "p = softmax(logits)"
    probabilities = torch.softmax(logits, -1)[best, None].float()
    return [
        Stage("logits", words, logits[best, None].float(), names, formula, WORD),
        Stage("p", f"the probability of each; {verb} here: {output}", probabilities, names, probability, WORD),
    ]


# ---- states and gates of recurrent layers


@torch.no_grad()
def states_of(forward: ForwardPass) -> tuple[State, ...]:
    """List the states of the top layer in the order of computation; none for a model that is not recurrent.

    A state is h, without the c of an LSTM; a bidirectional encoder's state contains both directions. The encoder's
    states are in reading order, which may be backwards. The decoder is stepped as in a search.
    """
    model, memory, target, states = forward.model, forward.memory, forward.forced.target, list[State]()
    read = model.source_states(memory)
    if read is not None and "source" in forward.forced.sides:
        pairs = list(zip(forward.forced.sides["source"].names, read[0].float().cpu(), strict=False))
        ordered = reversed(pairs) if model.reads_backwards else pairs
        states += [State(piece, values, "source") for piece, values in ordered]
    if target is None:
        return tuple(states)
    state = model.start(memory, 1, len(target) + 1)
    if model.hidden_state(state) is None:
        return tuple(states)
    for piece, token in zip(forward.forced.sides["read"].pieces, (START, *target), strict=True):
        _, state = model.step(torch.tensor([token], device=memory.states.device), state)
        hidden = model.hidden_state(state)
        assert hidden is not None
        states.append(State(piece, hidden[0].float().cpu().clone(), "target"))
    return tuple(states)


def cell_gates(
    layer: Layer, projected: Float[Tensor, "b g"], before: Float[Tensor, "b p d"], added: Tensor | None = None
) -> dict[str, Float[Tensor, "b d"]]:
    """Compute the gates of one step and the state after it: i, f, o, ĉ, c and h for an LSTM."""
    h, net = before[:, 0], layer.net
    recurrent = linear(h, net.weight_hh_l0, net.bias_hh_l0)
    if layer.kind == "gru":
        (r, z), size = torch.sigmoid((projected + recurrent)[:, : 2 * layer.size]).chunk(2, -1), layer.size
        proposed = torch.tanh(projected[:, 2 * size :] + r * recurrent[:, 2 * size :])
        return {"r": r, "z": z, "h̃": proposed, "h": z * h + (1 - z) * proposed}
    if layer.kind == "rnn":
        sums = projected + recurrent
        return {"h": torch.tanh(sums) if layer.nonlinearity == "tanh" else torch.relu(sums)}
    i, f, proposed, o = (projected + recurrent).chunk(4, -1)
    i, f, o, proposed = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(proposed)
    c = f * before[:, 1] + i * proposed
    c = c if added is None else c + added
    return {"i": i, "f": f, "o": o, "ĉ": proposed, "c": c, "h": o * torch.tanh(c)}


def run_gates(layer: Layer, call: ModuleCall) -> dict[str, Float[Tensor, "b n d"]]:
    """Compute the gates at every position of one call of a layer that processes whole sentences."""
    x = call.inputs[0]
    initial = call.inputs[1] if len(call.inputs) > 1 else None
    state = x.new_zeros(len(x), layer.parts, layer.size) if initial is None else initial
    steps = []
    for projected in layer.project(x).unbind(1):
        steps.append(cell_gates(layer, projected, state))
        state = torch.stack([steps[-1][part] for part in ("h", "c")[: layer.parts]], 1)
    return {symbol: torch.stack([step[symbol] for step in steps], 1) for symbol in steps[0]}


def step_gates(layer: Layer, steps: Sequence[CellStep], tapes: bool = False) -> dict[str, Float[Tensor, "b n d"]]:
    """Compute the gates of a layer that ran step by step; for an LSTMN, also h̃ and c̃, read from its tapes."""
    gates = []
    for step in steps:
        read = {"h̃": step.before[:, 0], "c̃": step.before[:, 1]} if tapes else {}
        gates.append(read | cell_gates(layer, step.projected, step.before, step.added))
    return {symbol: torch.stack([each[symbol] for each in gates], 1) for symbol in gates[0]}


@torch.no_grad()
def gates_of(forward: ForwardPass) -> tuple[Gates, ...]:
    """Collect the gates of every recurrent layer of the pass, in the model's order, encoders first.

    There is an entry for each side that a layer reads; a Turing machine's controller reads both.
    """
    recording, gates = forward.recording, list[Gates]()
    for name, module in forward.model.named_modules():
        if not hasattr(module, "step_method") or (name not in recording.calls and name not in recording.steps):
            continue
        layer = module if isinstance(module, Layer) else cast(Layer, module.cell)
        tapes = getattr(module, "intra", None) is not None
        if name in recording.steps:
            values = step_gates(layer, recording.steps[name], tapes)
        else:
            parts = [run_gates(layer, call) for call in recording.calls[name]]
            values = {symbol: torch.cat([part[symbol] for part in parts], 1) for symbol in parts[0]}
        batch, positions = next(iter(values.values())).shape[:2]
        first, sides = 0, forward.sides
        both = "source" in sides and "read" in sides
        if name.startswith("sentence_"):
            layer_sides = ["sentences"]
        elif both and batch * positions == len(sides["source"].pieces) + len(sides["read"].pieces):
            layer_sides = ["source", "read"]
        else:
            layer_sides = ["source" if "read" not in sides or name.startswith("encoder") else "read"]
        for side in layer_sides:
            pieces = sides[side].pieces
            # The source may end with an END that can be attended to but that no layer reads.
            count = len(pieces) if batch > 1 else min(len(pieces), positions - first)
            turned = (".backwards." in name) != (forward.model.reads_backwards and side == "source")
            rows = rows_of(forward, side, batch, first, count, turned)
            numbers = {symbol: each.flatten(0, 1)[rows].float().cpu() for symbol, each in values.items()}
            kind = "lstmn" if tapes else layer.kind
            gates.append(Gates(title_of(forward, name, side), kind, side, pieces[: len(rows)], numbers, turned))
            first += len(pieces)
    return tuple(gates)


def rows_of(forward: ForwardPass, side: str, batch: int, first: int, count: int, turned: bool) -> list[int]:
    """Return the layer's positions of a side's pieces in text order; `turned` says that the layer reads backwards."""
    source = forward.forced.source
    if isinstance(source, Documents) and side == "source" and batch > 1:
        lengths, width = source.words.lengths.tolist(), source.words.ids.shape[1]  # a sentence per row
    else:
        lengths, width = [count], count
    return [
        first + number * width + (length - 1 - place if turned else place)
        for number, length in enumerate(lengths)
        for place in range(length)
    ]


def title_of(forward: ForwardPass, name: str, side: str) -> str:
    """Return the title of a recurrent layer."""
    number = NUMBER.search(name)
    what = {"source": "encoder", "read": "decoder", "sentences": "sentences"}[side]
    if side == "source" and "read" not in forward.sides and "sentences" in forward.sides:
        what = "words"
    title = f"{what}, layer {int(number[1]) + 1}" if number is not None else what
    if ".forwards." in name:
        return f"{title}, from the beginning"
    return f"{title}, from the end" if ".backwards." in name else title
