"""Training tokenizers: the requested size, the smallest corpora, the same vocabulary from the same texts."""

import json
import random

import pytest
import tokenizers as library
from data.cases import KINDS, TEXTS, normalised
from tokenizers import models, trainers

from regard.data.pre_tokenizer import mark_words, normalise
from regard.data.settings import DataSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import (
    TextProfile,
    automatic_size,
    different_words,
    is_unspaced,
    letters_in_common,
    suitable_kind,
    train,
)
from regard.errors import ConfigError, DataError


def test_digits_and_punctuation_are_cut():
    tokenizer = train(TEXTS)
    pieces = tokenizer.pieces(tokenizer.encode("Mann, 2024"))
    assert pieces[-4:] == ["▁2", "0", "2", "4"] or pieces[-5:] == ["▁", "2", "0", "2", "4"]
    assert "," in pieces


def test_lowercase_is_kept_in_the_file(tmp_path):
    Tokenizers(train(TEXTS, lowercase=True)).save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizers.load(tmp_path / "tokenizer.json").source
    assert tokenizer.decode(tokenizer.encode("DAS Haus ÄÖ")) == "das haus äö"


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_training_is_a_function_of_the_texts(kind):
    assert train(TEXTS, kind).content == train(TEXTS, kind).content


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [["a"], ["a b"], ["😀"], ["", "x", " "], ["\0"]])
def test_the_smallest_corpora_are_enough(kind, texts):
    tokenizer = train(texts, kind)
    assert tokenizer.decode(tokenizer.encode(texts[0])) == normalised(texts[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_kept(kind):
    texts = [*TEXTS, *("".join(map(chr, range(n, n + 9))) for n in range(0x4E00, 0x4E00 + 900, 9))]
    smallest = 1400 if kind == "unigram" else 300
    for size in (smallest, smallest + 57):
        tokenizer = train(texts, kind, size, tags=["<2de>"])
        assert tokenizer.size <= size
        assert kind == "word" or tokenizer.decode(tokenizer.encode("\u4e00\u5f00 Haus")) == "\u4e00\u5f00 Haus"
    assert kind in ("word", "unigram") or tokenizer.size == size


def test_a_unigram_model_too_small_for_its_characters_is_refused():
    with pytest.raises(ConfigError, match="tokenizer.size: 300 given, expected at least 561 for the characters"):
        train(["".join(map(chr, range(0x4E00, 0x4E00 + 300)))], "unigram", 300)


def test_no_text_is_refused():
    with pytest.raises(DataError, match="no text to train a tokenizer on"):
        train(["", " "])


def test_automatic_sizes():
    sizes = [automatic_size(words) for words in (0, 1, 500, 1000, 40_000, 150_000, 300_000, 10**7)]
    assert sizes == [512, 512, 1024, 1024 * 2 ** (48 * 1000**0.5 > 1448), 8192, 16_384, 32_768, 32_768]
    assert automatic_size(100, characters=3000) == 6260
    assert automatic_size(100, characters=90_000) == 32_768


def test_merges_are_those_of_whole_texts():
    """Compare with the library on whole texts with the same splits."""
    made = train(TEXTS, size=400)
    learner = library.Tokenizer(models.BPE(unk_token="<unk>"))
    learner.normalizer, learner.pre_tokenizer = normalise(False), mark_words(cut=True)
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    learner.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=144, special_tokens=special, show_progress=False))
    assert made.content["model"]["merges"] == json.loads(learner.to_str())["model"]["merges"] != []


# ---- a profile of texts


def lines(draw, words, count=2_000, low=4, high=9):
    return [" ".join(draw.choices(words, k=draw.randint(low, high))) for _ in range(count)]


def invented(draw, count, letters="abcdefghiklmnoprstu", low=4, high=9):
    return ["".join(draw.choices(letters, k=draw.randint(low, high))) for _ in range(count)]


DRAW = random.Random(5)
PHONEMES = lines(DRAW, [f"{a}{b}" for a in "AEIOU" for b in "AHY"] + list("BDFGKLMNPRSTVZ"))
NAMES = invented(DRAW, 3_000)
SENTENCES = lines(DRAW, invented(DRAW, 4_000))
CHINESE = ["".join(DRAW.choices("的一是不了人我在有他这中大来上国个到说们", k=DRAW.randint(8, 40))) for _ in range(500)]
NUMBERS = [str(DRAW.randint(1_900, 1_960)) for _ in range(3_000)]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [(PHONEMES, "word"), (NAMES, "character"), (SENTENCES, "bpe"), (NUMBERS, "character"), (CHINESE, "character")],
    ids=["phonemes", "names", "sentences", "numbers", "chinese"],
)
def test_pieces_suit_the_texts(texts, kind):
    assert suitable_kind(texts) == kind
    assert suitable_kind([text.upper() for text in texts]) == kind
    assert suitable_kind(DRAW.sample(texts, len(texts))) == kind  # in any order


def test_a_few_lines_are_never_closed():
    # A hundred lines cannot show that no new word will come.
    assert suitable_kind(PHONEMES[:100]) != "word"


def test_scripts_without_spaces_and_text_that_was_cut_into_words():
    assert TextProfile.of(CHINESE).unspaced
    assert not TextProfile.of([" ".join(text) for text in CHINESE]).unspaced
    assert not TextProfile.of(SENTENCES).unspaced
    assert TextProfile.of(["สวัสดีชาวโลกวันนี้อากาศดี"]).unspaced
    assert TextProfile.of(["これは日本語の文です"]).unspaced
    assert not TextProfile.of(["오늘은 날씨가 좋습니다"]).unspaced  # Korean has spaces
    assert not any(map(is_unspaced, "abcäß ¡æж�א한"))


def test_nothing_has_no_shape():
    for texts in ([], [""], [" ", "\t"]):
        assert TextProfile.of(texts) == TextProfile(0.0, 0.0, 0.0, 0, False, False)


def test_letters_in_common_are_counted_both_ways():
    latin, cyrillic = ["the cat sat"], ["кот сидел"]
    assert letters_in_common(latin, latin) == 1.0
    assert letters_in_common(latin, cyrillic) == 0.0
    assert letters_in_common([], latin) == 0.0
    many, one = ["кот сидел на окне"] * 1000, ["кот said hello on окно"]
    assert letters_in_common(latin * 1000, many + one) == letters_in_common(many + one, latin * 1000) < 0.1


def test_characters_without_spaces_count_as_words():
    assert different_words(["ab cd", "ab"]) == 2
    assert different_words(["人我在有", "人我"]) == 4
    assert automatic_size(different_words(CHINESE)) == 512  # 500 sentences do not make 500 words


@pytest.mark.parametrize(
    ("examples", "held"), [(2, 1), (10, 1), (100, 10), (1_000, 100), (10_000, 500), (10**7, 2_000)]
)
def test_enough_is_held_out_of_any_corpus(examples, held):
    assert DataSettings(held_out="auto").held_out_count(examples) == held
    assert DataSettings(held_out=0.0).held_out_count(examples) == 0
