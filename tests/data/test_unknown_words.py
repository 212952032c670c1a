"""Words that never occurred in training are reported."""

import pytest

from regard.data.builtin import generate
from regard.data.unknown_words import (
    FILE,
    IgnoredWords,
    UnknownWords,
    WordCollector,
    describe,
    format_words,
    read_words,
)
from regard.data.vocabulary import train

TEXTS = [example.source for example in generate("phrasebook", 400)]


def known(texts=TEXTS):
    collector = WordCollector()
    collector.add(texts)
    return frozenset(collector.words)


def test_words_of_a_corpus_are_letters_in_lower_case():
    assert known(["I don't like Anna's dog.", "It is 7 o'clock, ÉTÉ"]) == {
        *("i", "don", "t", "like", "anna", "s", "dog", "it", "is", "o", "clock", "été")
    }


def test_too_many_words_are_not_kept(monkeypatch):
    monkeypatch.setattr("regard.data.unknown_words.MAX_WORDS", 3)
    collector = WordCollector()
    collector.add(["a b c d"])
    assert collector.words is None
    collector.add(["e"])
    assert collector.words is None
    monkeypatch.setattr("regard.data.unknown_words.MAX_BYTES", 3)
    assert format_words(["ab", "cd"]) is None


def test_the_file_is_read_as_it_was_written_and_damage_is_seen(tmp_path):
    words = known()
    text = format_words(words)
    assert read_words(tmp_path) is None
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    assert read_words(tmp_path) == words
    for damaged in (text.replace("pizza", "pasta").encode(), b"", b"\xff\xfe"):
        (tmp_path / FILE).write_bytes(damaged)
        assert read_words(tmp_path) is None


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_word_that_never_occurred(kind):
    unknown = UnknownWords(train([*TEXTS, "1 2 3 times"], kind), known([*TEXTS, "times"]))
    unknown.add(TEXTS)
    assert unknown.message() is None
    unknown.add(["the zorp is flimmery.", "The zorp sleeps 123 times"])
    assert unknown.message() == "zorp and flimmery were never seen in training"  # digits spell any number


CHINESE = ["我昨天吃了比萨", "他昨天吃了饭"]


@pytest.mark.parametrize(
    ("kind", "texts", "words", "given", "message"),
    [
        ("bpe", TEXTS, None, ["the zorp sleeps", "the жук sleeps"], "жук was never seen in training"),  # letters only
        ("word", ["a b c", "b c d"], {"a"}, ["a b x", "d y x"], "x and y were never seen in training"),
        ("character", ["abc", "bcd"], known(["abc"]), ["abcd", "dcba"], None),  # characters form no words
        ("character", ["abc", "bcd"], known(["abc"]), ["abcd", "abx"], "abx was never seen in training"),
        ("bpe", CHINESE, known(CHINESE), ["我吃了饭"], None),  # nor do scripts without spaces
    ],
)
def test_what_is_unknown_to_a_kind_of_tokenizer(kind, texts, words, given, message):
    unknown = UnknownWords(train(texts, kind), words)
    unknown.add(given)
    assert unknown.message() == message


def test_each_word_is_told_of_once():
    messages = []
    unknown = UnknownWords(train(TEXTS, "bpe"), known(), messages.append)
    assert list(unknown.watch(["zorp", "flim"])) == ["zorp", "flim"]
    unknown.add(["zorp again"])
    assert messages[0] == "zorp and flim were never seen in training"
    assert all("zorp" not in message for message in messages[1:])


def test_a_message_is_one_line_whatever_the_words():
    assert describe([f"w{i}" for i in range(20)]) == "w0, w1, w2, w3, w4, w5 and 14 more were never seen in training"
    assert "\n" not in describe(["a\x1b[31m", "b" * 500])
    assert len(describe(["b" * 500])) < 100


def test_long_words_are_not_kept_whole():
    """A server reads arbitrary input for months."""
    words = UnknownWords(train(TEXTS, "word"), None)
    words.add([letter * 20_000 for letter in "abcdefgh"])
    assert words.verdicts == {}
    assert sum(map(len, words.words)) <= 8 * 41
    assert len(words.words) == 8
    assert words.message() == describe([letter * 20_000 for letter in "abcdefgh"])


def test_none_is_kept_where_nobody_asks():
    words = IgnoredWords(train(TEXTS, "word"))
    words.add(["zorp"])
    assert list(words.watch(iter(["flim", "zorp"]))) == ["flim", "zorp"]
    words.tell()
    assert (words.message(), words.words, words.verdicts) == (None, {}, {})


def test_markup_stays_as_it_was_typed():
    unknown = UnknownWords(train(TEXTS, "word"), None)
    unknown.add(["(zebra), <b>zebra</b> &lt;zebra&gt; </script>"])
    assert list(unknown.words) == ["zebra", "<b>zebra</b>", "&lt;zebra&gt;", "</script>"]
