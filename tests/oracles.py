r"""Every mechanism as a loop over rows, queries and keys, written from its paper's formula.

The tests check the library against these, forward and gradients; nothing here is taken from it. The loops are slow on
purpose: one scalar score at a time, in float64, differentiable. Letters: n queries · m keys · d widths · all indices
from 0. A `row` is an index into the leading dimensions; with heads, the head is its last number.

`attend` and `over_rows` combine four kinds of function:

- a score (q [dq], k [dk], j) -> scalar
- a span (Place) -> Answer: whether this query may look at this key, its bias on the score, its factor on the weight
- a weighting (scores [k] of the visible keys) -> weights [k]
- a projection (vector) -> vector
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

Row = tuple[int, ...]
Score = Callable[[Tensor, Tensor, int], Tensor]
Weighting = Callable[[Tensor], Tensor]
Projection = Callable[[Tensor], Tensor]


class Place(NamedTuple):
    """One query and one key: the row, query i, key j, the unprojected query, and the number of keys."""

    row: Row
    i: int
    j: int
    query: Tensor
    keys: int


class Answer(NamedTuple):
    """A span's answer for one query and one key."""

    allowed: bool = True
    bias: Tensor | float = 0.0
    gate: Tensor | float = 1.0


Span = Callable[[Place], Answer]


# --- scores ---------------------------------------------------------------------------------------------------------


def dot(q: Tensor, k: Tensor, j: int) -> Tensor:
    r"""$e = q^\top k$. Luong et al. 2015 (arXiv:1508.04025), section 3.1, "dot"."""
    return sum_of(q[c] * k[c] for c in range(len(q)))


def scaled(q: Tensor, k: Tensor, j: int) -> Tensor:
    r"""$e = q^\top k / \sqrt{d_k}$. Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, equation 1."""
    return dot(q, k, j) / math.sqrt(len(k))


def general(weight: Tensor) -> Score:
    r"""$e = q^\top W k$. Luong et al. 2015, section 3.1, "general"; W [dq, dk]."""
    return lambda q, k, j: sum_of(q[a] * (weight[a] * k).sum() for a in range(len(q)))


def additive(query: Tensor, key: Tensor, bias: Tensor, v: Tensor) -> Score:
    r"""$e = v^\top \tanh(W q + U k + b)$. Bahdanau et al. 2015 (arXiv:1409.0473), appendix A.1.2.

    Luong's "concat" (section 3.1), $v^\top \tanh(W[q; k])$, is this score with [W U] as one matrix: see `concat`.
    """

    def score(q: Tensor, k: Tensor, j: int) -> Tensor:
        return sum_of(v[a] * torch.tanh((query[a] * q).sum() + (key[a] * k).sum() + bias[a]) for a in range(len(v)))

    return score


def concat(weight: Tensor, v: Tensor) -> Score:
    r"""$e = v^\top \tanh(W_a [q; k])$. Luong et al. 2015, section 3.1, "concat"."""
    return lambda q, k, j: (v * torch.tanh(weight @ torch.cat([q, k]))).sum()


def cosine(sharpness: Tensor | float) -> Score:
    r"""$e = \beta\, q^\top k / (|q| |k|)$. Graves et al. 2014 (arXiv:1410.5401), section 3.3.1, equations 5 and 6."""

    def score(q: Tensor, k: Tensor, j: int) -> Tensor:
        return sharpness * dot(q, k, j) / (torch.sqrt(dot(q, q, j)) * torch.sqrt(dot(k, k, j)))

    return score


def cosine_from_query(q: Tensor, k: Tensor, j: int) -> Tensor:
    r"""Cosine with $\beta = \log(1 + e^{x})$ of the query's last number. Graves et al. 2014, section 3.3.1."""
    return cosine(torch.log1p(torch.exp(q[-1])))(q[:-1], k, j)


def location(weight: Tensor) -> Score:
    r"""$e_j = (W q)_j$. Luong et al. 2015, section 3.1, equation 8: from the query alone."""
    return lambda q, k, j: (weight[j] * q).sum()


# --- spans ----------------------------------------------------------------------------------------------------------


def everywhere(place: Place) -> Answer:
    """Global attention: every key."""
    return Answer()


def lengths(values: Tensor) -> Span:
    """Padding: keys before the row's length are visible. `values` [*b]."""
    return lambda place: Answer(allowed=place.j < of_row(values, place.row))


def causal(start: int | Tensor = 0) -> Span:
    """Vaswani et al. 2017, section 3.2.3: no position looks at a later one."""
    return lambda place: Answer(allowed=place.j <= of_row(start, place.row) + place.i)


def local_m(radius: float, start: int | Tensor = 0) -> Span:
    r"""Luong et al. 2015, section 3.2, local-m: $p_t = t$, the window $[p_t - D, p_t + D]$."""

    def span(place: Place) -> Answer:
        centre = of_row(start, place.row) + place.i
        return Answer(allowed=centre - radius <= place.j <= centre + radius)

    return span


def local_p(hidden: Tensor, v: Tensor, radius: float, true_lengths: Tensor | None = None) -> Span:
    r"""Luong et al. 2015, section 3.2, local-p, equations 9 and 10.

    $p_t = S\,\sigma(v_p^\top \tanh(W_p h_t))$; the softmax over $[p_t - D, p_t + D]$ within the sentence; then
    $a_t(s) = \mathrm{align}(h_t, h_s) \exp(-(s - p_t)^2 / 2\sigma^2)$, $\sigma = D / 2$.
    """

    def span(place: Place) -> Answer:
        length = place.keys if true_lengths is None else of_row(true_lengths, place.row)
        centre = centre_p(place.query, hidden, v, length)
        inside = centre.item() - radius <= place.j <= centre.item() + radius and 0 <= place.j < length
        deviation = radius / 2
        return Answer(allowed=inside, gate=torch.exp(-((place.j - centre) ** 2) / (2 * deviation**2)))

    return span


def centre_p(query: Tensor, hidden: Tensor, v: Tensor, length: int) -> Tensor:
    r"""$p_t = S\,\sigma(v_p^\top \tanh(W_p h_t))$. Luong et al. 2015, equation 9."""
    inner = sum_of(v[a] * torch.tanh((hidden[a] * query).sum()) for a in range(len(v)))
    return length / (1 + torch.exp(-inner))


def mask(values: Tensor) -> Span:
    """A boolean [*b n m], or with heads [*b heads n m]: True where a query may look."""

    def span(place: Place) -> Answer:
        row = place.row[: values.dim() - 2]
        return Answer(allowed=bool(values[(*row, place.i, place.j)]))

    return span


def alibi(heads: int, start: int | Tensor = 0) -> Span:
    r"""Press et al. 2022 (arXiv:2108.12409), section 3: $-m_h |i - j|$ added to the score."""
    slopes = alibi_slopes(heads)

    def span(place: Place) -> Answer:
        distance = abs(of_row(start, place.row[:-1]) + place.i - place.j)
        return Answer(bias=-slopes[place.row[-1]] * distance)

    return span


def alibi_slopes(heads: int) -> list[float]:
    r"""Press et al. 2022, section 3 and footnote: $2^{-8/h}, 2^{-16/h}, \ldots$ for h a power of two.

    Otherwise the slopes of the power of two below, then every other slope of the power of two above.
    """
    below = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (h + 1) / below) for h in range(below)]
    if below == heads:
        return slopes
    above = [2 ** (-8 * (h + 1) / (2 * below)) for h in range(2 * below)]
    return slopes + above[0::2][: heads - below]


def join(*spans: Span) -> Span:
    """Combine spans: all must allow, biases add, gates multiply."""

    def span(place: Place) -> Answer:
        answers = [one(place) for one in spans]
        bias: Tensor | float = 0.0
        gate: Tensor | float = 1.0
        for answer in answers:
            bias, gate = bias + answer.bias, gate * answer.gate
        return Answer(all(answer.allowed for answer in answers), bias, gate)

    return span


def of_row(value: int | Tensor, row: Row) -> int:
    """Return a row's number from one for all rows, or from one per row."""
    return int(value[row[: value.dim()]]) if isinstance(value, Tensor) else value


# --- weightings -----------------------------------------------------------------------------------------------------


def softmax(scores: Tensor, temperature: float = 1.0) -> Tensor:
    r"""$a_j = \exp(e_j / T) / \sum_k \exp(e_k / T)$. Bahdanau et al. 2015, section 3.1, equation 6."""
    largest = scores.max().detach()
    powers = [torch.exp((score - largest) / temperature) for score in scores]
    total = sum_of(powers)
    return torch.stack([power / total for power in powers])


def sparsemax(scores: Tensor) -> Tensor:
    r"""$p_j = [z_j - \tau(z)]_+$. Martins and Astudillo 2016 (arXiv:1602.02068), proposition 1, algorithm 1."""
    order = sorted(range(len(scores)), key=lambda j: -scores[j].item())
    support: list[int] = []
    for count in range(1, len(order) + 1):
        if 1 + count * scores[order[count - 1]].item() > sum(scores[j].item() for j in order[:count]):
            support = order[:count]
    threshold = (sum_of(scores[j] for j in support) - 1) / len(support)
    return torch.stack([scores[j] - threshold if j in support else scores[j] * 0 for j in range(len(scores))])


def simplex_projection(scores: Tensor) -> Tensor:
    r"""$\arg\min_{p \in \Delta} |p - z|^2$ by bisection on $\tau$ with $\sum_j [z_j - \tau]_+ = 1$; no gradient."""
    low, high = scores.min().item() - 1.0, scores.max().item()
    for _ in range(200):
        middle = (low + high) / 2
        if (scores - middle).clamp(min=0).sum().item() > 1:
            low = middle
        else:
            high = middle
    return (scores - (low + high) / 2).clamp(min=0)


def plain(scores: Tensor) -> Tensor:
    r"""Return the scores themselves: $R = s s^\top$, $c = R s$."""
    return scores


def argmax(scores: Tensor) -> Tensor:
    """Hard attention in evaluation: the best key, without a gradient through the choice."""
    best = scores.argmax().item()
    return torch.tensor([1.0 if j == best else 0.0 for j in range(len(scores))], dtype=scores.dtype)


# --- attention ------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """An oracle's result: contexts [*b n dv] and weights [*b n m]."""

    context: Tensor
    weights: Tensor


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    *,
    span: Span = everywhere,
    weighting: Weighting = softmax,
    row: Row = (),
    unprojected: Tensor | None = None,
) -> Seen:
    r"""One sequence, query by query: $c_i = \sum_j a_{ij} v_j$. query [n dq], keys [m dk], values [m dv]."""
    asked = query if unprojected is None else unprojected
    nothing = (query.sum() + keys.sum() + values.sum()) * 0
    contexts, weights = [], []
    for i in range(query.shape[0]):
        answers = [span(Place(row, i, j, asked[i], keys.shape[0])) for j in range(keys.shape[0])]
        allowed = [j for j, answer in enumerate(answers) if answer.allowed]
        line = [nothing] * keys.shape[0]
        if allowed:
            given = weighting(torch.stack([score(query[i], keys[j], j) + answers[j].bias for j in allowed]))
            for position, j in enumerate(allowed):
                line[j] = given[position] * answers[j].gate
        weights.append(torch.stack(line))
        contexts.append(sum_of(line[j] * values[j] for j in range(keys.shape[0])))
    return Seen(torch.stack(contexts), torch.stack(weights))


def over_rows(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    *,
    span: Span = everywhere,
    weighting: Weighting = softmax,
) -> Seen:
    """Apply `attend` to every index of the leading dimensions."""
    lead = query.shape[:-2]
    seen = [
        attend(query[row], keys[row], values[row], score, span=span, weighting=weighting, row=row)
        for row in rows_of(lead)
    ]
    return Seen(rows_again([one.context for one in seen], lead), rows_again([one.weights for one in seen], lead))


def han(words: Tensor, weight: Tensor, bias: Tensor, learned: Tensor) -> Tensor:
    r"""Yang et al. 2016 (HAN), section 2.2, equations 5 to 7: words [m d] of one sentence -> its vector [d].

    $u_t = \tanh(W h_t + b)$, $a_t \propto \exp(u_t^\top u_w)$, $s = \sum_t a_t h_t$: the scores see u, the sum h.
    """
    powers = [torch.exp((torch.tanh(weight @ word + bias) * learned).sum()) for word in words]
    total = sum_of(powers)
    return sum_of(power / total * word for power, word in zip(powers, words, strict=True))


# --- heads ----------------------------------------------------------------------------------------------------------


def linear(weight: Tensor, bias: Tensor | None = None) -> Projection:
    """W x + b, one output at a time."""

    def project(x: Tensor) -> Tensor:
        y = torch.stack([(weight[a] * x).sum() for a in range(weight.shape[0])])
        return y if bias is None else y + bias

    return project


def multi_head(
    x: Tensor,
    memory: Tensor,
    query: Sequence[Projection],
    key: Sequence[Projection],
    value: Sequence[Projection],
    output: Projection | None,
    *,
    score: Score | Sequence[Score] = scaled,
    span: Span = everywhere,
    weighting: Weighting = softmax,
    turn: int | Tensor | None = None,
) -> Seen:
    r"""Vaswani et al. 2017, section 3.2.2: $\mathrm{head}_h = \mathrm{Attention}(x W^Q_h, y W^K_h, y W^V_h)$.

    One projection per head; the heads' contexts concatenated, then $W^O$. x [*b n d], memory [*b m e]. `turn`: rotary
    positions, queries counted from there and keys from 0.
    """
    lead, heads = x.shape[:-2], len(query)
    contexts, weights = [], []
    for row in rows_of(lead):
        seen = []
        for head in range(heads):
            q = torch.stack([query[head](one) for one in x[row]])
            k = torch.stack([key[head](one) for one in memory[row]])
            v = torch.stack([value[head](one) for one in memory[row]])
            if turn is not None:
                first = of_row(turn, row)
                q = torch.stack([rotary(one, first + i) for i, one in enumerate(q)])
                k = torch.stack([rotary(one, j) for j, one in enumerate(k)])
            one_score = score if callable(score) else score[head]
            seen.append(
                attend(q, k, v, one_score, span=span, weighting=weighting, row=(*row, head), unprojected=x[row])
            )
        joined = torch.cat([one.context for one in seen], dim=-1)
        contexts.append(joined if output is None else torch.stack([output(one) for one in joined]))
        weights.append(torch.stack([one.weights for one in seen]))
    return Seen(rows_again(contexts, lead), rows_again(weights, lead))


def slices(weight: Tensor, bias: Tensor | None, heads: int) -> list[Projection]:
    """Return one projection per head: the h-th slice of the rows of one matrix [out, in]."""
    step = weight.shape[0] // heads
    at = [slice(head * step, (head + 1) * step) for head in range(heads)]
    return [linear(weight[one], None if bias is None else bias[one]) for one in at]


def of_slice(projection: Projection, head: int, heads: int) -> Projection:
    """Return a head's projection of its own slice of the input (split="input")."""

    def project(x: Tensor) -> Tensor:
        step = x.shape[0] // heads
        return projection(x[head * step : (head + 1) * step])

    return project


# --- positions ------------------------------------------------------------------------------------------------------


def sinusoid(position: int, size: int) -> Tensor:
    r"""Vaswani et al. 2017, section 3.5: $\sin(p / 10000^{2i/d})$ at 2i, $\cos$ of the same at 2i+1."""
    angles = [position / 10000 ** (2 * (c // 2) / size) for c in range(size)]
    return torch.tensor([math.sin(a) if c % 2 == 0 else math.cos(a) for c, a in enumerate(angles)], dtype=torch.float64)


def sinusoid_halves(position: int, size: int) -> Tensor:
    r"""Marian: all $\sin(p / 10000^{2i/d})$, then the cosines; with an odd size the last angle has only a sine."""
    sines = [math.sin(position / 10000 ** (2 * i / size)) for i in range((size + 1) // 2)]
    cosines = [math.cos(position / 10000 ** (2 * i / size)) for i in range(size // 2)]
    return torch.tensor(sines + cosines, dtype=torch.float64)


def sinusoid_fairseq(position: int, size: int) -> Tensor:
    r"""fairseq: sines, then cosines, of $(p + 2) e^{-i \log(10000) / (h - 1)}$, h = ⌊d / 2⌋; an odd size ends on 0."""
    half = size // 2
    angles = [(position + 2) * (math.exp(-math.log(10000) * i / (half - 1)) if i else 1.0) for i in range(half)]
    numbers = [math.sin(a) for a in angles] + [math.cos(a) for a in angles] + [0.0] * (size % 2)
    return torch.tensor(numbers, dtype=torch.float64)


def sinusoid_2d(row: int, column: int, size: int) -> Tensor:
    """Parmar et al. 2018 (arXiv:1802.05751), section 3.2: half the channels for the row, half for the column."""
    return torch.cat([sinusoid(row, size // 2), sinusoid(column, size // 2)])


def rotary(x: Tensor, position: int) -> Tensor:
    r"""Su et al. 2021 (arXiv:2104.09864), equation 34: pairs turned by $p \theta_i$, $\theta_i = 10000^{-2i/d}$."""
    turned = []
    for i in range(len(x) // 2):
        angle = position * 10000 ** (-2 * i / len(x))
        a, b = x[2 * i], x[2 * i + 1]
        turned += [a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)]
    return torch.stack(turned)


# --- grids ----------------------------------------------------------------------------------------------------------


def zhang(x: Tensor, f: Projection, g: Projection, h: Projection, v: Projection, gamma: Tensor) -> Seen:
    r"""Zhang et al. 2019 (arXiv:1805.08318), section 3, equations 1 to 3, on one image [C H W].

    $s_{ij} = f(x_i)^\top g(x_j)$, $\beta_{j,i}$ its softmax over i, $o_j = v(\sum_i \beta_{j,i} h(x_i))$,
    $y_j = \gamma o_j + x_j$. weights [H·W, H·W]: row j holds the weights of place j.
    """
    places = [x[:, r, c] for r, c in product(range(x.shape[1]), range(x.shape[2]))]
    contexts, weights = [], []
    for here in places:
        asked = g(here)
        given = softmax(torch.stack([(f(there) * asked).sum() for there in places]))
        summed = sum_of(weight * h(there) for weight, there in zip(given, places, strict=True))
        contexts.append(gamma * v(summed) + here)
        weights.append(given)
    return Seen(torch.stack(contexts, dim=-1).reshape(x.shape), torch.stack(weights))


# --- blocks ---------------------------------------------------------------------------------------------------------


def layer_norm(weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Projection:
    """Ba et al. 2016 (arXiv:1607.06450), equation 4, with the mean of squares as variance."""

    def norm(x: Tensor) -> Tensor:
        mean = sum_of(x) / len(x)
        variance = sum_of((one - mean) ** 2 for one in x) / len(x)
        return torch.stack([(one - mean) / torch.sqrt(variance + epsilon) for one in x]) * weight + bias

    return norm


def relu(x: Tensor) -> Tensor:
    """Return x, or zero if it is negative."""
    return x if x > 0 else x * 0


def gelu(x: Tensor) -> Tensor:
    r"""Hendrycks and Gimpel 2016 (arXiv:1606.08415), section 2: $x \cdot \frac12 (1 + \mathrm{erf}(x / \sqrt 2))$."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def silu(x: Tensor) -> Tensor:
    r"""$x / (1 + e^{-x})$: Elfwing et al. 2017 (arXiv:1702.03118), section 2; swish with β = 1."""
    return x / (1 + torch.exp(-x))


ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu}


def feed_forward(inner: Projection, outer: Projection, activation: str = "relu") -> Projection:
    r"""$\max(0, x W_1 + b_1) W_2 + b_2$. Vaswani et al. 2017, section 3.3, equation 2; or another activation."""
    return lambda x: outer(torch.stack([ACTIVATIONS[activation](one) for one in inner(x)]))


def residual(x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Projection, style: str) -> Tensor:
    r"""Post: $\mathrm{norm}(x + f(x))$ (Vaswani et al. 2017, section 5.4). Pre: $x + f(\mathrm{norm}(x))$.

    Pre-norm: Xiong et al. 2020 (arXiv:2002.04745), table 1. `sublayer` maps all positions [*b n d] at once.
    """
    if style == "post":
        return per_vector(norm, x + sublayer(x))
    return x + sublayer(per_vector(norm, x))


def per_vector(function: Projection, x: Tensor) -> Tensor:
    """Apply a function of a vector to each vector of x [*b n d]."""
    lead = x.shape[:-1]
    return rows_again([function(x[row]) for row in rows_of(lead)], lead)


# --- small tools ----------------------------------------------------------------------------------------------------


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """Sum the terms as tensors."""
    first, *rest = list(terms)
    for term in rest:
        first = first + term
    return first


def rows_of(lead: Sequence[int]) -> list[Row]:
    """Return every index into the leading dimensions; only the empty index if there are none."""
    return list(product(*(range(size) for size in lead)))


def rows_again(rows: Sequence[Tensor], lead: Sequence[int]) -> Tensor:
    """Reshape the rows to their leading dimensions."""
    return torch.stack(list(rows)).reshape(*lead, *rows[0].shape)


def agree(
    actual: Tensor, expected: Tensor, leaves: Iterable[Tensor] = (), *, rtol: float = 1e-9, atol: float = 1e-11
) -> None:
    """Check that both are equal, and every leaf's gradients under one random cotangent (no gradient counts as zero)."""
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
    leaves = list(leaves)
    if not leaves:
        return
    cotangent = torch.randn_like(expected)
    got, want = gradients(actual, leaves, cotangent), gradients(expected, leaves, cotangent)
    for index, (one, other) in enumerate(zip(got, want, strict=True)):
        torch.testing.assert_close(
            one, other, rtol=rtol, atol=atol, msg=lambda m, i=index: f"gradient of leaf {i}: {m}"
        )


def gradients(output: Tensor, leaves: Sequence[Tensor], cotangent: Tensor) -> list[Tensor]:
    """Return the gradients of every leaf; zeros if the output does not depend on it."""
    if not output.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(output, leaves, cotangent, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(leaf) if one is None else one for one, leaf in zip(found, leaves, strict=True)]
