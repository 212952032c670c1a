r"""The claim on how far back a gradient reaches: $\lVert \partial y_T / \partial x_t \rVert$ against the distance T −
t.

Bengio et al. 1994 and Pascanu et al. 2013 (arXiv:1211.5063, section 2): in a recurrent network the gradient over k
steps is a product of k Jacobians, and shrinks or grows geometrically. Vaswani et al. 2017 (arXiv:1706.03762, section 4,
table 1): self-attention joins any two positions by a path of constant length. Measured on untrained networks, exactly:
every entry of the Jacobian, float64.

t position · T last position · d width of inputs, states and outputs
"""

import torch

from regard_studies.gradient.draw import decay_table, norms_plot, size_table
from regard_studies.gradient.measure import NETWORKS, WIDTH, Curve, explained_by_line, observe
from regard_studies.page import Page, Verdict, precision, show, signed

__all__ = ["run"]


def run(seed: int = 0, quick: bool = False) -> Page:
    """Measure the gradients, judge the claims and write the page."""
    length, seeds = (65, 5) if quick else (129, 15)
    with signed(seed=seed, quick=quick, dtype="float64") as clock, precision(torch.float64):
        curves = {name: observe(kind.build, length, seeds) for name, kind in NETWORKS.items()}
        sizes = {n: observe(NETWORKS["self-attention"].build, n, seeds) for n in (16, 32, 64, 128)}
        signature = clock.signature()
    far = length - 1
    return Page(
        name="gradient",
        title="How far back a gradient reaches",
        claim="In a recurrent network the gradient between two positions is a product of as many Jacobians as there "
        "are steps between them, and so vanishes or explodes with the distance; self-attention joins any two positions "
        "directly, at the same cost for all.",
        source="Bengio et al. 1994; Pascanu et al. 2013, section 2 (arXiv:1211.5063); Vaswani et al. 2017, section 4, "
        "table 1 (arXiv:1706.03762)",
        measured=[
            f"The norm of ∂y_T/∂x_t, every entry of the Jacobian, for sequences of {length} unit-normal vectors of "
            f"width {WIDTH}, at every distance T − t. {seeds} networks of each kind with an input each; "
            f"median and quartiles.",
            "Layers start as torch starts them, uniform in ±1/√d, and where a dashed line is drawn, in the way that "
            "the literature offers against the fading: orthogonal recurrent weights (Saxe et al. 2014), the identity "
            "with ReLU (Le et al. 2015), a forget bias of 1 (Jozefowicz et al. 2015). Attention has no "
            "positions and no mask.",
        ],
        tables=[decay_table(curves, far), size_table(sizes)],
        plots=[norms_plot(curves)],
        verdicts=_verdicts(curves, sizes, far),
        caveats=[
            "Nothing is trained. Training moves every one of these curves: recurrent networks can learn to keep what "
            "matters, and attention learns to look away from most positions, whose gradients then vanish too.",
            "Flat is not large: attention shares one unit of weight among all positions, so that each gets about 1/n "
            "of it, however near. Only training makes a position stand out.",
            "A gradient that arrives is not a fact that is used. This measures the path, not the learning.",
        ],
        signature=signature,
    )


def _verdicts(curves: dict[str, Curve], sizes: dict[int, Curve], far: int) -> list[Verdict]:
    def fall(name: str) -> float:
        return curves[name].middle[far] / curves[name].middle[1]

    tanh, relu, gru, lstm = (curves[name].factor for name in ("tanh RNN", "ReLU RNN", "GRU", "LSTM"))
    open_ = curves["LSTM, forget bias 1"].factor
    helped = min(curves["tanh RNN, orthogonal"].factor, curves["ReLU RNN, identity"].factor)
    shares = [sizes[n].middle[n // 2] * n for n in sizes]
    return [
        Verdict(
            "the gradient of a tanh RNN falls geometrically with distance",
            tanh < 0.95 and explained_by_line(curves["tanh RNN"].middle) > 0.98,
            f"by {tanh:.2f} a step; over {far} steps it is {show(fall('tanh RNN'), '.1g')} of what it was",
        ),
        Verdict(
            "it is the saturating nonlinearity that makes it fall: with ReLU it does not",
            relu > 0.98,
            f"a ReLU RNN from the same start falls by {relu:.2f} a step, a tanh RNN by {tanh:.2f}",
        ),
        Verdict(
            "how the recurrent weights start decides how fast",
            helped > max(tanh, relu) + 0.1,
            f"orthogonal tanh {curves['tanh RNN, orthogonal'].factor:.3f} a step, identity ReLU "
            f"{curves['ReLU RNN, identity'].factor:.3f}",
        ),
        Verdict(
            "gates carry the gradient further than a tanh RNN, from torch's own start",
            min(gru, lstm) > tanh,
            f"a step: GRU {gru:.2f}, LSTM {lstm:.2f}, tanh RNN {tanh:.2f}",
        ),
        Verdict(
            "gates by themselves keep it from vanishing, before any training",
            min(gru, lstm) > 0.95,
            f"over {far} steps: GRU {show(fall('GRU'), '.1g')}, LSTM {show(fall('LSTM'), '.1g')}",
        ),
        Verdict(
            "a forget bias of 1 slows the fall",
            open_ > lstm + 0.02,
            f"{open_:.2f} a step instead of {lstm:.2f}",
        ),
        Verdict(
            "self-attention is flat: the distance makes no difference",
            abs(curves["self-attention"].factor - 1) < 0.01 and 0.5 < fall("self-attention") < 2,
            f"by {curves['self-attention'].factor:.4f} a step; distance {far} has {fall('self-attention'):.2f} times "
            "the gradient of distance 1",
        ),
        Verdict(
            "stacking blocks keeps it flat",
            abs(curves["encoder, 2 blocks"].factor - 1) < 0.01,
            f"by {curves['encoder, 2 blocks'].factor:.4f} a step",
        ),
        Verdict(
            "the length of the sequence makes no difference to attention either",
            max(shares) / min(shares) < 1.25 and sizes[128].middle[64] > 0.8 * sizes[16].middle[8],
            f"{sizes[16].middle[8]:.3f} at n = 16, {sizes[128].middle[64]:.4f} at n = 128; times n it is "
            f"{min(shares):.2f} to {max(shares):.2f}",
        ),
    ]
