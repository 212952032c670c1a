"""The segmentation of a tokenizer.json, from a section written by hand: unknown runs, bytes, marks and spaces."""

import pytest

from regard.data.bpe_dropout import Cutter
from regard.data.sentencepiece import SentencePiece, spell_unknown
from regard.data.tokenizer import SPECIAL, Tokenizer
from regard.errors import ArgumentError

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
