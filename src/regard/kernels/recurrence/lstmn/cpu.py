r"""The two recurrences of the LSTMN, forward and backward by hand.

The plain loops of `lstmn` are the specification. By hand a CPU does less, in the ways of `rnnsearch/cpu.py`:

- $\tanh x = 2 \sigma(2x) - 1$, whose constant falls out of the softmax; the factors go into keys, queries and v.
- The backward pass recomputes the sigmoids of the scores, and gathers the gradients of all steps before it multiplies.

And one more: everything lies step by step, [n b d], so that what a step may look at, all before it, is one block of
memory; nothing is masked, and nothing is written twice. What a tape's entry gets from all later steps is one product
when its own turn comes, in place of a sum that every step adds to.
"""

# n steps · m source positions · b sentences · d width of a state, g four times that · dd twice · h width of the scores
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["ScoreWeights", "read_tapes", "read_source", "run_tapes"]

into_sigmoid = torch.ops.aten.sigmoid_backward.grad_input
into_tanh = torch.ops.aten.tanh_backward.grad_input
BLOCK = 16  # steps: what is between a key and its score stays near the processor
SLOPE = 4  # of tanh(x) = 2σ(2x) - 1, where σ(2x) has 1


@dataclass(frozen=True, eq=False)
class ScoreWeights:
    """The parameters of an additive score beside what x_t gives: of the last summary, of an entry, and v."""

    summary: Float[Tensor, "h d"]
    entry: Float[Tensor, "h d"]
    bias: Float[Tensor, " h"]
    vector: Float[Tensor, " h"]


def run_tapes(
    projected: Float[Tensor, "n b g"],
    recurrent: Float[Tensor, "g d"],
    added: Float[Tensor, "n b d"] | None = None,
    asked: Float[Tensor, "n b h"] | None = None,
    asking: ScoreWeights | None = None,
) -> Float[Tensor, "n b dd"]:
    """The tapes [h_t; c_t] of n steps.

    `projected` is what x_t gives to the gates i, f, ĉ and o, biases too, `recurrent` the gates' matrix for what is read
    from the tapes; `added` goes into c_t, `asked` is W_x x_t. Without `asking` a step reads the entry before it.
    """
    parts = (None,) * 4 if asking is None else (asking.summary, asking.entry, asking.bias, asking.vector)
    tapes: Tensor = RunTapes.apply(projected, recurrent, added, asked, *parts)
    return tapes


def read_source(
    asked: Float[Tensor, "n b h"],
    keys: Float[Tensor, "b m h"],
    values: Float[Tensor, "b m dv"],
    there: Bool[Tensor, "b m"],
    summary: Float[Tensor, "h d"],
    vector: Float[Tensor, " h"],
) -> Float[Tensor, "n b dv"]:
    """What n steps read of a source: each asks with `asked`, W_x x_t, and the first d numbers of what was read last.

    `keys` are W γ_j + b, and `there` says which of them exist.
    """
    reads: Tensor = ReadSource.apply(asked, keys, values, there, summary, vector)
    return reads


def read_tapes(
    asked: Float[Tensor, "r h"],
    keys: Float[Tensor, "r m h"],
    values: Float[Tensor, "r m dd"],
    length: Int[Tensor, " r"],
    vector: Float[Tensor, " h"],
    known: tuple[int, int],
) -> Float[Tensor, "r dd"]:
    """What one step reads of tapes in a cache; `known` are the fewest and the most entries of a row.

    Without a gradient; it is all that an attention does where nobody looks on.
    """
    least, most = known
    if most == 0:
        return values.new_zeros(len(values), values.shape[-1])
    keys, values = keys[:, :most].transpose(0, 1), values[:, :most].transpose(0, 1)  # as they lie on a CPU
    found, room = asked.new_empty(most, len(asked)), asked.new_empty(BLOCK, *asked.shape)
    asked, vector = asked * 2, vector * 2
    for first in range(0, most, BLOCK):
        block = keys[first : first + BLOCK]
        hidden = torch.add(asked, block, alpha=2, out=room[: len(block)]).sigmoid_()
        torch.mv(hidden.view(-1, len(vector)), vector, out=found[first : first + BLOCK].view(-1))
    found = found.T.contiguous()
    if least == most:
        return sum_values(torch.softmax(found, -1), values)
    there = torch.arange(most, device=found.device) < length[:, None]
    found.masked_fill_(~there, torch.finfo(found.dtype).min)
    return sum_values(torch.softmax(found, -1).mul_(there), values)


def step_lstm(gates: Tensor, read: Tensor, added: Tensor | None, tapes: Tensor, shown: Tensor) -> Tensor:
    """An LSTM's step from the gates' sums [b g] and what was read [b dd].

    The gates are written over; an entry of both tapes is written, [b dd], and what is shown of the memory, tanh(c).
    """
    d = shown.shape[-1]
    i, f, proposed, o = gates.split(d, -1)
    proposed.mul_(2)
    gates.sigmoid_()
    proposed.mul_(2).sub_(1)
    c = torch.mul(f, read[:, d:], out=tapes[:, d:]).addcmul_(i, proposed)
    if added is not None:
        c.add_(added)
    torch.mul(c, 2, out=shown).sigmoid_().mul_(2).sub_(1)
    torch.mul(o, shown, out=tapes[:, :d])
    return tapes


# ---- additive scores over a block of keys


def score_keys(keys: Tensor, query: Tensor, vector: Tensor, room: Tensor) -> Tensor:
    """vᵀσ(k_i + q): [m b h] and [b h] to [b m]. `room` is written."""
    hidden = torch.add(keys, query, out=room[: len(keys)]).sigmoid_()
    return torch.mv(hidden.view(-1, hidden.shape[-1]), vector).view(hidden.shape[:2]).T.contiguous()


def score_keys_backward(
    keys: Tensor, query: Tensor, by_scores: Tensor, room: Tensor, by_keys: Tensor, by_vector: Tensor
) -> Tensor:
    """Adds what a score's gradient [m b] gives to keys and v; returns what it gives to the query, v still to come."""
    hidden, slope = room[0, : len(keys)], room[1, : len(keys)]
    torch.add(keys, query, out=hidden).sigmoid_()
    by_vector += torch.mv(hidden.view(-1, hidden.shape[-1]).T, by_scores.flatten())
    into_sigmoid(by_scores[..., None].expand_as(hidden), hidden, grad_input=slope)
    by_keys += slope
    return slope.sum(0)


def sum_values(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_i a_i v_i: [b m] and [m b dv] to [b dv]."""
    return torch.bmm(weights.contiguous()[:, None], values.transpose(0, 1))[:, 0]


def sum_values_backward(by_read: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """What each score is worth to what was read: [b dv], [m b dv] and [b m] to [m b]."""
    by_weights = torch.bmm(values.transpose(0, 1), by_read[..., None])[..., 0]
    return torch.ops.aten._softmax_backward_data(by_weights, weights.contiguous(), -1, weights.dtype).T


def flatten_steps(x: Tensor) -> Tensor:
    """All steps of all sentences, one below the other."""
    return x.flatten(0, 1)


# ---- the cell


class RunTapes(torch.autograd.Function):
    """All steps of a layer."""

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        recurrent: Tensor,
        added: Tensor | None,
        asked: Tensor | None,
        summary: Any,  # these four are tensors where `asked` is one
        entry: Any,
        bias: Any,
        vector: Any,
    ) -> Tensor:
        (n, b, _), d = projected.shape, recurrent.shape[-1]
        new = projected.new_empty
        tapes, reads, gates, shown = new(n, b, 2 * d), new(n, b, 2 * d), new(n, b, 4 * d), new(n, b, d)
        keys: Any = None
        queries: Any = None
        weights: Any = None
        if asked is not None:
            h = len(vector)
            keys, queries, weights, room = new(n, b, h), new(n, b, h), new(n, b, n), new(n, b, h)
            doubled, summary_2, entry_2, bias_2, vector_2 = (x * 2 for x in (asked, summary, entry, bias, vector))
        for t in range(n):
            read, tape, gate = reads[t], tapes[t], gates[t]
            if t == 0:
                read.zero_()
            elif keys is None:
                read.copy_(tapes[t - 1])
            else:
                torch.addmm(doubled[t], reads[t - 1, :, :d], summary_2.T, out=queries[t])
                a = torch.softmax(score_keys(keys[:t], queries[t], vector_2, room), -1)
                weights[t, :, :t] = a
                read.copy_(sum_values(a, tapes[:t]))
            torch.addmm(projected[t], read[:, :d], recurrent.T, out=gate)
            step_lstm(gate, read, None if added is None else added[t], tape, shown[t])
            if keys is not None:
                torch.addmm(bias_2, tape[:, :d], entry_2.T, out=keys[t])
        ctx.save_for_backward(tapes, reads, gates, shown, keys, queries, weights, recurrent, summary, entry, vector)
        ctx.adds = added is not None
        return tapes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_tapes: Tensor) -> tuple[Tensor | None, ...]:
        tapes, reads, gates, shown, keys, queries, weights, recurrent, summary, entry, vector = ctx.saved_tensors
        n, b, d = shown.shape
        new = tapes.new_empty
        d_gates, d_reads = new(n, b, 4 * d), new(n, b, 2 * d)  # gradients of all steps
        d_added = new(n, b, d) if ctx.adds else None
        if keys is not None:
            h = len(vector)
            d_queries, d_keys, d_vector = (torch.zeros_like(x) for x in (queries, keys, vector))  # v still to come
            room, slope = new(2, n, b, h), vector * SLOPE
            sloped_summary, sloped_entry = slope[:, None] * summary, slope[:, None] * entry
        for t in range(n - 1, -1, -1):
            tape_by, read, d_gate, d_read = d_tapes[t].clone(), reads[t], d_gates[t], d_reads[t]
            if t + 1 < n:
                tape_by += d_reads[t + 1] if keys is None else sum_values(weights[t + 1 :, :, t].T, d_reads[t + 1 :])
            dh, dc = tape_by.split(d, -1)
            if keys is not None:
                dh.addmm_(d_keys[t], sloped_entry)
            # the cell: c = f c̃ + i ĉ + added, h = o tanh(c)
            i, f, proposed, o = gates[t].split(d, -1)
            di, df, dg, do = d_gate.split(d, -1)
            into_sigmoid(dh * shown[t], o, grad_input=do)
            dc += torch.ops.aten.tanh_backward(dh * o, shown[t])
            into_sigmoid(dc * proposed, i, grad_input=di)
            into_sigmoid(dc * read[:, d:], f, grad_input=df)
            into_tanh(dc * i, proposed, grad_input=dg)
            if d_added is not None:
                d_added[t] = dc
            torch.mul(dc, f, out=d_read[:, d:])
            if keys is not None and t + 1 < n:
                by_query = torch.mm(d_queries[t + 1], sloped_summary)
                d_read[:, :d] = torch.addmm(by_query, d_gate, recurrent)
            else:
                d_read[:, :d] = torch.mm(d_gate, recurrent)
            # what it looked at
            if keys is not None and t:
                by_scores = sum_values_backward(d_read, tapes[:t], weights[t, :, :t])
                d_queries[t] = score_keys_backward(keys[:t], queries[t], by_scores, room, d_keys[:t], d_vector)
        before = flatten_steps(reads[..., :d])
        d_recurrent = flatten_steps(d_gates).T @ before
        if keys is None:
            return d_gates, d_recurrent, d_added, *(None,) * 5
        d_queries *= slope
        d_keys *= slope
        d_summary = flatten_steps(d_queries[1:]).T @ flatten_steps(reads[:-1, :, :d])
        d_entry = flatten_steps(d_keys).T @ flatten_steps(tapes[..., :d])
        return d_gates, d_recurrent, d_added, d_queries, d_summary, d_entry, flatten_steps(d_keys).sum(0), d_vector * 2


# ---- the source


class ReadSource(torch.autograd.Function):
    """All steps of a decoder's attention."""

    @staticmethod
    def forward(
        ctx: Any, asked: Tensor, keys: Tensor, values: Tensor, there: Tensor, summary: Tensor, vector: Tensor
    ) -> Tensor:
        (n, b, h), (_, m, dv), d = asked.shape, values.shape, summary.shape[-1]
        new = asked.new_empty
        keys, values, mask = (keys * 2).transpose(0, 1).contiguous(), values.transpose(0, 1), there.to(asked.dtype)
        shut = torch.zeros_like(mask).masked_fill_(~there, torch.finfo(asked.dtype).min)
        reads, weights, queries, room = new(n, b, dv), new(n, b, m), asked * 2, new(m, b, h)
        summary_2, vector_2 = summary * 2, vector * 2
        for t in range(n):
            if t:
                queries[t].addmm_(reads[t - 1, :, :d], summary_2.T)
            # Where a sentence is empty the softmax is even, and must weigh nothing.
            weights[t] = torch.softmax(score_keys(keys, queries[t], vector_2, room).add_(shut), -1).mul_(mask)
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
            by_scores = sum_values_backward(d_reads[t], values, weights[t])
            d_queries[t] = score_keys_backward(keys, queries[t], by_scores, room, d_keys, d_vector)
        d_queries *= slope
        d_summary = flatten_steps(d_queries[1:]).T @ flatten_steps(reads[:-1, :, :d])
        d_values = torch.bmm(weights.permute(1, 2, 0), d_reads.transpose(0, 1))
        return d_queries, (d_keys * slope).transpose(0, 1), d_values, None, d_summary, d_vector * 2
