"""An ensemble: several models that share a vocabulary, searched as one model with the mean of their probabilities."""

# b sentences · r rows, hypotheses of all sentences · v vocabulary
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import State
from regard.errors import ArgumentError
from regard.models import Memory, Model, Source


@dataclass(frozen=True, eq=False)
class Memories(Memory):
    """The memories of all models in `each`; the inherited fields are those of the first model's memory."""

    each: tuple[Memory, ...] = ()


class Ensemble(Model):
    """An ensemble of models of any kinds with one vocabulary; its probabilities are the mean of theirs."""

    def __init__(self, models: Sequence[Model]):
        super().__init__()
        if not models:
            raise ArgumentError("models: none given, expected at least one")
        self.models, self.each = nn.ModuleList(models), list(models)
        limits = [model.limit for model in models if model.limit is not None]
        self.limit = min(limits, default=None)

    def encode(self, source: Source) -> Memories:
        """Encode the source with each model."""
        each = tuple(model.encode(source) for model in self.each)
        return Memories(each[0].states, each[0].span, each=each)

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return one state that holds the states of all models, with each model's number in the names."""
        assert isinstance(memory, Memories)
        sentence: dict[str, Any] = {}
        row: dict[str, Any] = {}
        for i, (model, own) in enumerate(zip(self.each, memory.each, strict=True)):
            state = model.start(own, rows, size, coverage)
            sentence |= {f"{i}.{name}": part for name, part in state.sentence.items()}
            row |= {f"{i}.{name}": part for name, part in state.row.items()}
        if all(f"{i}.coverage" in row for i in range(len(self.each))):
            row["coverage"] = torch.zeros_like(row["0.coverage"])
        return State(sentence, row, rows)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Take one step with every model, and return the logarithm of their mean probabilities."""
        scores = []
        for i, model in enumerate(self.each):
            logits, _ = model.step(tokens, self.part(state, i))
            scores.append((logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1))
        if state.coverage is not None:
            coverages = [state.row[f"{i}.coverage"] for i in range(len(self.each))]
            state.coverage.copy_(torch.stack(coverages).mean(0))
        return torch.stack(scores).logsumexp(0) - math.log(len(scores)), state

    def part(self, state: State, number: int) -> State:
        """Return one model's state, with the same tensors, so that the model updates them in place."""
        mine = f"{number}."
        return State(
            {name.removeprefix(mine): part for name, part in state.sentence.items() if name.startswith(mine)},
            {name.removeprefix(mine): part for name, part in state.row.items() if name.startswith(mine)},
            state.rows,
        )


def first_model(model: Model) -> Model:
    """Return the first model of an ensemble, whose attention is read, or the model itself."""
    return model.each[0] if isinstance(model, Ensemble) else model
