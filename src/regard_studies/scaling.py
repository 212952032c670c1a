r"""Why dot products are divided by $\sqrt{d}$.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1 and its footnote 4: for q and k with independent components of
mean 0 and variance 1, $q \cdot k$ has mean 0 and variance d, so that for large d the softmax is pushed "into regions
where it has extremely small gradients". Measured here without any training, on unit-normal vectors. The raw
self-attention $R = s s^\top$ is looked at too: what stands on its diagonal, and what projections do to that.

b draws · n queries · m keys · d width
"""

import math

import torch

from regard_studies.page import Page, Verdict, show, signed
from regard_studies.scaling.draw import (
    diagonal_plot,
    diagonal_table,
    gradient_plot,
    length_table,
    scores_plot,
    scores_table,
)
from regard_studies.scaling.measure import KEYS, LENGTHS, Diagonal, Scores, observe, observe_diagonal

__all__ = ["run"]


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
        tables=[scores_table(raw, scaled), length_table(counts), diagonal_table(diagonal)],
        plots=[scores_plot(raw, scaled), gradient_plot(raw, scaled), diagonal_plot(diagonal, square)],
        verdicts=_verdicts(raw, scaled, counts, diagonal),
        caveats=[
            "Unit-normal vectors say where training starts, not where it ends: a model may make its projections larger "
            "or smaller, and the scale with them.",
            f"{KEYS} keys and independent components: keys that resemble one another, as the words of a sentence do, "
            "saturate later.",
        ],
        signature=signature,
    )


def _verdicts(
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
