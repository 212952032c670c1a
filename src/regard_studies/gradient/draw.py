"""The tables and the plot of how far back gradients reach."""

from regard.inspection import plot
from regard_studies.gradient.measure import NEAR, NETWORKS, Curve
from regard_studies.page import Plot, Table

__all__ = ["decay_table", "norms_plot", "size_table"]


def decay_table(curves: dict[str, Curve], far: int) -> Table:
    steps = [1, 4, 16, far // 2, far]
    return Table(
        caption="‖∂y_T/∂x_t‖, median, against the distance T − t",
        columns=["network", "start", *[str(step) for step in steps], "factor a step"],
        rows=[
            [name, NETWORKS[name].start, *[curve.middle[step] for step in steps], curve.factor]
            for name, curve in curves.items()
        ],
        formats=["", "", *[".2g"] * len(steps), ".3f"],
        note=f"The factor is fitted to the logarithm of the median, from distance {NEAR} on.",
    )


def size_table(sizes: dict[int, Curve]) -> Table:
    return Table(
        caption="Self-attention: the gradient half-way back, against the length of the sequence",
        columns=["n", "‖∂y_T/∂x_t‖", "times n"],
        rows=[[n, curve.middle[n // 2], curve.middle[n // 2] * n] for n, curve in sizes.items()],
        formats=["d", ".4f", ".2f"],
    )


def norms_plot(curves: dict[str, Curve]) -> Plot:
    figure, (axes,) = plot.panels(1, titles=["‖∂y_T/∂x_t‖"], height=4.0)
    floor = 1e-30
    for name, curve in curves.items():
        kind, distance = NETWORKS[name], range(1, len(curve.middle))
        low, middle, high = ([max(value, floor) for value in part[1:]] for part in curve[:3])
        plot.band(axes, distance, low, high, kind.colour)
        axes.plot(distance, middle, kind.line, color=kind.colour, lw=1.6, label=name)
    axes.set(yscale="log", xlabel="distance T − t", ylim=(1e-20, 30), xlim=(0, len(curve.middle)))
    plot.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Plot(
        name="distance",
        figure=figure,
        caption="Median and quartiles over the seeds. Solid lines start as torch and Regard start them, dashed ones "
        "with a remedy (the dashed blue one is a stack of two blocks).",
        alt="Line plot on a logarithmic axis: recurrent networks fall along straight lines, the gated ones more "
        "slowly; self-attention is level.",
    )
