"""RNNsearch's recurrence on a GPU: `operations/rnnsearch.py` in four kernels per step, forward and backward.

Forward: the product W s; attention from scores to context; one product of [s; c] with both adjacent matrices; the cell.
Backward: the cell; the product's transpose, which gives the gradients of s and c; attention; W's transpose. The
gradients of matrices, keys, values and the score's vector are computed after the last step.

Products have the dtype of `projected` (bfloat16 under autocast), and matrices are cast once; cells, a GRU's states,
scores and weights are float32. All shapes are known in advance and nothing is read on the host, so that it can be
captured as a CUDA graph. Inner tensors are step-major, [n b …].
"""

# b sentences · m source positions · n steps · d width of a state · p parts of a state, h and an LSTM's c
# g gates, 3d of a GRU, 4d of an LSTM · h width of the scores · dv of an annotation
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.triton import cells as cell_kernels
from regard.kernels.triton import few_queries


def recur(
    projected: Float[Tensor, "n b g"],
    start: Float[Tensor, "b p d"],
    keys: Float[Tensor, "b m h"],
    values: Float[Tensor, "b m dv"],
    lengths: Int[Tensor, " b"],
    query: Float[Tensor, "h d"],
    vector: Float[Tensor, " h"],
    read: Float[Tensor, "g dv"],
    recurrent: Float[Tensor, "g d"],
    bias: Float[Tensor, " g"],
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n dv"], Float[Tensor, "b n m"]]:
    """Compute the states s_1 … s_n and the contexts c_1 … c_n of n steps, and the attention weights.

    `projected` is the words' contribution to the gates, `keys` are U h_j + b, `lengths` is how many of them exist;
    `query` and `vector` are W and v of the score, `read` is the cell's matrix for contexts, `recurrent` and `bias` are
    those for states. An LSTM's `projected` must include its bias: `bias` is not read.
    """
    result: tuple[Tensor, Tensor, Tensor] = Recurrence.apply(
        projected, start, keys, values, lengths, query, vector, read, recurrent, bias
    )
    return result


class Recurrence(torch.autograd.Function):
    """All steps of the recurrence, with their backward pass."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run the forward pass on the arguments of `recur`."""
        projected, start, keys, values, lengths, query, vector, read, recurrent, bias = given
        (n, b, g), (_, m, h), (d, dv) = projected.shape, keys.shape, (start.shape[-1], values.shape[-1])
        half, new = projected.dtype, projected.new_empty
        both = join_matrices(recurrent, read).to(half)
        keys, values, query = keys.to(half), values.to(half), query.to(half)
        inputs = new(n + 1, b, d + dv)  # at step i the previous state, and the context that the step reads
        states, contexts = inputs[..., :d], inputs[..., d:]
        cells = new(n + 1, b, d, dtype=torch.float32)  # an LSTM's cells, or a GRU's states
        queries, gates, weights = new(n, b, h), new(n, b, 4 * d), new(b, n, m, dtype=torch.float32)
        states[0] = start[:, 0]
        cells[0] = start[:, -1]
        summed, words = new(1, b, 4 * d), projected.transpose(0, 1)[:, :, None]
        own_bias = bias if g == 3 * d else None
        for i in range(n):
            torch.mm(states[i], query.T, out=queries[i])
            context, weight = contexts[i][:, None], weights[:, i : i + 1]
            few_queries.look(queries[i][:, None], keys, values, vector, lengths, context=context, weights=weight)
            torch.mm(inputs[i], both.T, out=summed[0])
            before, after = cells[i : i + 1], cells[i + 1 : i + 2]
            cell_kernels.step(words, summed, own_bias, before, after, gates[i : i + 1], states[i + 1 : i + 2], i)
        ctx.save_for_backward(inputs, cells, queries, gates, weights, keys, values, lengths, query, vector, both)
        ctx.set_materialize_grads(False)
        ctx.gates = g
        return states[1:].transpose(0, 1), contexts[:-1].transpose(0, 1), weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_states: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        inputs, cells, queries, gates, weights, keys, values, lengths, query, vector, both = ctx.saved_tensors
        (n, b, h), (_, _, dv), d, g = queries.shape, values.shape, cells.shape[-1], ctx.gates
        d_states, d_contexts, d_weights = (
            x if x is None or x.stride(-1) == 1 else x.contiguous() for x in (d_states, d_contexts, d_weights)
        )
        d_output = None if d_states is None else d_states[:, :, None]
        new = gates.new_empty
        into, d_queries, d_read, back = new(n, b, 4 * d), new(n, b, h), new(n, b, dv), new(b, d + dv)
        lstm = g == 4 * d
        d_projected = into if lstm else new(n, b, g)
        d_words = None if lstm else d_projected.transpose(0, 1)[:, :, None]
        d_scores, raw, by = torch.empty_like(weights), torch.empty_like(weights[:, 0]), cells.new_zeros(1, b, d)
        for i in range(n - 1, -1, -1):
            later = None if i == n - 1 else back[None, :, :d]
            before, after = cells[i : i + 1], cells[i + 1 : i + 2] if lstm else None
            cell_kernels.step_backward(
                gates[i : i + 1], before, after, d_output, later, by, into[i : i + 1], d_words, i
            )
            torch.mm(into[i], both, out=back)
            parts = back[:, d:], None if d_contexts is None else d_contexts[:, i]
            d_weight, written = (
                None if d_weights is None else d_weights[:, i],
                (d_read[i], d_scores[:, i], d_queries[i]),
            )
            few_queries.step_gradients(
                queries[i], keys, values, vector, lengths, weights[:, i], parts, d_weight, raw, *written
            )
            back[:, :d].addmm_(d_queries[i], query)
        first = back[:, :d].float() if n else by[0]
        d_start = torch.stack([first, by[0]], 1) if lstm else (first + by[0])[:, None]
        d_keys, d_vector = few_queries.key_gradients(queries.transpose(0, 1), keys, vector, lengths, d_scores)
        d_values = torch.bmm(weights.to(gates.dtype).mT, d_read.transpose(0, 1))
        flat = inputs[:-1].flatten(0, 1)
        d_both = into.flatten(0, 1).T @ flat
        d_query = d_queries.flatten(0, 1).T @ flat[:, :d]
        if lstm:
            d_recurrent, d_context, d_bias = d_both[:, :d], d_both[:, d:], None
        else:
            d_recurrent, d_bias = d_both[: 3 * d, :d], into[..., : 3 * d].sum((0, 1), dtype=torch.float32)
            d_context = torch.cat([d_both[: 2 * d, d:], d_both[3 * d :, d:]])
        return d_projected, d_start, d_keys, d_values, None, d_query, d_vector, d_context, d_recurrent, d_bias


def join_matrices(recurrent: Float[Tensor, "g d"], read: Float[Tensor, "g dv"]) -> Float[Tensor, "gg e"]:
    """Join four blocks of rows into the matrix that multiplies [s; c].

    A GRU's third block reads only the state, which its reset gate multiplies before the rest is added; its fourth block
    reads only the context.
    """
    d = recurrent.shape[1]
    if len(recurrent) == 4 * d:
        return torch.cat([recurrent, read], 1)
    both = torch.cat([recurrent[: 2 * d], read[: 2 * d]], 1)
    return torch.cat([both, torch.block_diag(recurrent[2 * d :], read[2 * d :])])
