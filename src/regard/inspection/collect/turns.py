"""One step of a Turing machine's head in numbers: content, gate, shift, sharpen (Graves et al. 2014, section 3.3)."""

# m slots · w width
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from regard.inspection.collect.exhibit import Stage, View
from regard.inspection.collect.forward_pass import ForwardPass
from regard.models.ntm.model import NTMModel, sharpen_weights, shift_weights

__all__ = ["turn_stages"]


def turn_stages(forward: ForwardPass, view: View, head: int, row: int, slots: Sequence[str]) -> tuple[Stage, ...]:
    """How a head found its places in one step, and what it read there, or wrote."""
    model = forward.model
    assert isinstance(model, NTMModel)
    heads, named = model.heads, tuple(slots)
    steps = len(forward.forced.sides["source"].pieces)
    turn = forward.turns[row if view.rows == "source" else steps + row]
    writes = view.name.endswith(".write")
    where, what = heads.steer(turn.hidden).split([2 * heads.heads * heads.place, 2 * heads.heads * heads.width], -1)
    number = head + writes * heads.heads
    mine = where.unflatten(-1, (2 * heads.heads, heads.place))[:, number, None]
    key, gate, shifts, power = mine.split([heads.width + 1, 1, heads.shifts, 1], -1)
    memory, before = turn.before.memory, turn.before.weights[:, number, None]
    content = heads.content(key, heads.content.project(memory))
    found = torch.softmax(content, -1)
    gated = torch.lerp(before, found, torch.sigmoid(gate))
    shifted = shift_weights(gated, torch.softmax(shifts, -1))
    sharp = sharpen_weights(shifted, 1 + F.softplus(power))
    beta, opened, gamma = (float(x) for x in (F.softplus(key[..., -1]), torch.sigmoid(gate), 1 + F.softplus(power)))

    def column(values: torch.Tensor) -> torch.Tensor:
        return values[0, 0, :, None].float().cpu()

    stages = [
        Stage("k", "what this head looks for", key[0, :, :-1].float().cpu(), ("k",)),
        Stage("M", "the memory as the last step left it", memory[0].float().cpu(), named),
        Stage("β cos(k, M)", f"how alike each slot is, sharpness β = {beta:.3f}", column(content), named),
        Stage("w^c", "found by content: softmax", column(found), named),
        Stage("w^g", f"gate g = {opened:.3f}: found, or where it was", column(gated), named),
        Stage("w̃", "moved along", column(shifted), named),
        Stage("w", f"sharpened, γ = {gamma:.3f}", column(sharp), named),
    ]
    if writes:
        erase, add = what.unflatten(-1, (2, heads.heads, heads.width)).unbind(1)
        stages.append(Stage("e", "erased there", torch.sigmoid(erase[:, head]).float().cpu(), ("e",)))
        stages.append(Stage("a", "added there", add[:, head].float().cpu(), ("a",)))
    else:
        after = heads(turn.hidden, turn.before)[0]  # reading comes after all heads have written
        stages.append(Stage("Σ w M", "what is read", (sharp @ after)[0].float().cpu(), ("r",)))
    return tuple(stages)
