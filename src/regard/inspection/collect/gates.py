r"""Gates of recurrent layers: what they remember and forget at each word.

torch's layers give h alone; the gates are computed again from the layer's own weights and inputs, as `cells` has them:
$i, f, o = \sigma(W x + U h + b)$ of an LSTM, $r, z$ of a GRU. Of an LSTMN both tapes are given, h and c, and what each
word read off them, $\tilde h$ and $\tilde c$.
"""

# b rows of a batch · n positions · g gates · p parts of a state · d width
import re
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.inspection.collect.exhibit import Gates
from regard.inspection.collect.forward_pass import CellStep, ForwardPass, ModuleCall
from regard.kernels import linear
from regard.models import Documents, Layer

NUMBER = re.compile(r"\.(?:blocks|layers|forwards|backwards)\.(\d+)")


def cell_gates(
    layer: Layer, projected: Float[Tensor, "b g"], before: Float[Tensor, "b p d"], added: Tensor | None = None
) -> dict[str, Float[Tensor, "b d"]]:
    """Compute the gates of one step, and the state after it: for an LSTM i, f, o, ĉ, c and h."""
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
    """Compute the gates at every position of a call of a layer that runs whole sentences."""
    x = call.inputs[0]
    initial = call.inputs[1] if len(call.inputs) > 1 else None
    state = x.new_zeros(len(x), layer.parts, layer.size) if initial is None else initial
    steps = []
    for projected in layer.project(x).unbind(1):
        steps.append(cell_gates(layer, projected, state))
        state = torch.stack([steps[-1][part] for part in ("h", "c")[: layer.parts]], 1)
    return {symbol: torch.stack([step[symbol] for step in steps], 1) for symbol in steps[0]}


def step_gates(layer: Layer, steps: Sequence[CellStep], tapes: bool = False) -> dict[str, Float[Tensor, "b n d"]]:
    """Compute the gates of a layer that took its steps one by one; an LSTMN's with what was read off the tapes."""
    gates = []
    for step in steps:
        read = {"h̃": step.before[:, 0], "c̃": step.before[:, 1]} if tapes else {}
        gates.append(read | cell_gates(layer, step.projected, step.before, step.added))
    return {symbol: torch.stack([each[symbol] for each in gates], 1) for symbol in gates[0]}


@torch.no_grad()
def gates_of(forward: ForwardPass) -> tuple[Gates, ...]:
    """Collect the gates of every recurrent layer of the pass, in the order of the model: encoders first."""
    ran = {*forward.recording.calls, *forward.recording.steps}
    layers = (name for name, module in forward.model.named_modules() if hasattr(module, "step_method"))
    return tuple(each for name in layers if name in ran for each in layer_gates(forward, name))


def layer_gates(forward: ForwardPass, name: str) -> Iterator[Gates]:
    """Collect the gates of one layer, over the sides that it read: a Turing machine's controller reads both."""
    module, recording = forward.model.get_submodule(name), forward.recording
    layer = module if isinstance(module, Layer) else cast(Layer, module.cell)
    tapes = getattr(module, "intra", None) is not None
    if name in recording.steps:
        values = step_gates(layer, recording.steps[name], tapes)
    else:
        parts = [run_gates(layer, call) for call in recording.calls[name]]
        values = {symbol: torch.cat([part[symbol] for part in parts], 1) for symbol in parts[0]}
    batch, positions = next(iter(values.values())).shape[:2]
    first = 0
    for side in sides_of(forward, name, batch * positions):
        pieces = forward.sides[side].pieces
        # END may be a place to attend to that no layer has read.
        count = len(pieces) if batch > 1 else min(len(pieces), positions - first)
        turned = (".backwards." in name) != (forward.model.reads_backwards and side == "source")
        rows = rows_of(forward, side, batch, first, count, turned)
        yield Gates(
            title_of(forward, name, side),
            "lstmn" if tapes else layer.kind,
            side,
            pieces[: len(rows)],
            {symbol: each.flatten(0, 1)[rows].float().cpu() for symbol, each in values.items()},
            turned,
        )
        first += len(pieces)


def sides_of(forward: ForwardPass, name: str, count: int) -> list[str]:
    """List the sides that a layer read, in order."""
    sides = forward.sides
    if name.startswith("sentence_"):
        return ["sentences"]
    if "read" not in sides:
        return ["source"]
    if "source" in sides and count == len(sides["source"].pieces) + len(sides["read"].pieces):
        return ["source", "read"]
    return ["source"] if name.startswith("encoder") else ["read"]


def rows_of(forward: ForwardPass, side: str, batch: int, first: int, count: int, turned: bool) -> list[int]:
    """Find the positions of a side's pieces among the layer's, in the order of the text; it may be `turned` round."""
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
    """Describe a layer in words."""
    number = NUMBER.search(name)
    what = {"source": "encoder", "read": "decoder", "sentences": "sentences"}[side]
    if side == "source" and "read" not in forward.sides and "sentences" in forward.sides:
        what = "words"
    title = f"{what}, layer {int(number[1]) + 1}" if number is not None else what
    if ".forwards." in name:
        return f"{title}, from the beginning"
    return f"{title}, from the end" if ".backwards." in name else title
