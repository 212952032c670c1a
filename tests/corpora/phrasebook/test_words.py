"""Relations of words to their heads: by hand for a few sentences, and by rules independent of the grammar."""

from collections import Counter

import pytest
from corpora.phrasebook.cases import sample

from regard.data import generate
from regard_corpora.phrasebook import derive
from regard_corpora.phrasebook.analysis import name_relations

NAMES = {  # https://universaldependencies.org/u/dep, as far as the phrasebook uses them
    *("root", "nsubj", "obj", "iobj", "obl", "advmod", "aux", "cop", "mark", "case", "det", "amod", "nummod", "nmod"),
    *("nmod:poss", "det:poss", "cc", "conj", "ccomp", "xcomp", "advcl", "acl:relcl", "compound:prt", "expl:pv"),
    *("fixed", "punct"),
}
SENTENCES = [  # the sentence, its translation, and each word's relation to its head, parsed by hand
    ("en-de", "She ate the pizza.", "nsubj root det obj", "nsubj aux det obj root"),
    ("en-de", "I ate pizza yesterday", "nsubj root obj advmod", "nsubj aux advmod obj root"),
    ("en-de", "This pizza is not too bad.", "det nsubj cop advmod advmod root", "det nsubj cop advmod advmod root"),
    ("en-de", "I don't like Anna's dog.", "nsubj aux root nmod:poss obj", "nsubj root nmod:poss obj advmod"),
    ("en-de", "Paul doesn't get up.", "nsubj aux root compound:prt", "nsubj root advmod compound:prt"),
    ("en-de", "Where is the station?", "root cop det nsubj", "root cop det nsubj"),
    ("en-de", "We gave him two old books.", "nsubj root iobj nummod amod obj", "nsubj aux iobj nummod amod obj root"),
    ("en-de", "He waits for his friend.", "nsubj root case nmod:poss obl", "nsubj root case det:poss obl"),
    ("en-fr", "Paul gets up.", "nsubj root compound:prt", "nsubj expl:pv root"),
    ("en-fr", "She sees him.", "nsubj root obj", "nsubj obj root"),
    ("en-fr", "I drink cold water.", "nsubj root amod obj", "nsubj root det obj amod"),
    ("en-fr", "She doesn't sing.", "nsubj aux root", "nsubj advmod root advmod"),
]


@pytest.mark.parametrize(("pair", "text", "source", "target"), SENTENCES)
def test_as_one_parses_by_hand(pair, text, source, target):
    example = derive(text, pair)
    assert example is not None
    assert example.source == text
    assert example.source_relations == tuple(source.split())
    assert example.target_relations == tuple(target.split())


def test_verb_and_object():
    """The head of an object is the verb, never the subject."""
    example = derive("She ate the pizza.")
    words = example.source.split()
    (place,) = [place for place, name in enumerate(example.source_relations) if name == "obj"]
    assert (words[place], words[example.source_heads[place]]) == ("pizza.", "ate")


@pytest.mark.parametrize("pair", ["en-de", "en-fr"])
@pytest.mark.parametrize("edition", [1, 2])
def test_every_word_has_a_relation(pair, edition):
    names = Counter[str]()
    for example in sample(pair, 3_000, 18, edition, seed=5):
        for text, heads, relations in (
            (example.source, example.source_heads, example.source_relations),
            (example.target, example.target_heads, example.target_relations),
        ):
            assert len(relations) == len(heads) == len(text.split())
            assert [head == -1 for head in heads] == [name == "root" for name in relations], text
            for word, name in zip(text.split(), relations, strict=True):
                assert (name == "punct") == (word in (".", ",", "?")), (text, word, name)
            for clause in range(len(heads)):  # a verb has one subject at most
                below = [name for head, name in zip(heads, relations, strict=True) if head == clause]
                assert max(map(below.count, ("nsubj", "obj", "iobj", "cop"))) <= 1 if below else True, (text, below)
            names.update(relations)
    assert names.keys() <= NAMES
    assert min(names[name] for name in ("nsubj", "obj", "det", "advmod", "case", "obl", "conj", "advcl", "ccomp")) > 20


RULES = {  # the relations study's classes, by rules over words and their order
    "adjective": {"amod"},
    "auxiliary": {"aux", "cop"},
    "negation": {"advmod"},
    "subject": {"nsubj"},
    "object": {"obj", "iobj", "obl"},  # obl of "which dog do you look at"
    "relative clause": {"acl:relcl"},
    "punctuation": {"punct"},
    "preposition": {"case", "mark"},
    "determiner": {"det", "nmod:poss", "nummod", "amod"},
    "relative pronoun": {"nsubj", "obj", "obl"},
    "conjunction": {"mark", "cc"},
}


def test_rules_over_words_agree():
    checked = 0
    for example in generate("phrasebook", 400, split="test", edition=1, longest=18):
        named, _ = name_relations(example)
        words, heads, relations = example.source.split(), example.source_heads, example.source_relations
        for place, (word, rule, relation) in enumerate(zip(words, named, relations, strict=True)):
            below = {name for head, name in zip(heads, relations, strict=True) if head == place}
            # The rules take an interrogative "when" for a conjunction, and some heads of clauses for nouns ("answer").
            if rule is None or (word == "when" and words[-1] == "?") or below & {"mark", "cc", "nsubj"}:
                continue
            assert relation in RULES[rule], (example.source, word, rule, relation)
            checked += 1
    assert checked > 2000
