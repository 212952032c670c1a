"""The LSTMN's plain loops against the paper's formulas, number by number for one sentence, and against torch's LSTM."""

import torch
from oracles import agree

from regard.kernels.recurrence import reference
from regard.kernels.recurrence.lstmn_cpu import ScoreWeights


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
