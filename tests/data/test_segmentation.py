"""Cutting texts into pieces: against all cuts of short texts, and against joining by hand."""

import itertools
import random

import numpy as np
import pytest

from regard.data.segmentation import Bpe, Unigram

SIGNS = "abcé"


def draw_scores():
    pieces = ["".join(p) for n in range(1, 5) for p in itertools.product(SIGNS, repeat=n)]
    chosen = random.sample(pieces, 40)
    return {piece: float(np.float32(random.choice([-1, -1.5, -2, -3.3]) * len(piece))) for piece in chosen}


def all_cuts(text):
    for places in itertools.product((False, True), repeat=max(0, len(text) - 1)):
        edges = [0, *(i + 1 for i, cut in enumerate(places) if cut), len(text)]
        yield [text[a:b] for a, b in itertools.pairwise(edges) if a < b]


def test_unigram_has_the_best_sum():
    for _ in range(30):
        scores = draw_scores()
        model = Unigram(scores, {"aéc": 0.0})
        assert model.unknown == pytest.approx(min(scores.values()) - 10, abs=1e-5)
        assert model.scores["aéc"] == pytest.approx(0.3)  # four bytes
        for _ in range(10):
            text = "".join(random.choices(SIGNS, k=random.randrange(9)))
            known = [cut for cut in all_cuts(text) if all(p in model.scores or len(p) == 1 for p in cut)]
            sums = sorted((sum(model.scores.get(p, model.unknown) for p in cut) for cut in known), reverse=True)
            cut = model.cut(text)
            assert "".join(cut.pieces) == text
            assert sum(cut.scores) == pytest.approx(sums[0])
            gap = sums[0] - sums[1] if len(sums) > 1 else np.inf
            assert cut.margin <= gap + 1e-6  # at its closest, anywhere on the way
            assert model.cut(text, -5.0).pieces == cut.pieces or gap < 1e-6


def test_exact_sums_are_single_precision():
    """The same recurrence, with numpy's float32 for every sum."""
    for _ in range(200):
        model = Unigram(draw_scores(), {})
        text, start = "".join(random.choices(SIGNS, k=random.randrange(1, 12))), np.float32(-random.random() * 500)
        sums, best = [start, *[np.float32(-np.inf)] * len(text)], [[], *[None] * len(text)]
        for begin, end in itertools.combinations(range(len(text) + 1), 2):
            score = model.scores.get(text[begin:end], model.unknown if end == begin + 1 else None)
            if score is not None and (total := np.float32(sums[begin] + np.float32(score))) > sums[end]:
                sums[end], best[end] = total, [*best[begin], text[begin:end]]
        cut = model.cut(text, float(start), exact=True)
        assert cut.pieces == best[-1]
        assert model.add(float(start), cut.scores) == sums[-1]
        if model.is_sure(model.cut(text), len(text), float(start)):
            assert model.cut(text).pieces == cut.pieces


def join_by_hand(text, scores, fixed):
    """Again and again, the leftmost of the best pairs."""
    symbols, at = [], 0
    while at < len(text):
        whole = max((piece for piece in fixed if text.startswith(piece, at)), key=len, default=text[at])
        symbols.append(whole)
        at += len(whole)
    while True:
        pairs = [
            (-scores[a + b], i)
            for i, (a, b) in enumerate(itertools.pairwise(symbols))
            if a + b in scores and a not in fixed and b not in fixed
        ]
        if not pairs:
            return symbols
        _, i = min(pairs)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@pytest.mark.parametrize("fixed", [{}, {"ab": 0.0, "cé": 0.0, "abc": 0.0}])
def test_bpe_joins_the_best_and_leftmost(fixed):
    for _ in range(60):
        scores = {piece: float(-i // 2) for i, piece in enumerate(draw_scores()) if piece not in fixed}
        model = Bpe(scores, fixed, {})
        for _ in range(10):
            text = "".join(random.choices(SIGNS, k=random.randrange(14)))
            assert model.cut(text).pieces == join_by_hand(text, {**scores, **fixed}, fixed)


def test_bpe_takes_unused_pieces_apart():
    model = Bpe({"a": 0.0, "b": 0.0, "abc": -2.0, "c": 0.0}, {}, {"ab": -1.0})
    assert model.cut("abab").pieces == ["a", "b", "a", "b"]
    assert model.cut("abc").pieces == ["abc"]
    assert model.cut("").pieces == []
