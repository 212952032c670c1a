"""Opinions of edition 2: a reader that knows English but not the frames' sorts agrees with their labels."""

import itertools
import math
import random
import re
from collections import Counter

import pytest

from regard.data import generate, sentence_split
from regard_corpora.reviews import SECOND, Context, Opinions

WORDS, TOPICS = SECOND.words, SECOND.topics
AFFIRMED, DENIED, TURNED = (SECOND.lines[name] for name in ("affirmed", "denied", "turned"))
SIGN = {
    word.split()[0]: 2 * good - 1
    for kind, pair in WORDS.items()
    if kind != "end"
    for good, words in enumerate(pair)
    for word in words
}
COMPARATIVES = {word for kind, pair in WORDS.items() if kind.endswith(".c") for words in pair for word in words}
TURNS = re.compile(
    r"(?<![\w'])(?:not|cannot|never|nobody|no|none|nothing|neither|hardly|rarely|barely|scarcely|far from|less|little|"
    r"doubts?|deny|anything but|wrong(?= (?:that|to)))(?![\w'])|n't\b"
)
# Words that decide whether an opinion holds.
HOLDS = re.compile(
    r"not|\w+n'?t|cannot|never|no|nobody|none|nothing|neither|nor|hardly|rarely|barely|scarcely|far|less|anything|could|"
    r"doubts?|deny|always|any|something|lot|true|everybody|everyone|all|each|plenty|little"
)


def read(text):
    """Return the label of a plain opinion, 1 or -1."""
    text = re.sub(r"\b(isn|wasn|aren|weren|didn|don|doesn|couldn|wouldn|can|haven|hadn)t\b", r"\1't", text.lower())
    text = re.sub(r"[.!*]", "", text).replace("can't", "cannot")
    refused = re.search(r", but (i do(n't| not) think so|that('s| is)(n't| not) true|nobody i know agrees)$", text)
    if refused:
        return -read(text[: refused.start()].partition(" say that ")[2])
    if not re.search(r"not (only|just)|n't (only|just)", text):
        text = re.split(r", but\b|(?:not|n't) \w+ but\b", text)[-1]
    text = re.split(r" to be ", text)[0] if " too " in text else text
    text = re.sub(r"(not|n't) (only|just)|nothing but|(did|had)(n't| not) expect(ed)?", "", text)
    words = re.findall(r"[\w']+", text)
    opinion = next(
        i for i, word in enumerate(words) if word in SIGN and not (word == "wrong" and words[i + 1] in ("to", "that"))
    )
    turns = len(TURNS.findall(" ".join(words[:opinion])))
    if words[opinion] in COMPARATIVES or words[opinion - 1] == "more":  # "never a better one" means the best
        turns = "could" in words and "have" in words and not turns
    return -SIGN[words[opinion]] if turns % 2 else SIGN[words[opinion]]


@pytest.mark.parametrize("frame", sorted({*AFFIRMED, *DENIED, *TURNED}))
def test_a_reader_agrees_with_every_frame(frame):
    opinions = Opinions(random.Random(frame).random, 50)
    for good, topic in itertools.product((0, 1), TOPICS):
        nouns = [noun for noun in topic.nouns if noun.countable or "{n}" not in frame]
        text = opinions.fill(frame, Context(opinions.choose(nouns), good, topic.verb))
        assert "{" not in text
        assert "(" not in text
        said = (2 * good - 1) * (-1 if frame in DENIED else 1)
        assert read(text) == said, text
        assert read(opinions.write(text)) == said, text


def test_the_frames_are_of_three_sorts():
    assert not {*AFFIRMED} & {*DENIED} | {*AFFIRMED} & {*TURNED} | {*DENIED} & {*TURNED}
    for frame in (*DENIED, *TURNED):
        assert "*" in frame or "not" in frame, frame


@pytest.fixture(scope="module")
def examples():
    return list(generate("reviews", 1500, seed=7, shortest=1, longest=4))


def test_text_is_written_as_people_do(examples):
    text = " ".join(each.source for each in examples)
    assert not re.search(r" [.,!?]|\ba [aeio]\w|\bthe the\b|[{}()*|]", text)
    for form in (
        "isn't",
        "is not",
        "can't",
        "cannot",
        "it's",
        "I've",
        "wasn't",
        "not only",
        "far from",
        "anything but",
    ):
        assert form in text, form
    ends = Counter(each.source[-1] if each.source[-1] in ".!" else "" for each in examples)
    assert min(ends[""], ends["!"]) > 50
    assert ends["."] > 900
    assert 10 < sum(each.source[0].islower() for each in examples) < 150


def test_lengths(examples):
    lengths = Counter(len(sentence_split.sentences(each.source)) for each in examples)
    assert set(lengths) == {1, 2, 3, 4}
    assert min(lengths.values()) > 250
    assert {len(sentence_split.sentences(each.source)) for each in generate("reviews", 200)} == set(range(2, 9))


def test_gold_words_are_informative(examples):
    """Each review's gold words include an opinion word; all are opinion words or decide whether one holds."""
    kinds = Counter()
    for example in examples:
        words = example.source.split()
        gold = [words[place].lower().strip(".,!") for place, _ in example.alignment]
        assert any(word in SIGN for word in gold), example
        kinds.update(gold)
    others = {word for word in kinds if word not in SIGN}
    assert not [word for word in others if not HOLDS.fullmatch(word)]
    assert {"not", "never", "nobody", "hardly", "isn't"} <= others


def test_to_count_words_is_of_little_use():
    """Naive Bayes over words of single sentences is better than chance, and far from right."""
    texts = [(set(re.findall(r"[\w']+", each.source.lower())), each.target) for each in
             generate("reviews", 5000, shortest=1, longest=1, denied=35)]  # fmt: skip
    train, test = texts[:4000], texts[4000:]
    counts = {
        label: Counter(word for words, own in train if own == label for word in words)
        for label in ("negative", "positive")
    }
    odds = {
        word: math.log((counts["positive"][word] + 1) / (counts["negative"][word] + 1))
        for word in counts["positive"] | counts["negative"]
    }
    right = sum((sum(odds.get(word, 0) for word in words) > 0) == (label == "positive") for words, label in test)
    assert 0.5 < right / len(test) < 0.72


def test_denied():
    """If no opinion is denied, the words agree with the label; if all are, they contradict it."""
    for denied, turn in ((0, 1), (100, -1)):
        opinions = Opinions(random.Random(5).random, denied)
        for label in (0, 1) * 200:
            text = opinions.clause(opinions.choose(TOPICS), label)
            marked = re.findall(r"(\w+)\*", re.sub(r"wrong\* (?=that|to)", "", text))
            first = next(SIGN[word] for word in marked if word in SIGN)
            assert first * turn == 2 * label - 1, text
