"""Language modelling: predicting the target side of a corpus, token by token, without the source."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.config import parse
from regard.data import UNKNOWN
from regard.decoding import Options, batches, tokens_of
from regard.errors import ArgumentError
from regard.tasks import forcing
from regard.tasks.forcing import ForcedExample, Item
from regard.tasks.task import TextPairs, TrainedRun, Translation, to_translation

SAMPLE = 100  # default maximum number of tokens of a text


class LanguageModel(TextPairs):
    """The task of predicting the target side without the source."""

    actions = ("sample",)

    def validate(self) -> dict[str, float]:
        """Measure the loss per token, and the perplexity, its exponential, without decoding."""
        figures = self.loss()
        return figures | {"perplexity": float(np.exp(min(figures["loss"], 700.0)))} if figures else figures

    @classmethod
    def force(cls, run: TrainedRun, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return a given text for a teacher-forced pass; there is no search."""
        if target is not None:
            raise ArgumentError("target: given to a language model, expected only a text")
        text, tokenizer = str(item), run.tokenizers.target
        output = forcing.encode_text(tokenizer, text, "text", run.model.limit)
        sides = forcing.output_sides(tokenizer, output, text)
        # The model ignores its source.
        return ForcedExample(tokens_of([[UNKNOWN]], run.device), sides, text, tokenizer.decode(output), tuple(output))


def sample(run: TrainedRun, count: int = 1, prefix: str = "", **options: Any) -> list[Translation]:
    """Sample `count` texts from the model; each continues the prefix."""
    most = SAMPLE if run.model.limit is None else min(SAMPLE, run.model.limit - 1)
    parsed = parse(Options, {"longest": most, **options, "sample": True, "nbest": 1})
    # The model ignores the sources; their different numbers give each text its own random numbers.
    sources, begun = [[number] for number in range(count)], run.tokenizers.target.encode(prefix)
    results = batches.search_in_batches(run.model, sources, parsed, prefixes=[begun] * count, device=run.device)
    return [to_translation(each.outputs[0], run.tokenizers.target) for each in results]


def score_texts(run: TrainedRun, texts: Sequence[str]) -> list[batches.Scored]:
    """Score each text by its log-probability under the model."""
    encoded = run.tokenizers.target.encode_batch(list(texts))
    # The model ignores the sources.
    return batches.score_pairs(run.model, [[UNKNOWN]] * len(texts), encoded, device=run.device)
