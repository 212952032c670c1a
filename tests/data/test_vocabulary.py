"""Training tokenizers: the size that was asked for, the smallest corpora, the same vocabulary from the same texts."""

import json

import pytest
import tokenizers as library
from data.cases import KINDS, TEXTS, normalised
from tokenizers import models, trainers

from regard.data.pre_tokenizer import mark_words, normalise
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import automatic_size, train
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
    """Against the library, given the texts as they are and the same cuts."""
    made = train(TEXTS, size=400)
    learner = library.Tokenizer(models.BPE(unk_token="<unk>"))
    learner.normalizer, learner.pre_tokenizer = normalise(False), mark_words(cut=True)
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    learner.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=144, special_tokens=special, show_progress=False))
    assert made.content["model"]["merges"] == json.loads(learner.to_str())["model"]["merges"] != []
