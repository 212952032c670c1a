r"""The recurrences as plain loops: the specification of all that is written out or fused in this folder.

The LSTMN's, Cheng et al. 2016 (arXiv:1601.06733):
$a_i = v^\top \tanh(W_h h_i + W_x x_t + W_{\tilde h} \tilde h_{t-1})$ over i < t, the same weights read the hidden and
the memory tape, and an LSTM goes on from what was read; deep fusion reads a source's two tapes in the same way.

RNNsearch's, Bahdanau et al. 2015 (arXiv:1409.0473), appendix A: $e_{ij} = v^\top \tanh(W s_{i-1} + k_j)$,
$a_i = \mathrm{softmax}(e_i)$, $c_i = \sum_j a_{ij} h_j$, $s_i = f(s_{i-1}, [E y_{i-1}; c_i])$, with torch's GRU or LSTM
as f.

A layer, one position after the other, from both ends:

- LSTM (Hochreiter and Schmidhuber 1997): $i, f, o = \sigma(x + U h)$, $g = \tanh(x + U h)$, $c' = f c + i g$,
  $h' = o \tanh c'$.
- GRU (Cho et al. 2014, arXiv:1406.1078, but with the reset behind the product, as cuDNN has it):
  $r, z = \sigma(x + U h + b)$, $\tilde h = \tanh(x + r (U h + b))$, $h' = z h + (1 - z) \tilde h$.
"""

# b sentences · r rows · n steps or positions · m source positions · k directions · d width of a state, dd twice that
# g gates, 3d of a GRU, 4d of an LSTM · p parts of a state, h and an LSTM's c · h width of the scores
# dv width of an annotation
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels.recurrence.lstmn_cpu import ScoreWeights


def run_tapes(
    projected: Float[Tensor, "n b g"],
    recurrent: Float[Tensor, "g d"],
    added: Float[Tensor, "n b d"] | None = None,
    word_queries: Float[Tensor, "n b h"] | None = None,
    score: ScoreWeights | None = None,
) -> Float[Tensor, "n b dd"]:
    """Compute the tapes [h_t; c_t] of n steps. Without a `score` a step reads the entry before it."""
    d = recurrent.shape[-1]
    read = projected.new_zeros(projected.shape[1], 2 * d)
    tapes: list[Tensor] = []
    for t, gates in enumerate(projected):
        if tapes and score is None:
            read = tapes[-1]
        elif tapes and score is not None and word_queries is not None:
            entries = torch.stack(tapes, 1)
            keys = entries[..., :d] @ score.entry.T + score.bias
            query = word_queries[t] + read[:, :d] @ score.summary.T
            exists = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)
            read = attend(query, keys, entries, exists, score.vector)
        i, f, proposal, o = (gates + read[:, :d] @ recurrent.T).chunk(4, -1)
        c = torch.sigmoid(f) * read[:, d:] + torch.sigmoid(i) * torch.tanh(proposal)
        if added is not None:
            c = c + added[t]
        tapes.append(torch.cat([torch.sigmoid(o) * torch.tanh(c), c], -1))
    return torch.stack(tapes)


def read_source(
    word_queries: Float[Tensor, "n b h"],
    keys: Float[Tensor, "b m h"],
    values: Float[Tensor, "b m dv"],
    exists: Bool[Tensor, "b m"],
    summary: Float[Tensor, "h d"],
    vector: Float[Tensor, " h"],
) -> Float[Tensor, "n b dv"]:
    """Read a source over n steps: queries are W_x x_t and the first d numbers of what was read last."""
    read = values.new_zeros(len(values), values.shape[-1])
    reads = []
    for word in word_queries:
        read = attend(word + read[:, : summary.shape[-1]] @ summary.T, keys, values, exists, vector)
        reads.append(read)
    return torch.stack(reads)


def read_tapes(
    queries: Float[Tensor, "r h"],
    keys: Float[Tensor, "r m h"],
    values: Float[Tensor, "r m dd"],
    length: Int[Tensor, " r"],
    vector: Float[Tensor, " h"],
) -> Float[Tensor, "r dd"]:
    """Read tapes in a cache for one step, of which each row has its own length."""
    exists = torch.arange(keys.shape[1], device=keys.device) < length[:, None]
    return attend(queries, keys, values.masked_fill(~exists[..., None], 0), exists, vector)


def attend(
    query: Float[Tensor, "b h"],
    keys: Float[Tensor, "b m h"],
    values: Float[Tensor, "b m dv"],
    exists: Bool[Tensor, "b m"],
    vector: Float[Tensor, " h"],
) -> Float[Tensor, "b dv"]:
    """Attend additively from one query a row to the keys that exist; zeros where there are none."""
    scores = (torch.tanh(keys + query[:, None]) @ vector).masked_fill(~exists, torch.finfo(query.dtype).min)
    return torch.einsum("bm,bmd->bd", torch.softmax(scores, -1).masked_fill(~exists, 0), values)


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
            state, cell = step_lstm(inputs, hidden, cell)
        else:
            state = step_gru(inputs, hidden, state)
        states.append(state)
    return torch.stack(states, 1), torch.stack(contexts, 1), torch.stack(weights, 1)


def run_layer(projected: Tensor, recurrent: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
    """Run a layer from zeros: [b n k g], [k g d], [k g], [b] -> the states after each position, [h→; h←], [b n kd].

    The second direction reads each row from its own end; what stands beyond it is read in order, after the rest.
    """
    (b, n, k, g), d = projected.shape, recurrent.shape[-1]
    rows = []
    for row in range(b):
        length, ways = int(lengths[row]), []
        for way in range(k):
            order = list(range(n)) if way == 0 else [*range(length - 1, -1, -1), *range(length, n)]
            h, c = projected.new_zeros(d), projected.new_zeros(d)
            states = [h] * n
            for position in order:
                x, s = projected[row, position, way], recurrent[way] @ h
                if g == 4 * d:
                    h, c = step_lstm(x, s, c)
                else:
                    h = step_gru(x, s + bias[way], h)
                states[position] = h
            ways.append(torch.stack(states) if n else projected.new_zeros(0, d))
        rows.append(torch.cat(ways, -1))
    return torch.stack(rows)


def step_lstm(x: Tensor, s: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Step an LSTM: [*b 4d], [*b 4d] and the cell [*b d] -> h' and c'; the gates are i, f, g, o, in torch's order."""
    i, f, g, o = (x + s).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def step_gru(x: Tensor, s: Tensor, h: Tensor) -> Tensor:
    """Step a GRU: [*b 3d], [*b 3d] and the state [*b d] -> h'; the gates are r, z, the proposal, in torch's order."""
    (r, z, proposal), (r_state, z_state, proposal_state) = x.chunk(3, -1), s.chunk(3, -1)
    z = (z + z_state).sigmoid()
    proposed = (proposal + (r + r_state).sigmoid() * proposal_state).tanh()
    return z * h + (1 - z) * proposed
