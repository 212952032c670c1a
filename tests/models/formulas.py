"""The recurrent models' formulas, straight from the papers: one sentence, one step and one vector at a time.

Parameters are read from the models; the gate order r, z, n and i, f, g, o is torch's.
"""

import oracles
import torch
from attention.test_block import block_by_loop
from torch import Tensor

from regard.attention import Dot, General, Location
from regard.models.encoders import BlockEncoder
from regard.models.recurrent import Bidirectional, Layer


def cell(layer: Layer, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    """Compute one step: x [e], state [h] or [h, c], each [d]."""
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
    """Run a layer over a sentence; return h after every position, and the last state."""
    state, states = state or zeros(layer), []
    for x in xs:
        state = cell(layer, x, state)
        states.append(state[0])
    return states, state


def read_stack(layers, xs: list[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Run stacked layers; return the top layer's states, and every layer's last state."""
    ends = []
    for layer in layers:
        xs, end = read(layer, xs)
        ends.append(end)
    return xs, ends


def step_stack(layers, x: Tensor, states: list[list[Tensor]]) -> tuple[Tensor, list[list[Tensor]]]:
    """Compute one step of all layers."""
    after = []
    for layer, state in zip(layers, states, strict=True):
        after.append(cell(layer, x, state))
        x = after[-1][0]
    return x, after


def annotate(encoder, xs: list[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Run any encoder; return the annotations and every layer's last states (for blocks, the mean annotation)."""
    if isinstance(encoder, BlockEncoder):
        annotations = blocks(encoder, xs)
        return annotations, [[sum(annotations) / len(annotations)]]
    if not isinstance(encoder, Bidirectional):
        return read_stack(encoder.layers, xs)
    ends = []
    for forwards, backwards in zip(encoder.forwards, encoder.backwards, strict=True):
        there, last = read(forwards, xs)
        back, first = read(backwards, xs[::-1])
        xs = [torch.cat(both) for both in zip(there, back[::-1], strict=True)]
        ends.append([torch.cat(both) for both in zip(last, first, strict=True)])
    return xs, ends


def blocks(encoder: BlockEncoder, xs: list[Tensor]) -> list[Tensor]:
    """Run words with their positions through pre-norm blocks and the last norm."""
    if encoder.project is not None:
        xs = [encoder.project.weight @ x + encoder.project.bias for x in xs]
    x = torch.stack([x + oracles.sinusoid(position, len(x)) for position, x in enumerate(xs)])
    for block in encoder.stack.blocks:
        if hasattr(block, "mixing"):
            norm, last = (oracles.layer_norm(each.weight, each.bias) for each in (block.mixing_norm, block.feed_norm))
            inner, outer = (oracles.linear(block.feed[i].weight, block.feed[i].bias) for i in (0, 2))
            feed = oracles.feed_forward(inner, outer)
            x = oracles.residual(x, lambda y, block=block: convolve(block.mixing, y), norm, "pre")
            x = oracles.residual(x, lambda y, feed=feed: oracles.per_vector(feed, y), last, "pre")
        else:
            x = block_by_loop(block, x, heads=block.attention.heads, norm="pre")
    final = encoder.stack.final_norm
    return list(oracles.per_vector(oracles.layer_norm(final.weight, final.bias), x))


def convolve(convolution, x: Tensor) -> Tensor:
    """Compute (A ∘ σ(B)) W, [A; B] a product of every word's neighbours side by side; zeros beyond the ends."""
    made = []
    for place in range(len(x)):
        near = [
            x[at] if 0 <= at < len(x) else x[0] * 0
            for at in range(place - convolution.reach, place + convolution.reach + 1)
        ]
        a, b = (convolution.gated.weight @ torch.cat(near) + convolution.gated.bias).chunk(2)
        made.append(convolution.output.weight @ (a / (1 + torch.exp(-b))) + convolution.output.bias)
    return torch.stack(made)


SINES = {
    "interleaved": oracles.sinusoid,
    "halves": oracles.sinusoid_halves,
    "fairseq": oracles.sinusoid_fairseq,
}


def look(attention, query: Tensor, keys: list[Tensor], **options) -> oracles.Seen:
    """Return one query's context over the keys, and the weights, by the attention's score."""
    score, entries = attention.score, torch.stack(keys)
    match score:
        case Dot():
            formula = oracles.dot
        case General():
            formula = oracles.general(score.weight)
        case Location():
            formula = oracles.location(score.weight)
        case _:
            formula = oracles.additive(score.query.weight, score.key.weight, score.key.bias, score.v)
    seen = oracles.attend(query[None], entries, entries, formula, **options)
    return oracles.Seen(seen.context[0], seen.weights[0])


def maxout(x: Tensor) -> Tensor:
    """Return the larger of numbers j and j + d."""
    half = len(x) // 2
    return torch.stack([x[j] if x[j] > x[j + half] else x[j + half] for j in range(half)])


def check_weights(oracle, model, source, target, weights: Tensor, more: int = 0) -> None:
    """Compare the weights of every step with an oracle's; a pointer has `more` positions beyond the words."""
    assert weights.shape == (len(source.ids), target.ids.shape[1], source.ids.shape[1] + more)
    for index, (m, n) in enumerate(zip(source.lengths.tolist(), target.lengths.tolist(), strict=True)):
        wanted: list[Tensor] = []
        oracle(model, source.ids[index, :m], target.ids[index, :n], seen=wanted)
        oracles.agree(weights[index, :n, : m + more], torch.stack(wanted))
        assert not weights[index, :n, m + more :].any()


def by_sentence(oracle, model, source, target) -> Tensor:
    """Return an oracle's logits of all real target positions, sentence after sentence."""
    logits = []
    for index in range(len(source.ids)):
        words = source.ids[index, : source.lengths[index]]
        read_so_far = target.ids[index, : target.lengths[index]]
        hidden = oracle(model, words, read_so_far)
        logits += [model.readout.weight @ one + model.readout.bias for one in hidden]
    return torch.stack(logits)
