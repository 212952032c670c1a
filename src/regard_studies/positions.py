r"""The blindness of attention to order, and its remedies: $\lVert f(Px) - P f(x) \rVert / \lVert f(x) \rVert$.

A content score compares vectors and not places, so that a permutation of the input only permutes the output
(permutation equivariance). Vaswani et al. 2017 (arXiv:1706.03762), section 3.5: "since our model contains no recurrence
and no convolution, in order for the model to make use of the order of the sequence, we must inject some information
about the relative or absolute position". The study measures untrained modules with random permutations P.

n positions · d width
"""

import itertools
import typing
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Causal,
    Cosine,
    Dot,
    Embedded,
    Encoder,
    General,
    Heads,
    Learned,
    Location,
    Monotonic,
    Predictive,
    Rotary,
    Sinusoidal,
)
from regard.inspection import plot
from regard_studies.page import Page, Plot, Table, Verdict, precision, show, signed

LENGTH, WIDTH, HEADS = 24, 64, 4
Function = Callable[[Tensor], Tensor]
ROUNDING = 1e-10  # larger errors in float64 are not rounding errors
TABLE = 128  # number of positions and width of the encodings that are drawn


def self_attention(attention: Attention) -> Function:
    """Return a function that computes the attention of a sequence to itself."""
    return lambda x: attention(x, x)


def with_positions(positions: nn.Module, heads: Heads) -> Function:
    """Return a function that adds positions to the input and computes multi-head attention."""
    return lambda x: heads(positions(x))


def with_span(span: typing.Any) -> Function:
    """Return a function that computes multi-head attention within a span."""
    heads = Heads(WIDTH, heads=HEADS)
    return lambda x: heads(x, span=span)


# Modules that do not depend on the positions of vectors.
BLIND: dict[str, Callable[[], Function]] = {
    "dot": lambda: self_attention(Attention(Dot())),
    "scaled dot": lambda: self_attention(Attention(Dot(scaled=True))),
    "general": lambda: self_attention(Attention(General(WIDTH, WIDTH))),
    "additive": lambda: self_attention(Attention(Additive(WIDTH, WIDTH, hidden=WIDTH))),
    "cosine": lambda: self_attention(Attention(Cosine(8.0))),
    "heads": lambda: Heads(WIDTH, heads=HEADS),
    "encoder, 2 blocks": lambda: Encoder(WIDTH, heads=HEADS, layers=2),
}
# Modules that depend on the positions of vectors.
SEEING: dict[str, Callable[[], Function]] = {
    "heads + sinusoidal, added": lambda: with_positions(Sinusoidal(WIDTH), Heads(WIDTH, heads=HEADS)),
    "heads + sinusoidal, concatenated": lambda: with_positions(
        Sinusoidal(WIDTH, join="concatenate"), Heads(2 * WIDTH, heads=HEADS)
    ),
    "heads + learned, added": lambda: with_positions(Embedded(WIDTH, length=LENGTH), Heads(WIDTH, heads=HEADS)),
    "heads + rotary": lambda: Heads(WIDTH, heads=HEADS, rotary=Rotary(WIDTH // HEADS)),
    "heads + ALiBi": lambda: with_span(Alibi(HEADS)),
    "heads + causal mask": lambda: with_span(Causal()),
    "heads + local window (local-m, radius 4)": lambda: with_span(Monotonic(4)),
    "general + predicted window (local-p, radius 4)": lambda: self_attention(
        Attention(General(WIDTH, WIDTH), span=Predictive(WIDTH, radius=4))
    ),
    "location score": lambda: self_attention(Attention(Location(WIDTH, length=LENGTH))),
}


def equivariance_error(function: Function, x: Float[Tensor, "n d"], order: Tensor) -> float:
    """Compute ‖f(Px) − P f(x)‖/‖f(x)‖ for the permutation P that puts row order[i] at i."""
    plain = function(x)
    return ((function(x[order]) - plain[order]).norm() / plain.norm()).item()


def observe(build: Callable[[], Function], draws: int) -> list[float]:
    """Measure the error of several random modules, each with a random input and a random permutation."""
    return [equivariance_error(build(), torch.randn(LENGTH, WIDTH), torch.randperm(LENGTH)) for _ in range(draws)]


def invariance(draws: int) -> float:
    """Compute the largest ‖f(Px) − f(x)‖/‖f(x)‖ of pooling by a learned query, whose output is one vector."""
    worst = 0.0
    for _ in range(draws):
        pool, x = Attention(Dot(), query=Learned(1, WIDTH)), torch.randn(LENGTH, WIDTH)
        plain = pool(None, x)
        worst = max(worst, ((pool(None, x[torch.randperm(LENGTH)]) - plain).norm() / plain.norm()).item())
    return worst


def shift_error(draws: int) -> float:
    """Measure how much the scores of rotated queries and keys change when both start 100 positions later."""
    rotary, worst = Rotary(WIDTH), 0.0
    for _ in range(draws):
        query, keys = torch.randn(LENGTH, WIDTH), torch.randn(LENGTH, WIDTH)
        here = rotary(query) @ rotary(keys).mT
        there = rotary(query, start=100) @ rotary(keys, start=100).mT
        worst = max(worst, ((here - there).norm() / here.norm()).item())
    return worst


def product_by_distance(waves: Tensor) -> list[float]:
    """Compute the mean dot product of two codes by their distance, relative to distance 0."""
    products = waves @ waves.mT
    return [(products.diagonal(k).mean() / products[0, 0]).item() for k in range(len(waves))]


def distance_spread(waves: Tensor) -> float:
    """Return the largest variation of the dot product among pairs at the same distance."""
    products = waves @ waves.mT / waves[0].square().sum()
    return max((products.diagonal(k).max() - products.diagonal(k).min()).item() for k in range(len(waves)))


def shift_residual(waves: Tensor, k: int) -> float:
    """Compute the largest relative residual, over (sin, cos) pairs, of linear functions from code p to code p + k."""
    before, after = waves[:-k], waves[k:]
    # The function rotates each (sin, cos) pair, in the same way for all p; find it by least squares.
    residual = 0.0
    for pair in range(0, waves.shape[1], 2):
        here, there = before[:, pair : pair + 2], after[:, pair : pair + 2]
        # Pairs that hardly change have nearly rank one; any solution suffices.
        solution = torch.linalg.lstsq(here, there, driver="gelsd").solution
        residual = max(residual, ((here @ solution - there).norm() / there.norm()).item())
    return residual


def error_tables(
    blind: dict[str, list[float]], single: dict[str, float], seeing: dict[str, list[float]], waves: Tensor
) -> list[Table]:
    curve = product_by_distance(waves)
    return [
        Table(
            caption="Without positions: ‖f(Px) − P f(x)‖/‖f(x)‖",
            columns=["attention", "median", "largest", "largest, float32"],
            rows=[[name, median(errors), max(errors), single[name]] for name, errors in blind.items()],
            formats=["", ".1e", ".1e", ".1e"],
        ),
        Table(
            caption="With something that tells positions apart",
            columns=["attention", "smallest", "median", "largest"],
            rows=[[name, min(errors), median(errors), max(errors)] for name, errors in seeing.items()],
            formats=["", ".3f", ".3f", ".3f"],
            note="Two unrelated outputs of the same size would be about 1.41 apart.",
        ),
        Table(
            caption=f"Sinusoidal codes of width {TABLE}: dot product against distance",
            columns=["distance", "dot product (1 at 0)"],
            rows=[[k, curve[k]] for k in (0, 1, 2, 4, 8, 16, 32, 64)],
            formats=["d", ".3f"],
        ),
    ]


def error_plot(blind: dict[str, list[float]], seeing: dict[str, list[float]]) -> Plot:
    figure, (axes,) = plot.panels(1, titles=["‖f(Px) − P f(x)‖/‖f(x)‖, float64"], height=4.6)
    names = [*blind, *seeing]
    for row, name in enumerate(names):
        errors = blind.get(name) or seeing[name]
        colour = plot.BLUE if name in blind else plot.RED
        visible = [max(error, 1e-18) for error in errors]
        axes.plot([min(visible), max(visible)], [row, row], color=colour, lw=1.2, alpha=0.5)
        axes.plot(median(visible), row, "o" if name in blind else "s", color=colour, ms=5)
    axes.axhline(len(blind) - 0.5, color=plot.FAINT, lw=0.6)
    axes.text(1e-8, len(blind) - 0.7, "nothing tells positions apart", fontsize=8, color=plot.FAINT, ha="center")
    axes.text(1e-8, len(blind) - 0.1, "something does", fontsize=8, color=plot.FAINT, ha="center")
    axes.set_yticks(range(len(names)), labels=names)
    axes.tick_params(axis="y", colors=plot.INK, length=0)
    axes.set(xscale="log", xlim=(2e-19, 10))
    axes.invert_yaxis()
    return Plot(
        name="equivariance",
        figure=figure,
        caption="How far a permuted input's output is from the permuted output: medians, and from smallest to largest.",
        alt="Dot plot: attention without positions has errors at rounding level, near ten to the minus sixteen; with "
        "positions, masks or windows between a hundredth and one.",
    )


def wave_plot(waves: Tensor) -> Plot:
    titles = ["Sinusoidal table", "Dot product by distance"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.2)
    scale = plot.own_scale(-1.0, 1.0)
    left.imshow(
        waves.numpy(), aspect="auto", cmap=scale.colours, vmin=scale.low, vmax=scale.high, interpolation="nearest"
    )
    plot.draw_bar(figure, scale, [left], (3.0, 2.4))
    left.grid(visible=False)
    left.set(xlabel="dimension", ylabel="position")
    curve = product_by_distance(waves)
    right.plot(range(TABLE), curve, color=plot.BLUE, lw=1.6)
    right.set(xlabel="distance", ylim=(0, 1.03))
    return Plot(
        name="sinusoidal",
        figure=figure,
        caption=f"Left: the codes of {TABLE} positions, orange for −1, blue for 1. Right: how alike two codes are, by "
        "their distance; the same at every place in the sentence.",
        alt="Left, the striped table of sines and cosines; right, a curve that falls from one and "
        "levels off in ripples.",
    )


def median(values: list[float]) -> float:
    return torch.tensor(values, dtype=torch.float64).median().item()


def run(seed: int = 0, quick: bool = False) -> Page:
    """Measure equivariance, judge the claims and write the page."""
    draws = 5 if quick else 25
    with signed(seed=seed, quick=quick, dtype="float64 and float32") as clock, torch.no_grad():
        with precision(torch.float32):
            single = {name: max(observe(build, draws)) for name, build in BLIND.items()}
        with precision(torch.float64):
            blind = {name: observe(build, draws) for name, build in BLIND.items()}
            seeing = {name: observe(build, draws) for name, build in SEEING.items()}
            pooled, turned = invariance(draws), shift_error(draws)
            waves = Sinusoidal(TABLE)(torch.zeros(TABLE, TABLE))
        signature = clock.signature()
    return Page(
        name="positions",
        title="Claim: attention does not see order",
        claim="Without recurrence or convolution a model knows nothing of the order of its input; where each token "
        "stands, absolutely or relative to others, has to be put in.",
        source="Vaswani et al. 2017, Attention Is All You Need, section 3.5 (arXiv:1706.03762)",
        measured=[
            f"Self-attention f on {LENGTH} unit-normal vectors of width {WIDTH}, and a random permutation P: how far "
            "f(Px) is from P f(x), as a share of the size of f(x). 0 means that the order of the input changes nothing "
            f"but the order of the output. {draws} modules, inputs and permutations each, all untrained.",
            "Then the sinusoidal table itself: the dot product of two positions' codes, which depends only on how far "
            "they are apart, and the linear map that takes every position's code to that of the position k further on.",
        ],
        tables=error_tables(blind, single, seeing, waves),
        plots=[error_plot(blind, seeing), wave_plot(waves)],
        verdicts=verdicts(blind, single, seeing, pooled, waves, turned),
        caveats=[
            "The size of an untrained module's error says what it can see at the start, not what training will make of "
            "it.",
            "Learned positions are measured as they start, before they have learned anything.",
            "A window or a causal mask breaks the symmetry without telling positions apart as exactly as a code does.",
        ],
        signature=signature,
    )


def verdicts(
    blind: dict[str, list[float]],
    single: dict[str, float],
    seeing: dict[str, list[float]],
    pooled: float,
    waves: Tensor,
    turned: float,
) -> list[Verdict]:
    worst, most = max((max(errors), name) for name, errors in blind.items())
    least, weakest = min((min(errors), name) for name, errors in seeing.items())
    spread, fit = distance_spread(waves), max(shift_residual(waves, k) for k in (1, 8, 32))
    curve = product_by_distance(waves)
    return [
        Verdict(
            "content scores, heads and encoder blocks without positions are permutation equivariant",
            worst < ROUNDING,
            f"largest error {show(worst, '.1g')} ({most}, float64), {show(max(single.values()), '.1g')} in float32",
        ),
        Verdict(
            "pooling by a learned query is permutation invariant: a bag of vectors",
            pooled < ROUNDING,
            f"largest error {show(pooled, '.1g')}",
        ),
        Verdict(
            "each of the ways to tell positions breaks it",
            least > 1e-3,
            f"smallest error {show(least, '.2g')} ({weakest})",
        ),
        Verdict(
            "positions must be injected: nothing else lets attention see order",
            min(min(seeing[name]) for name in seeing if "mask" in name or "window" in name) < ROUNDING,
            "without any code for positions the median error is "
            + ", ".join(
                f"{median(seeing[name]):.2f} ({name})" for name in seeing if "mask" in name or "local-m" in name
            ),
        ),
        Verdict(
            "the dot product of two sinusoidal codes depends only on their distance",
            spread < 1e-9,
            f"it varies by at most {show(spread, '.1g')} of its value at distance 0",
        ),
        Verdict(
            "it falls steadily with the distance",
            all(later <= earlier for earlier, later in itertools.pairwise(curve)),
            "at distances 0, 8, 16, 32, 64: " + ", ".join(f"{curve[k]:.2f}" for k in (0, 8, 16, 32, 64)),
        ),
        Verdict(
            "for any fixed offset k, the code of p + k is a linear function of the code of p",
            fit < 1e-9,
            f"a rotation in each pair of numbers leaves at most {show(fit, '.1g')} unexplained (k = 1, 8, 32)",
        ),
        Verdict(
            "rotary scores depend on the distance alone: moving the whole sentence changes nothing",
            turned < ROUNDING,
            f"scores move by at most {show(turned, '.1g')} when every position is shifted by 100",
        ),
    ]
