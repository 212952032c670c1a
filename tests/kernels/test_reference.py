"""The specifications: against their definitions, number by number; against loops; and against torch's own layers."""

import math

import pytest
import torch
import torch.nn.functional as F
from kernels.cases import draw_recurrence, recur_plainly
from oracles import agree
from torch import nn
from torch.autograd import gradcheck

from regard.kernels import reference
from regard.kernels.operations.lstmn import ScoreWeights
from regard.kernels.reference import softmax


def test_softmax_equals_its_definition():
    scores, mask = torch.randn(3, 7, dtype=torch.float64), torch.rand(3, 7) > 0.4
    mask[1] = False
    weights = softmax(scores, mask, temperature=0.7)
    for row in range(3):
        seen = [math.exp(float(scores[row, j]) / 0.7) if mask[row, j] else 0.0 for j in range(7)]
        expected = [x / sum(seen) if sum(seen) else 0.0 for x in seen]
        torch.testing.assert_close(weights[row], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_softmax_gradients_with_an_empty_row():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert gradcheck(lambda x: softmax(x, mask), torch.randn(2, 3, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_softmax_at_large_scores_is_finite_and_in_its_dtype(dtype):
    scores = torch.tensor([[1e4, -1e4, 1e4], [-1e4, -1e4, -1e4]], dtype=dtype, requires_grad=True)
    weights = softmax(scores, torch.tensor([[True, True, True], [True, False, True]]))
    assert weights.dtype == dtype
    torch.testing.assert_close(weights.float(), torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.0, 0.5]]))
    weights.sum().backward()
    assert torch.isfinite(scores.grad).all()


# ---- bilinear scores, against a loop


def test_it_is_a_product_of_each_pair():
    query, keys = torch.randn(2, 3, 5).double(), torch.randn(2, 4, 5).double()
    found = reference.bilinear_scores(query, keys, 0.3)
    for b in range(2):
        for i in range(3):
            for j in range(4):
                torch.testing.assert_close(found[b, i, j], 0.3 * sum(query[b, i] * keys[b, j]))
    torch.testing.assert_close(reference.bilinear_scores(query, keys), found / 0.3)


def test_half_precision_is_scored_in_single():
    huge = torch.full((1, 8), 200.0, dtype=torch.float16)
    assert reference.bilinear_scores(huge, huge).item() == 320_000


# ---- additive scores, against a loop


def test_it_is_the_formula_for_each_pair():
    query, keys = torch.randn(2, 3, 5).double(), torch.randn(2, 4, 5).double()
    vector, heads = torch.randn(5).double(), torch.randn(2, 5).double()
    found, apart = reference.additive_scores(query, keys, vector), reference.additive_scores(query, keys, heads)
    for b in range(2):
        for i in range(3):
            for j in range(4):
                hidden = torch.tanh(query[b, i] + keys[b, j])
                torch.testing.assert_close(found[b, i, j], sum(vector * hidden))
                torch.testing.assert_close(apart[b, i, j], sum(heads[b] * hidden))


# ---- operations: dropout zeroes dropped numbers and divides the others by the probability of keeping them


def test_numbers_are_dropped_or_scaled():
    x, keep = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([True, True, False])
    assert reference.dropout(x, keep, 0.5).tolist() == [2.0, -4.0, 0.0]
    assert reference.dropout(torch.tensor([torch.nan]), torch.tensor([False]), 0.5).tolist() == [0.0]


# ---- sums of rows: the gradient that they compute


def test_sums_of_rows_are_a_gradient():
    grad, ids = torch.randn(7, 5).double(), torch.tensor([3, 0, 3, 3, 1, 0, 3])
    table = torch.zeros(4, 5).double().requires_grad_()
    (slope,) = torch.autograd.grad(F.embedding(ids, table), table, grad)
    torch.testing.assert_close(reference.row_sums(grad, ids, 4), slope)
    torch.testing.assert_close(reference.row_sums(grad, ids, 4, 0.5), slope / 2)
    assert reference.row_sums(grad.half(), ids, 4).dtype == torch.float32


# ---- a residual with its norm, number by number


def test_the_sum_and_its_norm():
    x, y, bias = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, -1.0])
    weight, shift = torch.tensor([2.0, 3.0]), torch.tensor([0.5, 0.0])
    keep = torch.tensor([[True, False]])
    together, normed = reference.residual(x, y, bias, keep, 0.5, weight, shift, 0.0)
    assert together.tolist() == [[1.0 + (3.0 + 1.0) / 0.5, 2.0]]
    # 9 and 2: the mean is 5.5, the deviation 3.5
    torch.testing.assert_close(normed, torch.tensor([[1.0 * 2.0 + 0.5, -1.0 * 3.0]]))
    together, normed = reference.residual(x, y, None, None, 1.0, None, None, 1e-5)
    assert together.tolist() == [[4.0, 6.0]]
    assert normed is None


def test_eps_stands_under_the_root():
    x, one = torch.tensor([[1.0, -1.0]]), torch.ones(2)
    _, normed = reference.residual(x, torch.zeros(1, 2), None, None, 1.0, one, None, 3.0)
    torch.testing.assert_close(normed, torch.tensor([[1.0, -1.0]]) / math.sqrt(1.0 + 3.0))


def test_the_sum_keeps_the_streams_dtype():
    together, _ = reference.residual(torch.zeros(1, 2), torch.zeros(1, 2).bfloat16(), None, None, 1.0, None, None, 0.0)
    assert together.dtype == torch.float32


# ---- the top tokens: sorted by hand, row by row


END = 2


def test_what_may_come_in_order():
    scores = torch.tensor([[9.0, 8.0, 7.0, 1.0, 3.0]]).repeat(4, 1)
    early, forced = torch.tensor([False, True, False, True]), torch.tensor([-1, -1, 4, END])
    best, tokens, norm = reference.top_tokens(scores, 2, (0, 1), END, early, forced)
    assert tokens[0].tolist() == [2, 4]
    assert tokens[1].tolist() == [4, 3]  # END is too early
    assert (tokens[2, 0], tokens[3, 0]) == (4, END)  # regardless of other rules
    assert best.tolist() == [[7.0, 3.0], [3.0, 1.0], [3.0, -math.inf], [7.0, -math.inf]]
    torch.testing.assert_close(norm, scores.logsumexp(-1))  # of all scores, forbidden ones too


# ---- the loss: the formula, one token at a time


def draw(t, d, v, dtype=torch.float64, bias=True):
    hidden, weight = torch.randn(t, d, dtype=dtype), torch.randn(v, d, dtype=dtype)
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    return [*inputs, torch.randn(v, dtype=dtype).requires_grad_() if bias else None], torch.randint(v, (t,))


def definition(hidden, weight, bias, targets, smoothing):
    """Compute the formula, one token at a time."""
    total = plain = 0.0
    for x, y in zip(hidden, targets.tolist(), strict=True):
        logits = weight @ x + (0 if bias is None else bias)
        surprise = -(logits - torch.logsumexp(logits, 0))
        total = total + (1 - smoothing) * surprise[y] + smoothing * surprise.mean()
        plain = plain + surprise[y].detach()
    return total, plain


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_reference_is_the_formula(smoothing):
    inputs, targets = draw(7, 3, 5)
    for one, other in zip(
        reference.projection_loss(*inputs, targets, smoothing), definition(*inputs, targets, smoothing), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_below_zero_count_nothing(smoothing):
    inputs, targets = draw(20, 5, 33)
    padded = targets.clone()
    padded[[0, 3, 4, 19]] = torch.tensor([-1, -1, -100, -7])
    real = padded >= 0
    total, plain = reference.projection_loss(*inputs, padded, smoothing)
    slopes = torch.autograd.grad(total, inputs)
    alone, alone_plain = definition(inputs[0][real], *inputs[1:], targets[real], smoothing)
    torch.testing.assert_close((total, plain), (alone, alone_plain))
    torch.testing.assert_close(slopes, torch.autograd.grad(alone, inputs))
    nothing, _ = reference.projection_loss(*inputs, torch.full_like(targets, -1), smoothing)
    assert nothing == 0
    assert not any(slope.any() for slope in torch.autograd.grad(nothing, inputs))


# ---- the LSTMN's plain loops, number by number for one sentence, and torch's LSTM


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64) / 2


def test_without_attention_it_is_torchs_lstm():
    net = torch.nn.LSTM(3, 5).double()
    x = normal(7, 2, 3)
    projected = x @ net.weight_ih_l0.T + net.bias_ih_l0 + net.bias_hh_l0
    agree(reference.run_tapes(projected, net.weight_hh_l0)[..., :5], net(x)[0], [net.weight_hh_l0])


def test_a_step_looks_at_all_entries_before_it():
    n, d, h = 5, 3, 4
    projected, recurrent, words = normal(n, 1, 4 * d), normal(4 * d, d), normal(n, 1, h)
    score = ScoreWeights(normal(h, d), normal(h, d), normal(h), normal(h))
    found = reference.run_tapes(projected, recurrent, None, words, score)[:, 0]
    summary, hidden, cells = torch.zeros(d).double(), [], []
    for t in range(n):
        asked = words[t, 0] + score.summary @ summary + score.bias
        a = [torch.exp(score.vector @ torch.tanh(asked + score.entry @ one)) for one in hidden]
        summary = sum((w / sum(a) * one for w, one in zip(a, hidden, strict=True)), torch.zeros(d).double())
        memory = sum((w / sum(a) * one for w, one in zip(a, cells, strict=True)), torch.zeros(d).double())
        i, f, g, o = (projected[t, 0] + recurrent @ summary).split(d)
        cells.append(f.sigmoid() * memory + i.sigmoid() * g.tanh())
        hidden.append(o.sigmoid() * cells[-1].tanh())
        agree(found[t], torch.cat([hidden[-1], cells[-1]]))


def test_a_source_is_read_by_the_word_and_the_last_read():
    n, m, d, h = 4, 3, 2, 5
    words, keys, values = normal(n, 1, h), normal(1, m, h), normal(1, m, 2 * d)
    summary, vector, exists = normal(h, d), normal(h), torch.tensor([[True, True, False]])
    found = reference.read_source(words, keys, values, exists, summary, vector)[:, 0]
    last = torch.zeros(d).double()
    for t in range(n):
        a = [torch.exp(vector @ torch.tanh(words[t, 0] + summary @ last + key)) for key in keys[0, :2]]
        read = sum(w / sum(a) * value for w, value in zip(a, values[0], strict=False))
        agree(found[t], read)
        last = read[:d]


# ---- RNNsearch's plain loop against torch's own cells, step by step and sentence by sentence


@pytest.mark.parametrize(("gates", "cell"), [(3, nn.GRUCell), (4, nn.LSTMCell)])
def test_every_step_is_the_papers(gates, cell):
    b, n, m, d, h, dv = 3, 4, 5, 3, 7, 2
    inputs, lengths = draw_recurrence(gates, b, n, m, d, h, dv)
    projected, start, keys, values, query, vector, read, recurrent, bias = inputs
    states, contexts, weights = recur_plainly(reference.recur, inputs, lengths)
    one = cell(dv, d).double()
    with torch.no_grad():
        one.weight_ih.copy_(read)
        one.weight_hh.copy_(recurrent)
        one.bias_hh.copy_(bias)
        for row in range(b):
            state, length = start[row], int(lengths[row])
            for i in range(n):
                scores = [float(vector @ torch.tanh(query @ state[0] + key)) for key in keys[row, :length]]
                a = torch.tensor(scores, dtype=torch.float64).softmax(0) if length else torch.zeros(0)
                context = sum((x * value for x, value in zip(a, values[row], strict=False)), torch.zeros(dv))
                one.bias_ih.copy_(projected[row, i])
                given = state[0] if gates == 3 else (state[0], state[1])
                moved = one(context.double(), given)
                state = moved[None] if gates == 3 else torch.stack(moved)
                torch.testing.assert_close(states[row, i], state[0])
                torch.testing.assert_close(contexts[row, i], context.double())
                torch.testing.assert_close(weights[row, i, :length], a.double())
                assert not weights[row, i, length:].any()


# ---- recurrent layers: torch's own GRU and LSTM, a row of each length and direction


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize(("b", "n", "d"), [(1, 1, 1), (3, 7, 5)])
def test_it_is_torchs(kind, b, n, d):
    gates = {"gru": 3, "lstm": 4}[kind] * d
    net = getattr(torch.nn, kind.upper())(6, d, batch_first=True, bidirectional=True).double()
    x, lengths = torch.randn(b, n, 6, dtype=torch.float64), torch.randint(1, n + 1, (b,))
    lengths[0] = n
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
    weights, recurrent = (
        torch.stack([getattr(net, f"weight_{part}_l0{way}") for way in ("", "_reverse")]) for part in ("ih", "hh")
    )
    own, bias = (
        torch.stack([getattr(net, f"bias_{part}_l0{way}") for way in ("", "_reverse")]) for part in ("ih", "hh")
    )
    projected = torch.einsum("bne,kge->bnkg", x, weights) + own + (bias if kind == "lstm" else 0)
    assert projected.shape == (b, n, 2, gates)
    found = reference.run_layer(projected, recurrent, bias, lengths)
    there = torch.arange(n)[None, :, None] < lengths[:, None, None]
    torch.testing.assert_close(found * there, wanted)
