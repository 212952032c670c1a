r"""The two recurrences of the LSTMN, with explicit forward and backward passes for a CPU.

The plain loops of `reference` are the specification. The explicit passes do less work, as in `rnnsearch.py`:

- $\tanh x = 2 \sigma(2x) - 1$, whose constant cancels in the softmax; keys, queries and v absorb the factors.
- The backward pass recomputes the sigmoids of the scores, and collects the gradients of all steps before it
  multiplies.

In addition, tensors are step-major, [n b d], so that all earlier steps, which a step attends to, are one contiguous
block: no mask, and no copy. The gradient of a tape entry from all later steps is one product in the entry's own step,
instead of a sum that every step adds to.
"""

# n steps · m source positions · b sentences · d width of a state, g four times that · dd twice · h width of the scores
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.reference import ScoreWeights as ScoreWeights  # for callers of `run_tapes`

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input
BLOCK = 16  # steps at a time, so that the values between keys and scores stay in the cache
SLOPE = 4  # tanh'(x) = 4 σ'(2x)


def run_tapes(
    projected: Float[Tensor, "n b g"],
    recurrent: Float[Tensor, "g d"],
    added: Float[Tensor, "n b d"] | None = None,
    word_queries: Float[Tensor, "n b h"] | None = None,
    score: ScoreWeights | None = None,
) -> Float[Tensor, "n b dd"]:
    """Compute the tapes [h_t; c_t] of n steps.

    `projected` is x_t's contribution to the gates i, f, ĉ and o, with biases; `recurrent` is the gates' matrix for the
    summary read from the tapes; `added` is added to c_t; `word_queries` are W_x x_t. Without `score`, each step reads
    the entry before it.
    """
    parts = (None,) * 4 if score is None else (score.summary, score.entry, score.bias, score.vector)
    tapes: Tensor = RunTapes.apply(projected, recurrent, added, word_queries, *parts)
    return tapes


def read_source(
    word_queries: Float[Tensor, "n b h"],
    keys: Float[Tensor, "b m h"],
    values: Float[Tensor, "b m dv"],
    exists: Bool[Tensor, "b m"],
    summary: Float[Tensor, "h d"],
    vector: Float[Tensor, " h"],
) -> Float[Tensor, "n b dv"]:
    """Read a source over n steps: queries are `word_queries`, W_x x_t, and the first d elements of the last read.

    `keys` are W γ_j + b, and `exists` is the mask of existing keys.
    """
    reads: Tensor = ReadSource.apply(word_queries, keys, values, exists, summary, vector)
    return reads


def read_tapes(
    queries: Float[Tensor, "r h"],
    keys: Float[Tensor, "r m h"],
    values: Float[Tensor, "r m dd"],
    length: Int[Tensor, " r"],
    vector: Float[Tensor, " h"],
    bounds: tuple[int, int],
) -> Float[Tensor, "r dd"]:
    """Read cached tapes for one step; `bounds` are the fewest and the most entries of a row.

    It has no gradient, and is the whole attention of a decoding step.
    """
    least, most = bounds
    if most == 0:
        return values.new_zeros(len(values), values.shape[-1])
    keys, values = keys[:, :most].transpose(0, 1), values[:, :most].transpose(0, 1)  # step-major, as stored on a CPU
    scores, room = queries.new_empty(most, len(queries)), queries.new_empty(BLOCK, *queries.shape)
    queries, vector = queries * 2, vector * 2
    for first in range(0, most, BLOCK):
        block = keys[first : first + BLOCK]
        hidden = torch.add(queries, block, alpha=2, out=room[: len(block)]).sigmoid_()
        torch.mv(hidden.view(-1, len(vector)), vector, out=scores[first : first + BLOCK].view(-1))
    scores = scores.T.contiguous()
    if least == most:
        return sum_values(torch.softmax(scores, -1), values)
    exists = torch.arange(most, device=scores.device) < length[:, None]
    scores.masked_fill_(~exists, torch.finfo(scores.dtype).min)
    return sum_values(torch.softmax(scores, -1).mul_(exists), values)


def step_lstm(gates: Tensor, read: Tensor, added: Tensor | None, tapes: Tensor, tanh_cell: Tensor) -> Tensor:
    """Run an LSTM step from the gates' sums [b g] and the summary [b dd] read from the tapes.

    It overwrites the gates, and writes an entry of both tapes, [b dd], and tanh(c).
    """
    d = tanh_cell.shape[-1]
    i, f, proposal, o = gates.split(d, -1)
    proposal.mul_(2)
    gates.sigmoid_()
    proposal.mul_(2).sub_(1)
    c = torch.mul(f, read[:, d:], out=tapes[:, d:]).addcmul_(i, proposal)
    if added is not None:
        c.add_(added)
    torch.mul(c, 2, out=tanh_cell).sigmoid_().mul_(2).sub_(1)
    torch.mul(o, tanh_cell, out=tapes[:, :d])
    return tapes


# ---- additive scores over a block of keys


def score_keys(keys: Tensor, query: Tensor, vector: Tensor, room: Tensor) -> Tensor:
    """Compute vᵀσ(k_i + q): [m b h] and [b h] to [b m], overwriting `room`."""
    hidden = torch.add(keys, query, out=room[: len(keys)]).sigmoid_()
    return torch.mv(hidden.view(-1, hidden.shape[-1]), vector).view(hidden.shape[:2]).T.contiguous()


def score_keys_backward(
    keys: Tensor, query: Tensor, d_scores: Tensor, room: Tensor, d_keys: Tensor, d_vector: Tensor
) -> Tensor:
    """Add a score's gradient [m b] to those of keys and v; return the query's. All but v's lack the factor v."""
    hidden, slope = room[0, : len(keys)], room[1, : len(keys)]
    torch.add(keys, query, out=hidden).sigmoid_()
    d_vector += torch.mv(hidden.view(-1, hidden.shape[-1]).T, d_scores.flatten())
    sigmoid_backward(d_scores[..., None].expand_as(hidden), hidden, grad_input=slope)
    d_keys += slope
    return slope.sum(0)


def sum_values(weights: Tensor, values: Tensor) -> Tensor:
    """Compute Σ_i a_i v_i: [b m] and [m b dv] to [b dv]."""
    return torch.bmm(weights.contiguous()[:, None], values.transpose(0, 1))[:, 0]


def sum_values_backward(d_read: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Compute the scores' gradient from the sum's: [b dv], [m b dv] and [b m] to [m b]."""
    d_weights = torch.bmm(values.transpose(0, 1), d_read[..., None])[..., 0]
    return torch.ops.aten._softmax_backward_data(d_weights, weights.contiguous(), -1, weights.dtype).T


# ---- the cell


class RunTapes(torch.autograd.Function):
    """All steps of a layer, with their backward pass."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Run the forward pass on the arguments of `run_tapes`, with the score as its four parts."""
        projected, recurrent, added, word_queries, summary, entry, bias, vector = inputs
        (n, b, _), d = projected.shape, recurrent.shape[-1]
        new = projected.new_empty
        tapes, reads, gates, tanh_cell = new(n, b, 2 * d), new(n, b, 2 * d), new(n, b, 4 * d), new(n, b, d)
        keys: Any = None
        queries: Any = None
        weights: Any = None
        if word_queries is not None:
            h = len(vector)
            keys, queries, weights, room = new(n, b, h), new(n, b, h), new(n, b, n), new(n, b, h)
            word_queries_2, summary_2, entry_2 = word_queries * 2, summary * 2, entry * 2
            bias_2, vector_2 = bias * 2, vector * 2
        for t in range(n):
            read, tape, gate = reads[t], tapes[t], gates[t]
            if t == 0:
                read.zero_()
            elif keys is None:
                read.copy_(tapes[t - 1])
            else:
                torch.addmm(word_queries_2[t], reads[t - 1, :, :d], summary_2.T, out=queries[t])
                a = torch.softmax(score_keys(keys[:t], queries[t], vector_2, room), -1)
                weights[t, :, :t] = a
                read.copy_(sum_values(a, tapes[:t]))
            torch.addmm(projected[t], read[:, :d], recurrent.T, out=gate)
            step_lstm(gate, read, None if added is None else added[t], tape, tanh_cell[t])
            if keys is not None:
                torch.addmm(bias_2, tape[:, :d], entry_2.T, out=keys[t])
        ctx.save_for_backward(tapes, reads, gates, tanh_cell, keys, queries, weights, recurrent, summary, entry, vector)
        ctx.adds = added is not None
        return tapes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_tapes: Tensor) -> tuple[Tensor | None, ...]:
        tapes, reads, gates, tanh_cell, keys, queries, weights, recurrent, summary, entry, vector = ctx.saved_tensors
        n, b, d = tanh_cell.shape
        new = tapes.new_empty
        d_gates, d_reads = new(n, b, 4 * d), new(n, b, 2 * d)  # gradients of all steps
        d_added = new(n, b, d) if ctx.adds else None
        if keys is not None:
            h = len(vector)
            d_queries, d_keys, d_vector = (torch.zeros_like(x) for x in (queries, keys, vector))  # factor v at the end
            room, slope = new(2, n, b, h), vector * SLOPE
            sloped_summary, sloped_entry = slope[:, None] * summary, slope[:, None] * entry
        for t in range(n - 1, -1, -1):
            d_tape, read, d_gate, d_read = d_tapes[t].clone(), reads[t], d_gates[t], d_reads[t]
            if t + 1 < n:
                d_tape += d_reads[t + 1] if keys is None else sum_values(weights[t + 1 :, :, t].T, d_reads[t + 1 :])
            dh, dc = d_tape.split(d, -1)
            if keys is not None:
                dh.addmm_(d_keys[t], sloped_entry)
            # the cell: c = f c̃ + i ĉ + added, h = o tanh(c)
            i, f, proposal, o = gates[t].split(d, -1)
            di, df, dg, do = d_gate.split(d, -1)
            sigmoid_backward(dh * tanh_cell[t], o, grad_input=do)
            dc += torch.ops.aten.tanh_backward(dh * o, tanh_cell[t])
            sigmoid_backward(dc * proposal, i, grad_input=di)
            sigmoid_backward(dc * read[:, d:], f, grad_input=df)
            tanh_backward(dc * i, proposal, grad_input=dg)
            if d_added is not None:
                d_added[t] = dc
            torch.mul(dc, f, out=d_read[:, d:])
            if keys is not None and t + 1 < n:
                d_summary_query = torch.mm(d_queries[t + 1], sloped_summary)
                d_read[:, :d] = torch.addmm(d_summary_query, d_gate, recurrent)
            else:
                d_read[:, :d] = torch.mm(d_gate, recurrent)
            # the tape entries that it attended to
            if keys is not None and t:
                d_scores = sum_values_backward(d_read, tapes[:t], weights[t, :, :t])
                d_queries[t] = score_keys_backward(keys[:t], queries[t], d_scores, room, d_keys[:t], d_vector)
        # all steps of all sentences in one product
        d_recurrent = d_gates.flatten(0, 1).T @ reads[..., :d].flatten(0, 1)
        if keys is None:
            return d_gates, d_recurrent, d_added, *(None,) * 5
        d_queries *= slope
        d_keys *= slope
        d_summary = d_queries[1:].flatten(0, 1).T @ reads[:-1, :, :d].flatten(0, 1)
        d_entry = d_keys.flatten(0, 1).T @ tapes[..., :d].flatten(0, 1)
        return d_gates, d_recurrent, d_added, d_queries, d_summary, d_entry, d_keys.flatten(0, 1).sum(0), d_vector * 2


# ---- the source


class ReadSource(torch.autograd.Function):
    """All steps of a decoder's attention, with their backward pass."""

    @staticmethod
    def forward(
        ctx: Any, word_queries: Tensor, keys: Tensor, values: Tensor, exists: Tensor, summary: Tensor, vector: Tensor
    ) -> Tensor:
        (n, b, h), (_, m, dv), d = word_queries.shape, values.shape, summary.shape[-1]
        new = word_queries.new_empty
        keys, values = (keys * 2).transpose(0, 1).contiguous(), values.transpose(0, 1)
        mask = exists.to(word_queries.dtype)
        mask_bias = torch.zeros_like(mask).masked_fill_(~exists, torch.finfo(word_queries.dtype).min)
        reads, weights, queries, room = new(n, b, dv), new(n, b, m), word_queries * 2, new(m, b, h)
        summary_2, vector_2 = summary * 2, vector * 2
        for t in range(n):
            if t:
                queries[t].addmm_(reads[t - 1, :, :d], summary_2.T)
            # For an empty sentence the softmax is uniform; the mask sets its weights to zero.
            weights[t] = torch.softmax(score_keys(keys, queries[t], vector_2, room).add_(mask_bias), -1).mul_(mask)
            reads[t] = sum_values(weights[t], values)
        ctx.save_for_backward(reads, weights, queries, keys, values, summary, vector)
        return reads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        reads, weights, queries, keys, values, summary, vector = ctx.saved_tensors
        n, (m, b, h), d = len(reads), keys.shape, summary.shape[-1]
        d_reads, d_queries = d_out.clone(), torch.empty_like(queries)
        d_keys, d_vector, room = torch.zeros_like(keys), torch.zeros_like(vector), keys.new_empty(2, m, b, h)
        slope = vector * SLOPE
        sloped_summary = slope[:, None] * summary
        for t in range(n - 1, -1, -1):
            if t + 1 < n:
                d_reads[t, :, :d].addmm_(d_queries[t + 1], sloped_summary)
            d_scores = sum_values_backward(d_reads[t], values, weights[t])
            d_queries[t] = score_keys_backward(keys, queries[t], d_scores, room, d_keys, d_vector)
        d_queries *= slope
        d_summary = d_queries[1:].flatten(0, 1).T @ reads[:-1, :, :d].flatten(0, 1)
        d_values = torch.bmm(weights.permute(1, 2, 0), d_reads.transpose(0, 1))
        return d_queries, (d_keys * slope).transpose(0, 1), d_values, None, d_summary, d_vector * 2
