"""States of a recurrent network, one by one: the encoder's as the source was read, the decoder's as it wrote."""

# m source pieces · n target pieces · d width
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.state import State as Steps
from regard.data.tokenizer import START
from regard.inspection.collect.exhibit import State
from regard.inspection.collect.forward_pass import Watched
from regard.models.captioner.lstm import LSTMDecoder
from regard.models.contract import Model

__all__ = ["states_of"]

RECURRENT = ("rnn", "rnnsearch", "luong", "lstmn", "pointer", "ntm")


@torch.no_grad()
def states_of(seen: Watched) -> tuple[State, ...]:
    """Every state in the order in which they came about; none of a model that is not recurrent.

    They are those of the top layer, h without c of an LSTM; of an encoder that reads from both ends both halves.
    """
    model, forced = seen.model, seen.forced
    kind = type(model).__name__.removesuffix("Model").lower()
    captions = isinstance(getattr(model, "decoder", None), LSTMDecoder)
    if kind not in RECURRENT and not captions:
        return ()
    found = [] if captions else list(reading(seen))
    if forced.target is not None:
        found += writing(seen)
    return tuple(found)


def reading(seen: Watched) -> Iterator[State]:
    """The encoder's; a source that is read backwards arrives backwards."""
    states = seen.memory.states[0].float().cpu()
    if "source" not in seen.forced.sides or not len(states):
        return
    config = getattr(seen.model, "config", None)
    if hasattr(config, "intra"):  # the hidden tape, without the memory tape beside it
        states = states[:, : getattr(config, "size", None)]
    pairs = list(zip(seen.forced.sides["source"].pieces, states, strict=False))
    for piece, values in reversed(pairs) if getattr(config, "reverse", False) else pairs:
        yield State(piece, values, "source")


def writing(seen: Watched) -> Iterator[State]:
    """The decoder's, each after a piece was read: the same steps as a search takes."""
    target = seen.forced.target
    assert target is not None
    state = seen.model.start(seen.memory, 1, len(target) + 1)
    for piece, token in zip(seen.forced.sides["read"].pieces, (START, *target), strict=True):
        _, state = seen.model.step(torch.tensor([token], device=seen.memory.states.device), state)
        yield State(piece, top(state, seen.model).float().cpu(), "target")


def top(state: Steps, model: Model) -> Float[Tensor, " d"]:
    """h of the top layer."""
    row = state.row
    if "state" in row:  # [r l p d] of a stack, [r p d] of one cell
        held = row["state"][0].clone()
        return held[-1, 0] if held.ndim == 3 else held[0]
    layer = max(int(name.rpartition(".")[2]) for name in row if "." in name)
    size = model.config.size
    if f"state.{layer}" in row:
        return row[f"state.{layer}"][0, :size].clone()
    past = row[f"past.{layer}"]
    return past.values[0, int(past.length[0]) - 1, :size].clone()
