"""The second edition: sentences as people write them."""

import itertools
import random
import re

import pytest
from corpora.phrasebook.cases import sample

import regard_corpora.phrasebook as phrasebook
from regard.data import builtin, generate
from regard_corpora.phrasebook import derive
from regard_corpora.phrasebook.natural import STYLES, Style, choose_style, spell_out

PAIRS = ("en-de", "en-fr")
NAMES = ("Anna", "Peter", "Maria", "Paul", "Julia", "Martin")


def written(pair):
    return sample(pair, 6_000, edition=2)


@pytest.mark.parametrize("pair", PAIRS)
def test_heads_are_trees(pair):
    for example in written(pair):
        for text, heads in ((example.source, example.source_heads), (example.target, example.target_heads)):
            assert len(heads) == len(text.split())
            assert heads.count(-1) == 1, text
            for start in range(len(heads)):
                path = [start]
                while heads[path[-1]] != -1:
                    path.append(heads[path[-1]])
                    assert len(path) <= len(heads), f"{text}: a circle"


SILENT = {  # words that may have no link to the other side
    "en": {"to", "for", "at", "of", "with", "that", "who"},
    "de": set(),
    "fr": {"est-ce", "que", "Est-ce"},
}


@pytest.mark.parametrize("pair", PAIRS)
def test_links_are_valid_and_content_words_have_one(pair):
    for example in written(pair):
        sides = example.source.split(), example.target.split()
        assert list(example.alignment) == sorted(set(example.alignment))
        for side, (language, words) in enumerate(zip(pair.split("-"), sides, strict=True)):
            linked = {link[side] for link in example.alignment}
            assert linked <= set(range(len(words)))
            alone = {word for i, word in enumerate(words) if i not in linked}
            assert alone <= SILENT[language], f"{example.source} | {example.target}: {alone} of {language} has no link"


@pytest.mark.parametrize("pair", PAIRS)
def test_names_are_linked_with_themselves_and_stops_link_nothing_else(pair):
    checked = 0
    for example in written(pair):
        source, target = example.source.split(), example.target.split()
        for i, j in example.alignment:
            if (name := target[j].strip(".,")) in NAMES:
                assert source[i].strip(".,?").removesuffix("'s").lower() == name.lower(), example
                checked += 1
    assert checked > 500


@pytest.mark.parametrize("pair", PAIRS)
def test_it_is_written_as_in_print(pair):
    for example in written(pair):
        source, target = example.source, example.target
        assert target[0].isupper()
        assert source[0].isupper() or source == source.lower()
        assert not re.search(r" [.,]| '|' |\bn't|' ?$", source), source
        assert not re.search(r" [.,]|' ", target), target
        assert (" ?" in target) == (pair == "en-fr" and target.endswith("?"))
        assert source[-1] in ".?" or not re.search(r"[.?]$", target)
        assert (source[-1] in ".?") == (target[-1] in ".?")  # both sides agree
        if source[-1] in ".?":
            assert source[-1] == target[-1]


def test_every_way_of_writing_comes_often_enough():
    sources = [example.source for example in written("en-de")]
    share = {
        "no stop": sum(source[-1] not in ".?" for source in sources) / len(sources),
        "lower case": sum(source[0].islower() for source in sources) / len(sources),
        "contracted": sum(bool(re.search(r"n't|'(m|re|ll)\b|\b(he|she|it)'s", source)) for source in sources)
        / len(sources),
    }
    assert 0.2 < share["no stop"] < 0.4
    assert 0.1 < share["lower case"] < 0.2
    assert 0.1 < share["contracted"] < 0.3
    text = " ".join(sources)
    both = [
        "don't",
        "do not",
        "I'm",
        "I am",
        "isn't",
        "is not",
        "can't",
        "cannot",
        "it's",
        "it is",
        "won't",
        "he's not",
    ]
    both += ["dont", "Where's", "Where is", "didn't", "This is", "'ll", "Anna's"]
    assert [form for form in both if form not in text] == []


def test_editions_are_different_only_in_their_own_ways():
    """No style drops a word of the translation."""
    first = derive("I don't like coffee.")
    assert first is not None
    assert first.target == "Ich mag keinen Kaffee."


@pytest.mark.parametrize(
    ("source", "german", "links", "heads", "german_heads"),
    [
        (
            "I ate pizza yesterday.",
            "Ich habe gestern Pizza gegessen.",
            ((0, 0), (1, 1), (1, 4), (2, 3), (3, 2)),
            (1, -1, 1, 1),
            (4, 4, 4, 4, -1),
        ),
        ("I'm not tired", "Ich bin nicht müde", ((0, 0), (0, 1), (1, 2), (2, 3)), (2, 2, -1), (3, 3, 3, -1)),
        ("Where's Anna's dog?", "Wo ist Annas Hund?", ((0, 0), (0, 1), (1, 2), (2, 3)), (-1, 2, 0), (-1, 0, 3, 0)),
        ("she can't swim.", "Sie kann nicht schwimmen.", ((0, 0), (1, 1), (1, 2), (2, 3)), (2, 2, -1), (3, 3, 3, -1)),
    ],
)
def test_links_and_heads_are_by_written_word(source, german, links, heads, german_heads):
    found = derive(source)
    assert found is not None
    assert (found.source, found.target) == (source, german)
    assert found.alignment == links
    assert (found.source_heads, found.target_heads) == (heads, german_heads)


@pytest.mark.parametrize(
    ("source", "french"),
    [
        ("I ate pizza yesterday.", "J'ai mangé de la pizza hier."),
        ("Where is the station?", "Où est la gare ?"),
        ("This isn't my dog.", "Ce n'est pas mon chien."),
        ("this is my brother", "C'est mon frère"),
        ("The man doesn't see her.", "L'homme ne la voit pas."),
    ],
)
def test_french_elides_as_it_is_written(source, french):
    found = derive(source, "en-fr")
    assert found is not None
    assert (found.source, found.target) == (source, french)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't like coffee.", "I do not like coffee ."),
        ("i can't swim", "I cannot swim ."),
        ("They won't come, but he's tired.", "they will not come , but he is tired ."),
        ("Anna's dog isn't black", "Anna 's dog is not black ."),
        ("Why don't you eat?", "why do you not eat ?"),
        ("Where’s the station?", "where is the station ?"),
        ("I ate pizza yesterday .", "I ate pizza yesterday ."),
    ],
)
def test_spelling_out(text, words):
    assert " ".join(spell_out(text)) == words


def test_what_is_printed_is_spelled_out_as_the_grammar_says_it():
    """So all spellings of a sentence belong to the same split."""
    random_numbers, asked = random.Random(2).random, []

    def wanted(plain):
        asked.append(plain)
        return True

    checked = 0
    examples = phrasebook.draw(random_numbers, wanted, phrasebook.Options())
    for example in itertools.islice(filter(None, examples), 1500):
        if example.source[0].isupper() and example.source[-1] in ".?" and "n't " not in example.source:
            assert " ".join(spell_out(example.source)) == asked[-1]
            checked += 1
    assert checked > 600


def test_no_other_way_of_writing_a_test_sentence_is_trained_on():
    held = {" ".join(spell_out(e.source)) for e in generate("phrasebook", 100, split="test") if e.source[-1] in ".?"}
    train = {" ".join(spell_out(e.source)) for e in generate("phrasebook", 3000) if e.source[-1] in ".?"}
    assert held
    assert not held & train
    printed = [
        e.source for e in generate("phrasebook", 60, split="valid") if e.source[0].isupper() and "'" not in e.source
    ]
    assert {
        builtin.choose_split(builtin.hash_source(" ".join(spell_out(each)))) for each in printed if each[-1] in ".?"
    } == {"valid"}


def test_styles():
    chosen = {choose_style(random.Random(seed).random) for seed in range(300)}
    assert chosen <= set(STYLES) | {Style(True, False, stop, capitals, True) for stop in (0, 1) for capitals in (0, 1)}
    assert len(chosen) > 10
