"""The tables and the plot of what `parallel` trains."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from regard.inspection import plot
from regard_studies.page import Plot, Table
from regard_studies.parallel.layers import COUNTED, FORMULAS, PATHS, WIDTH
from regard_studies.parallel.timing import TOKENS, Milliseconds

if TYPE_CHECKING:
    from regard_studies.parallel.timing import EncoderFigures

__all__ = [
    "LABELS",
    "LAYER_COLOURS",
    "counted_table",
    "curve_plot",
    "encoder_table",
    "path_table",
    "quality_table",
    "time_plot",
    "time_table",
]

LAYER_COLOURS = {"recurrent": plot.RED, "convolution": plot.ORANGE, "self-attention": plot.BLUE, "window": plot.GREEN}

LABELS = {
    "attention": "self-attention",
    "window": "window",
    "convolution": "convolution",
    "recurrence": "recurrence",
    "rnnsearch": "RNNsearch",
}
COLOURS = {
    "attention": plot.BLUE,
    "window": plot.GREEN,
    "convolution": plot.ORANGE,
    "recurrence": plot.RED,
    "rnnsearch": plot.GREY,
}


def quality_table(figures: Mapping[str, "EncoderFigures"]) -> Table:
    """Tabulate the quality of each system, and its cost."""
    quarters = len(next(iter(figures.values())).bleu)
    parts = [f"after {number}/{quarters}" for number in range(1, quarters)]
    return Table(
        caption="BLEU of the validation set by the share of the updates and of the test set, and what they cost",
        columns=[
            "encoder", *parts, "at the end", "test", "perplexity", "ms per update", "seconds of updates",
            "million parameters", "of the encoder",
        ],
        rows=[
            [
                LABELS[name],
                *(spread.as_text() for spread in each.bleu),
                each.test.as_text(),
                each.perplexity[-1].as_text(".2f"),
                each.pace,
                each.seconds[-1],
                each.parameters / 1e6,
                each.of_encoder / 1e6 if each.of_encoder else None,
            ]
            for name, each in figures.items()
        ],
        formats=["", *[""] * (quarters + 1), "", ".2f", ".1f", ".2f", ".2f"],
        note="RNNsearch has no Transformer's decoder: a system of its own, recurrent as a whole.",
    )  # fmt: skip


def encoder_table(times: Milliseconds, lengths: Sequence[int], on_gpu: bool) -> Table:
    """Tabulate how long the encoders take to read."""
    how = f"{TOKENS:,} words, as sentences of n each" if on_gpu else "one sentence of n words, one thread"
    return Table(
        caption=f"Milliseconds of the trained encoders: {how}",
        columns=["encoder", *(f"n = {n:,}" for n in lengths)],
        rows=[[LABELS[name], *each] for name, each in times.items()],
        formats=["", *[".2f"] * len(lengths)],
    )


def curve_plot(
    figures: Mapping[str, "EncoderFigures"], times: Milliseconds, lengths: Sequence[int], on_gpu: bool
) -> Plot:
    """Draw quality against time, and time against length."""
    titles = ["BLEU (validation) against seconds of updates", "Milliseconds of the encoder"]
    figure, (quality, encoder) = plot.panels(2, titles=titles, height=3.4)
    for name, each in figures.items():
        means = [spread.mean for spread in each.bleu]
        style = {"color": COLOURS[name], "marker": "o", "markersize": 3.5, "label": LABELS[name]}
        quality.plot(each.seconds, means, **style)  # type: ignore[arg-type]
    quality.set_xlim(left=0)
    quality.set_xlabel("seconds of updates")
    plot.legend(quality, loc="lower right")
    for name, spent in times.items():
        encoder.plot(lengths, spent, color=COLOURS[name], marker="o", markersize=3.5, label=LABELS[name])
    encoder.set_xscale("log", base=2)
    encoder.set_yscale("log")
    encoder.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    encoder.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    encoder.yaxis.set_minor_formatter(NullFormatter())
    encoder.set_xticks(list(lengths), [f"{n:,}" for n in lengths])
    encoder.set_xlabel(f"words of a sentence{f', {TOKENS:,} in all' * on_gpu}")
    return Plot(
        "quality",
        figure,
        "Left: after each quarter of the updates. Right: reading, in the same colours.",
        "Two panels: BLEU against time for five systems, and milliseconds against length for four encoders.",
    )


def counted_table(counted: dict[str, list[int]], steps: dict[str, list[int]]) -> Table:
    return Table(
        caption=f"Multiply-adds (millions) and sequential steps, width {WIDTH}",
        columns=["layer", "table 1", *(f"n = {n}" for n in COUNTED), *(f"steps, n = {n}" for n in COUNTED)],
        rows=[[name, FORMULAS[name][0], *(each / 1e6 for each in counted[name]), *steps[name]] for name in counted],
        formats=["", "", *[".2f"] * len(COUNTED), *["d"] * len(COUNTED)],
        note="The window's keys are read in slices that several queries share, some of which a query then ignores.",
    )


def path_table(paths: dict[str, list[int]]) -> Table:
    return Table(
        caption="From the last position to the first: layers, or steps of a recurrence",
        columns=["layer", "expected", "n = 16", "n = 32"],
        rows=[[name, PATHS[name][0], *lengths] for name, lengths in paths.items()],
        formats=["", "", "d", "d"],
        note="The convolution is not dilated; dilated ones need about log n layers.",
    )


def time_table(seconds: dict[str, list[float]], lengths: Sequence[int]) -> Table:
    return Table(
        caption=f"Milliseconds of a forward pass, one thread, width {WIDTH}",
        columns=["layer", *(f"n = {n}" for n in lengths)],
        rows=[[name, *(each * 1e3 for each in times)] for name, times in seconds.items()],
        formats=["", *[".3f"] * len(lengths)],
    )


def time_plot(seconds: dict[str, list[float]], lengths: Sequence[int]) -> Plot:
    figure, (axes,) = plot.panels(1, titles=["Milliseconds of a forward pass"], height=3.6)
    for name, times in seconds.items():
        axes.plot(
            lengths, [each * 1e3 for each in times], color=LAYER_COLOURS[name], marker="o", markersize=3, label=name
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(lengths), [f"{n:,}" for n in lengths])
    axes.set_xlabel("positions n")
    axes.axvline(WIDTH, color=plot.GREY, linewidth=0.8, linestyle=":")
    plot.legend(axes)
    return Plot(
        "time",
        figure,
        f"The dotted line is n = d = {WIDTH}. One thread: nothing is done at once.",
        f"Time of four layers against the number of positions, {lengths[0]} to {lengths[-1]}, on two logarithmic axes.",
    )
