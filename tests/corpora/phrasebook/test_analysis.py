"""Derivations: they equal the corpus's own, and sentences outside the grammar are not found."""

import time

import pytest
from corpora.phrasebook import draws
from corpora.phrasebook.cases import spaced, without_hook

from regard_corpora.phrasebook import find_example
from regard_corpora.phrasebook.analysis import english_forms


def test_an_example_is_found_as_it_was_generated():
    found = without_hook(draws.find)
    assert False not in found  # another derivation would have invented links, heads and relations
    assert sum(each is not None for each in found) >= 30


@pytest.mark.parametrize(
    "text",
    ["anna likes julia", "I don't see Anna.", "I don’t see  Anna.", "i dont see anna", "They're at home."],
)
def test_as_people_type(text):
    found = find_example(text)
    assert found is not None
    assert found.source == " ".join(text.replace("’", "'").split())


@pytest.mark.parametrize("text", ["I see a xylophone.", "Anna see likes.", "I Don't see Anna.", "I see anna."])
def test_what_the_grammar_does_not_write(text):
    assert find_example(text) is None


def test_a_long_text_is_not_looked_for():
    begun = time.perf_counter()
    assert find_example("the dog sees the cat and " * 20_000) is None
    assert time.perf_counter() - begun < 2


def test_all_forms_are_known():
    for edition, examples in ((1, spaced("en-de")[:20_000]), (2, spaced("en-de")[20_000:])):
        assert {word for each in examples for word in each.source.split()} <= english_forms(edition)
