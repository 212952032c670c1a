"""A run's report: one HTML file in the run folder that describes the model, the training, and possible next steps.

It plots the loss, the learning rate and each score over steps, each in a small plot.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from regard.inspection.draw import plot
from regard.inspection.draw.graph import STATIC
from regard.inspection.draw.plot import INK, Table, document, figure_element, svg_element, table_element
from regard.io import disk, reading
from regard.training import MISSING, Sample, metrics

LONG = 12  # validations; a longer table is collapsed
SCORES = ("bleu", "accuracy", "chrf", "exact")  # preferred metrics if the configuration names none

STYLE = "\n" + (STATIC / "report.css").read_text(encoding="utf-8")
Points = list[tuple[float, float]]
POINTS = 300  # maximum number of points in a line; more would be indistinguishable on a page
# Fields of a record that are not scores.
ASIDE = {"kind", "step", "steps", "epoch", "seconds", "best", "samples", "skipped", "rate", "waited"}
ASIDE |= {"tokens_per_second", "unit"}


class LookPicture(NamedTuple):
    """A picture of what a model attended to, with a caption and a description."""

    figure: Figure
    caption: str
    alt: str  # description for people who cannot see it


def write(
    folder: str | Path,
    *,
    parameters: int | None = None,
    data: str | None = None,
    seconds: float | None = None,
    finished: bool | None = None,
    look: LookPicture | None = None,
    shown_config: str | None = None,
    signature: Sequence[tuple[str, str]] = (),
    commands: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write `folder`/report.html from the run's config.toml, its metrics.jsonl and these arguments.

    `seconds` defaults to that of the last record. `look` is a picture of what the model attended to. `shown_config` is
    shown instead of the whole configuration. `signature` lists what is needed to reproduce the numbers (versions, seed,
    device, hash of the data). `commands` lists possible next steps, each a command and its purpose. The same run gives
    the same bytes.
    """
    folder, look_elements = Path(folder), list[str]()
    drawings = '<p class="note">Nothing has been recorded yet, so there are no curves.</p>'
    text, config = "", dict[str, Any]()
    if (folder / "config.toml").is_file():
        with suppress(reading.Unreadable):  # write the report even if the configuration cannot be read
            text = reading.read_bytes(folder / "config.toml", reading.CONFIG).decode("utf-8", errors="replace")
            config = reading.parse_toml(text)
    records = metrics.read_records(folder / "metrics.jsonl")
    steps = [record for record in records if record.get("kind") == "step"]
    valids = [record for record in records if record.get("kind") == "valid"]
    story = RunSummary(config, steps, valids, parameters, data, seconds, finished)
    name = folder.resolve().name
    figures = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(number)}<small>{escape(word)}</small></dd></div>"
        for label, number, word in story.figures()
    )
    elements = [svg_element(curve.figure, f"-{i}", alt=curve.alt) for i, curve in enumerate(curves(steps, valids))]
    if elements:
        ring = " The ring is the best checkpoint." if any(record.get("best") for record in valids) else ""
        drawings = "".join(f"<figure><div>{element}</div></figure>" for element in elements)
        drawings = f'<div class="curves">{drawings}</div><p class="note">Steps run to the right.{ring}</p>'
    if look is not None:
        arrays = [image.get_array() for axes in look.figure.axes for image in axes.images]
        photographs = any(array is not None and array.ndim == 3 for array in arrays)
        kind = "alone as-is" if photographs else "alone"
        size = f'<figure class="{kind}" style="--natural: {look.figure.get_figwidth() * 72:.0f}px">'
        element = figure_element(look.figure, "-seen", caption=look.caption, alt=look.alt)
        look_elements = ["<h2>Where it looked</h2>", element.replace("<figure>", size, 1)]
    body = [
        '<p class="eyebrow">Regard · training run</p>',
        f'<h1 dir="auto">{escape(name)}</h1>',
        f'<p dir="auto">{escape(story.summary())}</p>',
        f'<dl class="figures">{figures}</dl>' if figures else "",
        "<h2>How it went</h2>",
        drawings,
        *samples_html(valids),
        *look_elements,
        *validations_html(valids, story.metric),
    ]
    if commands:
        items = "".join(
            f'<li><p>{escape(what)}</p><pre tabindex="0"><code>{escape(command)}</code></pre></li>'
            for command, what in commands
        )
        body += ["<h2>What next</h2>", f'<ul class="next">{items}</ul>']
    text = (shown_config or text).strip()
    if text:
        body += ["<h2>Configuration</h2>", f'<pre tabindex="0"><code>{escape(text)}</code></pre>']
    if signature:
        pairs = "".join(f'<dt>{escape(key)}</dt><dd dir="auto">{escape(value)}</dd>' for key, value in signature)
        body += ["<h2>Made with</h2>", f'<dl class="signature">{pairs}</dl>']
    return disk.write_whole(folder / "report.html", document(name, body, STYLE))


def article(name: str) -> str:
    """Return "an" if a name begins with a vowel or, spelt out, with a letter whose name does; otherwise "a"."""
    first, spelt = name[:1].lower(), not set(name[:3].lower()) & set("aeiouy")
    return "an" if first in "aeio" or (spelt and first in "fhlmnrsx") else "a"


class RunSummary:
    """A summary of a run's records in words and numbers."""

    def __init__(
        self,
        config: dict[str, Any],
        steps: Sequence[dict[str, Any]],
        valids: Sequence[dict[str, Any]],
        parameters: int | None,
        data: str | None,
        seconds: float | None,
        finished: bool | None,
    ):
        tables = (config.get(key) for key in ("training", "model"))
        training, model = (table if isinstance(table, dict) else {} for table in tables)
        kind = model.get("kind")
        self.model = kind if isinstance(kind, str) and kind else None
        self.parameters, self.data, self.finished = parameters, data, finished
        self.step = max((r["step"] for r in [*steps, *valids] if isinstance(r.get("step"), int)), default=0)
        total = (steps[-1].get("steps") if steps else None) or training.get("steps")
        self.steps = total if isinstance(total, int) else None
        last = next((r["seconds"] for r in reversed(steps) if isinstance(r.get("seconds"), int | float)), None)
        self.seconds = last if seconds is None else seconds
        self.skipped = steps[-1].get("skipped") if steps else None
        self.best = next((r for r in reversed(valids) if r.get("best")), valids[-1] if valids else None)
        metric = training.get("metric")
        keys = [metric, *SCORES, "loss"] if isinstance(metric, str) else [*SCORES, "loss"]
        self.metric = next((k for k in keys if self.best and isinstance(self.best.get(k), int | float)), None)

    def summary(self) -> str:
        """Write one paragraph: what was trained, on what, for how long, and how good it is."""
        kind = f"{article(self.model).capitalize()} {self.model} model" if self.model else "A model"
        size = f" with {abbreviate(self.parameters)} parameters" if self.parameters else ""
        on = f", trained on {self.data}" if self.data else ""
        if not self.step:
            return f"{kind}{size}{on}. No step has been recorded yet."
        of = f" of {self.steps:,}" if self.steps and self.steps > self.step else ""
        time = f" in {metrics.format_duration(self.seconds)}" if self.seconds else ""
        sentences = [
            f"{kind}{size}{on}.",
            f"It has taken {self.step:,}{of} step{'s' * ((self.steps or self.step) != 1)}{time}.",
        ]
        if self.finished is False:
            sentences.append("Training is not finished.")
        if self.best and self.metric:
            score = f"{metrics.metric_name(self.metric)} {metrics.format_value(self.metric, self.best[self.metric])}"
            sentences.append(
                f"The best checkpoint is that of step {self.best.get('step', 0):,}, with {score} on held-out data."
            )
        else:
            sentences.append("It has not been validated yet.")
        if self.skipped:
            sentences.append(
                f"{self.skipped:,} step{'s' * (self.skipped != 1)} had no finite gradient and changed nothing."
            )
        return " ".join(sentences)

    def figures(self) -> list[tuple[str, str, str]]:
        """Return the most important numbers, each with its name and a short note."""
        cells = []
        if self.best and self.metric:
            at = f"at step {self.best.get('step', 0):,}"
            value = metrics.format_value(self.metric, self.best[self.metric])
            cells.append((f"Best {metrics.metric_name(self.metric)}", value, at))
            others = (k for k in (*SCORES, "loss") if k != self.metric and isinstance(self.best.get(k), int | float))
            if (other := next(others, None)) is not None:
                value = metrics.format_value(other, self.best[other])
                cells.append((capitalise(metrics.metric_name(other)), value, "at the same step"))
        if self.step:
            note = f"of {self.steps:,}" if self.steps and self.steps != self.step else "all taken" if self.steps else ""
            cells.append(("Steps", f"{self.step:,}", note))
        if self.seconds:
            cells.append(("Time", metrics.format_duration(self.seconds), f"{self.step / self.seconds:.3g} steps/s"))
        if self.parameters:
            cells.append(("Parameters", abbreviate(self.parameters), self.model or ""))
        return cells


def samples_html(valids: Sequence[dict[str, Any]]) -> list[str]:
    """Return the HTML of the samples of the last validation that has any."""
    kept = (record["samples"] for record in reversed(valids) if isinstance(record.get("samples"), list))
    elements = list[str]()

    def marked(text: str, differs: bool) -> str:
        if differs and not text:
            return f'<mark class="missing" title="missing here">{MISSING}</mark>'
        return f"<mark>{escape(text)}</mark>" if differs else escape(text)

    for each in next(filter(None, kept), ()):
        if not isinstance(each, dict):
            continue
        texts = {key: str(each.get(key, "")) for key in ("source", "reference", "output")}
        sample = Sample(**texts, label=each.get("label") is True)
        same = sample.output.split() == sample.reference.split()
        output = "".join(marked(*piece) for piece in sample.pieces) or '<span class="note">nothing</span>'
        right = ' <span class="right">✓ as the reference</span>' if same else ""
        elements.append(
            f'<dl class="sample"><dt>source</dt><dd dir="auto">{escape(sample.source)}</dd>'
            f'<dt>reference</dt><dd class="reference" dir="auto">{escape(sample.reference)}</dd>'
            f'<dt>output</dt><dd dir="auto">{output}{right}</dd></dl>'
        )
    if not elements:
        return []
    note = f"Underlined: not what the reference has there. {MISSING}: something of the reference is missing."
    return ["<h2>Samples</h2>", *elements, f'<p class="note">{note}</p>']


def validations_html(valids: Sequence[dict[str, Any]], metric: str | None) -> list[str]:
    keys = dict.fromkeys(
        key
        for record in valids
        for key, value in record.items()
        if key not in ("kind", "step", "best", "epoch", "seconds") and (value is None or isinstance(value, int | float))
    )
    if not keys:
        return []
    last = max((i for i, record in enumerate(valids) if record.get("best")), default=-1)
    shown = ("step", *keys)
    cells = [
        [*(metrics.format_value(key, record.get(key)) for key in shown), "best" if i == last else ""]
        for i, record in enumerate(valids)
    ]
    by = f" by {metrics.metric_name(metric)}" if metric else ""
    caption = "On held-out data" + (f"; the best{by} was kept" if last >= 0 else "")
    table = Table(caption, ["step", *[metrics.metric_name(key) for key in keys], ""], cells)
    element = table_element(table, numeric=[True] * len(shown) + [False])
    if len(valids) > LONG:
        element = f"<details><summary>All {len(valids):,} validations</summary>{element}</details>"
    return ["<h2>Validations</h2>", element]


def abbreviate(number: int) -> str:
    """Abbreviate a number: 1.3 M instead of 1,312,768."""
    for size, word in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if number >= size:
            scaled = number / (1e3 if word == " k" else size)
            return f"{scaled:.{0 if scaled >= 100 else 1}f}{word}"
    return f"{number:,}"


class Curve(NamedTuple):
    """A small plot with a description in words."""

    name: str
    figure: Figure
    alt: str


def curves(steps: Sequence[dict[str, Any]], valids: Sequence[dict[str, Any]]) -> list[Curve]:
    """Return the curves of the loss, the learning rate and every score that the records contain."""
    best = next((record for record in reversed(valids) if record.get("best")), None)
    possible = [loss_curve(steps, valids, best), rate_curve(steps)]
    keys = list(dict.fromkeys(key for record in valids for key in record if key not in ASIDE | {"loss", "patience"}))
    possible += [score_curve(key, valids, best) for key in keys]
    plots = [curve for curve in possible if curve is not None]
    last = max((axes.dataLim.x1 for curve in plots for axes in curve.figure.axes), default=1.0)
    for curve in plots:  # all plots have the same x axis
        curve.figure.axes[0].set_xlim(0, max(last, 1.0) * 1.03)
    return plots


def thin_points(points: Points, count: int = POINTS) -> tuple[Points, list[float], list[float]]:
    """Reduce a line to at most `count` points, each the mean of consecutive points, with their minima and maxima."""
    size = max(1, -(-len(points) // count))
    rows = [points[i : i + size] for i in range(0, len(points), size)]
    means = [(sum(x for x, _ in row) / len(row), sum(y for _, y in row) / len(row)) for row in rows]
    return means, [min(y for _, y in row) for row in rows], [max(y for _, y in row) for row in rows]


def points(records: Sequence[dict[str, Any]], key: str) -> Points:
    """Return (step, value) for every record that has a step and a finite number under `key`."""
    pairs = ((finite_number(record.get("step")), finite_number(record.get(key))) for record in records)
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def capitalise(name: str) -> str:
    """Capitalise a name, unless it contains capitals already, as chrF does."""
    return name[:1].upper() + name[1:] if name == name.lower() else name


def finite_number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


def make_axes(title: str) -> tuple[Figure, Axes]:
    """Make one small plot; the axes have the same position in every plot, so that plots align on the page."""
    figure, (axes,) = plot.panels(1, titles=[title], width=4.0, height=2.3)
    figure.set_layout_engine("none")
    axes.set_position((0.125, 0.12, 0.855, 0.74))
    # An invisible frame keeps bbox_inches="tight" from cropping the figure.
    figure.add_artist(Rectangle((0, 0), 1, 1, transform=figure.transFigure, fill=False, linewidth=0))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.margins(y=0.1)
    return figure, axes


def draw_line(axes: Axes, xy: Points, colour: str, label: str) -> None:
    means, low, high = thin_points(xy)
    x, y = [x for x, _ in means], [y for _, y in means]
    if len(means) < len(xy):
        plot.band(axes, x, low, high, colour)
    marker = "o" if len(x) == 1 else ""
    axes.plot(x, y, "-", color=colour, linewidth=1.4, label=label, marker=marker, markersize=4, clip_on=False)


def draw_dots(axes: Axes, xy: Points, colour: str, label: str) -> None:
    x, y = [x for x, _ in xy], [y for _, y in xy]
    axes.plot(x, y, "-", color=colour, linewidth=1.4, label=label, clip_on=False)
    if len(xy) <= 25:
        axes.plot(x, y, "o", color=colour, markersize=4, clip_on=False)


def mark_best(axes: Axes, best: dict[str, Any] | None, key: str) -> None:
    """Draw a ring around the validation with the best checkpoint."""
    for x, y in points([best] if best else [], key):
        ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.1}
        axes.plot([x], [y], "o", markersize=9, clip_on=False, **ring)


def describe_curve(name: str, key: str, xy: Points) -> str:
    first, last = xy[0], xy[-1]
    if len(xy) == 1:
        return f"{name}: {metrics.format_value(key, first[1])} at step {first[0]:,.0f}."
    begin, end = (f"{metrics.format_value(key, value)} at step {step:,.0f}" for step, value in (first, last))
    return f"{name}: {begin}, {end}."


def loss_curve(
    steps: Sequence[dict[str, Any]], valids: Sequence[dict[str, Any]], best: dict[str, Any] | None
) -> Curve | None:
    # The validation loss has no label smoothing, so plot the training loss without it, if recorded.
    trained, checked = points(steps, "nll") or points(steps, "loss"), points(valids, "loss")
    if not trained and not checked:
        return None
    figure, axes = make_axes("Loss")
    sentences = []
    if trained:
        draw_line(axes, trained, plot.BLUE, "training")
        sentences.append(describe_curve("Training loss", "loss", trained))
    if checked:
        draw_dots(axes, checked, plot.RED, "validation")
        mark_best(axes, best, "loss")
        sentences.append(describe_curve("Validation loss", "loss", checked))
    plot.legend(axes, loc="upper right")
    return Curve("loss", figure, " ".join(sentences))


def score_curve(key: str, valids: Sequence[dict[str, Any]], best: dict[str, Any] | None) -> Curve | None:
    xy = points(valids, key)
    if not xy:
        return None
    name = metrics.metric_name(key)
    figure, axes = make_axes(f"{capitalise(name)}, validation")
    draw_dots(axes, xy, plot.RED, name)
    mark_best(axes, best, key)
    if all(y >= 0 for _, y in xy):
        axes.set_ylim(bottom=0)
    top = max(y for _, y in xy)
    is_share = top <= 1.0 and metrics.format_value(key, top).endswith("%")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.0%}" if is_share else f"{y:g}"))
    return Curve(key, figure, describe_curve(name, key, xy))


def rate_curve(steps: Sequence[dict[str, Any]]) -> Curve | None:
    xy = points(steps, "rate")
    if not xy:
        return None
    figure, axes = make_axes("Learning rate")
    draw_line(axes, xy, plot.GREY, "rate")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda y, _: metrics.format_value("rate", float(y)).replace(".0e", "e"))
    )
    return Curve("rate", figure, describe_curve("Learning rate", "rate", xy))
