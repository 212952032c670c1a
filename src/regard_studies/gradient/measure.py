"""Measurements of how far back a gradient reaches: the norms of a network's gradients against the distance, and their
decay.
"""

import math
import typing
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Encoder, Heads
from regard.inspection import plot

__all__ = [
    "HEADS",
    "NEAR",
    "NETWORKS",
    "WIDTH",
    "Curve",
    "Kind",
    "Network",
    "decay_factor",
    "explained_by_line",
    "identity",
    "log_norms",
    "norms",
    "observe",
    "orthogonal",
    "recurrent",
    "remember",
]

WIDTH = 32
HEADS = 4
NEAR = 4  # where the fits begin: the last few positions are seen by other ways than through time
Network = Callable[[Tensor], Tensor]


class Curve(typing.NamedTuple):
    """Norms at each distance over the seeds: lower quartile, median, upper quartile; and the fitted decay a step."""

    low: list[float]
    middle: list[float]
    high: list[float]
    factor: float


def recurrent(cell: str, prepare: Callable[[nn.RNNBase], None] | None = None) -> Callable[[int], Network]:
    """Make a recurrent layer of torch, initialised by torch unless `prepare` changes that."""

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
    """Open the forget gates by a bias of 1 (Jozefowicz et al. 2015); torch's other bias is set to 0."""
    parts, forget = dict(layer.named_parameters()), slice(layer.hidden_size, 2 * layer.hidden_size)
    nn.init.ones_(parts["bias_ih_l0"][forget])
    nn.init.zeros_(parts["bias_hh_l0"][forget])


class Kind(typing.NamedTuple):
    """A network: how it is made, what sort it is, how it is drawn."""

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
    """Compute the Frobenius norm of ∂y_T/∂x_t for each t, T the last position; index 0 is distance 0.

    The input is repeated d times and row i differentiates unit i alone, so that one backward pass gives every entry.
    """
    rows = x.detach().expand(x.shape[-1], *x.shape).clone().requires_grad_()
    last = network(rows)[:, -1]
    (jacobian,) = torch.autograd.grad(last.diagonal().sum(), rows)
    return jacobian.square().sum((0, 2)).sqrt().flip(0)


def observe(build: Callable[[int], Network], length: int, seeds: int) -> Curve:
    """Measure several networks of a kind, each with its own input."""
    samples = torch.stack([norms(build(WIDTH), torch.randn(length, WIDTH)) for _ in range(seeds)])
    low, middle, high = samples.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=0)
    return Curve(low.tolist(), middle.tolist(), high.tolist(), decay_factor(middle))


def decay_factor(middle: Tensor) -> float:
    """Compute the decay a step, exp of the logarithm's slope; 1 is level. Values that underflowed are left out."""
    distance, height = log_norms(middle.tolist())
    centred = distance - distance.mean()
    return math.exp(float((centred * height).sum() / centred.square().sum()))


def explained_by_line(middle: list[float]) -> float:
    """Return how much of the logarithm's variance a straight line explains."""
    distance, height = log_norms(middle)
    return float(torch.corrcoef(torch.stack([distance, height]))[0, 1] ** 2)


def log_norms(middle: list[float]) -> tuple[Tensor, Tensor]:
    points = [(step, math.log(value)) for step, value in enumerate(middle) if step >= NEAR and value > 1e-200]
    both = torch.tensor(points, dtype=torch.float64)
    return both[:, 0], both[:, 1]
