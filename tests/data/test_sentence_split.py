"""Sentences as a reader would count them, and pieces that fit."""

import hashlib
import json
import random
import re
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import table

from regard import load
from regard.data.sentence_split import (
    EDITION,
    FILE,
    SAMPLE,
    SentenceCounter,
    SentenceShare,
    cut,
    describe_several,
    has_several,
    pieces,
    sentences,
    source_sentences,
)
from regard.interop import open_engine, pack
from regard.tasks import start


def words(text: str) -> int:
    return len(text.split())


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize(
    "text",
    [
        "Hello there.|How are you?|Fine!",
        'He said "Stop!"|Then he left.|"Go," she said.',
        '"Stop!" he said.|Then nothing.',
        "Das ist z. B. ein Test.|Am 3. Mai war es kalt.|Es waren 3.14 Grad.",
        "Mr. Smith met Dr. J. S. Bach in 1999.|Then they left.",
        "The U.S. Army came.|It was e.g. Monday.|See No. 5, p. 7 and fig. 3 there.|He said no.|Really.",
        "Äpfel, Birnen usw.|Ölig war es.|Und (so weiter.)|«Ja.»|Ende",
        "Wait...|What?! no way… or so.|1200 people came.",
        "これは文です。|これも！|「はい。」|そう。",
        "क्या है।|हाँ।",
        'I ate pizza .|" Go . "|Then he slept .',
        "¿Qué?|¡Nada!|Bueno.",
        "one without an end",
        "...",
    ],
)
def test_sentences(text):
    whole = text.replace("|", " ")
    found = sentences(whole)
    assert [each.text for each in found] == text.split("|")
    assert all(whole[each.start : each.end] == each.text for each in found)


def test_nothing_has_no_sentence():
    assert sentences("") == sentences(" \n\u2003") == []


def test_edition_stands_for_what_is_cut():
    # If this hash changes, some texts are split differently, and caches of documents need a new EDITION.
    draw, made = random.Random(0), hashlib.sha256(EDITION.encode())
    parts = ["Mr. ", "a ", "B ", "no. ", "5. ", "z. B. ", "1999. ", "word. "]
    parts += ["Then ", "he! ", '" ', "「はい。」", "।", "…", ", ", "(so.) "]
    for _ in range(2000):
        made.update(repr(sentences("".join(draw.choices(parts, k=12)))).encode())
    assert made.hexdigest() == "0a4d0bf92b05791554bbc91e4bd918b7b04281826284fccdfd9aebf94e846786"


TEXTS = st.text(st.sampled_from("aB1 .,!?…\"'”)。「」\u2028é😀"), max_size=60) | st.text(max_size=40)


@given(TEXTS)
def test_sentences_lose_nothing(text):
    found = sentences(text)
    assert squeezed("".join(each.text for each in found)) == squeezed(text)
    assert all(text[each.start : each.end] == each.text == each.text.strip() != "" for each in found)
    assert all(first.end <= second.start for first, second in pairwise(found))


@given(TEXTS, st.integers(1, 9), st.sampled_from([words, len, lambda text: len(text.replace(" ", "")) * 2]))
def test_pieces_fit_and_lose_nothing(text, limit, count):
    found = pieces(text, count, limit)
    assert squeezed("".join(each.text for each in found)) == squeezed(text)
    assert all(count(each.text) <= max(limit, count(each.text[0])) for each in found)
    assert all(text[each.start : each.end] == each.text != "" for each in found)
    if count(text) <= limit:
        assert found == sentences(text)


@given(TEXTS, st.integers(1, 9), st.sampled_from([words, len]))
def test_cut_is_the_longest_beginning_that_fits(text, limit, count):
    """Compare with a search through all beginnings."""
    fitting = [end for end in range(len(text) + 1) if count(text[:end]) <= limit]
    at_words = [end for end in fitting if end == len(text) or (text[end].isspace() and text[:end].strip())]
    best = text[: max(at_words or fitting)].rstrip()
    assert cut(text, count, limit) == (best if best or not text else text[: max(fitting)].rstrip())


def test_long_sentences_are_cut_at_commas():
    text = "a b c d, e f g h i j, k l m n o p q r s t"
    assert [each.text for each in pieces(text, words, 6)] == ["a b c d,", "e f g h i j,", "k l m n o p", "q r s t"]


def test_ten_thousand_words_are_cut_in_no_time():
    """The search looks at no more text than could fit."""
    looked = []

    def count(text: str) -> int:
        looked.append(len(text))
        return words(text)

    text = " ".join(["word"] * 10_000)
    assert cut(text, count, 200) == " ".join(["word"] * 200)
    assert max(looked) < 1100
    assert [words(each.text) for each in pieces(text, words, 200)] == [200] * 50


# ---- texts to translate


@pytest.mark.parametrize(
    "text",
    [
        "i see the dog.|i see the cat.",
        "I see the dog.|it is big!|are they there?|I like it.",
        "ich sehe den Hund.|er schläft!|warum?|weil er müde ist.|Gut.",
        "i see the dog .|i see the cat !|tu vois le chien ?|oui, je le vois .",
        "3 dogs sleep.|they eat.|Then they sleep.",
        "(i see the dog.)|i see the cat.",
        '"i see him there."|"i see her there."|"stop!" he said.',
        "wir sehen hunde, katzen usw. und approx. drei vögel.|sie singen etc. und schlafen.",
        "z. b. dieser hund, vgl. dort.|jener nicht, d. h. nie.",
        "wait... what now|",
        "we were in the u.s. and saw her.|they left.",
        "он видит собаку.|она спит.|их 5 тыс. или больше.",
        "él ve el perro, pág. 3 y aprox. dos.|ella duerme.",
        "do you see it? he does.",  # in doubt a text stays whole
        "Univ. of that city. and no more",  # also if it begins with a capital
        '"Stop!" he said.|Then he left.',
        "I. introduction here. then more",
        "他来了。|她走了！",
        "see example.com today.|it works at v2.org. ok",
        "",
    ],
)
def test_texts_in_lower_case_are_split_too(text):
    expected = [each for each in text.split("|") if each]
    given = text.replace("|", " ")
    if text.startswith("see example"):
        expected[1:] = ["it works at v2.org.", "ok"]
    found = source_sentences(given)
    assert [each.text for each in found] == expected
    assert all(given[each.start : each.end] == each.text for each in found)
    assert has_several(given) == (len(expected) > 1)


def test_a_tag_is_no_word_of_its_text():
    text = "<2de> i see her. i see him."
    for found in (source_sentences(text, ["<2de>"]), pieces(text, words, 99, ["<2de>"])):
        assert [each.text for each in found] == ["<2de> i see her.", "i see him."]


@given(st.text(st.sampled_from(".!? \t\"'()aBcdeé1I…。"), max_size=60))
def test_no_letter_is_lost_and_sentences_of_others_stay(text):
    found = source_sentences(text)
    assert squeezed("".join(each.text for each in found)) == squeezed(text)
    ends = {each.end for each in found}
    assert {each.end for each in sentences(text)} <= ends


# ---- the share of a run's sources with several sentences


@pytest.mark.parametrize(
    ("share", "single"),
    [
        (SentenceShare(), True),
        (SentenceShare(100, 5), True),
        (SentenceShare(100, 6), False),
        (SentenceShare(10_000, 500), True),
        (SentenceShare(10_000, 501), False),
    ],
)
def test_more_than_five_in_a_hundred_are_many(share, single):
    assert share.single is single


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"sources": 5, "several": 4}',
        json.dumps({"format": "regard sentences 1", "sources": 5, "several": 6}),
        json.dumps({"format": "regard sentences 1", "sources": -5, "several": -6}),
        json.dumps({"format": "regard sentences 1", "sources": True, "several": 0}),
        json.dumps({"format": "regard sentences 1", "sources": "5", "several": 4}),
        "\0" * 20_000,
    ],
)
def test_a_file_that_is_none_counts_for_nothing(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert SentenceShare.read(tmp_path) == SentenceShare()
    assert SentenceShare.read(tmp_path / "none") == SentenceShare()


def test_what_is_written_is_read(tmp_path):
    (tmp_path / FILE).write_text(SentenceShare(100, 7).dumps())
    assert SentenceShare.read(tmp_path) == SentenceShare(100, 7)


def train(home, lines, several):
    """Train a tiny run on lines of digits, some of them in two sentences."""
    given, threads = table(home, training__steps=1), torch.get_num_threads()
    sources = [f"{i % 7} {i % 5} . {i % 9} 1 ." if i < several else f"{i % 7} {i % 5} {i} ." for i in range(lines)]
    (home / "two.source").write_text("".join(f"{line}\n" for line in sources))
    (home / "two.target").write_text("".join(f"{line}\n" for line in sources))
    data = {**given["data"], "source": str(home / "two.source"), "target": str(home / "two.target"), "held_out": 0.1}
    start({**given, "data": data}, home / "run", anyway=True)  # one side given twice
    torch.set_num_threads(threads)
    return home / "run"


def test_training_counts_its_sources_and_everything_that_is_made_of_the_run_keeps_that(tmp_path):
    run = train(tmp_path, 300, 120)
    share = SentenceShare.read(run)
    assert 240 < share.sources < 300  # without the held-out ones
    assert 0.3 < share.several / share.sources < 0.5
    assert load(run).sentence_share == load(run, run).sentence_share == share
    assert load(pack(run, tmp_path / "run.regard")).sentence_share == share
    pytest.importorskip("ctranslate2")
    assert open_engine(run).sentence_share == share


def test_a_large_corpus_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.sentence_split.SAMPLE", 50)
    share = SentenceShare.read(train(tmp_path, 300, 100))
    assert SAMPLE == 10_000
    assert 40 <= share.sources <= 50
    assert 0.2 < share.several / share.sources < 0.45


def test_texts_are_counted_on_their_way():
    counter = SentenceCounter(["<2de>"])
    texts = ["A dog. A cat.", "A dog.", "", "<2de> a dog. a cat."]
    assert list(counter.watch(texts)) == texts
    assert (counter.texts, counter.several) == (4, 2)
    expected = "lines with several sentences: 2 of 4; trained on single ones, the model may leave some out; look"
    assert describe_several(counter, "lines", "look") == expected
