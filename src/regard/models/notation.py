"""The notation of a model's paper: names of the stages of its attention, and of the steps up to its readout.

A walk through a model (`regard look --steps`) has these words beside its numbers. A kind says its own as `notation`, a
plugin's as well; without one the walk has the words of attention in general. Imports no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Reading:
    """Numbers between the context and the readout: the input or the output of a module."""

    module: str  # its dotted name
    what: Literal["input", "output", "state"]  # "state": h after a step of a recurrent cell, or c with it
    formula: str
    words: str
    main: bool = True


@dataclass(frozen=True)
class Notation:
    """The formulas of one kind."""

    symbols: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by symbol of a stage: its formula, and words
    attentions: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)  # of one attention, by name
    readout: tuple[Reading, ...] = ()  # in order; those that did not run are left out

    def of(self, attention: str) -> Mapping[str, tuple[str, str]]:
        """Look up the names of one attention's stages, by its whole name or the last part of it."""
        own = self.attentions.get(attention, self.attentions.get(attention.rpartition(".")[2], {}))
        return {**self.symbols, **own}


def additive(query: str, key: str, weight: str, context: str, words: str) -> dict[str, tuple[str, str]]:
    """Name the stages of additive attention as a paper does: query, key, weight and context."""
    tanh = f"tanh(W {query} + U {key} + b)"
    return {
        "q": (query, words),
        "W q": (f"W {query}", "the query, projected"),
        "U k + b": (f"U {key} + b", "every key, projected, once for all words"),
        "tanh(W q + U k + b)": (tanh, "query and key together"),
        "e": (f"e = vᵀ {tanh}", "the score of every key"),
        "a": (f"{weight} = softmax(e)", ""),
        "v": (key, "what is summed"),
        "Σ a v": (f"{context} = Σ {weight} {key}", "the context: what this word reads"),
    }
