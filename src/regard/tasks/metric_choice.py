"""The choice of the metric that decides the best checkpoint, where `training.metric` is left open.

BLEU counts runs of four words: it is 0 for targets of fewer, whatever a model learns, and in a script without spaces
its words are whole sentences. A metric is chosen from the references that are held out.
"""

from collections import Counter
from collections.abc import Sequence

from regard.data import TextProfile

BLEU_WORDS = 4  # in its longest n-grams
SPELLED = 30  # symbols of a line: of more, hardly one is right to the last
CIDER = 50  # pictures: it weighs words by how few of them they speak of
MAJORITY = 0.8  # share of the most frequent label, from which calling everything by it looks good


def translation_metric(references: Sequence[str]) -> str:
    """Choose BLEU for sentences; exact match for words, names and symbols; chrF for scripts without spaces."""
    shape = TextProfile.of(references)
    if shape.spelled and shape.words > SPELLED:
        return "chrf"
    return without_bleu(shape) or ("exact" if shape.spelled else "bleu")


def caption_metric(references: Sequence[Sequence[str]]) -> str:
    """Choose CIDEr for enough captions of several words; exact match for one or two words; else chrF."""
    shape = TextProfile.of([text for texts in references for text in texts])
    return without_bleu(shape) or ("cider" if len(references) >= CIDER else "chrf")


def without_bleu(shape: TextProfile) -> str | None:
    """Choose a metric where n-grams of words say nothing: no texts, no spaces, or too few words; else None."""
    if not shape.words:
        return "loss"
    if shape.unspaced:
        return "chrf"
    return "exact" if shape.words < BLEU_WORDS else None


def label_metric(labels: Sequence[int]) -> str:
    """Choose accuracy; macro-F1 where one label dominates; the loss where all have the same label."""
    counts = Counter(labels)
    if len(counts) < 2:
        return "loss"
    return "f1" if max(counts.values()) >= MAJORITY * len(labels) else "accuracy"
