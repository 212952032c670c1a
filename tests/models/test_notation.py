"""A kind's formulas: those of one attention go before those of all, and every kind names modules that it has."""

import pytest
from inspection.subjects import subject

from regard.models.notation import Notation, additive


def test_an_attention_has_its_own_words_before_those_of_all():
    notation = Notation({"q": ("q", "all"), "e": ("e", "all")}, {"cross": {"q": ("s", "own")}, "a.cross": {}})
    assert notation.of("self") == {"q": ("q", "all"), "e": ("e", "all")}
    assert notation.of("blocks.3.cross") == {"q": ("s", "own"), "e": ("e", "all")}
    assert notation.of("a.cross") == notation.of("self")  # by its whole name first


def test_additive_stages_are_written_with_the_names_of_the_paper():
    stages = additive("s", "h", "α", "c", "the state before")
    assert stages["q"] == ("s", "the state before")
    assert stages["e"][0] == "e = vᵀ tanh(W s + U h + b)"
    assert stages["Σ a v"][0] == "c = Σ α h"


@pytest.mark.parametrize("names", [("rnnsearch",), ("luong",), ("ntm",), ("lstmn", "lstmn-deep", "lstmn-classifies")])
def test_what_is_read_is_a_module_of_the_model(names):
    # What an option leaves out is not there in every model of a kind, but in one of them.
    models = [subject(name).model for name in names]
    modules = {module for model in models for module, _ in model.named_modules()}
    readout = models[0].notation.readout
    assert readout
    assert [each.module for each in readout if each.module not in modules] == []
