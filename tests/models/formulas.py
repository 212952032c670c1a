"""The recurrent models' formulas, straight from the papers: one sentence, one step and one vector at a time.

Parameters are read off the models; the gate order r, z, n and i, f, g, o is torch's.
"""

import torch
from torch import Tensor

from regard.models.layers.cells import Layer


def cell(layer: Layer, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    """One step: x [e], state [h] or [h, c], each [d]."""
    net, h = layer.net, state[0]
    w, u = net.weight_ih_l0.chunk(layer.gates), net.weight_hh_l0.chunk(layer.gates)
    b, k = net.bias_ih_l0.chunk(layer.gates), net.bias_hh_l0.chunk(layer.gates)
    if layer.kind == "rnn":
        total = w[0] @ x + b[0] + u[0] @ h + k[0]
        return [torch.tanh(total) if layer.nonlinearity == "tanh" else total.clamp(min=0)]
    if layer.kind == "gru":
        r, z = (1 / (1 + torch.exp(-(w[i] @ x + b[i] + u[i] @ h + k[i]))) for i in (0, 1))
        proposed = torch.tanh(w[2] @ x + b[2] + r * (u[2] @ h + k[2]))
        return [z * h + (1 - z) * proposed]
    i, f, g, o = (w[gate] @ x + b[gate] + u[gate] @ h + k[gate] for gate in range(4))
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


def zeros(layer: Layer) -> list[Tensor]:
    return [torch.zeros(layer.size, dtype=torch.float64) for _ in range(layer.parts)]


def read(layer: Layer, xs: list[Tensor], state: list[Tensor] | None = None) -> tuple[list[Tensor], list[Tensor]]:
    """A layer over a sentence: h after every position, and the last state."""
    state, states = state or zeros(layer), []
    for x in xs:
        state = cell(layer, x, state)
        states.append(state[0])
    return states, state


def read_stack(layers, xs: list[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Layers one on the other: the top's states, and every layer's last."""
    ends = []
    for layer in layers:
        xs, end = read(layer, xs)
        ends.append(end)
    return xs, ends


def step_stack(layers, x: Tensor, states: list[list[Tensor]]) -> tuple[Tensor, list[list[Tensor]]]:
    """One step of all layers."""
    after = []
    for layer, state in zip(layers, states, strict=True):
        after.append(cell(layer, x, state))
        x = after[-1][0]
    return x, after


def maxout(x: Tensor) -> Tensor:
    """The larger of numbers j and j + d."""
    half = len(x) // 2
    return torch.stack([x[j] if x[j] > x[j + half] else x[j + half] for j in range(half)])


def by_sentence(oracle, model, source, target) -> Tensor:
    """An oracle's logits of all real target positions, sentence after sentence."""
    logits = []
    for index in range(len(source.ids)):
        words = source.ids[index, : source.lengths[index]]
        read_so_far = target.ids[index, : target.lengths[index]]
        hidden = oracle(model, words, read_so_far)
        logits += [model.readout.weight @ one + model.readout.bias for one in hidden]
    return torch.stack(logits)
