"""Curves of a run's records: what was recorded, thinned, and described."""

import math

from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.draw.report_page import curves, thin_points


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.integers(1, 20))
def test_thinned_points_are_means_between_the_least_and_the_most(values, count):
    points = [(float(i), value) for i, value in enumerate(values)]
    means, low, high = thin_points(points, count)
    assert len(means) <= count
    assert all(a - 1e-6 <= y <= b + 1e-6 for (_, y), a, b in zip(means, low, high, strict=True))
    if values:
        assert (min(low), max(high)) == (min(values), max(values))
    if len(values) <= count:
        assert means == points


def test_curves_draw_what_was_recorded():
    steps = [{"step": step, "loss": loss, "rate": 0.1} for step, loss in [(1, 4.0), (2, math.nan), (3, None), (4, 1.0)]]
    found = curves(steps, [{"step": 4, "loss": 2.0, "accuracy": 0.5, "best": True, "word": "x"}])
    assert [curve.name for curve in found] == ["loss", "rate", "accuracy"]
    line = found[0].figure.axes[0].lines[0]
    assert line.get_xydata().tolist() == [[1.0, 4.0], [4.0, 1.0]]
    assert found[0].alt.startswith("Training loss: 4.00 at step 1, 1.00 at step 4.")
    assert curves([], []) == []
    assert len({curve.figure.axes[0].get_xlim() for curve in found}) == 1


def test_points_at_the_edges_of_the_axes_are_whole():
    valids = [
        {"kind": "valid", "step": step, "loss": 0.0, "exact": value, "best": value > 0}
        for step, value in ((0, 0.0), (9, 1.0))
    ]
    steps = [{"kind": "step", "step": step, "loss": 0.0, "rate": 0.0} for step in (0, 9)]
    lines = [line for curve in curves(steps, valids) for line in curve.figure.axes[0].lines]
    assert len(lines) >= 6
    assert not any(line.get_clip_on() for line in lines)
