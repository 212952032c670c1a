"""Curves of a training run: the loss, the learning rate and each score over steps, one small plot each."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from regard.inspection.draw import plot
from regard.inspection.draw.colours import INK
from regard.training import metrics

Points = list[tuple[float, float]]
POINTS = 300  # of a line; more cannot be told apart on a page
# What a record holds beside scores.
ASIDE = {"kind", "step", "steps", "epoch", "seconds", "best", "samples", "skipped", "rate", "waited"}
ASIDE |= {"tokens_per_second", "unit"}


class Curve(NamedTuple):
    """A small plot and what it shows in words."""

    name: str
    figure: Figure
    alt: str


def curves(steps: Sequence[dict[str, Any]], valids: Sequence[dict[str, Any]]) -> list[Curve]:
    """List the curves to draw: the loss, the learning rate, every score; nothing of what was never recorded."""
    best = next((record for record in reversed(valids) if record.get("best")), None)
    possible = [_loss(steps, valids, best), _rate(steps)]
    keys = list(dict.fromkeys(key for record in valids for key in record if key not in ASIDE | {"loss", "patience"}))
    possible += [_score(key, valids, best) for key in keys]
    plots = [curve for curve in possible if curve is not None]
    last = max((axes.dataLim.x1 for curve in plots for axes in curve.figure.axes), default=1.0)
    for curve in plots:  # one scale for all, so that they can be read one below the other
        curve.figure.axes[0].set_xlim(0, max(last, 1.0) * 1.03)
    return plots


def thin_points(points: Points, count: int = POINTS) -> tuple[Points, list[float], list[float]]:
    """Thin out to at most `count` points, each the mean of its neighbours in a row, with the least and the most of
    them.
    """
    size = max(1, -(-len(points) // count))
    rows = [points[i : i + size] for i in range(0, len(points), size)]
    means = [(sum(x for x, _ in row) / len(row), sum(y for _, y in row) / len(row)) for row in rows]
    return means, [min(y for _, y in row) for row in rows], [max(y for _, y in row) for row in rows]


def points(records: Sequence[dict[str, Any]], key: str) -> Points:
    """Return the points at which a record has a step and a finite number of that name."""
    pairs = ((_number(record.get("step")), _number(record.get(key))) for record in records)
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def capitalise(name: str) -> str:
    """A name as it begins a line; one with capitals of its own, such as chrF, is left alone."""
    return name[:1].upper() + name[1:] if name == name.lower() else name


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


def _axes(title: str) -> tuple[Figure, Axes]:
    """One small plot; all have their axes at the same place, so that a page of them stands in rows and columns."""
    figure, (axes,) = plot.panels(1, titles=[title], width=4.0, height=2.3)
    figure.set_layout_engine("none")
    axes.set_position((0.125, 0.12, 0.855, 0.74))
    figure.add_artist(
        Rectangle((0, 0), 1, 1, transform=figure.transFigure, fill=False, linewidth=0)
    )  # nothing is cut off
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.margins(y=0.1)
    return figure, axes


def _line(axes: Axes, xy: Points, colour: str, label: str, style: str = "-") -> None:
    means, low, high = thin_points(xy)
    x, y = [x for x, _ in means], [y for _, y in means]
    if len(means) < len(xy):
        plot.band(axes, x, low, high, colour)
    marker = "o" if len(x) == 1 else ""
    axes.plot(x, y, style, color=colour, linewidth=1.4, label=label, marker=marker, markersize=4, clip_on=False)


def _dots(axes: Axes, xy: Points, colour: str, label: str) -> None:
    size = 4 if len(xy) <= 25 else 0
    axes.plot([x for x, _ in xy], [y for _, y in xy], "-", color=colour, linewidth=1.4, label=label, clip_on=False)
    if size or len(xy) == 1:
        axes.plot([x for x, _ in xy], [y for _, y in xy], "o", color=colour, markersize=size or 4, clip_on=False)


def _crown(axes: Axes, best: dict[str, Any] | None, key: str) -> None:
    """A ring around the validation whose checkpoint was kept as the best."""
    for x, y in points([best] if best else [], key):
        ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.1}
        axes.plot([x], [y], "o", markersize=9, clip_on=False, **ring)


def _describe(name: str, key: str, xy: Points) -> str:
    first, last = xy[0], xy[-1]
    if len(xy) == 1:
        return f"{name}: {metrics.format_value(key, first[1])} at step {first[0]:,.0f}."
    begin, end = (f"{metrics.format_value(key, value)} at step {step:,.0f}" for step, value in (first, last))
    return f"{name}: {begin}, {end}."


def _loss(
    steps: Sequence[dict[str, Any]], valids: Sequence[dict[str, Any]], best: dict[str, Any] | None
) -> Curve | None:
    # Validation has no label smoothing: beside it stands the training loss without it, where that was recorded.
    trained, checked = points(steps, "nll") or points(steps, "loss"), points(valids, "loss")
    if not trained and not checked:
        return None
    figure, axes = _axes("Loss")
    sentences = []
    if trained:
        _line(axes, trained, plot.BLUE, "training")
        sentences.append(_describe("Training loss", "loss", trained))
    if checked:
        _dots(axes, checked, plot.RED, "validation")
        _crown(axes, best, "loss")
        sentences.append(_describe("Validation loss", "loss", checked))
    plot.legend(axes, loc="upper right")
    return Curve("loss", figure, " ".join(sentences))


def _score(key: str, valids: Sequence[dict[str, Any]], best: dict[str, Any] | None) -> Curve | None:
    xy = points(valids, key)
    if not xy:
        return None
    name = metrics.metric_name(key)
    figure, axes = _axes(f"{capitalise(name)}, validation")
    _dots(axes, xy, plot.RED, name)
    _crown(axes, best, key)
    if all(y >= 0 for _, y in xy):
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _tick(key, y, max(v for _, v in xy))))
    return Curve(key, figure, _describe(name, key, xy))


def _tick(key: str, value: float, top: float) -> str:
    return f"{value:.0%}" if metrics.format_value(key, min(top, 1.0)).endswith("%") and top <= 1.0 else f"{value:g}"


def _rate(steps: Sequence[dict[str, Any]]) -> Curve | None:
    xy = points(steps, "rate")
    if not xy:
        return None
    figure, axes = _axes("Learning rate")
    _line(axes, xy, plot.GREY, "rate")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda y, _: metrics.format_value("rate", float(y)).replace(".0e", "e"))
    )
    return Curve("rate", figure, _describe("Learning rate", "rate", xy))
