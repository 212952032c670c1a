"""Small models to search with, and a search that recomputes every prefix at every step."""

import itertools
import math
import random

import pytest
import torch

from regard.data import END, PAD, START
from regard.decoding.ensemble import Ensemble
from regard.decoding.options import Options
from regard.decoding.scoring import tokens_of
from regard.decoding.sentence_search import search
from regard.models import Tokens, build, read_model_config

WORDS = 11
SMALL = {
    "rnn": {"kind": "rnn", "size": 6, "embedding": 5},
    "rnnsearch": {"kind": "rnnsearch", "size": 6, "embedding": 5, "hidden": 4, "maxout": 3},
    "luong": {"kind": "luong", "size": 6, "embedding": 5},
    "local": {"kind": "luong", "size": 6, "embedding": 5, "span": "local-m", "radius": 2},
    "transformer": {"kind": "transformer", "size": 8, "heads": 2, "layers": 1, "hidden": 12},
    "rotary": {"kind": "transformer", "size": 8, "heads": 2, "layers": 2, "hidden": 12, "positions": "rotary"},
    "alibi": {"kind": "transformer", "size": 8, "heads": 2, "layers": 1, "hidden": 12, "positions": "alibi"},
    "fairseq": {
        "kind": "transformer",
        "size": 8,
        "heads": 2,
        "layers": 1,
        "hidden": 12,
        "sines": "fairseq",
        "activation": "silu",
        "scale_embeddings": False,
        "output_bias": False,
    },
    "lstmn": {"kind": "lstmn", "size": 6, "embedding": 5, "hidden": 4, "layers": 2},
}


def small(kind, words=WORDS, scale=3.0, seed=None, dtype=torch.float64):
    """Return a model with random weights, large enough for clear preferences; "both" is an ensemble."""
    if kind == "both":
        return Ensemble([small(each, words, scale, seed, dtype) for each in ("transformer", "rnnsearch")]).eval()
    if seed is not None:
        torch.manual_seed(seed)
    model = build(SMALL[kind]["kind"], read_model_config(SMALL[kind]), words, words).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def sentences(count, longest=7, words=WORDS):
    return [[random.randrange(3, words) for _ in range(random.randint(1, longest))] for _ in range(count)]


@torch.no_grad()
def next_log_probs(model, source, said):
    """Return log P of every next token, by decode() from the start."""
    if isinstance(model, Ensemble):
        each = [next_log_probs(one, source, said) for one in model.each]
        return torch.stack(each).exp().mean(0).log()
    target = torch.tensor([[START, *said]])
    hidden, _ = model.decode(model.encode(tokens_of([source])), Tokens.of(target, torch.tensor([target.shape[1]])))
    return model.output(hidden)[0, -1].log_softmax(-1)


def pair_log_prob(model, source, target):
    """Return log P of a target and its END, token by token."""
    told = [*target, END]
    return sum(float(next_log_probs(model, source, told[:i])[token]) for i, token in enumerate(told))


def every_target(words, longest):
    """Yield every possible target."""
    tokens = [token for token in range(words) if token not in (PAD, START, END)]
    for length in range(longest + 1):
        yield from (list(each) for each in itertools.product(tokens, repeat=length))


def fed_again(model, source, beam, longest, alpha):
    """Run a beam search of one sentence by the rules, without caches: (tokens, log P, score), best first."""
    live, done = [([], 0.0)], []
    for step in range(longest + 1):
        candidates = []
        for said, total in live:
            scores = next_log_probs(model, source, said)
            for token in range(len(scores)):
                forced = step == longest and token != END
                if token not in (PAD, START) and not forced:
                    candidates.append((total + float(scores[token]), said, token))
        candidates.sort(key=lambda each: -each[0])
        penalty = ((5 + step + 1) / 6) ** alpha
        done += [(said, total, total / penalty) for total, said, token in candidates[:beam] if token == END]
        done = sorted(done, key=lambda each: -each[2])[:beam]
        live = [([*said, token], total) for total, said, token in candidates[: 2 * beam] if token != END][:beam]
        if not live or (len(done) == beam and (beam == 1 or live[0][1] / penalty <= done[-1][2])):
            break
    return done


def greedy(model, source, limit=None):
    """Take the likeliest next token up to END, which is left out."""
    return [found.outputs[0].tokens for found in search(model, source, Options(beam=1, longest=limit))]


def found_of(model, sources, options, **more):
    return search(model, tokens_of(sources), options, **more)


def same(found, expected):
    """Check that the results of two searches are equal, scores up to rounding."""
    for one, other in zip(found, expected, strict=True):
        assert [output.tokens for output in one.outputs] == [output.tokens for output in other.outputs]
        for mine, theirs in zip(one.outputs, other.outputs, strict=True):
            assert mine.finished == theirs.finished
            assert mine.log_prob == pytest.approx(theirs.log_prob, abs=1e-9)
            assert mine.score == pytest.approx(theirs.score, abs=1e-9)


def closest_choice(steps, beam):
    """Return the smallest difference between a candidate that a step took and the best one that it left out."""
    smallest = math.inf
    for candidates in steps:
        ranked = sorted(candidates, key=lambda each: -each.log_prob)
        lives = [each.log_prob for each in ranked if each.token != END]
        for order in ([each.log_prob for each in ranked], lives):  # all candidates, and those that continue
            smallest = min([smallest, *(order[beam - 1] - each for each in order[beam : beam + 1])])
    return smallest


class Script:
    """A model that writes given answers, one per sentence, and records the number of rows at every step."""

    limit = None

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def encode(self, source):
        return source

    def start(self, memory, rows, size, coverage):
        self.size = size
        return Place(torch.arange(len(memory.lengths)), 0)

    def step(self, tokens, state):
        self.asked.append(len(tokens))
        logits = torch.zeros(len(tokens), 11)
        logits[:, PAD] = logits[:, START] = 9.0  # the largest, but never chosen
        for row, sentence in enumerate(state.rows.tolist()):
            said = self.answers[sentence]
            logits[row, said[state.step] if state.step < len(said) else END] = 5.0
        return logits, Place(state.rows, state.step + 1)


class Place:
    coverage = None

    def __init__(self, rows, step):
        self.rows, self.step = rows, step

    def take(self, keep):
        return Place(self.rows[keep], self.step)
