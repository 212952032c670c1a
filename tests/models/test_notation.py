"""Notation: the words of one attention before those of all, and every kind's readings are of modules that it has."""

import pytest
from inspection.subjects import ALL, subject

from regard.models.notation import Notation, additive


def test_one_attention_has_words_of_its_own():
    notation = Notation({"q": ("s", "a state"), "a": ("α", "")}, {"intra": {"q": ("x", "a word")}})
    assert notation.of("attention") == {"q": ("s", "a state"), "a": ("α", "")}
    assert notation.of("decoder.layers.1.intra") == {"q": ("x", "a word"), "a": ("α", "")}
    assert additive("s", "h", "α", "c", "a state")["Σ a v"][0] == "c = Σ α h"


@pytest.mark.parametrize("name", ALL)
def test_readings_are_of_modules_that_the_kind_has_or_an_option_takes_away(name):
    model = subject(name).model
    names = {each for each, _ in model.named_modules()}
    optional = {"decoder.gate", "gate", "attentional", "hidden", "deep"}
    for reading in model.notation.readout:
        assert reading.module.removesuffix(".*") in names | optional
