r"""The reach of gradients: $\lVert \partial y_T / \partial x_t \rVert$ against the distance T − t.

Bengio et al. 1994 and Pascanu et al. 2013 (arXiv:1211.5063, section 2): in a recurrent network the gradient over k
steps is a product of k Jacobians and shrinks or grows geometrically. Vaswani et al. 2017 (arXiv:1706.03762, section 4,
table 1): self-attention connects any two positions by a path of constant length. The study measures untrained networks
exactly: every entry of the Jacobian, in float64.

t position · T last position · d width of inputs, states and outputs
"""

import math
import typing
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Encoder, Heads
from regard.inspection import plot
from regard_studies.page import Page, Plot, Table, Verdict, precision, show, signed

WIDTH = 32
HEADS = 4
NEAR = 4  # fits begin at this distance, because the last positions have other paths than through time
Network = Callable[[Tensor], Tensor]


class Curve(typing.NamedTuple):
    """Norms at each distance (lower quartile, median and upper quartile over seeds) and the fitted decay per step."""

    low: list[float]
    middle: list[float]
    high: list[float]
    factor: float


def recurrent(cell: str, prepare: Callable[[nn.RNNBase], None] | None = None) -> Callable[[int], Network]:
    """Return a builder of PyTorch's recurrent layer; `prepare` can change PyTorch's initialisation."""

    def build(d: int) -> Network:
        kinds: dict[str, nn.RNNBase] = {
            "tanh": nn.RNN(d, d, batch_first=True, nonlinearity="tanh"),
            "relu": nn.RNN(d, d, batch_first=True, nonlinearity="relu"),
            "gru": nn.GRU(d, d, batch_first=True),
            "lstm": nn.LSTM(d, d, batch_first=True),
        }
        layer = kinds[cell]
        if prepare is not None:
            with torch.no_grad():
                prepare(layer)
        return lambda x: layer(x)[0]

    return build


def orthogonal(layer: nn.RNNBase) -> None:
    """Make the recurrent weights orthogonal, so that they preserve norms (Saxe et al. 2014)."""
    parts = dict(layer.named_parameters())
    nn.init.orthogonal_(parts["weight_hh_l0"])
    nn.init.zeros_(parts["bias_ih_l0"])
    nn.init.zeros_(parts["bias_hh_l0"])


def identity(layer: nn.RNNBase) -> None:
    """Make the recurrent weights the identity and the biases zero (Le et al. 2015, arXiv:1504.00941)."""
    parts = dict(layer.named_parameters())
    nn.init.eye_(parts["weight_hh_l0"])
    nn.init.zeros_(parts["bias_ih_l0"])
    nn.init.zeros_(parts["bias_hh_l0"])


def remember(layer: nn.RNNBase) -> None:
    """Open the forget gates by a bias of 1 (Jozefowicz et al. 2015); set PyTorch's second bias to 0."""
    parts, forget = dict(layer.named_parameters()), slice(layer.hidden_size, 2 * layer.hidden_size)
    nn.init.ones_(parts["bias_ih_l0"][forget])
    nn.init.zeros_(parts["bias_hh_l0"][forget])


class Kind(typing.NamedTuple):
    """A kind of network: its builder, its initialisation in words, and its colour and line style."""

    build: Callable[[int], Network]
    start: str
    colour: str
    line: str = "-"


NETWORKS = {
    "tanh RNN": Kind(recurrent("tanh"), "torch's default", plot.RED),
    "tanh RNN, orthogonal": Kind(recurrent("tanh", orthogonal), "orthogonal, biases 0", plot.RED, "--"),
    "ReLU RNN": Kind(recurrent("relu"), "torch's default", plot.ORANGE),
    "ReLU RNN, identity": Kind(recurrent("relu", identity), "identity, biases 0", plot.ORANGE, "--"),
    "GRU": Kind(recurrent("gru"), "torch's default", plot.PINK),
    "LSTM": Kind(recurrent("lstm"), "torch's default", plot.GREEN),
    "LSTM, forget bias 1": Kind(recurrent("lstm", remember), "torch's default, forget bias 1", plot.GREEN, "--"),
    "self-attention": Kind(lambda d: Heads(d, heads=HEADS), "Regard's default, 4 heads", plot.BLUE),
    "encoder, 2 blocks": Kind(
        lambda d: Encoder(d, heads=HEADS, layers=2), "Regard's default, 4 heads", plot.BLUE, "--"
    ),
}


def norms(network: Network, x: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
    """Compute the Frobenius norm of ∂y_T/∂x_t for each t, where T is the last position; index 0 is distance 0.

    The input is repeated d times and row i differentiates only unit i, so that one backward pass gives every entry.
    """
    rows = x.detach().expand(x.shape[-1], *x.shape).clone().requires_grad_()
    last = network(rows)[:, -1]
    (jacobian,) = torch.autograd.grad(last.diagonal().sum(), rows)
    return jacobian.square().sum((0, 2)).sqrt().flip(0)


def observe(build: Callable[[int], Network], length: int, seeds: int) -> Curve:
    """Measure several networks of a kind, each with its own input."""
    samples = torch.stack([norms(build(WIDTH), torch.randn(length, WIDTH)) for _ in range(seeds)])
    low, middle, high = samples.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=0)
    # The decay per step is exp of the slope of the logarithms; 1 means no decay.
    distance, height = log_norms(middle.tolist())
    centred = distance - distance.mean()
    factor = math.exp(float((centred * height).sum() / centred.square().sum()))
    return Curve(low.tolist(), middle.tolist(), high.tolist(), factor)


def log_norms(middle: list[float]) -> tuple[Tensor, Tensor]:
    """Return distances and logarithms of norms, without values that underflowed."""
    points = [(step, math.log(value)) for step, value in enumerate(middle) if step >= NEAR and value > 1e-200]
    both = torch.tensor(points, dtype=torch.float64)
    return both[:, 0], both[:, 1]


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
            "median and quartiles.",
            "Layers start as torch starts them, uniform in ±1/√d, and where a dashed line is drawn, in the way that "
            "the literature offers against the fading: orthogonal recurrent weights (Saxe et al. 2014), the identity "
            "with ReLU (Le et al. 2015), a forget bias of 1 (Jozefowicz et al. 2015). Attention has no "
            "positions and no mask.",
        ],
        tables=[
            decay_table(curves, far),
            Table(
                caption="Self-attention: the gradient half-way back, against the length of the sequence",
                columns=["n", "‖∂y_T/∂x_t‖", "times n"],
                rows=[[n, curve.middle[n // 2], curve.middle[n // 2] * n] for n, curve in sizes.items()],
                formats=["d", ".4f", ".2f"],
            ),
        ],
        plots=[norms_plot(curves)],
        verdicts=verdicts(curves, sizes, far),
        caveats=[
            "Nothing is trained. Training moves every one of these curves: recurrent networks can learn to keep what "
            "matters, and attention learns to look away from most positions, whose gradients then vanish too.",
            "Flat is not large: attention shares one unit of weight among all positions, so that each gets about 1/n "
            "of it, however near. Only training makes a position stand out.",
            "A gradient that arrives is not a fact that is used. This measures the path, not the learning.",
        ],
        signature=signature,
    )


def verdicts(curves: dict[str, Curve], sizes: dict[int, Curve], far: int) -> list[Verdict]:
    def fall(name: str) -> float:
        return curves[name].middle[far] / curves[name].middle[1]

    # The share of the logarithm's variance that a straight line explains.
    straight = float(torch.corrcoef(torch.stack(log_norms(curves["tanh RNN"].middle)))[0, 1] ** 2)
    tanh, relu, gru, lstm = (curves[name].factor for name in ("tanh RNN", "ReLU RNN", "GRU", "LSTM"))
    open_ = curves["LSTM, forget bias 1"].factor
    helped = min(curves["tanh RNN, orthogonal"].factor, curves["ReLU RNN, identity"].factor)
    shares = [sizes[n].middle[n // 2] * n for n in sizes]
    return [
        Verdict(
            "the gradient of a tanh RNN falls geometrically with distance",
            tanh < 0.95 and straight > 0.98,
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
