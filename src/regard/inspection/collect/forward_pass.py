"""One teacher-forced pass under `watch`, with everything that views, walks and ablations ask of it."""

# n pieces of the output · b rows of a batch · d width of a controller
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.grid import GridSelfAttention
from regard.attention.span import Span
from regard.attention.watch import CallRecord, Looks, watch
from regard.decoding.scoring import check_finite
from regard.inspection.collect.exhibit import Side
from regard.inspection.collect.sides import grid_side, slots_side
from regard.inspection.collect.teacher_forcing import ForcedExample
from regard.models.contract import Memory, Model
from regard.models.ntm.model import Machine, NTMModel

__all__ = ["ForwardPass", "MachineStep", "span_of", "watch_forward"]


@dataclass(frozen=True, eq=False)
class MachineStep:
    """One step of a Turing machine: what its heads were given, and the machine's weights after it."""

    hidden: Float[Tensor, "b d"]
    before: Machine
    weights: Float[Tensor, "b hh m"]


@dataclass(eq=False)
class ForwardPass:
    """What was recorded in the pass."""

    forced: ForcedExample
    model: Model
    looks: Looks
    memory: Memory
    log_probs: Float[Tensor, " n"]
    turns: list[MachineStep] = field(default_factory=list)  # of an ntm, those that read the source first

    def module(self, name: str) -> nn.Module:
        """An attention by its name."""
        return self.looks.modules[name]

    def calls(self, name: str) -> list[CallRecord]:
        """The calls of an attention, in order."""
        return self.looks.calls[name]

    @cached_property
    def sides(self) -> dict[str, Side]:
        """The sides of an exhibit, those that only the model knows among them: the places of its grid, its slots."""
        sides = dict(self.forced.sides)
        if isinstance(self.model, NTMModel):
            sides["memory"] = slots_side(self.model.config.slots)
        grid = self.memory.grid
        for name in self.looks:
            if isinstance(self.module(name), GridSelfAttention):  # it may stand before the last stages
                height, width = self.looks[name].weights.shape[-2:]
                grid = height, width
        return sides if grid is None else {**sides, "places": grid_side(grid)}


@torch.no_grad()
def watch_forward(model: Model, forced: ForcedExample) -> ForwardPass:
    """The pass."""
    turns = list[MachineStep]()
    with watch(model) as looks, record_steps(model, turns):
        memory = forced.memory(model)
        log_probs = forced.log_probs(model, memory=memory)[0]
    check_finite(model, log_probs)
    return ForwardPass(forced, model, looks, memory, log_probs, turns)


@contextmanager
def record_steps(model: Model, turns: list[MachineStep]) -> Iterator[None]:
    """Note each step of a Turing machine, whose heads are no attention that `watch` knows."""
    if not isinstance(model, NTMModel):
        yield
        return

    def note(module: nn.Module, given: tuple[Any, ...], made: tuple[Tensor, Tensor, Tensor]) -> None:
        turns.append(MachineStep(given[0], given[1], made[1]))

    hook = model.heads.register_forward_hook(note)
    try:
        yield
    finally:
        hook.remove()


def span_of(record: CallRecord) -> Span | None:
    """The span that a call was given."""
    return next((value for value in (*record.args, *record.kwargs.values()) if isinstance(value, Span)), None)
