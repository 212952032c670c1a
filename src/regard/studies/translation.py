"""What trained translators make of a test set, and how far apart two of them have to be to differ."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.decoding.batches import score_pairs
from regard.run import Run
from regard.studies.corpora.pairs import Pairs
from regard.studies.seed_statistics import SeedStatistics, over_seeds
from regard.studies.systems import TrainedSystem

__all__ = [
    "TranslationFigures",
    "are_alike",
    "log_probs",
    "margin",
    "measure_translations",
    "measure_translator",
    "perplexity",
]

BUDGET = 16_384  # tokens a side that are scored together on a GPU, and
BUDGET_CPU = 2048  # elsewhere
FLOOR = 0.5  # BLEU: what one seed alone cannot tell from chance


@dataclass(frozen=True)
class TranslationFigures:
    """The figures of a system, a value a seed, and its size."""

    bleu: SeedStatistics
    perplexity: SeedStatistics
    seconds: SeedStatistics
    parameters: int


def measure_translations(systems: Sequence[TrainedSystem], corpus: Pairs, beam: int = 5) -> TranslationFigures:
    """The figures of systems that differ in their seed."""
    found = [measure_translator(each, corpus, beam) for each in systems]
    return TranslationFigures(
        SeedStatistics(tuple(bleu for bleu, _ in found)),
        SeedStatistics(tuple(perplexity for _, perplexity in found)),
        over_seeds(systems, lambda each: each.seconds),
        systems[0].parameters,
    )


def measure_translator(system: TrainedSystem, corpus: Pairs, beam: int = 5) -> tuple[float, float]:
    """BLEU of a system's translations, and its perplexity a token of those that are given."""
    return corpus.bleu(system.run.translate(corpus.sources, beam=beam)), perplexity(system.run, corpus)


def perplexity(run: Run, corpus: Pairs) -> float:
    """Of a token of the test set's targets, their ends among them."""
    totals, tokens = log_probs(run, corpus.sources, corpus.references)
    return math.exp(-sum(totals) / sum(tokens))


def log_probs(run: Run, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[float], list[int]]:
    """The log-probability of every target, and how many tokens it has, its end among them."""
    encoded = [run.tokenizers.source.encode_batch(list(sources)), run.tokenizers.target.encode_batch(list(targets))]
    budget = BUDGET if run.device.type == "cuda" else BUDGET_CPU
    found = score_pairs(run.model, *encoded, device=run.device, budget=budget)
    return [each.log_prob for each in found], [len(each.tokens) for each in found]


def margin(figures: Iterable[SeedStatistics], floor: float = FLOOR) -> float:
    """What two means of the same number of seeds have to differ by: two standard errors of their difference.

    The deviation between seeds is taken to be the same for all systems, and is pooled over them. Where there is one
    seed it is not known, and the floor is returned.
    """
    several = [each for each in figures if len(each.values) > 1]
    if not several:
        return floor
    freedom = sum(len(each.values) - 1 for each in several)
    pooled = math.sqrt(sum((len(each.values) - 1) * each.deviation**2 for each in several) / freedom)
    return 2 * pooled * math.sqrt(2 / statistics.fmean(len(each.values) for each in several))


def are_alike(one: SeedStatistics, other: SeedStatistics, floor: float = FLOOR) -> bool:
    """Whether two means are no further apart than their deviations together; of one seed, than the floor.

    `margin` would call the more alike the more any other system varies.
    """
    return abs(one.mean - other.mean) <= max(floor, one.deviation + other.deviation)
