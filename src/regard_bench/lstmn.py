"""Benchmarks of the LSTMN: one of its layers compared with nn.LSTMCell, for one step and a sentence, in float32."""

# b rows · n steps · e width of an input · d of a state
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from regard.attention import Cache, use_backend
from regard.models import Tapes
from regard_bench.measure import Result, Timing, agree, compare_times, time_interleaved

ROWS, STEPS, WIDTH = 64, 50, 256
MAX_RATIO = 3.0
REPEATS = 10  # one step is too short to be timed on its own


def run(rounds: int = 9, seed: int = 0, rows: int = ROWS, steps: int = STEPS, width: int = WIDTH) -> Iterator[Result]:
    """Compare a step that attends to `steps` entries, and a sentence of as many words, on this machine's CPU."""
    torch.manual_seed(seed)
    layer, cell = Tapes(width, width, width), nn.LSTMCell(width, width)
    x = torch.randn(rows, steps, width)
    same_results(layer, cell, x)
    sizes = f"{rows} rows, width {width}"
    step = torch.no_grad()(a_step(layer, x))
    peer = torch.no_grad()(repeat_call(lambda: cell(x[:, 0], (x[:, 1], x[:, 2]))))
    yield compare_layers(f"LSTMN, one step at length {steps}, {sizes}", time_interleaved([step, peer], rounds), REPEATS)
    what = f"LSTMN, a sentence of {steps} words, {sizes}"
    forward = [torch.no_grad()(lambda: layer(x)), torch.no_grad()(lambda: by_cell(cell, x))]
    yield compare_layers(f"{what}, forward", time_interleaved(forward, rounds))
    gradient = torch.randn(rows, steps, width)
    trained = [
        lambda: layer(x)[..., :width].backward(gradient),
        lambda: by_cell(cell, x).backward(gradient),
    ]
    yield compare_layers(f"{what}, forward and backward", time_interleaved(trained, rounds))


def same_results(layer: Tapes, cell: nn.LSTMCell, x: Tensor) -> None:
    """Check the layer without attention against nn.LSTMCell, and with it against the plain loop and its own steps."""
    plain = Tapes(x.shape[-1], layer.size, 1, intra=False)
    plain.cell.net.load_state_dict({f"{name}_l0": weight for name, weight in cell.state_dict().items()})
    with torch.no_grad():
        agree("an LSTM's states", plain(x)[..., : layer.size], by_cell(cell, x), 1e-4)
        by_hand = layer(x)
        with use_backend("dense"):
            agree("the states of the plain loop", by_hand, layer(x), 1e-4)
        before = layer.begin(len(x), x.shape[1])
        stepped = torch.stack([layer.step(each, before) for each in x.unbind(1)], 1)
    agree("the states of the steps", stepped, by_hand[..., : layer.size], 1e-4)


def by_cell(cell: nn.LSTMCell, x: Tensor) -> Tensor:
    """Return the states of nn.LSTMCell over a sentence."""
    h = c = x.new_zeros(len(x), cell.hidden_size)
    states = []
    for each in x.unbind(1):
        h, c = cell(each, (h, c))
        states.append(h)
    return torch.stack(states, 1)


def a_step(layer: Tapes, x: Tensor) -> Callable[[], None]:
    """Return a call that takes steps with full tapes, overwriting the last entry each time."""
    steps = x.shape[1]
    before = layer.begin(len(x), steps + 1)
    past: Cache = before["past"]
    with torch.no_grad():
        for each in x.unbind(1):
            layer.step(each, before)

    def step() -> None:
        layer.step(x[:, 0], before)
        assert past.length is not None
        past.length.fill_(steps)

    return repeat_call(step)


def repeat_call(call: Callable[[], object]) -> Callable[[], None]:
    """Return a call that calls `call` several times."""

    def calls() -> None:
        for _ in range(REPEATS):
            call()

    return calls


def compare_layers(what: str, timings: list[Timing], times: int = 1) -> Result:
    """Compare the timings of both, of `times` calls each, as one line."""
    each = [Timing(one.median / times, one.low / times, one.high / times) for one in timings]
    return compare_times(what, ("LSTMN", "nn.LSTMCell"), each, f"at most {MAX_RATIO:g} × its time", most=MAX_RATIO)
