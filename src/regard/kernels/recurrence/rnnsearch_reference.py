r"""RNNsearch's recurrence as a plain loop: the specification of `cpu` and `triton`.

$e_{ij} = v^\top \tanh(W s_{i-1} + k_j)$, $a_i = \mathrm{softmax}(e_i)$, $c_i = \sum_j a_{ij} h_j$,
$s_i = f(s_{i-1}, [E y_{i-1}; c_i])$: Bahdanau et al. 2015 (arXiv:1409.0473), appendix A, with torch's GRU or LSTM as f.
"""

# b sentences · m source positions · n steps · d width of a state · p parts of a state, h and an LSTM's c
# g gates, 3d of a GRU, 4d of an LSTM · h width of the scores · dv of an annotation
import torch
from jaxtyping import Bool, Float
from torch import Tensor


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
    """Compute the states s_1 … s_n and the contexts c_1 … c_n of n steps, and the attention weights."""
    state, cell = start[:, 0], start[:, -1]
    states, contexts, weights = [], [], []
    for word in projected.unbind(1):
        scores = torch.tanh(keys + (state @ query.T)[:, None]) @ vector
        scores = scores.masked_fill(~exists, torch.finfo(scores.dtype).min)
        weights.append(torch.softmax(scores, -1).masked_fill(~exists, 0))  # nothing where nothing exists
        contexts.append(torch.einsum("bm,bmd->bd", weights[-1], values))
        inputs, hidden = word + contexts[-1] @ read.T, state @ recurrent.T + bias
        if start.shape[1] == 2:
            i, f, proposal, o = (inputs + hidden).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(proposal)
            state = torch.sigmoid(o) * torch.tanh(cell)
        else:
            (r, z, proposal), (hr, hz, inner) = inputs.chunk(3, -1), hidden.chunk(3, -1)
            r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
            state = z * state + (1 - z) * torch.tanh(proposal + r * inner)
        states.append(state)
    return torch.stack(states, 1), torch.stack(contexts, 1), torch.stack(weights, 1)
