"""The stages from a context to a word: joined heads, add and norm, feed-forward, layers above, the likeliest words.

All of it is what the modules made in the pass itself. A recurrent model's own words for it are its `notation`.
"""

# d width · v words or labels
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.attention import Block, GridSelfAttention, Heads
from regard.inspection.collect.exhibit import Stage, View
from regard.inspection.collect.gates import cell_gates
from regard.inspection.collect.stages import block_of, one
from regard.inspection.collect.teacher_forcing import ForwardPass, Recording
from regard.models import Layer, Reading

Vocabulary = Callable[[Sequence[int]], Sequence[str]]  # the names of an output's numbers: pieces, or labels
LIKELIEST = 5
TOGETHER, BLOCK, ABOVE = "Heads together", "Add, norm, feed-forward", "Through the layers above"
STEP, READOUT, WORD = "The cell's step", "To the readout", "The likeliest"


def after_stages(forward: ForwardPass, view: View, row: int) -> list[Stage]:
    """List the stages from a row's context to the readout."""
    module = forward.module(view.name)
    if isinstance(module, Heads):
        stages = heads_stages(forward, view.name, module, row)
        block = block_of(forward, view.name)
        return (
            stages if block is None else stages + block_stages(forward, *block, row) + stack_stages(forward, view, row)
        )
    if isinstance(module, GridSelfAttention):
        return grid_stages(forward, view.name, module, row) + reading_stages(forward, view, row)
    return tape_stages(forward, view.name, row) + reading_stages(forward, view, row)


def recording_of(forward: ForwardPass) -> Recording:
    """Return the recording of a pass that was recorded."""
    assert forward.recording is not None, "a walk needs a pass with record=True"
    return forward.recording


# ---- blocks


def heads_stages(forward: ForwardPass, name: str, heads: Heads, row: int) -> list[Stage]:
    """List the stages that join the heads side by side, and multiply by W_O where there is one."""
    recording = recording_of(forward)
    result = recording.output(name, row)
    together = result if heads.output is None else recording.input(f"{name}.output", row)
    names = tuple(f"head {number + 1}" for number in range(heads.heads))
    stages = [
        Stage("concat", "the contexts of all heads, side by side", together.unflatten(-1, (heads.heads, -1)), names,
              f"[{'head₁; …; ' if heads.heads > 1 else ''}head{subscript(heads.heads)}]", TOGETHER)
    ]  # fmt: skip
    if heads.output is not None:
        stages.append(one("y", "what the attention gives", result, "y = concat W_O + b_O", TOGETHER))
    return stages


def subscript(number: int) -> str:
    """Write a number as a subscript."""
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def block_stages(forward: ForwardPass, name: str, block: Block, part: str, row: int) -> list[Stage]:
    """List the stages of a block after one of its attentions: residual and norm, in the block's order."""
    recording, stages = recording_of(forward), list[Stage]()
    parts = ["attention", *["cross"] * (block.cross is not None), *["feed"] * (block.feed is not None)]
    for each, following in zip(parts, [*parts[1:], None], strict=True):
        if parts.index(each) < parts.index(part):
            continue
        y = "FFN" if each == "feed" else "y" if each == part else "y′"
        if each == "feed":
            stages += feed_stages(recording, name, block, row)
        elif each != part:
            stages += between_stages(recording, name, row)
        if block.norm == "pre":
            end = recording.output(name, row) if following is None else recording.input(f"{name}.{following}_norm", row)
            stages += sum_stages(block, "r", y, end)
            continue
        stages += sum_stages(block, "x", y, recording.input(f"{name}.{each}_norm", row))
        if block.norm == "post":
            summed = f"x + {y}" if block.has_residual else y
            normed = recording.output(f"{name}.{each}_norm", row)
            words = "and normalised: the residual stream from here on"
            stages.append(one(f"LN({summed})", words, normed, f"LayerNorm({summed})", BLOCK))
    return stages


def sum_stages(block: Block, stream: str, y: str, values: Tensor) -> list[Stage]:
    """List the stages that add a part's output to the residual stream, where the block has one."""
    if not block.has_residual:
        return []
    return [one(f"{stream} + {y}", "added to the residual stream", values, part=BLOCK, main=block.norm != "post")]


def between_stages(recording: Recording, name: str, row: int) -> list[Stage]:
    """List the stages of the attention to the source that follows self-attention in a decoder's block."""
    result = recording.output(f"{name}.cross", row)
    return [one("y′", "what the attention to the source gives, in the same block", result, part=BLOCK, main=False)]


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
    """List the stages of the residual stream through the blocks above, up to its end."""
    recording = recording_of(forward)
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
    if writes(forward, view):
        return stages
    if forward.forced.target is None:
        pooled = recording.input("readout", 0)
        words = "the document: its words, weighed and summed" if has_pooling(forward) else "the mean of all words"
        return [*stages, one("pooled", words, pooled, part=ABOVE)]
    last = recording.output(final, row)
    return [*stages, one("m", "the memory of this word: what the decoder looks at", last, part=ABOVE)]


def has_pooling(forward: ForwardPass) -> bool:
    """Return whether words are pooled by an attention."""
    return any(view.rpartition(".")[2] == "pooling" for view in forward.looks)


def writes(forward: ForwardPass, view: View) -> bool:
    """Return whether the rows of a view are positions at which a word is written."""
    return view.rows in ("written", "read")


# ---- places of a grid


def grid_stages(forward: ForwardPass, name: str, module: GridSelfAttention, row: int) -> list[Stage]:
    """List the stage that puts the sum back at its place of the grid."""
    recording = recording_of(forward)

    def at(tensor: Tensor) -> Tensor:
        return tensor[0].flatten(1)[:, row].float().cpu()

    gamma = float(module.gamma)
    return [
        one("y", "back to the channels of the map", at(recording.calls[f"{name}.output"][0].output), "y = W_v Σ a v",
            TOGETHER),
        one("x + γ y", f"added to the features of this place, γ = {gamma:.3f}", at(recording.calls[name][0].output),
            part=TOGETHER),
    ]  # fmt: skip


# ---- recurrent models


def tape_stages(forward: ForwardPass, name: str, row: int) -> list[Stage]:
    """List the stages of a cell's step that begins with what its own attention read, as an LSTMN's."""
    recording, owner = recording_of(forward), name.rpartition(".")[0]
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
    """List the stages between the context and the readout that the model's own notation names."""
    if view is not None and not writes(forward, view) and forward.forced.target is not None:
        return []  # a word of the source: others will read it
    row = row if forward.forced.target is not None else 0
    stages = list[Stage]()
    for reading in forward.model.notation.readout:
        values = read(recording_of(forward), reading, row)
        if values is not None:
            stages.append(
                one(reading.formula.split(" = ")[0], reading.words, values, reading.formula, READOUT, reading.main)
            )
    return stages


def read(recording: Recording, reading: Reading, row: int) -> Tensor | None:
    """Return the numbers of a reading; None where its module did not run with these options."""
    name = reading.module
    if name.endswith(".*"):
        ran = {each for each in (*recording.calls, *recording.steps) if each.rpartition(".")[0] == name[:-2]}
        name = max(ran, key=lambda each: int(each.rpartition(".")[2]))  # the last of several layers
    if reading.what == "state":
        if name in recording.steps:
            return recording.steps[name][row].after[0, 0].float().cpu()
        return recording.calls[name][0].output[0][0, row].float().cpu() if name in recording.calls else None
    if name not in recording.calls:
        return None
    return recording.input(name, row) if reading.what == "input" else recording.output(name, row)


# ---- words


def word_stages(forward: ForwardPass, view: View | None, row: int, vocabulary: Vocabulary) -> list[Stage]:
    """List the scores and the probabilities of the five likeliest words, or of labels, by the model's own logits."""
    label = forward.forced.target is None
    if not label and view is not None and not writes(forward, view):
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
