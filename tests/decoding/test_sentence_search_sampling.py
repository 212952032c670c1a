"""Draws against the probabilities they should have."""

import pytest
import torch

from regard.decoding.options import Options
from regard.decoding.sentence_search import random_numbers, sample_tokens

SCORES = torch.tensor([1.0, 3.0, 0.0, 2.0, -torch.inf])


def shares(**options):
    """How often each of five tokens is drawn."""
    count = 40_000
    places = (torch.arange(count, dtype=torch.float64) + 0.5) / count  # every part of [0, 1) as often
    drawn = sample_tokens(SCORES.expand(1, count, -1), places[None], Options(sample=True, **options))
    return torch.bincount(drawn.flatten(), minlength=5) / count


def test_tokens_are_drawn_by_their_probability():
    torch.testing.assert_close(shares(), SCORES.softmax(-1), atol=1e-4, rtol=0)
    torch.testing.assert_close(shares(temperature=0.5), (2 * SCORES).softmax(-1), atol=1e-4, rtol=0)


def test_the_likeliest_alone():
    two = torch.tensor([0.0, 3.0, 0.0, 2.0, 0.0])
    expected = torch.zeros(5)
    expected[[1, 3]] = two[[1, 3]].softmax(-1)
    torch.testing.assert_close(shares(top_k=2), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(shares(top_p=0.7), expected, atol=1e-4, rtol=0)  # 0.64 is not enough, 0.87 is
    for certain in ({"top_k": 1}, {"top_p": 0.5}, {"temperature": 1e-39}, {"top_k": 3, "top_p": 0.1}):
        assert shares(**certain).tolist() == [0, 1, 0, 0, 0]


def test_each_sentence_has_numbers_of_its_own():
    first = random_numbers([5, 6], 4, 3, seed=1)
    assert first.shape == (4, 3)
    assert torch.equal(first, random_numbers([5, 6], 4, 3, seed=1))
    assert torch.equal(first[:, :2], random_numbers([5, 6], 4, 2, seed=1))  # the first of many are those of a few
    for other in (
        random_numbers([5, 6], 4, 3, seed=2),
        random_numbers([5, 6], 4, 3, seed=1 + 2**32),
        random_numbers([6, 5], 4, 3, seed=1),
    ):
        assert not torch.equal(first, other)
    assert first.unique().numel() == 12
    assert 0 <= float(first.min()) <= float(first.max()) < 1


@pytest.mark.parametrize("sources", [[[4, 5], [4, 5]]])
def test_the_same_text_is_drawn_alike(sources):
    assert torch.equal(*(random_numbers(source, 3, 2, 7) for source in sources))


def test_a_nucleus_is_the_fewest_tokens_that_reach_its_share():
    """Of four that are equally likely two are a half, exactly, and a third is not drawn."""
    places = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    drawn = sample_tokens(torch.zeros(1, 100, 4), places[None], Options(sample=True, top_p=0.5))
    assert torch.bincount(drawn.flatten()).sort().values[-2:].tolist() == [50, 50]
