"""Pieces added to a vocabulary: found, written and read back, while all other texts are split as before."""

import re

import pytest
import tokenizers as library
from hypothesis import given
from hypothesis import strategies as st
from interop.pieces import train as train_sentencepiece

from regard.data.bpe_dropout import BpeDropout
from regard.data.extension import extend_tokenizers, frequent_words
from regard.data.sentencepiece import convert
from regard.data.special_pieces import is_filler
from regard.data.tokenizer import Tokenizers, open_tokenizer
from regard.data.vocabulary import train
from regard.errors import ConfigError

TEXTS = ["the old man, and the dog.", "Grüße an alle (und dich)", "ein Hund sieht ihn 12 mal", "how are you? fine!"] * 5
NEW = ["Grüezi", "COVID-19", "z.B."]
PARTS = [*NEW, ",", ".", "!", "(", "-", "gsw_Latn", "the", "Hund", "x", "é", "e\u0301", "7", "_", "<2de>", "▁", "😀"]
ALONE = re.compile(rf"(?:{'|'.join(map(re.escape, NEW))})(?!\w)")
texts = st.lists(st.sampled_from([*PARTS, " ", " ", "\u00a0", "\t", "\x1c"]), max_size=12).map("".join)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory) -> dict[str, Tokenizers]:
    folder, kinds = tmp_path_factory.mktemp("pieces"), {}
    for kind in ("bpe", "unigram"):
        kinds[kind] = Tokenizers(train(TEXTS, kind, 400 if kind == "bpe" else "auto", tags=["<2de>"]))
        path = folder / f"{kind}.model"
        path.write_bytes(train_sentencepiece(model_type=kind, byte_fallback=True, pad_id=3))
        kinds[f"sentencepiece-{kind}"] = Tokenizers(open_tokenizer(convert(path), str(path)))
    return kinds


@pytest.fixture(scope="module")
def extended(kinds):
    around = {"first": ["gsw_Latn"]}
    return {name: extend_tokenizers(each, [*NEW, "gsw_Latn"], around=around) for name, each in kinds.items()}


@pytest.mark.parametrize("kind", ["bpe", "unigram", "sentencepiece-bpe", "sentencepiece-unigram"])
@given(text=texts)
def test_texts_come_back_and_those_without_new_words_are_cut_as_before(extended, kind, text):
    extension = extended[kind]
    before, after = extension.before.source, extension.after.source
    ids, old = after.encode(text), before.encode(text)
    assert ids == after.encode_batch(["x", text])[1]
    assert after.decode(ids) == before.decode(old)
    assert "<2de>" in text or after.decode(ids) == after.normalise(text)
    assert [i for i in ids if i in after.hidden] == []  # no text encodes to a language token
    words, new = after.words(ids), [i for i in ids if i in extension.source.pieces]
    assert {*words} == {*before.words(old)}
    if not new:
        assert ids == old
    if not any(part in text for part in ("<2de>", "\x1c", "▁", "\t", "\u00a0", "\u0301")):
        assert new == [after.added[found[0]] for found in map(ALONE.match, text.split(" ")) if found]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "sentencepiece-bpe", "sentencepiece-unigram"])
def test_words_stand_alone(extended, kind):
    side = extended[kind].after.source
    for text, pieces in {
        "Grüezi": ["▁Grüezi"],
        "  Grüezi,  COVID-19.": ["▁Grüezi", ",", "▁COVID-19", "."],
        "z.B.": ["▁z.B."],
    }.items():
        assert side.pieces(side.encode(text)) == pieces
    for text in ("Grüezimitenand", "(Grüezi)", "grüezi", "COVID-191", "gsw_Latn"):
        assert not {*side.encode(text)} & {*side.added.values(), *side.hidden}


def test_a_file_has_them_all(extended, tmp_path):
    for extension in extended.values():
        extension.after.save(tmp_path / "tokenizer.json")
        again = Tokenizers.load(tmp_path / "tokenizer.json")
        assert again.hash == extension.after.hash
        assert again.source.encode("Grüezi, Hund") == extension.after.source.encode("Grüezi, Hund")
        assert again.source.names == extension.after.source.names
        if extension.after.source.sentencepiece is None:  # the library splits new words as before
            plain = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
            assert plain.encode("Grüezi, Hund").ids == extension.before.source.encode("Grüezi, Hund")
            assert plain.decode(again.source.encode("Grüezi, Hund"), skip_special_tokens=False) == "Grüezi, Hund"


def test_ids_of_before_stay_and_fillers_are_taken_first():
    first = extend_tokenizers(Tokenizers(train(TEXTS, "bpe", 304)), ["Grüezi"])
    assert (first.before.source.size, first.after.source.size) == (304, 312)
    assert [is_filler(name) for name in first.after.source.names[304:]] == [False] + [True] * 7
    assert first.source.fillers == [*range(305, 312)]
    second = extend_tokenizers(first.after, [f"wort{i}" for i in range(8)])
    names = second.after.source.names
    assert names[:305] == first.after.source.names[:305]
    assert names[305:313] == [f"▁wort{i}" for i in range(8)]
    assert (len(names), second.source.fillers) == (320, [*range(313, 320)])
    odd = Tokenizers(train(TEXTS, "bpe", 305))
    assert extend_tokenizers(odd, ["Grüezi"]).after.source.size == odd.source.size + 1


def test_words_of_a_vocabulary_of_words():
    both = Tokenizers(train(TEXTS, "word"))
    extension = extend_tokenizers(both, ["Grüezi"])
    side = extension.after.source
    assert side.pieces(side.encode("Grüezi Hund Grüezi,")) == ["Grüezi", "Hund", "<unk>"]
    assert side.decode(side.encode("ein Grüezi alle")) == "ein Grüezi alle"
    ordinary = [*range(4, both.source.size)]
    assert [*extension.source.pieces.values()] == [ordinary]  # the extension knows nothing about it


def test_two_vocabularies():
    both = Tokenizers(train(TEXTS, "bpe", 304), train(TEXTS[:2], "unigram"))
    around = {"before": ["eng_X"], "after": ["</s>"], "first": ["gsw_X"]}
    extension = extend_tokenizers(both, ["Grüezi", "Hund", "eng_X", "gsw_X", "<2de>"], around=around, tags=["<2de>"])
    assert extension.source.names == ["▁Grüezi", "eng_X", "<2de>"]  # "Hund" is already there
    assert extension.target.names == ["▁Grüezi", "▁Hund", "gsw_X"]
    assert list(extension.after.source.tags.values()) == ["<2de>"]
    surrounded = extension.after.surround(**around)
    assert surrounded.target.pieces(surrounded.target.encode("Grüezi"))[:2] == ["gsw_X", "▁Grüezi"]
    assert surrounded.target.decode(surrounded.target.encode("Grüezi")) == "Grüezi"


def test_languages_of_a_form_that_texts_begin_with_are_tags():
    both = Tokenizers(train(TEXTS, "bpe", 304, tags=["<2de>"]))
    extension = extend_tokenizers(both, ["<2gsw>", "__gsw__"], around={"before": ["<2gsw>", "__gsw__"]})
    side = extension.after.source
    assert side.pieces(side.encode("<2gsw> the dog"))[0] == "<2gsw>"
    assert "__gsw__" not in side.pieces(side.encode("__gsw__ the dog"))


def test_lowercase_words():
    both = Tokenizers(train(TEXTS, "bpe", 304, lowercase=True))
    side = extend_tokenizers(both, ["Grüezi"], words=[["grüezi"], []]).after.source
    assert side.pieces(side.encode("GRÜEZI, grüezi")) == ["▁grüezi", ",", "▁grüezi"]


def test_frequent_words_in_their_order():
    both = Tokenizers(train(TEXTS, "bpe", 400))
    sources = ["Zmorge Znacht, Znacht. Zmittag the Hund (Znüni)", "Zmittag! Hund"]
    assert frequent_words(both, sources, ["Znacht Apéro"], 3) == (["Znacht", "Zmittag", "Apéro"], [])
    assert frequent_words(both, sources, [], 99)[0] == ["Zmittag", "Znacht", "Zmorge"]
    apart = Tokenizers(both.source, train(TEXTS, "unigram"))
    assert frequent_words(apart, sources, ["Apéro"], 1) == (["Zmittag"], ["Apéro"])
    words = Tokenizers(train(TEXTS, "word"))
    assert frequent_words(words, ["Hund Znüni,"], [], 9)[0] == ["Znüni,"]


def test_dropout_leaves_added_words():
    both = extend_tokenizers(Tokenizers(train(TEXTS, "bpe", 400)), NEW).after
    ids = both.source.encode("the Grüezi, Hund z.B. (Grüezi)")
    for probability in (0.0, 1.0):
        source, _ = BpeDropout(both, probability).pair(ids, ids, epoch=0, index=0)
        assert [i for i in source if i in both.source.added.values()] == [
            both.source.added[w] for w in ("Grüezi", "z.B.")
        ]
        assert both.source.decode(source) == "the Grüezi, Hund z.B. (Grüezi)"
    assert BpeDropout(both, 0.0).pair(ids, ids, epoch=0, index=0)[0] == ids


def test_mistakes(tmp_path):
    both = Tokenizers(train(TEXTS, "bpe", 400))
    for piece in ("the", "</s>", "<0x41>"):
        with pytest.raises(ConfigError, match=f'tokenizer.extend: "{piece}" given, which is a piece of the vocabulary'):
            extend_tokenizers(both, [piece])
    characters = Tokenizers(train(TEXTS, "character"))
    with pytest.raises(ConfigError, match='"Grüezi" given with a tokenizer of kind "character", which has no words'):
        extend_tokenizers(characters, ["Grüezi"])
    with pytest.raises(ConfigError, match='tokenizer.extend_words: given with a tokenizer of kind "character"'):
        frequent_words(characters, TEXTS, TEXTS, 3)
    around = {"first": ["gsw_Latn"]}
    assert extend_tokenizers(characters, ["gsw_Latn"], around=around).after.target.hidden  # a language can be added
    content = {**both.source.content, "normalizer": None}  # as a tokenizer made elsewhere may have
    with pytest.raises(ConfigError, match="made elsewhere that does not cut word by word, expected only pieces of"):
        extend_tokenizers(Tokenizers(open_tokenizer(content, "file")), ["Grüezi"])
    with pytest.raises(ConfigError, match="9,999 pieces given, expected fewer: .* at most 10,000"):
        extend_tokenizers(both, [f"w{i}x" for i in range(9_999)])
