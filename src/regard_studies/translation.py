"""Translators: how they are trained, and what is measured on a test set: BLEU, perplexity, and how well they align."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.alignment import selection
from regard.decoding import batches, first_model
from regard.inspection import Cell
from regard.run import Run
from regard_studies.corpora import AlignedPairs, Pairs
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.setting import Setting
from regard_studies.systems import TrainedSystem, training_settings

BUDGET = 16_384  # tokens a side that are scored together on a GPU, and
BUDGET_CPU = 2048  # elsewhere
COLUMNS = ("BLEU", "perplexity", "million parameters", "seconds of training")
FORMATS = ("", "", ".2f", ".0f")


@dataclass(frozen=True)
class TranslationFigures:
    """The figures of a system, a value per seed, and its size."""

    bleu: SeedStatistics
    perplexity: SeedStatistics
    seconds: SeedStatistics
    parameters: int

    @property
    def cells(self) -> list[Cell]:
        """Return the cells of a row under COLUMNS, with FORMATS."""
        return [self.bleu.as_text(), self.perplexity.as_text(".2f"), self.parameters / 1e6, self.seconds.mean]


def translator_training(setting: Setting, steps: int, **options: Any) -> dict[str, Any]:
    """Build [training] of a Transformer that is judged by its translations, but for the options."""
    real, quick = setting.corpora is not None, setting.quick
    usual = {
        "batch_tokens": 8192 if real else 1024 if quick else 4096,
        "rate": 3e-3 if quick else 1.5e-3,
        "smoothing": 0.1 if real else 0.05,
        "validate_rows": 50,
        "metric": "bleu" if real else "exact",
        "keep": 1,
        **({"warmup": steps // 5} if real else {}),
    }
    return training_settings(steps, **usual | options)


def measure_translations(systems: Sequence[TrainedSystem], corpus: Pairs, beam: int = 5) -> TranslationFigures:
    """Measure systems that differ in their seed: BLEU, and perplexity per token of the references."""
    return TranslationFigures(
        over_seeds(systems, lambda each: corpus.bleu(each.run.translate(corpus.sources, beam=beam))),
        over_seeds(systems, lambda each: perplexity(each.run, corpus)),
        over_seeds(systems, lambda each: each.seconds),
        systems[0].parameters,
    )


def perplexity(run: Run, corpus: Pairs) -> float:
    """Return the perplexity per token of the test set's targets, including their ends."""
    totals, tokens = log_probs(run, corpus.sources, corpus.references)
    return math.exp(-sum(totals) / sum(tokens))


def score_heads(run: Run, aligned: AlignedPairs, which: slice = slice(None)) -> list[selection.Reading]:
    """Score every head as an aligner of some of the pairs, by the word that a step writes and by the one it reads."""
    sides = (aligned.sources[which], run.tokenizers.source), (aligned.targets[which], run.tokenizers.target)
    pairs = list(zip(*(tokenizer.encode_batch(texts) for texts, tokenizer in sides), strict=True))
    return selection.score_heads(first_model(run.model), run.tokenizers, pairs, aligned.gold[which])


def error_rates(run: Run, readings: Sequence[selection.Reading]) -> tuple[float, float]:
    """Return the AER, in percent, of the layer that is read as an alignment: of the word written, and the word read."""
    view = first_model(run.model).alignment_attention
    rates = {each.offset: 100 * each.aer for each in readings if each.head is None and each.view == view}
    return rates[0], rates[1]


def log_probs(run: Run, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[float], list[int]]:
    """Compute the log-probability of every target, and its number of tokens, including its end."""
    encoded = [run.tokenizers.source.encode_batch(list(sources)), run.tokenizers.target.encode_batch(list(targets))]
    budget = BUDGET if run.device.type == "cuda" else BUDGET_CPU
    scores = batches.score_pairs(run.model, *encoded, device=run.device, budget=budget)
    return [each.log_prob for each in scores], [len(each.tokens) for each in scores]
