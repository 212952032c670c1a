"""Heads that read and write a memory of places: content, gate, shift, sharpen (Graves et al. 2014, section 3.3).

The formulas stand in `regard.models.ntm`, whose machine these heads are part of.
"""

# b sentences or rows · d width of the controller · p parts of its state · h heads of a kind
# hh = 2h heads, those that read before those that write · m slots · w width · s shifts · k numbers that say where
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import Cosine
from regard.models.layers.recurrent import make_linear

SHUT = -4.0  # a gate before its sigmoid


class Machine(NamedTuple):
    """The state of a machine: everything that it carries from step to step."""

    memory: Float[Tensor, "b m w"]
    weights: Float[Tensor, "b hh m"]
    reads: Float[Tensor, "b h w"]
    state: Float[Tensor, "b p d"]  # the controller's


class MemoryHeads(nn.Module):
    """Heads that write and read a memory, driven by the controller's state."""

    def __init__(self, size: int, *, heads: int, width: int, shift: int):
        super().__init__()
        self.heads, self.width, self.shifts = heads, width, 2 * shift + 1
        self.place = width + 3 + self.shifts  # numbers that say where: k, β, g, s, γ
        self.steer = make_linear(size, 2 * heads * self.place + 2 * heads * width)
        self.content = Cosine("query")
        with torch.no_grad():
            self.steer.bias[: 2 * self.heads * self.place].view(-1, self.place)[:, width + 1] = SHUT

    def forward(
        self, hidden: Float[Tensor, "b d"], machine: Machine, going: Bool[Tensor, "b 1 1"] | None = None
    ) -> tuple[Float[Tensor, "b m w"], Float[Tensor, "b hh m"], Float[Tensor, "b h w"]]:
        """Return memory, weights and reads after a step; rows that are not `going` write nothing."""
        where, what = self.steer(hidden).split([2 * self.heads * self.place, 2 * self.heads * self.width], -1)
        weights = self.address(where.unflatten(-1, (2 * self.heads, self.place)), machine)
        reading, writing = weights.chunk(2, 1)
        if going is not None:
            writing = writing * going
        erase, add = what.unflatten(-1, (2, self.heads, self.width)).unbind(1)
        memory = machine.memory
        for w, e in zip(writing.split(1, 1), torch.sigmoid(erase).split(1, 1), strict=True):
            memory = memory * (1 - w.mT @ e)
        memory = torch.baddbmm(memory, writing.mT, add)
        return memory, weights, reading @ memory

    def address(self, where: Float[Tensor, "b hh k"], machine: Machine) -> Float[Tensor, "b hh m"]:
        """Compute every head's weights, in four stages; s runs from the furthest step forwards to the furthest back."""
        key, gate, shifts, power = where.split([self.width + 1, 1, self.shifts, 1], -1)
        content = torch.softmax(self.content(key, self.content.project(machine.memory)), -1)
        gated = torch.lerp(machine.weights, content, torch.sigmoid(gate))
        return sharpen_weights(shift_weights(gated, torch.softmax(shifts, -1)), 1 + F.softplus(power))


def shift_weights(weights: Float[Tensor, "b hh m"], shifts: Float[Tensor, "b hh s"]) -> Float[Tensor, "b hh m"]:
    """Shift weights round the circle: `shifts` gives the share that goes S places forwards, …, none, …, S back."""
    most, count = shifts.shape[-1] // 2, weights.shape[-1]
    if most == 0:
        return weights
    round_the_circle = torch.cat([weights[..., count - most :], weights, weights[..., :most]], -1)
    return (round_the_circle.unfold(-1, shifts.shape[-1], 1) @ shifts[..., None])[..., 0]


def sharpen_weights(weights: Float[Tensor, "b hh m"], power: Float[Tensor, "b hh 1"]) -> Float[Tensor, "b hh m"]:
    """Raise weights to a power and normalise them; by logarithms, as a high power may underflow."""
    return torch.softmax(power * weights.clamp(min=torch.finfo(weights.dtype).tiny).log(), -1)
