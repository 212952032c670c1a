"""How likely the end is: shares by counting, probabilities by the model's own scores."""

import numpy as np
import pytest

from regard.run import load
from regard_studies.ending.measure import end_probabilities, hazard, wasted


def test_shares_are_counted():
    shares = hazard([1, 1, 2, 4], 6)
    np.testing.assert_allclose(shares[:5], [0, 0.5, 0.5, 0, 1])
    assert np.isnan(shares[5])  # nothing is so long
    assert wasted(shares, shares) == 0
    assert wasted(np.array([0.5, np.nan]), np.array([0.25, 0.1])) == 25


def test_the_last_probability_is_what_a_score_says_of_the_end(furnish):
    run = load(furnish(run="language-model") / "run")
    texts = ["a man rides a horse", "two dogs", ""]
    for row, scored in zip(end_probabilities(run, texts), run.score(texts), strict=True):
        assert len(row) == len(scored.tokens)
        assert row[-1] == pytest.approx(np.exp(scored.tokens[-1]), rel=1e-4)
        assert ((row > 0) & (row < 1)).all()


def test_a_stop_is_asked_for_in_place_of_the_end(furnish):
    """After each word of a text without its stop, what a score says of the stop there."""
    run = load(furnish(run="language-model") / "run")
    (row,) = end_probabilities(run, ["a man"], stop="horse")
    pieces = len(run.tokenizers.target.encode("a man"))
    assert len(row) == pieces + 1
    (scored,) = run.score(["a man horse"])
    assert row[-1] == pytest.approx(np.exp(scored.tokens[pieces]), rel=1e-4)
