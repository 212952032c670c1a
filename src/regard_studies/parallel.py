r"""The claim on the cost of a layer, its number of sequential steps, and the distance between words: table 1
of the paper.

Vaswani et al. 2017 (arXiv:1706.03762), section 4: a layer of self-attention has $n^2 d$ operations, 1 step after the
other and paths of length 1; a recurrent one $n d^2$, n and n; a convolution $k n d^2$, 1 and $\log_k n$ where it is
dilated, $n / k$ where not; self-attention within r positions $r n d$, 1 and $n / r$. Here all three are measured on
layers that run: multiply-adds are counted, steps are the longest chain in autograd's graph, and a path is the number of
layers after which the last position depends on the first. Beside them the time a forward pass takes.
"""

# n positions · d width · k width of a kernel · r radius of a window
from collections.abc import Sequence

from regard_studies.page import Page, Verdict, show, signed
from regard_studies.parallel.draw import counted_table, path_table, time_plot, time_table
from regard_studies.parallel.layers import (
    COUNTED,
    FORMULAS,
    KERNEL,
    LAYERS,
    LENGTHS,
    PATHS,
    RADIUS,
    WIDTH,
    depth,
    operations,
    path,
    time_layers,
)

__all__ = ["run"]

LINEAR = 2.0  # what twice the length takes
NOISE = 1.4  # the factor, up or down, by which a time may be off; what grows less is not linear, whatever the reason


def run(seed: int = 0, quick: bool = False) -> Page:
    """Measure the layers, judge the claims and write the page."""
    lengths = LENGTHS[:-2] if quick else LENGTHS
    with signed(seed=seed, quick=quick, dtype="float32") as clock:
        layers = {name: make(WIDTH) for name, make in LAYERS.items()}
        counted = {name: [operations(layer, n, WIDTH) for n in COUNTED] for name, layer in layers.items()}
        steps = {name: [depth(layer, n, WIDTH) for n in COUNTED] for name, layer in layers.items()}
        paths = {name: [path(name, n) for n in (16, 32)] for name in LAYERS}
        seconds = time_layers(layers, lengths, WIDTH, 5 if quick else 15)
        signature = clock.signature()
    return Page(
        name="parallel",
        title="What a layer costs, and how long words are apart",
        claim="Self-attention connects all positions by a constant number of sequential operations and by paths of "
        "length one, where a recurrence needs n of both; it has fewer operations while a sequence is shorter than its "
        "vectors are wide, and keeping it to a neighbourhood of r makes its cost linear and its paths n/r long.",
        source="Vaswani et al. 2017, Attention Is All You Need, section 4 and table 1 (arXiv:1706.03762)",
        measured=[
            f"Four layers of width {WIDTH}: a recurrence, a convolution with kernels of {KERNEL}, self-attention, and "
            f"self-attention within {RADIUS} positions on each side. Multiply-adds are counted while they run. Steps "
            "are the longest chain in the graph that autograd keeps. A path is how many layers it takes until the last "
            "position has a gradient in the first; of a recurrence, how many steps of its one layer.",
            "Times are of one sequence on one thread: what can be done at once is not, so that they show the "
            "operations, and how much a step costs by itself. The recurrence is torch's own, fused; so is "
            "self-attention.",
        ],
        tables=[counted_table(counted, steps), path_table(paths), time_table(seconds, lengths)],
        plots=[time_plot(seconds, lengths)],
        verdicts=judge(counted, steps, paths, seconds, lengths),
        caveats=[
            "Projections of queries, keys and values are not counted, as the paper's table does not: in a Transformer "
            "they are 4 n d² more.",
            "These four layers stand alone and are not trained: they say what one costs, not what it is worth.",
            "On a GPU a chain of steps costs far more than its operations; here it costs about what they do.",
        ],
        signature=signature,
    )


def judge(
    counted: dict[str, list[int]],
    steps: dict[str, list[int]],
    paths: dict[str, list[int]],
    seconds: dict[str, list[float]],
    lengths: Sequence[int],
) -> list[Verdict]:
    exact = {name: [FORMULAS[name][1](n, WIDTH) for n in COUNTED] for name in counted}
    deviation = {name: max(abs(a / b - 1) for a, b in zip(counted[name], exact[name], strict=True)) for name in counted}
    near = {name: value for name, value in deviation.items() if name != "window"}
    growth = {name: counted[name][-1] / counted[name][-2] for name in counted}
    short = COUNTED[0]
    return [
        Verdict(
            "recurrence, convolution and self-attention have the operations of the table",
            max(near.values()) < 0.02,
            "counted over expected at n = 256: "
            + ", ".join(f"{name} {counted[name][-1] / exact[name][-1]:.3f}" for name in near),
        ),
        Verdict(
            "twice the length is four times the operations of self-attention, and twice those of all others",
            abs(growth["self-attention"] - 4) < 0.1
            and all(abs(value - 2) < 0.25 for name, value in growth.items() if name != "self-attention"),
            ", ".join(f"{name} × {value:.2f}" for name, value in growth.items()),
        ),
        Verdict(
            "self-attention has fewer operations than a recurrence while n < d",
            all(
                (a < b) == (n < WIDTH)
                for n, a, b in zip(COUNTED, counted["self-attention"], counted["recurrent"], strict=True)
            ),
            f"n = {short}, d = {WIDTH}: {counted['self-attention'][0] / 1e6:.1f} against "
            f"{counted['recurrent'][0] / 1e6:.1f} million; n = d: {counted['self-attention'][-1] / 1e6:.1f} and "
            f"{counted['recurrent'][-1] / 1e6:.1f}",
        ),
        Verdict(
            "sequential steps grow with the length of a recurrence, and of nothing else",
            steps["recurrent"][-1] > 1.9 * steps["recurrent"][-2]
            and all(len(set(each)) == 1 for name, each in steps.items() if name != "recurrent"),
            ", ".join(f"{name} {each[0]} → {each[-1]}" for name, each in steps.items())
            + f" (n = {COUNTED[0]} → {COUNTED[-1]})",
        ),
        Verdict(
            "the last word is one layer from the first in self-attention, and n steps, n/⌊k/2⌋ or n/r layers elsewhere",
            all(measured_lengths == [PATHS[name][1](n) for n in (16, 32)] for name, measured_lengths in paths.items()),
            ", ".join(f"{name} {each[-1]}" for name, each in paths.items()) + " at n = 32",
        ),
        Verdict(
            "self-attention is the faster one while sequences are shorter than vectors are wide",
            all(
                a < b
                for n, a, b in zip(lengths, seconds["self-attention"], seconds["recurrent"], strict=True)
                if n < WIDTH
            ),
            ", ".join(
                f"n = {n}: {show(b / a, '.1f')} × as fast"
                for n, a, b in zip(lengths, seconds["self-attention"], seconds["recurrent"], strict=True)
                if n <= 2 * WIDTH
            ),
        ),
        Verdict(
            "a window makes time linear in the length",
            LINEAR / NOISE < seconds["window"][-1] / seconds["window"][-2] < LINEAR * NOISE,
            f"twice the length, {lengths[-2]} to {lengths[-1]}: window × "
            f"{seconds['window'][-1] / seconds['window'][-2]:.2f}, self-attention × "
            f"{seconds['self-attention'][-1] / seconds['self-attention'][-2]:.2f}",
        ),
    ]
