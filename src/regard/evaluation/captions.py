r"""Scores of captions, each against several references: BLEU-1 … BLEU-4, CIDEr-D and ROUGE-L.

- BLEU (Papineni et al. 2002): n-gram matches over the whole test set, clipped at the highest count of any reference.
  The brevity penalty uses the reference of the nearest length, or the shorter of two. There is no smoothing.
- CIDEr-D (Vedantam et al. 2015, arXiv:1411.5726, section 4 and its appendix): n-grams of one to four words have the
  weight $\log N - \log \max(1, \mathrm{df})$, where df counts the pictures of the test set with the n-gram in a
  reference. The score is the cosine of output and reference, with the output's values clipped at the reference's,
  times $\exp(-(l - l')^2 / 2 \cdot 6^2)$ for lengths l and l', averaged over references and n, times ten (the maximum).
- ROUGE-L (Lin 2004): the longest common subsequence's length, divided by the lengths of the output (P) and of the
  reference (R), the best of each over the references; the mean of $(1 + \beta^2) P R / (R + \beta^2 P)$ with β = 1.2.

Words are lower-case and without punctuation, as in most reports of these scores; `man's` is two words (`man`, `'s`),
and so is `don't` (`do`, `n't`). The COCO scorer's Penn Treebank tokenizer is similar, but not identical.
"""

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from regard.errors import ArgumentError
from regard.evaluation.metric import Measurement, Reference, alternatives, signature_of
from regard.evaluation.text import chrf, count_rows, exact, measure_by, ratio

MAX_NGRAM = 4  # words
SIGMA = 6.0
BETA = 1.2
MARKS = string.punctuation + "«»„“”‘’‚…–—¿¡。、，！？"
BREAKS = re.compile(r"[\s,;:!?()\[\]{}\"“”…]+")
CLITICS = ("'s", "'re", "'ve", "'ll", "'d", "'m", "n't")
CLITIC = re.compile(rf"(?<=\w)({'|'.join(CLITICS)})(?!\w)")

COUNTED = {"case": "lc", "tok": "caption"}  # in signatures
Words = tuple[str, ...]


def caption_scores(outputs: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
    """Score captions in a validation: BLEU-4, ROUGE-L and chrF (0 to 100), CIDEr-D (0 to 10), exact match (0 to 1)."""
    ways = {"bleu": measure_bleu_n, "cider": measure_cider, "rouge": measure_rouge}
    figures = {key: measured(outputs, references).score().value for key, measured in ways.items()}
    return {**figures, "chrf": chrf(outputs, references), "exact": exact(outputs, references)}


def words(text: str) -> Words:
    """Split a caption into lower-case words without punctuation."""
    text = unicodedata.normalize("NFC", text).lower().replace("’", "'")
    pieces = BREAKS.split(CLITIC.sub(r" \1", text))
    return tuple(word for piece in pieces if (word := piece if piece in CLITICS else piece.strip(MARKS)))


def measure_bleu_n(outputs: Sequence[str], references: Sequence[Reference], n: int = MAX_NGRAM) -> Measurement:
    """Count lengths, n-gram matches and n-grams for BLEU-n, per caption, with sacreBLEU."""
    if not 1 <= n <= MAX_NGRAM:
        raise ArgumentError(f"n: {n} given, expected 1 to {MAX_NGRAM}")
    from sacrebleu import BLEU

    pairs = tokenize_pairs(outputs, references)
    texts = [" ".join(output) for output, _ in pairs]
    captions = [[" ".join(each) for each in several] for _, several in pairs]
    metric = BLEU(tokenize="none", smooth_method="none", max_ngram_order=n, force=True)
    measurement = measure_by(f"BLEU-{n}", metric, texts, captions)
    return replace(measurement, signature=signature_of(references, **COUNTED, smooth="none"))


def measure_cider(outputs: Sequence[str], references: Sequence[Reference]) -> Measurement:
    """Measure CIDEr-D for each caption; the corpus score is the mean."""
    pairs = tokenize_pairs(outputs, references)
    spoken = Counter[Words]()  # the number of pictures with each n-gram

    def ngrams(text: Words, n: int) -> list[Words]:
        return [text[i : i + n] for i in range(len(text) - n + 1)]

    for _, captions in pairs:
        spoken.update({gram for each in captions for n in range(1, MAX_NGRAM + 1) for gram in ngrams(each, n)})
    pictures = math.log(len(pairs)) if pairs else 0.0

    def weighed(text: Words, n: int) -> dict[Words, float]:
        counts = Counter(ngrams(text, n))
        return {gram: count * (pictures - math.log(max(1, spoken[gram]))) for gram, count in counts.items()}

    rows = []
    for output, captions in pairs:
        total = 0.0
        for n in range(1, MAX_NGRAM + 1):
            mine = weighed(output, n)
            for each in captions:
                theirs, nearness = weighed(each, n), math.exp(-((len(output) - len(each)) ** 2) / (2 * SIGMA**2))
                # The cosine, with the output's values clipped at the reference's; 0 if a vector is zero.
                clipped = sum(min(value, theirs.get(gram, 0.0)) * theirs.get(gram, 0.0) for gram, value in mine.items())
                lengths = math.hypot(*mine.values()) * math.hypot(*theirs.values())
                total += nearness * (clipped / (lengths or 1))
        rows.append([10 * total / (MAX_NGRAM * len(captions)), 1.0])
    return Measurement(
        "CIDEr-D",
        count_rows(rows, 2),
        ratio,
        signature_of(references, **COUNTED, idf="references", pictures=str(len(pairs))),
    )


def measure_rouge(outputs: Sequence[str], references: Sequence[Reference]) -> Measurement:
    """Measure ROUGE-L for each caption; the corpus score is the mean."""
    rows = []
    for output, captions in tokenize_pairs(outputs, references):
        common = [longest_common_subsequence(output, each) for each in captions]
        precision = max(common) / max(1, len(output))
        recall = max(each / max(1, len(text)) for each, text in zip(common, captions, strict=True))
        score = (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision) if precision and recall else 0.0
        rows.append([100 * score, 1.0])
    return Measurement("ROUGE-L", count_rows(rows, 2), ratio, signature_of(references, **COUNTED, beta=f"{BETA:g}"))


def longest_common_subsequence(one: Words, other: Words) -> int:
    """Return the length of the longest common subsequence."""
    before = [0] * (len(other) + 1)
    for word in one:
        row = [0]
        for j, each in enumerate(other):
            row.append(before[j] + 1 if word == each else max(before[j + 1], row[j]))
        before = row
    return before[-1]


def tokenize_pairs(outputs: Sequence[str], references: Sequence[Reference]) -> list[tuple[Words, list[Words]]]:
    """Split outputs and their references into words; return a pair for each output."""
    captions = alternatives(references)
    if len(outputs) != len(captions):
        raise ArgumentError(f"references: {len(captions)} given for {len(outputs)} outputs, expected as many")
    for i, each in enumerate(captions):
        if not each:
            raise ArgumentError(f"references: none given for output {i}, expected at least one")
    return [
        (words(output), [words(each) for each in several]) for output, several in zip(outputs, captions, strict=True)
    ]
