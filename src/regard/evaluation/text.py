"""Scores of text against references: sacreBLEU's BLEU and chrF, and exact match."""

from collections.abc import Sequence

__all__ = ["bleu", "chrf", "exact"]


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, 0 to 100 (Papineni et al. 2002; sacreBLEU's tokenisation 13a and exponential smoothing)."""
    import sacrebleu

    return float(sacrebleu.corpus_bleu(list(outputs), [list(references)], force=True).score)


def chrf(outputs: Sequence[str], references: Sequence[str]) -> float:
    """chrF2, 0 to 100 (Popović 2015)."""
    import sacrebleu

    return float(sacrebleu.corpus_chrf(list(outputs), [list(references)]).score)


def exact(outputs: Sequence[str], references: Sequence[str]) -> float:
    """The share of outputs that are their reference, 0 to 1; white space counts as one space."""
    same = sum(" ".join(o.split()) == " ".join(r.split()) for o, r in zip(outputs, references, strict=True))
    return same / len(outputs) if outputs else 0.0
