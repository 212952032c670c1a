"""What windows save: operations as the formulas have them, results that are the same, and verdicts."""

import statistics

import pytest
import torch

from regard.attention import use_backend
from regard_studies.luong_window import (
    RADIUS,
    Cost,
    cost_plot,
    cost_table,
    cost_verdicts,
    layer,
    measure_cost,
    operations,
)


def test_global_operations_are_those_of_the_formula():
    width = 12
    for length in (32, 64):  # a score and a sum a key; annotations have met the matrix already
        assert operations("global", length, width) == 2 * length * width


@pytest.mark.parametrize("span", ["local-m", "local-p"])
def test_a_window_has_about_as_many_however_long_the_source(span):
    width = 12
    # Where windows lie is drawn, and how many of them share what is compared: the mean of some draws.
    few, many = (statistics.fmean(operations(span, length, width) for _ in range(8)) for length in (256, 1024))
    assert many < 1.2 * few
    assert many > 2 * (2 * RADIUS + 1) * width  # what lies in the window is compared, at least


@pytest.mark.parametrize("span", ["local-m", "local-p"])
def test_what_is_counted_is_the_same_sum(span):
    torch.manual_seed(5)
    attention, states = layer(span, 12), torch.randn(2, 77, 12)
    found = []
    for backend in ("dense", "window"):
        with use_backend(backend):
            found.append(attention(states, states))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def cost(windows, seconds):
    counted = {"global": (100.0, 3200.0), "local-m": windows, "local-p": windows}
    return Cost((64, 2048), 8, 1, "cpu", counted, {"global": (1.0, 9.0), "local-m": seconds, "local-p": seconds})


def test_verdicts_follow_the_figures():
    assert [each.agrees for each in cost_verdicts(cost((50.0, 52.0), (1.0, 3.0)))] == [True, True]
    assert [each.agrees for each in cost_verdicts(cost((50.0, 90.0), (1.0, 10.0)))] == [False, False]


def test_a_table_and_a_plot(monkeypatch):
    monkeypatch.setattr("regard_studies.luong_window.LENGTHS", (16, 48))
    found = measure_cost(torch.device("cpu"), quick=True)
    table = cost_table(found)
    assert len(table.columns) == 1 + 2 + 2
    assert all(value > 0 for row in table.rows for value in row[1:])
    assert len(cost_plot(found).figure.axes) == 2
