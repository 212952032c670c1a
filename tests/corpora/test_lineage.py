"""`regard demo --lineage`: three models on the same sentences; in full, what they reach."""

from pathlib import Path

import pytest

from regard.data import Example
from regard.tasks import read_settings
from regard_corpora import lineage


@pytest.fixture
def compared():
    right = {"rnn": [9, 4, 0, 0, 0], "rnnsearch": [10, 8, 0, 0, 1], "transformer": [10, 8, 0, 0, 2]}
    return lineage.Lineage([10, 8, 0, 0, 2], right, {"rnn": 1.4, "rnnsearch": 2.5, "transformer": 3.0}, Path("x.png"))


def test_the_table_has_a_row_a_model_and_a_column_a_length(compared):
    head, counts, *rows = compared.table().splitlines()
    assert head.split()[2:] == ["1–5", "6–8", "9–11", "12–14", "15+", "all", "seconds"]
    assert counts.split() == ["sentences", "10", "8", "0", "0", "2", "20"]
    assert [row.split()[0] for row in rows] == list(lineage.MODELS)
    assert rows[0].endswith("90 %    50 %       –       –     0 %    65 %        1")


def test_lengths_without_sentences_are_not_drawn(compared):
    (axes,) = lineage.draw(compared).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1–5", "6–8", "15+"]
    assert [list(line.get_ydata()) for line in axes.lines] == [[90, 50, 0], [100, 100, 50], [100, 100, 100]]


def test_every_sentence_is_of_one_length():
    tests = [Example(" ".join("a" * n), "", ()) for n in range(1, 40)]
    groups = [lineage.within(tests, [""] * len(tests), *limits) for limits in lineage.BINS]
    assert [example for group in groups for example, _ in group] == tests


@pytest.mark.parametrize("kind", lineage.MODELS)
def test_configurations_differ_in_the_model_alone(kind):
    table = lineage.settings(kind, 10, seed=3)
    settings = read_settings(table)
    assert settings.kind == kind
    assert {**table, "model": None} == {**lineage.settings("rnn", 10, seed=3), "model": None}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_lineage_shows_why_attention(tmp_path, monkeypatch):
    """Without attention long sentences are lost first."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    compared = lineage.compare(tmp_path / "lineage")
    share = {
        name: [r / max(1, n) for r, n in zip(right, compared.counts, strict=True)]
        for name, right in compared.right.items()
    }
    long = len(compared.counts) - 1
    assert share["rnnsearch"][long] > share["rnn"][long] + 0.2
    assert share["transformer"][long] > share["rnn"][long] + 0.2
