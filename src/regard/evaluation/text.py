"""Scores of text against references: sacreBLEU's BLEU, chrF and TER with their signatures, and exact match.

`bleu`, `chrf`, `ter` and `exact` give a number; `measure_…` give a row of counts for each sentence, from which that
number, its signature, and everything else about it follow. A reference is a text, or several of which any is right.
"""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.config import suggestion
from regard.errors import ArgumentError
from regard.evaluation.metric import Measured, Reference, alternatives, signature_of

__all__ = [
    "TOKENIZERS",
    "bleu",
    "check_tokenizer",
    "chrf",
    "exact",
    "measure_bleu",
    "measure_chrf",
    "measure_exact",
    "measure_ter",
    "plain",
    "ter",
]

# sacreBLEU's that need nothing else installed: mteval's for European languages, by Unicode's classes, Chinese
# characters one by one, all characters one by one, and text that is tokenised already.
TOKENIZERS = ("13a", "intl", "zh", "char", "none")


def bleu(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Corpus BLEU, 0 to 100 (Papineni et al. 2002; sacreBLEU's tokenisation 13a and exponential smoothing)."""
    return measure_bleu(outputs, references).score().value


def chrf(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """chrF2, 0 to 100 (Popović 2015)."""
    return measure_chrf(outputs, references).score().value


def ter(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Translation edit rate, from 0, which is best: edits a hundred reference words (Snover et al. 2006)."""
    return measure_ter(outputs, references).score().value


def exact(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """The share of outputs that are their reference, 0 to 1; white space counts as one space."""
    return measure_exact(outputs, references).score().value


def measure_bleu(
    outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False, tokenize: str = "13a"
) -> Measured:
    """BLEU's lengths, matches and n-grams, sentence by sentence."""
    from sacrebleu import BLEU

    check_tokenizer(tokenize)
    return _measure("BLEU", BLEU(lowercase=lowercase, tokenize=tokenize, force=True), outputs, references)


def measure_chrf(outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False) -> Measured:
    """chrF2's matches of character n-grams, sentence by sentence."""
    from sacrebleu import CHRF

    return _measure("chrF", CHRF(lowercase=lowercase), outputs, references)


def measure_ter(outputs: Sequence[str], references: Sequence[Reference]) -> Measured:
    """TER's edits and reference lengths, sentence by sentence; case never counts, as in sacreBLEU and Tercom."""
    from sacrebleu import TER

    return _measure("TER", TER(), outputs, references, higher=False)


def measure_exact(outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False) -> Measured:
    """Whether each output is one of its references."""
    rows = [
        (float(plain(output, lowercase) in {plain(each, lowercase) for each in given}), 1.0)
        for output, given in zip(outputs, alternatives(references), strict=True)
    ]
    signature = signature_of(references, case="lc" if lowercase else "mixed")
    return Measured("exact match", _array(rows, 2), _share, signature, "share")


def check_tokenizer(name: str) -> None:
    """Refuse a name that is none of TOKENIZERS."""
    if name not in TOKENIZERS:
        raise ArgumentError(f"tokenize: {name!r} given, no such tokenisation{suggestion(name, TOKENIZERS)}")


def plain(text: str, lowercase: bool = False) -> str:
    """Text in Unicode's composed form (NFC), its white space as single spaces and none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text.lower() if lowercase else text).split())


def _measure(
    name: str, metric: Any, outputs: Sequence[str], references: Sequence[Reference], *, higher: bool = True
) -> Measured:
    """A sacreBLEU metric's sentence statistics, which are what its own significance tests resample."""
    given = alternatives(references)
    if len(outputs) != len(given):
        raise ArgumentError(f"references: {len(given)} given for {len(outputs)} outputs, expected as many")
    streams = list(itertools.zip_longest(*given)) or [()]  # sacreBLEU's way round: all first ones, all second ones
    rows = metric._extract_corpus_statistics(list(outputs), streams)
    width = len(rows[0]) if rows else 0

    def of(sums: list[float]) -> float:
        return float(metric._compute_score_from_stats(sums).score) if sums else 0.0

    return Measured(name, _array(rows, width), of, str(metric.get_signature()), higher=higher)


def _array(rows: Sequence[Sequence[float]], width: int) -> np.ndarray:
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def _share(sums: list[float]) -> float:
    return sums[0] / sums[1] if sums[1] else 0.0
