"""Reverse, sort, copy: against their definitions."""

import hypothesis
import pytest
from hypothesis import strategies as st

from regard.data import generate

SOLVED = {
    "reverse": lambda words: (words[::-1], [(i, len(words) - 1 - i) for i in range(len(words))]),
    "copy": lambda words: (words, [(i, i) for i in range(len(words))]),
}


@pytest.mark.parametrize("name", SOLVED)
@pytest.mark.parametrize(("shortest", "longest", "symbols"), [(1, 1, 40), (3, 12, 26), (2, 63, 3), (5, 5, 100)])
def test_reverse_and_copy(name, shortest, longest, symbols):
    lengths, seen = set(), set()
    for example in generate(name, 30, shortest=shortest, longest=longest, symbols=symbols):
        source = example.source.split()
        target, links = SOLVED[name](source)
        assert example.target.split() == target
        assert list(example.alignment) == sorted(links)
        lengths.add(len(source))
        seen.update(source)
    assert shortest <= min(lengths) <= max(lengths) <= longest
    assert 1 < len(seen) <= symbols


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.integers(0, 2**31), st.integers(2, 30), st.integers(2, 15))
def test_sort_is_stable_and_numeric(seed, symbols, longest):
    for example in generate("sort", 4, seed=seed, symbols=symbols, shortest=2, longest=longest):
        numbers = [int(word) for word in example.source.split()]
        ordered = [int(word) for word in example.target.split()]
        assert sorted(numbers) == ordered
        assert max(numbers) < symbols
        links = dict(example.alignment)
        assert sorted(links.values()) == list(range(len(numbers)))
        assert all(numbers[i] == ordered[j] for i, j in links.items())
        for i in range(len(numbers)):
            for j in range(i):
                if numbers[i] == numbers[j]:
                    assert links[j] < links[i]


def test_many_symbols_have_different_names():
    names = {word for example in generate("copy", 400, symbols=800, longest=40) for word in example.source.split()}
    assert len(names) > 750
    assert {"a", "z", "aa", "zz"} & names
