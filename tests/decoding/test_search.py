"""Greedy search against a loop that feeds everything again at every step."""

import random

import pytest
import torch

from regard.data.tokenizer import END, PAD, START
from regard.decoding.search import greedy, greedy_in_batches, tokens_of
from regard.models.contract import Tokens
from regard.models.kinds import build, model_config

SMALL = {
    "rnn": {"size": 6, "embedding": 5},
    "rnnsearch": {"size": 6, "embedding": 5, "hidden": 4, "maxout": 3},
    "luong": {"size": 6, "embedding": 5},
    "transformer": {"size": 8, "heads": 2, "layers": 1, "hidden": 12},
}


def small(kind, scale=3.0):
    model = build(kind, model_config({"kind": kind, **SMALL[kind]}), 11, 11).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


@torch.no_grad()
def fed_again(model, source, limit):
    """One sentence, by decode() from the start each time."""
    said = []
    memory = model.encode(tokens_of([source]))
    while len(said) < limit:
        target = torch.tensor([[START, *said]])
        hidden, _ = model.decode(memory, Tokens.of(target, torch.tensor([target.shape[1]])))
        logits = model.output(hidden)[0, -1]
        logits[PAD] = logits[START] = -torch.inf
        token = int(logits.argmax())
        if token == END:
            break
        said.append(token)
    return said


@pytest.mark.parametrize("kind", SMALL)
def test_greedy_is_the_loop(kind):
    model = small(kind)
    sources = [[random.randrange(3, 11) for _ in range(random.randint(1, 7))] for _ in range(6)]
    assert greedy(model, tokens_of(sources), 7) == [fed_again(model, source, 7) for source in sources]


class Script:
    """A model that says what is in a table, one row a sentence, and notes how many rows are still asked for."""

    limit = None

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def encode(self, source):
        return source

    def start(self, memory, rows, size):
        self.size = size
        return Place(torch.arange(len(memory.lengths)), 0)

    def step(self, tokens, state):
        self.asked.append(len(tokens))
        logits = torch.zeros(len(tokens), 11)
        logits[:, PAD] = logits[:, START] = 9.0  # liked best, and never said
        for row, sentence in enumerate(state.rows.tolist()):
            said = self.answers[sentence]
            logits[row, said[state.step] if state.step < len(said) else END] = 5.0
        return logits, Place(state.rows, state.step + 1)


class Place:
    def __init__(self, rows, step):
        self.rows, self.step = rows, step

    def take(self, keep):
        return Place(self.rows[keep], self.step)


@pytest.mark.unchecked
def test_finished_sentences_leave():
    model = Script([[5, 6, 7], [], [8], [9, 9]])
    assert greedy(model, tokens_of([[4]] * 4)) == [[5, 6, 7], [], [8], [9, 9]]
    assert model.asked == [4, 3, 2, 1]


@pytest.mark.unchecked
def test_limits():
    endless = [[5] * 1000, [6] * 1000]
    model = Script(endless)
    found = greedy(model, tokens_of([[4], [4, 4, 4]]))
    assert [len(answer) for answer in found] == [22, 26]  # twice its own source and twenty more
    assert model.size == 26
    assert [len(answer) for answer in greedy(Script(endless), tokens_of([[4], [4, 4, 4]]), 5)] == [5, 5]
    assert greedy(Script(endless), tokens_of([[4]]), 1) == [[5]]


def test_an_empty_source_says_nothing_and_changes_nothing():
    model = small("transformer")
    alone = greedy_in_batches(model, [[4, 5], [6]], "cpu")
    assert greedy_in_batches(model, [[], [4, 5], [], [6], []], "cpu") == [[], alone[0], [], alone[1], []]
    assert greedy_in_batches(model, [[], []], "cpu") == [[], []]
    assert greedy_in_batches(model, [], "cpu") == []


def test_padded_rows():
    tokens = tokens_of([[4, 5, 6], [7]])
    assert tokens.ids.tolist() == [[4, 5, 6], [7, PAD, PAD]]
    assert tokens.lengths.tolist() == [3, 1]
