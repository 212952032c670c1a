r"""Attention does not see order, and what makes it see: $\lVert f(Px) - P f(x) \rVert / \lVert f(x) \rVert$.

A content score compares vectors, not places, so that permuting the input permutes the output and does nothing else
(permutation equivariance). Vaswani et al. 2017 (arXiv:1706.03762), section 3.5: "since our model contains no recurrence
and no convolution, in order for the model to make use of the order of the sequence, we must inject some information
about the relative or absolute position". Measured on untrained modules, with random permutations P.

n positions · d width
"""

import itertools

import torch
from torch import Tensor

from regard.attention import Sinusoidal
from regard_studies.page import Page, Verdict, precision, show, signed
from regard_studies.positions.draw import (
    ROUNDING,
    TABLE,
    blind_table,
    error_plot,
    median,
    seeing_table,
    wave_plot,
    wave_table,
)
from regard_studies.positions.measure import (
    BLIND,
    LENGTH,
    SEEING,
    WIDTH,
    distance_spread,
    invariance,
    observe,
    product_by_distance,
    shift_error,
    shift_residual,
)

__all__ = ["run"]


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
        tables=[blind_table(blind, single), seeing_table(seeing), wave_table(waves)],
        plots=[error_plot(blind, seeing), wave_plot(waves)],
        verdicts=_verdicts(blind, single, seeing, pooled, waves, turned),
        caveats=[
            "The size of an untrained module's error says what it can see at the start, not what training will make of "
            "it.",
            "Learned positions are measured as they start, before they have learned anything.",
            "A window or a causal mask breaks the symmetry without telling positions apart as exactly as a code does.",
        ],
        signature=signature,
    )


def _verdicts(
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
