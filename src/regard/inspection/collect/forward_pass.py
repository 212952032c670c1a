"""One teacher-forced pass under `watch`, with everything that views, walks and ablations ask of it."""

# n pieces of the output
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.grid import GridSelfAttention
from regard.attention.span import Span
from regard.attention.watch import CallRecord, Looks, watch
from regard.decoding.scoring import check_finite
from regard.inspection.collect.exhibit import Side
from regard.inspection.collect.memory_heads import HeadStep, record_steps
from regard.inspection.collect.sides import grid_side, slots_side
from regard.inspection.collect.teacher_forcing import ForcedExample
from regard.models.contract import Memory, Model

__all__ = ["ForwardPass", "span_of", "watch_forward"]


@dataclass(eq=False)
class ForwardPass:
    """What was recorded in the pass: every look, the memory, and the log-probability of each piece."""

    forced: ForcedExample
    model: Model
    looks: Looks
    memory: Memory
    log_probs: Float[Tensor, " n"]
    head_steps: list[HeadStep] = field(default_factory=list)  # of heads of a memory, those that read the source first

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
        if self.head_steps:
            sides["memory"] = slots_side(self.head_steps[0].weights.shape[-1])
        grid = self.memory.grid
        for name in self.looks:
            if isinstance(self.module(name), GridSelfAttention):  # it may stand before the last stages
                height, width = self.looks[name].weights.shape[-2:]
                grid = height, width
        return sides if grid is None else {**sides, "places": grid_side(grid)}


@torch.no_grad()
def watch_forward(model: Model, forced: ForcedExample) -> ForwardPass:
    """Run the pass under `watch`, and record it."""
    with watch(model) as looks, record_steps(model) as head_steps:
        memory = forced.memory(model)
        log_probs = forced.log_probs(model, memory=memory)[0]
    check_finite(model, log_probs)
    return ForwardPass(forced, model, looks, memory, log_probs, head_steps)


def span_of(record: CallRecord) -> Span | None:
    """The span that a call was given."""
    return next((value for value in (*record.args, *record.kwargs.values()) if isinstance(value, Span)), None)
