"""Measurements of trained translators on a test set: BLEU, perplexity, and log-probabilities of the references."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.decoding import batches
from regard.run import Run
from regard_studies.corpora import Pairs
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.systems import TrainedSystem

__all__ = ["TranslationFigures", "log_probs", "measure_translations", "measure_translator", "perplexity"]

BUDGET = 16_384  # tokens a side that are scored together on a GPU, and
BUDGET_CPU = 2048  # elsewhere


@dataclass(frozen=True)
class TranslationFigures:
    """The figures of a system, a value per seed, and its size."""

    bleu: SeedStatistics
    perplexity: SeedStatistics
    seconds: SeedStatistics
    parameters: int


def measure_translations(systems: Sequence[TrainedSystem], corpus: Pairs, beam: int = 5) -> TranslationFigures:
    """Measure systems that differ in their seed."""
    figures = [measure_translator(each, corpus, beam) for each in systems]
    return TranslationFigures(
        SeedStatistics(tuple(bleu for bleu, _ in figures)),
        SeedStatistics(tuple(perplexity for _, perplexity in figures)),
        over_seeds(systems, lambda each: each.seconds),
        systems[0].parameters,
    )


def measure_translator(system: TrainedSystem, corpus: Pairs, beam: int = 5) -> tuple[float, float]:
    """Measure the BLEU of a system's translations, and its perplexity per token of the references."""
    return corpus.bleu(system.run.translate(corpus.sources, beam=beam)), perplexity(system.run, corpus)


def perplexity(run: Run, corpus: Pairs) -> float:
    """Return the perplexity per token of the test set's targets, including their ends."""
    totals, tokens = log_probs(run, corpus.sources, corpus.references)
    return math.exp(-sum(totals) / sum(tokens))


def log_probs(run: Run, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[float], list[int]]:
    """Compute the log-probability of every target, and its number of tokens, including its end."""
    encoded = [run.tokenizers.source.encode_batch(list(sources)), run.tokenizers.target.encode_batch(list(targets))]
    budget = BUDGET if run.device.type == "cuda" else BUDGET_CPU
    scores = batches.score_pairs(run.model, *encoded, device=run.device, budget=budget)
    return [each.log_prob for each in scores], [len(each.tokens) for each in scores]
