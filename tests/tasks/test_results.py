"""Results of a run as people read them."""

import pytest

from regard.data import train
from regard.decoding import Output
from regard.tasks.results import to_translation


@pytest.mark.parametrize("text", ["", "a", "b a c"])
def test_an_output_as_text(text):
    tokenizer = train(["a b c"], "word")
    tokens = tokenizer.encode(text)
    made = to_translation(Output(tokens, log_prob=-2.0, score=-1.5, finished=True), tokenizer)
    assert made.text == text
    assert made.tokens == tuple(tokenizer.pieces(tokens))
    assert (made.score, made.log_prob, made.finished, made.alignment) == (-1.5, -2.0, True, None)
