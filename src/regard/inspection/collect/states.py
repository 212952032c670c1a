"""States of a recurrent network, one by one: the encoder's as the source was read, the decoder's as it wrote."""

from collections.abc import Iterator

import torch

from regard.data.tokenizer import START
from regard.inspection.collect.exhibit import State
from regard.inspection.collect.forward_pass import ForwardPass

__all__ = ["states_of"]


@torch.no_grad()
def states_of(forward: ForwardPass) -> tuple[State, ...]:
    """Every state in the order in which they came about; none of a model that is not recurrent.

    They are those of the top layer, h without c of an LSTM; of an encoder that reads from both ends both halves.
    """
    found = list(encoder_states(forward))
    if forward.forced.target is not None:
        found += decoder_states(forward)
    return tuple(found)


def encoder_states(forward: ForwardPass) -> Iterator[State]:
    """The encoder's states; a source that is read backwards arrives backwards."""
    states = forward.model.source_states(forward.memory)
    if states is None or "source" not in forward.forced.sides:
        return
    pairs = list(zip(forward.forced.sides["source"].pieces, states[0].float().cpu(), strict=False))
    for piece, values in reversed(pairs) if forward.model.reads_backwards else pairs:
        yield State(piece, values, "source")


def decoder_states(forward: ForwardPass) -> Iterator[State]:
    """The decoder's states, each after a piece was read: the same steps as a search takes."""
    target = forward.forced.target
    assert target is not None
    state = forward.model.start(forward.memory, 1, len(target) + 1)
    if forward.model.hidden_state(state) is None:
        return
    for piece, token in zip(forward.forced.sides["read"].pieces, (START, *target), strict=True):
        _, state = forward.model.step(torch.tensor([token], device=forward.memory.states.device), state)
        hidden = forward.model.hidden_state(state)
        assert hidden is not None
        yield State(piece, hidden[0].float().cpu().clone(), "target")
