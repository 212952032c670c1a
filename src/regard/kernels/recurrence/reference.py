r"""The LSTMN's recurrences as plain loops: the specification of `cpu`.

Cheng et al. 2016 (arXiv:1601.06733): $a_i = v^\top \tanh(W_h h_i + W_x x_t + W_{\tilde h} \tilde h_{t-1})$ over i < t,
the same weights read the hidden and the memory tape, and an LSTM goes on from what was read; deep fusion reads a
source's two tapes in the same way.
"""

# n steps · m source positions · b sentences · d width of a state, g four times that · dd twice · h width of the scores
# r rows
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels.recurrence.lstmn.cpu import ScoreWeights


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
