"""A view of an exhibit is found by its name or its title."""

import pytest
import torch

from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import View, find_view


def view(name, role, title=""):
    return View(name, title or name, role, 0, "written", "source", torch.ones(1, 1, 1))


VIEWS = [view("a", "encoder"), view("b", "cross", "Decoder, layer 1"), view("c", "cross"), view("d", "decoder")]


def test_by_its_name_or_its_title():
    assert find_view(VIEWS, "a") is VIEWS[0]
    assert find_view(VIEWS, "decoder, LAYER 1") is VIEWS[1]


def test_by_default_it_is_the_last_to_the_source_or_to_a_memory():
    assert find_view(VIEWS, None) is VIEWS[2]
    assert find_view([*VIEWS, view("e", "memory")], None).name == "e"
    assert find_view([VIEWS[0], VIEWS[3]], None) is VIEWS[0]


def test_another_name_is_refused_with_those_there_are():
    with pytest.raises(ArgumentError, match="view: 'A' given, expected one of: Decoder, layer 1; c; d"):
        find_view(VIEWS[1:], "A")
