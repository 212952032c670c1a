"""The segmentation of a tokenizer.json, from a section written by hand: unknown runs, bytes, marks and spaces; and the
two ways to cut: against all cuts of short texts, and against joining by hand.
"""

import itertools
import random

import numpy as np
import pytest

from regard.data.bpe_dropout import Cutter
from regard.data.sentencepiece import Bpe, SentencePiece, Unigram, spell_unknown
from regard.data.tokenizer import SPECIAL, Tokenizer
from regard.errors import ArgumentError

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


PIECES = {"▁": -2.0, "▁a": -1.0, "b": -2.5, "c": -3.0, "bc": -4.0, "▁▁": -9.0}
SECTION = {
    "kind": "unigram",
    "bytes": False,
    "prefix": True,
    "suffix": False,
    "squeeze": True,
    "escape": True,
    "leading": False,
    "unknown": " ⁇ ",
    "control": ["<ctl>"],
    "charsmap": "",
    "fixed": {},
    "unused": {},
    "pieces": PIECES,
}
OTHERS = ("<ctl>", "á", "í", "xá", *(f"<0x{byte:02X}>" for byte in range(256)))  # numbered, and not in the segmentation
IDS = {piece: i for i, piece in enumerate([*SPECIAL, *PIECES, *OTHERS])}
MANY = 1000


def read(**changes):
    return SentencePiece({**SECTION, **changes}, IDS, {})


def names(ids):
    back = {i: piece for piece, i in IDS.items()}
    return [back[i] for i in ids]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("  ", []),
        ("abc", ["▁a", "bc"]),
        (" a  b ", ["▁a", "▁", "b"]),
        ("xyz", ["▁", "<unk>"]),
        ("xbyz", ["▁", "<unk>", "b", "<unk>"]),
        ("\x00", ["▁", "<unk>"]),
    ],
)
def test_pieces(kind, text, pieces):
    segmentation = read(kind=kind, pieces={**PIECES, "a": -5.0})
    assert names(segmentation.encode(text, MANY)) == pieces
    assert names(segmentation.encode(text, MANY)) == pieces  # from what is remembered


def test_runs_of_unknown_signs_join_over_words_without_a_piece_for_the_mark():
    segmentation = read(pieces={"b": -1.0})
    assert names(segmentation.encode("x y b", MANY)) == ["<unk>", "b"]
    x, y = map(spell_unknown, "xy")
    assert segmentation.merge_unknown([x, y, 3, x, 5, y, y]) == [3, 3, 3, 5, 3]


def test_what_no_piece_spells_is_looked_up_by_its_text():
    """The numbering may know characters that this segmentation does not; a run of them is one piece."""
    segmentation = read(pieces={"▁": -2.0, "b": -1.0})
    assert names(segmentation.encode("bábíxb", MANY)) == ["▁", "b", "á", "b", "<unk>", "b"]
    assert names(segmentation.encode("á xá áí b", MANY)) == ["▁", "á", "▁", "xá", "▁", "<unk>", "▁", "b"]


def test_characters_without_a_piece_are_bytes():
    segmentation = read(bytes=True)
    assert names(segmentation.encode("aé", MANY)) == ["▁a", "<0xC3>", "<0xA9>"]
    assert segmentation.decode(segmentation.encode("a é😀", MANY)) == "a é😀"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["<0xE2>", "b"], "\ufffdb"),
        (["<0xE2>", "<0x96>", "<0x81>", "▁"], "▁ "),
        (["<0xF0>", "<0x9F>", "<0x98>"], "\ufffd\ufffd\ufffd"),
        (["<0x41>", "▁a"], "A a"),
        (["<ctl>", "▁a"], "a"),
        (["▁", "▁a"], "a"),
        (["<unk>", "▁a"], " ⁇  a"),
        ([], ""),
    ],
)
def test_reading_back(pieces, text):
    assert read(bytes=True).decode([IDS[piece] for piece in pieces]) == text


def test_marks_at_the_beginning_are_spaces_where_none_are_squeezed():
    segmentation = read(squeeze=False)
    assert segmentation.decode([IDS["▁"], IDS["▁a"]]) == " a"
    for text in ("a", " a", "  a b  ", "   "):
        assert segmentation.decode(segmentation.encode(text, MANY)) == text == segmentation.normalise(text)
    plain = read(squeeze=False, prefix=False)
    assert plain.decode(plain.encode(" a", MANY)) == " a"


def test_a_mark_behind_words():
    segmentation = read(suffix=True, pieces={"a▁": -1.0, "b▁": -1.0, "b": -2.0, "▁": -3.0})
    assert not segmentation.apart
    assert segmentation.encode("a b", MANY) == [3, 3]  # chosen, but without a number
    assert segmentation.normalise_marked("a b") == "a▁b▁"


def test_what_is_remembered_changes_nothing():
    """Also where the memory is far too small, and for words and texts of any length."""
    texts = ["a bc " * n + "cb" * n for n in (1, 40, 300)]
    large, small = read(), read()
    for text in texts * 2:
        assert large.encode(text, MANY) == small.encode(text, 2) == read().cut_units(text, 1)
    assert "cb" * 300 not in large.words


def test_bpe_dropout_refuses_it():
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    model = {"type": "WordLevel", "vocab": IDS, "unk_token": "<unk>"}
    content = {"version": "1.0", **parts, "added_tokens": [], "model": model}
    tokenizer = Tokenizer({**content, "regard": {"sentencepiece": {**SECTION, "kind": "bpe"}}})
    assert tokenizer.kind == "bpe"
    with pytest.raises(ArgumentError, match="bpe of SentencePiece"):
        Cutter(tokenizer)
