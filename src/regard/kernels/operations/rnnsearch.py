r"""RNNsearch's recurrence with a GRU or an LSTM, with explicit forward and backward passes for a CPU.

The plain loop of `reference` is the specification. The explicit passes do less work:

- $\tanh x = 2 \sigma(2x) - 1$, and a sigmoid takes a sixth of a tanh's time here. In a score the constant cancels in
  the softmax: $v^\top \tanh(x)$ gives the same weights as $2 v^\top \sigma(2x)$. Keys, W and v absorb the factors.
- W s and U s are one product.
- The backward pass recomputes the sigmoids of the scores from keys and queries, and collects the gradients of all
  steps before it multiplies: each matrix gets its gradient from one large product instead of one per step.

On a GPU with Triton, `triton/rnnsearch.py` does the same in a few kernels per step.
"""

# b sentences · m source positions · n steps · d width of a state · p parts of a state, h and an LSTM's c
# g gates, 3d of a GRU, 4d of an LSTM · h width of the scores · dv of an annotation
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def recur(
    projected: Float[Tensor, "b n g"],
    start: Float[Tensor, "b p d"],
    keys: Float[Tensor, "b m h"],
    values: Float[Tensor, "b m dv"],
    exists: Bool[Tensor, "b m"],
    query: Float[Tensor, "h d"],
    vector: Float[Tensor, " h"],
    read: Float[Tensor, "g dv"],
    recurrent: Float[Tensor, "g d"],
    bias: Float[Tensor, " g"],
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n dv"], Float[Tensor, "b n m"]]:
    """Compute the states s_1 … s_n and the contexts c_1 … c_n of n steps, and the attention weights.

    `projected` is the words' contribution to the gates, `keys` are U h_j + b, `exists` is the mask of existing keys;
    `query` and `vector` are W and v of the score, `read` is the cell's matrix for contexts, `recurrent` and `bias` are
    those for states.
    """
    states, contexts, weights = Recurrence.apply(
        projected, start, keys, values, exists, query, vector, read, recurrent, bias
    )
    return states[:, 1:], contexts, weights


class Recurrence(torch.autograd.Function):
    """All steps with their backward pass; the returned states begin with s_0."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run the forward pass on the arguments of `recur`."""
        projected, start, keys, values, exists, query, vector, read, recurrent, bias = given
        (b, n, g), (_, m, h), d = projected.shape, keys.shape, start.shape[-1]
        lstm = start.shape[1] == 2
        new = projected.new_empty
        keys, vector = keys * 2, vector * 2
        both = torch.cat([recurrent, query * 2])  # [g + h, d]
        both_bias = torch.cat([bias, bias.new_zeros(h)])
        mask = exists.to(keys.dtype)
        mask_bias = torch.zeros_like(mask).masked_fill_(~exists, torch.finfo(keys.dtype).min)
        states, contexts, weights = new(b, n + 1, d), new(b, n, values.shape[-1]), new(b, n, m)
        queries, gates = new(b, n, h), new(b, n, g)
        inner = new(b, n + 1, d) if lstm else new(b, n, d)  # LSTM: its cells; GRU: the term that r multiplies
        states[:, 0] = start[:, 0]
        if lstm:
            inner[:, 0] = start[:, 1]
        hidden, from_state, summed = new(b, m, h), new(b, g + h), new(b, g)
        for i in range(n):
            s = states[:, i]
            torch.addmm(both_bias, s, both.T, out=from_state)
            queries[:, i] = from_state[:, g:]
            torch.add(keys, from_state[:, None, g:], out=hidden).sigmoid_()
            scores = torch.mv(hidden.view(-1, h), vector).view(b, m).add_(mask_bias)
            a = torch.softmax(scores, -1).mul_(mask)
            weights[:, i] = a
            c = torch.bmm(a[:, None], values)[:, 0]
            contexts[:, i] = c
            torch.addmm(projected[:, i], c, read.T, out=summed)
            gate = gates[:, i]
            if lstm:
                torch.add(summed, from_state[:, :g], out=gate)
                gate[:, 2 * d : 3 * d].mul_(2)
                gate.sigmoid_()
                input_gate, forget_gate, proposal, output_gate = gate.split(d, -1)
                proposal.mul_(2).sub_(1)
                torch.mul(input_gate, proposal, out=inner[:, i + 1]).addcmul_(forget_gate, inner[:, i])
                torch.mul(tanh_by_sigmoid(inner[:, i + 1]), output_gate, out=states[:, i + 1])
                continue
            torch.add(summed[:, : 2 * d], from_state[:, : 2 * d], out=gate[:, : 2 * d]).sigmoid_()
            r, z, proposal = gate.split(d, -1)
            inner[:, i] = from_state[:, 2 * d : 3 * d]
            torch.addcmul(summed[:, 2 * d :], r, inner[:, i], out=proposal)
            proposal.mul_(2).sigmoid_().mul_(2).sub_(1)
            torch.lerp(proposal, s, z, out=states[:, i + 1])
        ctx.save_for_backward(states, contexts, weights, queries, gates, inner, keys, values, both, vector, read)
        ctx.set_materialize_grads(False)
        return states, contexts, weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_states: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        states, contexts, weights, queries, gates, inner, keys, values, both, vector, read = ctx.saved_tensors
        (b, n, dv), (_, m, h), d, g = contexts.shape, keys.shape, states.shape[-1], gates.shape[-1]
        lstm = g == 4 * d
        d_states = torch.zeros_like(states) if d_states is None else d_states
        d_contexts = torch.zeros_like(contexts) if d_contexts is None else d_contexts
        new = states.new_empty
        d_gates, d_from_state, d_context = new(b, n, g), new(b, n, g + h), new(b, n, dv)  # gradients of all steps
        d_keys, d_vector = torch.zeros_like(keys), torch.zeros_like(vector)
        hidden, slope = new(b, m, h), new(b, m, h)
        ds, cell = d_states[:, n].clone(), torch.zeros_like(d_states[:, n])
        for i in range(n - 1, -1, -1):
            s, a = states[:, i], weights[:, i]
            d_gate, from_state = d_gates[:, i], d_from_state[:, i]
            if lstm:
                cell = lstm_backward(gates[:, i], inner[:, i], inner[:, i + 1], ds, cell, d_gate)
                from_state[:, :g], d_past_gates = d_gate, None
            else:
                d_past_gates = gru_backward(gates[:, i], s, inner[:, i], ds, d_gate, from_state)
            # the context, its weights and its scores
            dc = torch.addmm(d_contexts[:, i], d_gate, read)
            d_context[:, i] = dc
            da = torch.bmm(dc[:, None], values.mT)[:, 0]
            if d_weights is not None:  # the loss uses the weights
                da += d_weights[:, i]
            de = torch.ops.aten._softmax_backward_data(da, a, -1, a.dtype)
            torch.add(keys, queries[:, i, None], out=hidden).sigmoid_()
            d_vector += torch.mv(hidden.view(-1, h).T, de.flatten())
            torch.ops.aten.sigmoid_backward.grad_input(de[..., None].expand_as(hidden), hidden, grad_input=slope)
            d_keys += slope
            torch.mul(slope.sum(1), vector, out=from_state[:, g:])
            # the previous state
            direct = d_states[:, i] if d_past_gates is None else d_past_gates.add_(d_states[:, i])
            ds = torch.addmm(direct, from_state, both)
        d_values = torch.bmm(weights.mT, d_context)
        flat = d_from_state.flatten(0, 1)
        d_both = flat.T @ states[:, :-1].flatten(0, 1)
        d_read = d_gates.flatten(0, 1).T @ contexts.flatten(0, 1)
        return (
            d_gates,
            torch.stack([ds, cell], 1) if lstm else ds[:, None],
            d_keys.mul_(vector).mul_(2),
            d_values,
            None,
            d_both[g:] * 2,
            d_vector * 2,
            d_read,
            d_both[:g],
            flat[:, :g].sum(0),
        )


def tanh_by_sigmoid(x: Tensor) -> Tensor:
    """Compute tanh x as 2 σ(2x) - 1."""
    return x.mul(2).sigmoid_().mul_(2).sub_(1)


def gru_backward(gates: Tensor, s: Tensor, inner: Tensor, ds: Tensor, d_gate: Tensor, from_state: Tensor) -> Tensor:
    """Compute the backward pass of h' = p + z (h - p), with the proposal p = tanh(x + r u) and the recurrent part u.

    It writes the gradients of x and of the recurrent part, and returns h's direct gradient, past both, in place of
    that of h'.
    """
    d = s.shape[-1]
    r, z, proposal = gates.split(d, -1)
    d_proposal = torch.addcmul(ds, ds, z, value=-1)
    d_proposal = torch.ops.aten.tanh_backward(d_proposal, proposal)
    d_gate[:, :d] = torch.ops.aten.sigmoid_backward(d_proposal * inner, r)
    d_gate[:, d : 2 * d] = torch.ops.aten.sigmoid_backward((s - proposal).mul_(ds), z)
    d_gate[:, 2 * d :] = d_proposal
    from_state[:, : 2 * d] = d_gate[:, : 2 * d]
    torch.mul(d_proposal, r, out=from_state[:, 2 * d : 3 * d])
    return ds.mul_(z)


def lstm_backward(gates: Tensor, before: Tensor, after: Tensor, ds: Tensor, cell: Tensor, d_gate: Tensor) -> Tensor:
    """Compute the backward pass of c' = f c + i p, h' = o tanh(c'): write the gates' gradients, and return c's."""
    input_gate, forget_gate, proposal, output_gate = gates.chunk(4, -1)
    d = input_gate.shape[-1]
    tanh_cell = tanh_by_sigmoid(after)
    cell = cell + torch.ops.aten.tanh_backward(ds * output_gate, tanh_cell)
    d_gate[:, :d] = torch.ops.aten.sigmoid_backward(cell * proposal, input_gate)
    d_gate[:, d : 2 * d] = torch.ops.aten.sigmoid_backward(cell * before, forget_gate)
    d_gate[:, 2 * d : 3 * d] = torch.ops.aten.tanh_backward(cell * input_gate, proposal)
    d_gate[:, 3 * d :] = torch.ops.aten.sigmoid_backward(ds * tanh_cell, output_gate)
    return cell.mul_(forget_gate)
