r"""The reason for dividing dot products by $\sqrt{d}$.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1 and its footnote 4: for q and k with independent components of
mean 0 and variance 1, $q \cdot k$ has mean 0 and variance d, so that for large d the softmax is pushed "into regions
where it has extremely small gradients". The study measures this without training, on standard normal vectors. It also
measures the diagonal of the raw self-attention $R = s s^\top$, and the effect of projections on it.

b draws · n queries · m keys · d width
"""

import math
import typing

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention, Dot
from regard.inspection import plot
from regard_studies.page import Page, Plot, Table, Verdict, show, signed

KEYS = 64
LENGTHS = (4, 16, 64)


class Scores(typing.NamedTuple):
    """Statistics of the scores and weights at one width, scaled or not."""

    mean: float
    spread: float
    largest: float
    entropy: float
    jacobian: tuple[float, float, float]
    average: float


class Diagonal(typing.NamedTuple):
    """The diagonal's share of a row: of |R|, and of the softmax of R with and without scaling and projections."""

    absolute: float
    softmax: float
    scaled: float
    projected: float
    tied: float


def jacobian_norm(weights: Float[Tensor, "*b m"]) -> Float[Tensor, "*b"]:
    r"""Compute the Frobenius norm of the softmax's Jacobian $\mathrm{diag}(a) - a a^\top$, from its weights a.

    Its square is $\sum_i a_i^2 - 2 \sum_i a_i^3 + (\sum_i a_i^2)^2$, computed here as a sum of squares to avoid
    cancellation when one weight is nearly 1.
    """
    rest = weights.flip(-1).cumsum(-1).flip(-1)[..., 1:]  # sum of the weights to the right of each one
    below = weights.cumsum(-1)[..., :-1]
    zero = torch.zeros_like(weights[..., :1])
    other = torch.cat([zero, below], -1) + torch.cat([rest, zero], -1)  # 1 - a_i without a subtraction
    squares = weights.square()
    off = squares * (torch.cat([zero, squares.cumsum(-1)[..., :-1]], -1) * 2)
    return ((weights * other).square() + off).sum(-1).sqrt()


def observe(d: int, *, scaled: bool, draws: int, n: int = KEYS, m: int = KEYS) -> Scores:
    """Draw queries and keys of width d and measure their scores; narrow vectors need more draws for equal precision."""
    draws *= max(1, 16 // d)
    query, keys = torch.randn(draws, n, d), torch.randn(draws, m, d)
    look = Attention(Dot(scaled=scaled)).look(query, keys)
    scores, weights = look.scores.double(), look.weights.double()
    norms = jacobian_norm(weights).flatten()
    low, middle, high = norms.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=norms.dtype)).tolist()
    return Scores(
        mean=scores.mean().item(),
        spread=scores.std().item(),
        largest=weights.amax(-1).mean().item(),
        entropy=torch.special.entr(weights).sum(-1).mean().item() / math.log(m),
        jacobian=(low, middle, high),
        average=norms.mean().item(),
    )


def observe_diagonal(d: int, n: int, draws: int) -> Diagonal:
    """Draw sequences s [n, d], sixteen for each pair of projections, and measure the diagonal of R = s sᵀ."""
    s = torch.randn(draws, 16, n, d)
    to_query, to_key = torch.randn(2, draws, 1, d, d) / math.sqrt(d)
    plain, scaled = Attention(Dot()), Attention(Dot(scaled=True))
    look = plain.look(s, s)
    return Diagonal(
        absolute=diagonal_share(look.scores.abs()),
        softmax=diagonal_share(look.weights),
        scaled=diagonal_share(scaled.look(s, s).weights),
        projected=diagonal_share(scaled.look(s @ to_query, s @ to_key).weights),
        tied=diagonal_share(scaled.look(s @ to_query, s @ to_query).weights),
    )


def diagonal_share(rows: Tensor) -> float:
    """Compute the mean share of a row that lies on its diagonal."""
    return (rows.diagonal(dim1=-2, dim2=-1) / rows.sum(-1)).mean().item()


def scores_tables(
    raw: dict[int, Scores],
    scaled: dict[int, Scores],
    counts: dict[int, Scores],
    diagonal: dict[tuple[int, int], Diagonal],
) -> list[Table]:
    rows = [
        [d, r.spread, s.spread, r.largest, s.largest, r.entropy, s.entropy, r.jacobian[1], s.jacobian[1], r.average]
        for d, r, s in ((d, raw[d], scaled[d]) for d in raw)
    ]
    columns = ["d", "std", "std ÷√d", "max a", "max a ÷√d", "entropy", "entropy ÷√d", "‖J‖", "‖J‖ ÷√d", "mean ‖J‖"]
    return [
        Table(
            caption="Scores and their softmax against the width",
            columns=columns,
            rows=rows,
            formats=["d", ".2f", ".3f", ".3f", ".3f", ".1%", ".1%", ".2g", ".2g", ".2g"],
            note="Each pair: without scaling, then with 1/√d. Entropy as a share of log m; ‖J‖ is the median, and its "
            "mean is without scaling.",
        ),
        Table(
            caption="The same at width 64, against the number of keys",
            columns=["n", "std of q·k/√d", "std if divided by √n", "mean", "max a"],
            rows=[[n, c.spread, c.spread * 8 / math.sqrt(n), c.mean, c.largest] for n, c in counts.items()],
            formats=["d", ".3f", ".3f", ".4f", ".3f"],
            note="Divided by √n instead, the spread would depend on the length of the sentence.",
        ),
        Table(
            caption="The diagonal's share of a row of R = s sᵀ",
            columns=["d", "n", "even", "|R|", "softmax", "softmax ÷√d", "W_Q ≠ W_K", "W_Q = W_K"],
            rows=[[d, n, 1 / n, *shares] for (d, n), shares in diagonal.items()],
            formats=["d", "d", ".1%", ".1%", ".1%", ".1%", ".1%", ".1%"],
            note="Projections are random, of variance 1/d, and scaled by 1/√d; one for both keeps sᵢ nearest to "
            "itself.",
        ),
    ]


def scores_plot(raw: dict[int, Scores], scaled: dict[int, Scores]) -> Plot:
    figure, (left, right) = plot.panels(2, titles=["Standard deviation of scores", "Largest weight of a query"])
    widths = list(raw)
    left.plot(widths, [math.sqrt(d) for d in widths], color=plot.GREY, linestyle=(0, (2, 2)), linewidth=1, label="√d")
    for axes, pick in ((left, "spread"), (right, "largest")):
        axes.plot(widths, [getattr(raw[d], pick) for d in widths], "o-", color=plot.RED, ms=4, lw=1.6, label="q·k")
        axes.plot(
            widths, [getattr(scaled[d], pick) for d in widths], "s-", color=plot.BLUE, ms=4, lw=1.6, label="q·k/√d"
        )
        axes.set_xscale("log", base=2)
        axes.set_xlabel("width d")
    left.set_yscale("log", base=2)
    right.set_ylim(0, 1.03)
    plot.legend(left, loc="upper left")
    return Plot(
        name="spread",
        figure=figure,
        caption=f"Spread of the scores, and the mean of a query's largest weight over {KEYS} keys.",
        alt="Two line plots against the width. Unscaled scores spread as the square root of the width and the largest "
        "weight rises to one; scaled, both stay level.",
    )


def gradient_plot(raw: dict[int, Scores], scaled: dict[int, Scores]) -> Plot:
    figure, (axes,) = plot.panels(1, titles=["Norm of the softmax's Jacobian"], height=3.2)
    widths = list(raw)
    floor = 1e-12
    for norms, colour, mark, label in ((raw, plot.RED, "o", "q·k"), (scaled, plot.BLUE, "s", "q·k/√d")):
        low, middle, high = ([max(norms[d].jacobian[i], floor) for d in widths] for i in range(3))
        plot.band(axes, widths, low, high, colour)
        axes.plot(widths, middle, f"{mark}-", color=colour, ms=4, lw=1.6, label=f"{label}, median and quartiles")
        if norms is raw:
            mean = [norms[d].average for d in widths]
            axes.plot(widths, mean, color=colour, lw=1.2, linestyle=(0, (2, 2)), label=f"{label}, mean")
    axes.set(xscale="log", yscale="log", xlabel="width d")
    axes.set_xscale("log", base=2)
    plot.legend(axes, loc="lower left")
    return Plot(
        name="gradient",
        figure=figure,
        caption="What a gradient is multiplied by on its way from the weights to the scores.",
        alt="Line plot: the Jacobian's norm without scaling rises a little, then its median falls steeply with the "
        "width; with scaling it stays level.",
    )


def diagonal_plot(diagonal: dict[tuple[int, int], Diagonal], widths: list[int]) -> Plot:
    n = LENGTHS[1]
    figure, (axes,) = plot.panels(1, titles=[f"The diagonal's share of a row of R = s sᵀ, n = {n}"], height=3.2)
    lines = [
        ("softmax", plot.RED, "o", "softmax(s sᵀ)"),
        ("absolute", plot.ORANGE, "^", "|s sᵀ|"),
        ("scaled", plot.BLUE, "s", "softmax(s sᵀ/√d)"),
        ("tied", plot.PINK, "v", "one projection for both"),
        ("projected", plot.GREEN, "D", "two projections"),
    ]
    for pick, colour, mark, label in lines:
        shares = [getattr(diagonal[d, n], pick) for d in widths]
        axes.plot(widths, shares, f"{mark}-", color=colour, ms=4, lw=1.6, label=label)
    axes.axhline(1 / n, color=plot.GREY, linestyle=(0, (2, 2)), linewidth=1, label="even")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="width d", ylim=(0, 1.03))
    plot.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Plot(
        name="diagonal",
        figure=figure,
        caption="How much of each row a position keeps for itself.",
        alt="Line plot: the diagonal's share of raw and of scaled self-attention rises to one with the width; with two "
        "random projections it stays at the even share.",
    )


def run(seed: int = 0, quick: bool = False) -> Page:
    """Measure scores and weights, judge the claims and write the page."""
    widths = [4**p for p in range(0, 7, 2 if quick else 1)]
    lengths = [4**p for p in range(1, 6)]
    draws = 8 if quick else 32
    with signed(seed=seed, quick=quick, dtype="float32, summed in float64") as clock, torch.no_grad():
        raw = {d: observe(d, scaled=False, draws=draws) for d in widths}
        scaled = {d: observe(d, scaled=True, draws=draws) for d in widths}
        counts = {n: observe(64, scaled=True, draws=max(1, draws * KEYS // n), n=KEYS, m=n) for n in lengths}
        square = [d for d in widths if d <= 1024]
        diagonal = {(d, n): observe_diagonal(d, n, draws=2 if quick else 4) for d in square for n in LENGTHS}
        signature = clock.signature()
    return Page(
        name="scaling",
        title="Why dot products are divided by √d",
        claim="The wider the vectors, the larger their dot products, until the softmax saturates and passes on hardly "
        "any gradient; dividing by √d_k prevents it.",
        source="Vaswani et al. 2017, Attention Is All You Need, section 3.2.1 (arXiv:1706.03762)",
        measured=[
            f"Queries and keys with independent unit-normal components, {draws} draws of {KEYS} queries against {KEYS} "
            "keys at each width d, with and without the factor 1/√d. For each: the mean and the standard deviation of "
            "the scores, the largest weight of a query and the entropy of its weights (as a share of log m), and the "
            "Frobenius norm of the softmax's Jacobian, diag(a) − aaᵀ: the factor by which a gradient passes from the "
            "weights to the scores.",
            "Then raw self-attention, R = s sᵀ, on sequences of n unit-normal vectors: the share of a row that stands "
            "on its diagonal, in |R| and after the softmax, and the same after random projections W_Q and W_K.",
        ],
        tables=scores_tables(raw, scaled, counts, diagonal),
        plots=[scores_plot(raw, scaled), gradient_plot(raw, scaled), diagonal_plot(diagonal, square)],
        verdicts=verdicts(raw, scaled, counts, diagonal),
        caveats=[
            "Unit-normal vectors say where training starts, not where it ends: a model may make its projections larger "
            "or smaller, and the scale with them.",
            f"{KEYS} keys and independent components: keys that resemble one another, as the words of a sentence do, "
            "saturate later.",
        ],
        signature=signature,
    )


def verdicts(
    raw: dict[int, Scores],
    scaled: dict[int, Scores],
    counts: dict[int, Scores],
    diagonal: dict[tuple[int, int], Diagonal],
) -> list[Verdict]:
    widths = list(raw)
    last = widths[-1]
    off = max(abs(raw[d].spread / math.sqrt(d) - 1) for d in widths)
    unit = max(abs(scaled[d].spread - 1) for d in widths)
    drift = max(abs(raw[d].mean) / math.sqrt(d) for d in widths)
    spreads = [counts[n].spread for n in counts]
    best = max(widths, key=lambda d: raw[d].jacobian[1])
    ratio = scaled[last].jacobian[1] / max(raw[last].jacobian[1], 1e-300)
    steady = max(scaled[d].jacobian[1] for d in widths) / min(scaled[d].jacobian[1] for d in widths)
    wide, few = max(d for d, _ in diagonal), LENGTHS[1]
    top, thin = diagonal[wide, few], diagonal[min(d for d, _ in diagonal), few]
    return [
        Verdict(
            "without scaling, scores have standard deviation √d",
            off < 0.05,
            f"at most {off:.1%} from √d, d from {widths[0]} to {last}",
        ),
        Verdict("with 1/√d, it is 1 at every width", unit < 0.05, f"at most {unit:.1%} from 1"),
        Verdict(
            "the mean of a score stays 0: it is the spread that grows, not the average",
            drift < 0.05,
            f"mean at most {drift:.3f} standard deviations from 0",
        ),
        Verdict(
            "it is √d, the width, and not √n, the length",
            max(spreads) / min(spreads) < 1.05,
            f"at d = 64 the scaled scores' spread is {min(spreads):.3f} to {max(spreads):.3f} "
            f"for n from {min(counts)} to {max(counts)}",
        ),
        Verdict(
            "without scaling, the softmax saturates at large widths",
            raw[last].largest > 0.9 and scaled[last].largest < 0.5,
            f"at d = {last} the largest weight is {raw[last].largest:.3f} on average, "
            f"{scaled[last].largest:.3f} when scaled",
        ),
        Verdict(
            "its gradient then becomes extremely small",
            ratio > 100,
            f"median Jacobian norm at d = {last}: {show(raw[last].jacobian[1], '.2g')} without scaling, "
            f"{show(scaled[last].jacobian[1], '.2g')} with it",
        ),
        Verdict(
            "the wider, the smaller, from the start",
            best == widths[0],
            f"the median norm is largest at d = {best}, {raw[best].jacobian[1]:.2f}; {KEYS} equal weights have "
            f"{math.sqrt(1 / KEYS - 1 / KEYS**2):.2f}, for a softmax over equals is flat too",
        ),
        Verdict(
            "every query loses its gradient",
            raw[last].average < 10 * raw[last].jacobian[1],
            f"the mean norm at d = {last} is {show(raw[last].average, '.2g')}, far from the median: where the two best "
            "keys are nearly level, the gradient stays large"
            if raw[last].average > 10 * raw[last].jacobian[1]
            else f"the mean norm at d = {last} is {show(raw[last].average, '.2g')}",
        ),
        Verdict(
            "with scaling, the gradient's size does not depend on d",
            steady < 1.5,
            f"the median norm varies by a factor {steady:.2f} over all widths",
        ),
        Verdict(
            "R = s sᵀ has a heavy diagonal, heavier with d: a sequence mostly attends to itself",
            top.softmax > 0.9 and top.absolute > 2 * thin.absolute,
            f"n = {few}, d = {wide}: {top.absolute:.0%} of a row's |R| and {top.softmax:.0%} of its softmax "
            f"(even spread: {1 / few:.0%})",
        ),
        Verdict(
            "1/√d alone takes the weight off the diagonal",
            top.scaled < 0.5,
            f"n = {few}, d = {wide}: {top.scaled:.0%} of the softmax is still there after scaling",
        ),
        Verdict(
            "separate projections W_Q and W_K take it off",
            abs(top.projected * few - 1) < 0.5,
            f"{top.projected:.1%} with two random projections, {top.tied:.0%} with one for both (even: {1 / few:.1%})",
        ),
    ]
