"""Reviews of edition 1: labels follow from the sentences about the thing itself, and the gold words decide them."""

import re
from collections import Counter

import pytest

from regard.data import generate, sentence_split
from regard.errors import ArgumentError
from regard_corpora.reviews import FIRST, Options

GOOD = re.findall(
    r"\w+",
    """
    good great excellent wonderful lovely impressive delicious tasty fresh crisp juicy flavourful
    friendly quick attentive polite helpful skilful clean spacious quiet cosy comfortable elegant clever
    gripping moving original funny thoughtful sturdy reliable bright fast handy sharp lively rich clear
    stirring graceful warm
    """,
)
BAD = re.findall(
    r"\w+",
    """
    bad terrible awful poor disappointing dreadful bland stale greasy burnt tasteless soggy rude slow
    careless grumpy unhelpful clumsy dirty cramped noisy shabby draughty gloomy dull predictable silly
    confusing boring shallow flimsy unreliable dim sluggish useless fragile lifeless shrill muddy
    monotonous harsh hollow
    """,
)
OPINIONS = {*GOOD, *BAD}
TURNS = {"nobody": "everybody", "never": "always", "nothing": "something", "none": "all", "no": "any"}
TURNS |= {"hardly": "surely"}
TURNS |= {other: word for word, other in TURNS.items()} | dict(zip(GOOD, BAD, strict=True))
TURNS |= dict(zip(BAD, GOOD, strict=True))
OTHERS = "|".join(noun.name for noun in FIRST.elsewhere)
DENIES = r"\b(was not|did not find|not say|did not think|hardly find|never call|nothing \w+ about|at no time|was never|"
DENIES += r"nobody could|nobody in|none of us would)\b"


def read(sentence):
    """Return a reader's label of a sentence: 1, -1, or 0 if it does not concern the thing itself."""
    words = sentence.lower().split()
    opinion = next((1 if word in GOOD else -1 for word in words if word in OPINIONS), 0)
    if not opinion or re.search(rf"\bthe ({OTHERS})\b", sentence.lower()):
        return 0
    return -opinion if re.search(DENIES, sentence.lower()) else opinion


def label(text):
    found = {read(sentence.text) for sentence in sentence_split.sentences(text)} - {0}
    return {1: "positive", -1: "negative"}[found.pop()] if len(found) == 1 else None


@pytest.fixture(scope="module")
def examples():
    return list(generate("reviews", 1200, seed=7, edition=1))


def test_a_reader_agrees_with_every_label(examples):
    assert [label(example.source) for example in examples] == [example.target for example in examples]


def test_the_sentences_are_found(examples):
    for example in examples:
        found = sentence_split.sentences(example.source)
        assert 2 <= len(found) <= 8
        assert " ".join(each.text for each in found) == example.source
        assert all(each.text.count(" .") == 1 for each in found)
    assert {len(sentence_split.sentences(example.source)) for example in examples} == set(range(2, 9))


def test_the_gold_words_decide(examples):
    """Replacing a gold word reverses its sentence, and if that sentence is the only one, the label."""
    turned = Counter()
    for example in examples:
        words = example.source.split()
        for place, _ in example.alignment:
            word = words[place]
            instead = TURNS.get(word.lower())
            if instead is None:
                assert word == "not"
                other = words[:place] + words[place + 1 :]
            else:
                other = [*words[:place], instead.capitalize() if word[0].isupper() else instead, *words[place + 1 :]]
            start = sum(len(each.text.split()) for each in sentence_split.sentences(" ".join(words[: place + 1]))[:-1])
            before = next(each for each in sentence_split.sentences(" ".join(words[start:]))).text
            after = next(each for each in sentence_split.sentences(" ".join(other[start:]))).text
            assert read(before) == (1 if example.target == "positive" else -1), before
            assert read(after) == -read(before), after
            turned[word.lower()] += 1
    assert {"not", "nobody", "always", "nothing", "hardly", "bad", "delicious"} <= turned.keys()


def test_other_words_do_not_decide(examples):
    for example in examples[:500]:
        gold = {place for place, _ in example.alignment}
        opinions = [i for i, word in enumerate(example.source.split()) if word in OPINIONS and i not in gold]
        words = example.source.split()
        for place in opinions:
            other = [*words[:place], TURNS[words[place]], *words[place + 1 :]]
            assert label(" ".join(other)) == example.target


def test_what_is_drawn_is_varied(examples):
    labels = Counter(example.target for example in examples)
    assert min(labels.values()) > 500
    nouns = [noun.name for topic in FIRST.topics for noun in topic.nouns]
    text = " ".join(example.source for example in examples)
    assert all(f"the {noun} " in text.lower() for noun in nouns)
    opinions = [word for word in text.split() if word in OPINIONS]
    assert set(opinions) == {*GOOD, *BAD}
    for word in ("bad", "great"):  # for both labels
        of = Counter(each.target for each in examples if f" {word} " in each.source)
        assert 0.2 < of["positive"] / of.total() < 0.8


def test_options():
    assert all(
        len(sentence_split.sentences(each.source)) == 1
        for each in generate("reviews", 50, shortest=1, longest=1, edition=1)
    )
    plain = list(generate("reviews", 200, denied=0, edition=1))
    assert not any(re.search(DENIES, each.source.lower()) for each in plain)
    assert all(re.search(DENIES, each.source.lower()) for each in generate("reviews", 50, denied=100, edition=1))
    assert Options() == Options(2, 8, 30, 2)
    for wrong, said in (
        ({"denied": 101}, "denied: 101 given, expected at most 100"),
        ({"shortest": 0}, "shortest: 0 given"),
        ({"longest": 1}, "longest: 1 given, expected a whole number of at least 2"),
    ):
        with pytest.raises(ArgumentError, match=said):
            generate("reviews", 1, **wrong)
