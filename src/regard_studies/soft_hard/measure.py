"""Measurements of captioning systems: how good their captions are, and where they look."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from regard.evaluation import measure_bleu_n, measure_cider, text_scores
from regard.inspection import word_grounding
from regard_studies.corpora.images import Gallery
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.systems import TrainedSystem

__all__ = ["BEAM", "Figures", "measure_system", "measure_systems", "score_captions"]

BEAM = 5
Figures = Mapping[
    str, SeedStatistics
]  # bleu-1 to bleu-4, cider, exact, seconds; entropy, largest, places; grounded, chance


def measure_systems(systems: Sequence[TrainedSystem], gallery: Gallery) -> Figures:
    """Measure all figures of a system, a value per seed."""
    each = [measure_system(system, gallery) for system in systems]
    return {key: SeedStatistics(tuple(one[key] for one in each)) for key in each[0]} | {
        "seconds": over_seeds(systems, lambda system: system.seconds)
    }


def measure_system(system: TrainedSystem, gallery: Gallery) -> dict[str, float]:
    """Measure a system's captions, and where it looks."""
    run, pixels = system.run, torch.from_numpy(np.stack(gallery.pixels))
    figures = score_captions(run.caption(gallery.pixels, beam=BEAM), gallery.references)
    if not run.model.cross_attentions:
        return figures
    tokenizer, texts = run.tokenizers.target, [captions[0] for captions in gallery.references]
    spread = word_grounding.concentration(run.model, tokenizer, pixels, texts)
    figures |= {"entropy": spread.entropy, "largest": 100 * spread.largest, "places": float(spread.cells)}
    if gallery.scenes:
        pointing = word_grounding.grounding(run.model, tokenizer, gallery.scenes)
        figures |= {"grounded": 100 * pointing.share, "chance": 100 * pointing.chance}
    return figures


def score_captions(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute BLEU of one to four words, CIDEr-D, and how many captions are exact."""
    captions = [tuple(each) for each in references]
    figures = {f"bleu-{n}": measure_bleu_n(outputs, captions, n).score().value for n in range(1, 5)}
    figures["cider"] = measure_cider(outputs, captions).score().value
    return figures | {"exact": 100 * text_scores.exact(outputs, captions)}
