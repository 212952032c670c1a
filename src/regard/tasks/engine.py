"""Engines: what searches and scores for a run. A model of Regard's own is one; another library may stand in its place.

An engine gets token numbers and gives token numbers, so that all that is done with texts stays the same. It refuses
options that it does not serve, by their names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.data import Tokenizers
from regard.decoding import Options, Replay, SearchResult, batches, first_model
from regard.inspection import AlignmentSettings, extraction
from regard.models import Model

Ids = Sequence[Sequence[int]]


class Engine(Protocol):
    """What a run searches, scores and aligns with."""

    def check(self, options: Options) -> None:
        """Refuse options that it does not serve, by a ConfigError with the option's name."""

    def search(
        self, sources: Ids, options: Options, *, prefixes: Ids | None = None, budget: int | None = None
    ) -> list[SearchResult]:
        """Search for each of the sources, in batches of `budget` source tokens for each hypothesis."""

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""

    def word_weights(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[Tensor]:
        """Return how much each target word of a pair looked at each source word, by the settings of alignment."""

    def word_attention(
        self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings
    ) -> list[extraction.WordAttention]:
        """Return these weights, and how much each source word received in all."""

    def link_words(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[extraction.Links]:
        """Return the links between the words of each pair."""


@dataclass(frozen=True, eq=False)
class ModelEngine:
    """A model of Regard's under its own search; `replay` keeps the graphs of searches on a GPU."""

    model: Model
    tokenizers: Tokenizers
    device: torch.device
    replay: Replay | None = None

    def check(self, options: Options) -> None:
        """Refuse nothing: the search serves every option, or says why not when it begins."""

    def search(
        self, sources: Ids, options: Options, *, prefixes: Ids | None = None, budget: int | None = None
    ) -> list[SearchResult]:
        """Search for each of the sources in batches."""
        how = {"prefixes": prefixes, "device": self.device, "budget": budget, "replay": self.replay}
        return batches.search_in_batches(self.model, sources, options, **how)  # type: ignore[arg-type]

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""
        return batches.score_pairs(self.model, sources, targets, device=self.device)

    def word_weights(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[Tensor]:
        """Read the weights in a teacher-forced pass."""
        return extraction.word_weights(first_model(self.model), self.tokenizers, pairs, settings)

    def word_attention(
        self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings
    ) -> list[extraction.WordAttention]:
        """Read the weights and what each source word received in a teacher-forced pass."""
        return extraction.word_attention(first_model(self.model), self.tokenizers, pairs, settings)

    def link_words(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[extraction.Links]:
        """Read the links in a teacher-forced pass."""
        return extraction.link_words(first_model(self.model), self.tokenizers, pairs, settings)
