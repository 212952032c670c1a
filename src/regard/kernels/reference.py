r"""The specifications: attention, operations and recurrences, each written as its definition.

Every faster implementation must agree with this file.

Dropout, and the residual with its norm, take the mask of the kept elements: x ∘ keep / P(keep). The loss is that of
Szegedy et al. 2016, section 7:

$\ell_t = (1 - \varepsilon) \cdot -\log p_t(y_t) + \varepsilon \cdot \frac{1}{v} \sum_k -\log p_t(k)$: like torch's
`label_smoothing`, it spreads the mass ε over all v classes, including the correct one.

The LSTMN's recurrence, Cheng et al. 2016 (arXiv:1601.06733):
$a_i = v^\top \tanh(W_h h_i + W_x x_t + W_{\tilde h} \tilde h_{t-1})$ over i < t; the same weights read the hidden and
the memory tape, and an LSTM step continues from the result; deep fusion reads a source's two tapes in the same way.

RNNsearch's, Bahdanau et al. 2015 (arXiv:1409.0473), appendix A: $e_{ij} = v^\top \tanh(W s_{i-1} + k_j)$,
$a_i = \mathrm{softmax}(e_i)$, $c_i = \sum_j a_{ij} h_j$, $s_i = f(s_{i-1}, [E y_{i-1}; c_i])$, with torch's GRU or LSTM
as f.

A layer, position by position, in one or both directions:

- LSTM (Hochreiter and Schmidhuber 1997): $i, f, o = \sigma(x + U h)$, $g = \tanh(x + U h)$, $c' = f c + i g$,
  $h' = o \tanh c'$.
- GRU (Cho et al. 2014, arXiv:1406.1078, but with the reset gate after the product, as in cuDNN):
  $r, z = \sigma(x + U h + b)$, $\tilde h = \tanh(x + r (U h + b))$, $h' = z h + (1 - z) \tilde h$.
"""

# b batch, or sentences · r rows: all leading dimensions as one · n queries, steps or positions · m keys, or source
# positions · d width, that of a state, or out, dd twice that · e width in · h width of additive scores · dv value width
# t tokens · c columns · v indices, classes or vocabulary · k tokens, or directions
# g gates, 3d of a GRU, 4d of an LSTM · p parts of a state, h and an LSTM's c
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels.span_limits import SpanLimits, broadcast


def widen(x: Tensor) -> Tensor:
    """Convert half precision to float32, where a score above 65,504 stays finite; leave wider numbers as they are."""
    return x.float() if x.element_size() < 4 else x


def matmul_wide(a: Tensor, b: Tensor) -> Tensor:
    """Compute a @ b in float32 or wider, under autocast too."""
    if torch.is_autocast_enabled(a.device.type):
        with torch.autocast(a.device.type, enabled=False):
            return widen(a) @ widen(b)
    return (a if a.element_size() >= 4 else a.float()) @ (b if b.element_size() >= 4 else b.float())


# ---- attention


@dataclass(frozen=True)
class Call:
    """One attention call, after the score has transformed its query and keys."""

    query: Tensor  # [*b n d]
    keys: Tensor  # [*b m d]
    values: Tensor  # [*b m dv]
    limits: SpanLimits
    compare: Callable[[Tensor, Tensor], Tensor]  # scores [*b n m] of query and keys
    weigh: Callable[[Tensor, Tensor | None], Tensor]  # weights [*b n m] of scores under a mask
    score: str = "other"  # the kind of `compare`: "bilinear" or "additive" if kernels may compute it themselves
    weighting: str = "other"  # the kind of `weigh`: "softmax" if kernels may compute it themselves
    scale: float = 1.0  # bilinear scores are scale · q·k
    vector: Tensor | None = None  # additive scores are vector · tanh(q + k); [h] or [heads h]
    temperature: float = 1.0  # of a softmax
    dropout: float = 0.0

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading dimensions that query, keys and values broadcast to."""
        return broadcast(self.query.shape[:-2], self.keys.shape[:-2], self.values.shape[:-2])


def softmax(scores: Tensor, mask: Tensor | None, temperature: float | Tensor = 1.0) -> Tensor:
    """Compute the softmax of e / T over the keys that the mask allows; a query with none gets zeros, finite gradients.

    Half precision is converted to float32: a score of 1e4 is coarse in bfloat16, and so is the sum of many small
    weights.
    """
    dtype, scores = scores.dtype, widen(scores)
    if temperature != 1.0:
        scores = scores / temperature
    if mask is None:
        return torch.softmax(scores, dim=-1).to(dtype)
    # The lowest finite number instead of -inf: a row without keys is then uniform, not NaN, and is zeroed below.
    weights = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
    return weights.masked_fill(~mask, 0.0).to(dtype)


def attend(call: Call) -> Tensor:
    """Compute Σ_j a_ij v_j with a = weigh(e), e = compare(q, k) + bias, and a gate after the weighting.

    A softmax divides e, including the bias, by its temperature. For half-precision inputs, scores, weights and the sum
    are in float32; the context is rounded once.
    """
    scores = call.compare(call.query, call.keys)
    return sum_values(scores, call)


def sum_values(scores: Tensor, call: Call) -> Tensor:
    """Compute contexts from scores: bias, weighting, gate, dropout, sum."""
    gate = call.limits.gate()
    weights = call.weigh(add_bias(scores, call.limits), call.limits.mask())
    if gate is not None:
        weights = weights * gate.to(weights.dtype)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    return matmul_wide(weights, call.values).to(call.values.dtype)


def add_bias(scores: Tensor, limits: SpanLimits) -> Tensor:
    """Add all biases of the spans to the scores, in float32 or wider, as weightings expect."""
    bias, scores = limits.bias(), widen(scores)
    return scores if bias is None else scores + bias.to(scores.dtype)


def bilinear_scores(query: Tensor, keys: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """Compute scale · q·k: [*b n d] and [*b m d] -> [*b n m], in float32 for half-precision inputs."""
    query = query if query.element_size() >= 4 else query.float()
    query = query if scale == 1.0 else query * scale
    if keys.element_size() >= 4 and not torch.is_autocast_enabled(keys.device.type):
        return query @ keys.mT
    return matmul_wide(query, keys.mT)


def additive_scores(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Compute v·tanh(q + k): [*b n h], [*b m h] and [h] or [heads h] -> [*b n m].

    Half-precision inputs are converted to float32. The intermediate [*b n m h] is held in memory.
    """
    hidden = torch.tanh(widen(query).unsqueeze(-2) + widen(keys).unsqueeze(-3))
    vector = vector.to(hidden.dtype)
    if vector.ndim == 1:
        return matmul_wide(hidden, vector)
    return matmul_wide(hidden, vector[:, None, :, None]).squeeze(-1)


# ---- operations


def row_sums(x: Tensor, ids: Tensor, count: int, factor: float = 1.0) -> Tensor:
    """Compute an embedding's gradient, the sum of the rows with each index: [t c], [t] -> [v c], float32 or wider."""
    return torch.stack([widen(x[ids == index]).sum(0) for index in range(count)]) * factor


def dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Set elements of x to zero and scale the others, so that the expectation stays the same."""
    return torch.where(keep, x / keep_probability, 0.0)


def residual(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    keep_probability: float,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor | None]:
    """Compute the sum [t d] in x's dtype, and its layer norm (Ba et al. 2016, arXiv:1607.06450) if it has a weight."""
    y = y if bias is None else y + bias
    y = y if keep is None else dropout(y, keep, keep_probability)
    together = (x + y).to(x.dtype)
    if norm_weight is None:
        return together, None
    wide = torch.promote_types(x.dtype, norm_weight.dtype)
    return together, F.layer_norm(together.to(wide), together.shape[-1:], norm_weight, norm_bias, eps)


def top_tokens(
    scores: Tensor, count: int, never: tuple[int, ...], end: int, early: Tensor, forced: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the top tokens from [r v], k, forbidden tokens, END's id, [r] whether END is too early, [r] a token or -1.

    -> the scores of the best tokens in order [r k], the tokens [r k], and log Σ exp of all scores [r]. A row with a
    forced token allows only that token, even if it is forbidden. If fewer than k tokens are allowed, the rest score -∞.
    """
    wide = scores if scores.dtype == torch.float64 else scores.float()
    token = torch.arange(scores.shape[-1], device=scores.device)
    free = torch.ones_like(token, dtype=torch.bool)
    for number in never:
        free &= token != number
    allowed = free & ~((token == end) & early[:, None])
    allowed = torch.where(forced[:, None] < 0, allowed, token == forced[:, None])
    best = wide.masked_fill(~allowed, -torch.inf).topk(count)
    return best.values, best.indices, wide.logsumexp(-1)


IGNORED = -100


def projection_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sum smoothed losses, and plain losses, which carry no gradient: [t d], [v d], [v], [t] -> two numbers.

    Targets below zero are ignored.
    """
    targets = targets.where(targets >= 0, IGNORED)
    logits = F.linear(hidden, weight, bias)
    logits = logits if logits.element_size() > 2 else logits.float()
    options: dict[str, Any] = {"reduction": "sum", "ignore_index": IGNORED}
    total = F.cross_entropy(logits, targets, label_smoothing=smoothing, **options)
    return total, F.cross_entropy(logits.detach(), targets, **options)


# ---- recurrences


@dataclass(frozen=True, eq=False)
class ScoreWeights:
    """The parameters of an additive score except W_x: for the last summary, for a tape entry, the bias, and v."""

    summary: Float[Tensor, "h d"]
    entry: Float[Tensor, "h d"]
    bias: Float[Tensor, " h"]
    vector: Float[Tensor, " h"]


def run_tapes(
    projected: Float[Tensor, "n b g"],
    recurrent: Float[Tensor, "g d"],
    added: Float[Tensor, "n b d"] | None = None,
    word_queries: Float[Tensor, "n b h"] | None = None,
    score: ScoreWeights | None = None,
) -> Float[Tensor, "n b dd"]:
    """Compute the tapes [h_t; c_t] of n steps. Without a `score`, each step reads the entry before it."""
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
            read = attend_step(query, keys, entries, exists, score.vector)
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
    """Read a source over n steps: queries are W_x x_t and the first d elements of the last read."""
    read = values.new_zeros(len(values), values.shape[-1])
    reads = []
    for word in word_queries:
        read = attend_step(word + read[:, : summary.shape[-1]] @ summary.T, keys, values, exists, vector)
        reads.append(read)
    return torch.stack(reads)


def read_tapes(
    queries: Float[Tensor, "r h"],
    keys: Float[Tensor, "r m h"],
    values: Float[Tensor, "r m dd"],
    length: Int[Tensor, " r"],
    vector: Float[Tensor, " h"],
) -> Float[Tensor, "r dd"]:
    """Read cached tapes for one step; each row has its own length."""
    exists = torch.arange(keys.shape[1], device=keys.device) < length[:, None]
    return attend_step(queries, keys, values.masked_fill(~exists[..., None], 0), exists, vector)


def attend_step(
    query: Float[Tensor, "b h"],
    keys: Float[Tensor, "b m h"],
    values: Float[Tensor, "b m dv"],
    exists: Bool[Tensor, "b m"],
    vector: Float[Tensor, " h"],
) -> Float[Tensor, "b dv"]:
    """Attend additively from one query per row to the keys that exist; zeros if there are none."""
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
        weights.append(torch.softmax(scores, -1).masked_fill(~exists, 0))  # zeros if no key exists
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

    The second direction reads each row backwards from its last position; positions beyond its length follow in order.
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
