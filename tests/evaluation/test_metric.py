"""The table of metrics: every row by its key, and a custom row."""

import pytest

from regard.errors import ArgumentError
from regard.evaluation.metric import METRICS, Measurement, Metric, choose_metrics, measure, metric_names
from regard.evaluation.text import measure_exact

REFERENCES = ["the cat is here", "a dog barks", "nothing"]
OUTPUTS = ["the cat is there", "a dog barks", ""]


def test_metrics_by_name():
    assert choose_metrics("BLEU, token-errors,bleu", metric_names()) == ["bleu", "token_errors"]
    for wrong, said in (
        ("blue", "'blue' given, no such metric; did you mean 'bleu'?"),
        ("", "'' given, no such metric;"),
    ):
        with pytest.raises(ArgumentError) as error:
            choose_metrics(wrong, metric_names())
        assert str(error.value).startswith(f"metrics: {said}")
    named = {key: measure(key, OUTPUTS, REFERENCES) for key in METRICS}
    assert len({each.name for each in named.values()}) == len(METRICS)
    assert {key for key, each in named.items() if not each.higher} == {"ter", "character_errors", "token_errors"}
    assert measure("character_errors", ["A"], ["a"], lowercase=True).score().value == 0


def test_a_row_of_ones_own(monkeypatch):
    def measure_half(outputs, references, *, lowercase):
        whole = measure_exact(outputs, references, lowercase=lowercase)
        return Measurement("half", whole.rows, lambda sums: sums[0] / sums[1] / 2, whole.signature)

    monkeypatch.setitem(METRICS, "half", Metric(measure_half))
    assert "half" in metric_names()
    assert choose_metrics("half", metric_names()) == ["half"]
    assert measure("half", ["A", "b"], ["a", "b"], lowercase=True, tokenize="zh").score().value == 0.5
