"""Tokenizers: texts round-trip, no text encodes to special pieces, the library opens the file, panics become errors."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tokenizers as library
from data.cases import KINDS, TEXTS, normalised
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from regard.data.settings import TokenizerSettings
from regard.data.tokenizer import END, PAD, START, UNKNOWN, Tokenizers, call_library
from regard.data.vocabulary import train, train_both
from regard.errors import DataError

EXACT = KINDS[:3]
MADE = {kind: train(TEXTS, kind, tags=["<2de>", "<2fr>"]) for kind in KINDS}
ODD = [
    "",
    " ",
    "e\u0301 \u00e9",
    "😀👩‍👩‍👧 flag 🇩🇪",
    "שלום عليكم \u202eabc",
    "a\0b\x1c\x7f",
    "▁ _ ▁▁",
    "<0x41><0xE2> <s></s><pad><unk> < <<",
    "a\u2028b\u0085c\u3000d\u00a0e",
    "\ufeffx\u200b",
    "Ġ Ċ",
    "##x",
    "İstanbul ǅ ß",
    "한국어 \u1112\u1161\u11ab",
    "漢字かな交じり文",
]


@pytest.mark.parametrize("kind", EXACT)
@settings(max_examples=80)
@given(text=st.text() | st.lists(st.sampled_from([*"ab<>/▁ 0x4", "<s>", "<0x41>", "é", "😀", "Haus"])).map("".join))
def test_any_text_comes_back(kind, text):
    tokenizer = MADE[kind]
    assume("<2" not in text)  # a tag is a separate word anywhere
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.normalise(text) == normalised(text)
    assert all(i > UNKNOWN for i in ids)
    assert tokenizer.decode([START, *ids, END, PAD, PAD]) == normalised(text)
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert tokenizer.encode_batch([text, f"x {text}"]) == [ids, tokenizer.encode(f"x {text}")]
    words = tokenizer.words(ids)
    assert len(set(words)) == len(normalised(text).split(" ")) * bool(ids)


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("text", ODD)
def test_odd_texts_come_back(kind, text):
    assert MADE[kind].decode(MADE[kind].encode(text)) == normalised(text)


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_spells_a_special_piece(kind):
    ids = MADE[kind].encode(" ".join(["<pad>", "<s>", "</s>", "a<s>b", "<pad"] * 3))
    assert not {PAD, START, END} & set(ids)
    assert kind == "word" or UNKNOWN not in ids


@pytest.mark.parametrize("kind", KINDS)
def test_many_at_once_are_as_one_by_one(kind):
    texts = [*TEXTS, *ODD]
    assert MADE[kind].encode_batch(texts) == [MADE[kind].encode(text) for text in texts]
    assert MADE[kind].encode_batch([]) == []


@pytest.mark.parametrize("kind", KINDS)
@given(words=st.lists(st.sampled_from(["Haus", "klein,", "<2de>", "é", "2024", "(x)", "▁"]), min_size=1))
def test_words_are_those_between_spaces(kind, words):
    """Joined by their word numbers, the pieces give the words."""
    tokenizer = MADE[kind]
    ids = tokenizer.encode(" ".join(words))
    numbers = tokenizer.words([START, *ids, END, PAD])
    assert numbers[0] is None
    assert numbers[-2:] == [None, None]
    assert list(numbers[1:-2]) == sorted(numbers[1:-2])
    together = [
        tokenizer.decode([i for i, n in zip(ids, numbers[1:-2], strict=True) if n == word]).strip()
        for word in range(max(numbers[1:-2]) + 1)
    ]
    known = [word.replace("▁", "_") for word in words]
    if kind == "word":
        known = [word if tokenizer.encode(word) != [UNKNOWN] else "<unk>" for word in words]
    assert together == known


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(st.data())
def test_words_of_any_pieces(kind, data):
    """A model writes pieces in any order: two marks together, a mark at the end."""
    tokenizer = MADE[kind]
    pieces = tokenizer.pieces(range(tokenizer.size))
    real = [i for i in range(4, tokenizer.size) if not pieces[i].startswith("<0x")]
    often = [*(i for i in real if pieces[i] == "▁"), *tokenizer.tags]
    ids = data.draw(st.lists(st.sampled_from(real) | st.sampled_from(often), max_size=12))
    numbers = tokenizer.words(ids)
    assert len({number for number in numbers if number is not None}) == len(tokenizer.decode(ids).split())
    for number, word in enumerate(tokenizer.decode(ids).split()):
        assert tokenizer.decode([i for i, n in zip(ids, numbers, strict=True) if n == number]).strip() == word


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_is_one_piece_and_a_word_of_its_own(kind):
    tokenizer = MADE[kind]
    for text in ("<2de> Haus", "Haus <2fr> Haus", "<2de><2fr> Haus"):
        pieces = tokenizer.pieces(tokenizer.encode(text))
        assert [piece for piece in pieces if piece in ("<2de>", "<2fr>")] == [
            tag for tag in ("<2de>", "<2fr>") if tag in text
        ]
    assert tokenizer.decode(tokenizer.encode("<2de> Haus")) == "<2de> Haus"
    assert tokenizer.words(tokenizer.encode("<2de> Haus"))[:2] == [0, 1]


def test_ids_without_a_piece_are_unknown():
    tokenizer = MADE["bpe"]
    size = tokenizer.size
    assert tokenizer.pieces([size - 1, size, 10**9, UNKNOWN]) == [*tokenizer.pieces([size - 1]), *["<unk>"] * 3]
    assert tokenizer.pieces(iter([4, size, 5])) == [*tokenizer.pieces([4]), "<unk>", *tokenizer.pieces([5])]
    assert tokenizer.pieces(np.array([4, 5])) == tokenizer.pieces([4, 5]) == tokenizer.pieces(iter([4, 5]))


def test_pieces_of_words_are_unknown_or_words():
    tokenizer = MADE["word"]
    assert tokenizer.pieces(tokenizer.encode("The  house\tis blue.")) == ["The", "house", "is", "<unk>"]
    assert tokenizer.decode(tokenizer.encode("The house is blue.")) == "The house is <unk>"


@pytest.mark.parametrize("kind", KINDS)
def test_saved_loaded_and_opened_by_the_library(kind, tmp_path):
    both = Tokenizers(MADE[kind])
    both.save(tmp_path / "tokenizer.json")
    again = Tokenizers.load(tmp_path / "tokenizer.json")
    assert again.joint
    assert again.hash == both.hash
    plain = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.get_vocab_size() == both.source.size == len(both.source)
    for text in TEXTS[:3]:
        assert plain.encode(text).ids == again.source.encode(text) == both.source.encode(text)
        assert plain.decode(plain.encode(text).ids) == both.source.decode(both.source.encode(text))
    assert [plain.token_to_id(piece) for piece in ("<pad>", "<s>", "</s>", "<unk>")] == [PAD, START, END, UNKNOWN]
    assert os.listdir(tmp_path) == ["tokenizer.json"]


def test_separate_sides_are_in_one_file(tmp_path):
    both = train_both(
        TEXTS, ["abc", "abd"], TokenizerSettings(joint=False, kind="character"), lowercase=False, tags=["<2de>"]
    )
    assert not both.joint
    both.save(tmp_path / "tokenizer.json")
    again = Tokenizers.load(tmp_path / "tokenizer.json")
    assert not again.joint
    assert again.hash == both.hash != Tokenizers(both.source).hash
    assert again.target.encode("abc") == both.target.encode("abc")
    assert again.source.encode("<2de>") == both.source.encode("<2de>") != both.target.encode("<2de>")
    assert Tokenizers(both.source).hash != Tokenizers(both.target).hash


def test_half_a_surrogate_pair_does_not_stop_it():
    assert MADE["bpe"].decode(MADE["bpe"].encode("a\ud800b \ud83d\ude00")) == "a\ufffdb 😀"


# Files made elsewhere


def byte_level(special):
    made, alphabet = library.Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", special.index("<s>"))])
    return made


@pytest.mark.parametrize(
    "special", [["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ["<mask>", "x", "<unk>", "y", "z", "<s>", "</s>", "<pad>"]]
)
def test_a_file_made_elsewhere_gets_its_special_pieces_moved(special, tmp_path):
    made = byte_level(special)
    made.save(str(tmp_path / "theirs.json"))
    tokenizer = Tokenizers.load(tmp_path / "theirs.json").source
    assert tokenizer.pieces([PAD, START, END, UNKNOWN]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert tokenizer.size == made.get_vocab_size()
    for text in TEXTS[:3]:
        ids = tokenizer.encode(text)
        assert tokenizer.pieces(ids) == made.encode(text, add_special_tokens=False).tokens
        assert tokenizer.decode(ids).strip() == text
        assert max(tokenizer.words(ids)) == len(text.split()) - 1
    Tokenizers(tokenizer).save(tmp_path / "ours.json")
    assert Tokenizers.load(tmp_path / "ours.json").source.encode(TEXTS[1]) == tokenizer.encode(TEXTS[1])


def test_two_files_of_one_tokenizer_are_joint(tmp_path):
    for name, kind in (("a", "bpe"), ("b", "bpe"), ("c", "word")):
        Tokenizers(MADE[kind]).save(tmp_path / name)
    assert Tokenizers.pair(tmp_path / "a", tmp_path / "b").joint
    assert not Tokenizers.pair(tmp_path / "a", tmp_path / "c").joint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a tokenizer.json"),
        ("{}", "not a tokenizer.json: no model in it"),
        ("[1]", "not a tokenizer.json: no model in it"),
        ('{"model": {}}', "not a tokenizer.json: its model has no vocabulary"),
        ('{"model": {"type": "WordLevel", "vocab": {"a": 0}}}', r"no <pad> in its vocabulary \(nor \[PAD\]"),
        ('{"model": {"type": "WordLevel", "vocab": {"<pad>": 0, "<s>": 1, "</s>": 2}}}', "no <unk> in its vocabulary"),
        (
            '{"model": {"type": "Odd", "vocab": {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}}}',
            "not a tokenizer: ",
        ),
        (b"\xff", "not a tokenizer.json"),
    ],
)
def test_what_is_no_tokenizer_is_refused(content, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        Tokenizers.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="none.json: cannot be read: No such file"):
        Tokenizers.load(tmp_path / "none.json")


def test_special_pieces_outside_of_a_unigram_vocabulary_are_refused(tmp_path):
    content = json.loads(json.dumps(MADE["unigram"].content))
    content["model"]["vocab"] = content["model"]["vocab"][4:]
    for i, token in enumerate(content["added_tokens"], len(content["model"]["vocab"])):
        token["id"] = i
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="t.json: its special pieces are outside"):
        Tokenizers.load(tmp_path / "t.json")


def test_a_fork_after_encoding_is_silent_and_does_not_hang(tmp_path):
    """The library's threads do not exist in a child: it must neither warn nor wait for them."""
    Tokenizers(MADE["bpe"]).save(tmp_path / "tokenizer.json")
    code = f"""
import os
from regard.data.tokenizer import Tokenizers
tokenizer = Tokenizers.load({str(tmp_path / "tokenizer.json")!r}).source
before = tokenizer.encode_batch(["Das Haus"] * 100)
child = os.fork()
if child == 0:
    os._exit(tokenizer.encode_batch(["Das Haus"] * 100) != before)
print(os.waitpid(child, 0)[1], "TOKENIZERS_PARALLELISM" in os.environ)
"""
    environment = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    silent = "ignore:This process:DeprecationWarning"  # Python 3.12 and later warn of any fork beside threads
    run = subprocess.run(
        [sys.executable, "-W", silent, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert (run.stdout, run.stderr) == ("0 False\n", "")


# ---- calls of the library


class PanicException(BaseException):
    """The library's exception on a panic: not a subclass of Exception."""


def failing(error):
    raise error


def test_errors_become_one_sentence():
    assert call_library("a text", "ab".upper) == "AB"
    for error in (ValueError("no\nmore"), PanicException("no\nmore")):
        with pytest.raises(DataError, match="^a text: no$"):
            call_library("a text", failing, error)
    with pytest.raises(KeyboardInterrupt):
        call_library("a text", failing, KeyboardInterrupt())
