"""Which validation is the best, and how long patience waits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training.trainer_state import Counters

FIGURES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, math.nan]), st.sampled_from([0.5, 1.0, 2.0, 3.0, math.inf, math.nan])),
    min_size=1,
    max_size=12,
)


def taken(figures, metric="bleu"):
    now, best = Counters(), []
    for step, (value, loss) in enumerate(figures, 1):
        now.step = step
        best.append(now.compare({metric: value, "loss": loss} if metric != "loss" else {"loss": loss}, metric))
    return now, best


@given(FIGURES)
def test_the_best_has_the_highest_metric_and_of_those_the_lowest_loss(figures):
    now, _ = taken(figures)
    usable = [(value, -loss) for value, loss in figures if math.isfinite(value) and math.isfinite(loss)]
    if not usable:
        assert now.best is None
        return
    assert (now.best, -now.best_loss) == max(usable)
    assert figures[now.best_step - 1] == (now.best, now.best_loss)


@given(FIGURES)
def test_patience_does_not_wait_while_the_loss_falls(figures):
    now, best = taken(figures)
    lowest, fell = math.inf, []
    for _, loss in figures:
        fell.append(loss < lowest)
        lowest = min(lowest, loss) if math.isfinite(loss) else lowest
    since = next(
        (i for i, moved in enumerate(reversed([a or b for a, b in zip(best, fell, strict=True)])) if moved), None
    )
    assert now.waited == (len(figures) if since is None else since)


def test_a_metric_that_stays_at_nothing_loses_no_model():
    now, best = taken([(0.0, loss) for loss in (5.0, 4.0, 3.0, 2.0, 2.5)])
    assert best == [True, True, True, True, False]
    assert (now.best_step, now.waited) == (4, 1)


@pytest.mark.parametrize("metric", ["loss", "bleu"])
def test_nothing_held_out_is_nothing_to_wait_for(metric):
    now = Counters(step=3)
    assert not now.compare({}, metric)
    assert (now.waited, now.best) == (0, None)


def test_a_run_of_before_knows_its_best_without_its_loss():
    now = Counters(step=9, best=0.4, best_step=5)
    assert not now.compare({"bleu": 0.3, "loss": 1.0}, "bleu")
    assert now.compare({"bleu": 0.4, "loss": 1.0}, "bleu")
