"""A model's copy in bfloat16: near the whole, with scores in float32."""

import pytest
import torch
from decoding.cases import SMALL, WORDS, sentences, small

from regard.decoding.device_search import to_bfloat16
from regard.decoding.scoring import tokens_of
from regard.models import build, read_model_config


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "both"])
def test_half_is_near_the_whole(kind):
    """Weights rounded to eight bits: the scores of the next token move little, and are in float32."""
    model = small(kind, scale=1.0, dtype=torch.float32)
    half = to_bfloat16(model)
    assert next(model.parameters()).dtype == torch.float32
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    source = tokens_of(sentences(4))
    with torch.no_grad():
        scores = []
        for each in (model, half):
            state = each.start(each.encode(source), 1, 4)
            scores.append(each.step(torch.tensor([1, 1, 1, 1]), state)[0])
    assert scores[1].dtype == torch.float32
    torch.testing.assert_close(scores[1], scores[0], atol=0.1, rtol=0.05)


def test_a_bias_is_not_rounded():
    """Scores around a large bias would be equal in bfloat16."""
    model = build("transformer", read_model_config(SMALL["transformer"]), WORDS, WORDS).eval()
    with torch.no_grad():
        model.readout.bias.copy_(20 + torch.arange(WORDS) / 100)
        half = to_bfloat16(model)
        x = torch.zeros(2, 8, dtype=torch.bfloat16)
        torch.testing.assert_close(half.output(x), model.readout.bias.expand(2, -1), atol=2e-4, rtol=0)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("words", [16, 17, 30])
def test_rows_of_scores_are_whole_whatever_the_vocabulary_is(words, biased):
    """Products of another width are slow; the columns behind the vocabulary are nobody's."""
    config = read_model_config({**SMALL["transformer"], "output_bias": biased})
    model = build("transformer", config, words, words).eval()
    half = to_bfloat16(model)
    x = torch.randn(3, 5, 8).to(torch.bfloat16)
    with torch.no_grad():
        scores = half.output(x)
        expected = x.float() @ model.readout.weight.to(torch.bfloat16).float().t()
        if biased:
            expected += model.readout.bias
    assert scores.shape == (3, 5, words)
    assert scores.stride(1) % 16 == 0
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)
