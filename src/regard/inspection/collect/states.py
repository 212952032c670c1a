"""States of a recurrent network, one by one: the encoder's as the source was read, the decoder's as it wrote."""

from collections.abc import Iterator

import torch

from regard.data.tokenizer import START
from regard.inspection.collect.exhibit import State
from regard.inspection.collect.forward_pass import Watched

__all__ = ["states_of"]


@torch.no_grad()
def states_of(seen: Watched) -> tuple[State, ...]:
    """Every state in the order in which they came about; none of a model that is not recurrent.

    They are those of the top layer, h without c of an LSTM; of an encoder that reads from both ends both halves.
    """
    found = list(reading(seen))
    if seen.forced.target is not None:
        found += writing(seen)
    return tuple(found)


def reading(seen: Watched) -> Iterator[State]:
    """The encoder's states; a source that is read backwards arrives backwards."""
    states = seen.model.source_states(seen.memory)
    if states is None or "source" not in seen.forced.sides:
        return
    pairs = list(zip(seen.forced.sides["source"].pieces, states[0].float().cpu(), strict=False))
    for piece, values in reversed(pairs) if seen.model.reads_backwards else pairs:
        yield State(piece, values, "source")


def writing(seen: Watched) -> Iterator[State]:
    """The decoder's states, each after a piece was read: the same steps as a search takes."""
    target = seen.forced.target
    assert target is not None
    state = seen.model.start(seen.memory, 1, len(target) + 1)
    if seen.model.hidden_state(state) is None:
        return
    for piece, token in zip(seen.forced.sides["read"].pieces, (START, *target), strict=True):
        _, state = seen.model.step(torch.tensor([token], device=seen.memory.states.device), state)
        hidden = seen.model.hidden_state(state)
        assert hidden is not None
        yield State(piece, hidden[0].float().cpu().clone(), "target")
