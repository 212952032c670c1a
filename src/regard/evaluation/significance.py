"""Test whether one system is significantly better than another by paired bootstrap resampling (Koehn 2004, W04-3250).

Each of a thousand resamples draws as many sentences as there are, with replacement, and scores both systems on them.
With the same seed the draws are sacreBLEU's, so that `sacrebleu --paired-bs` prints the same means and intervals.
`find_contrasts` finds the sentences in which two systems differ most.

n sentences · k counts · r resamples
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from regard.errors import ArgumentError
from regard.evaluation.metric import Measurement, Reference, Score, alternatives, measure
from regard.evaluation.text import edit_distance, measure_chrf

SEED = 12345  # sacreBLEU's
LEVEL = 0.05
BLOCK = 1 << 22  # random numbers per block of resamples


@dataclass(frozen=True)
class Difference:
    """The difference between two systems in one metric, B minus A."""

    a: Score
    b: Score
    mean: float  # over the resamples
    low: float  # the 95 % interval, from low to high
    high: float
    p: float
    higher: bool  # whether higher is better

    @property
    def value(self) -> float:
        """Return B's score minus A's."""
        return self.b.value - self.a.value

    @property
    def significant(self) -> bool:
        """Return whether p is below 0.05."""
        return self.p < LEVEL

    @property
    def better(self) -> str | None:
        """Return the better system, "A" or "B"; None if they are equal."""
        if not self.value:
            return None
        return "B" if (self.value > 0) == self.higher else "A"


def paired_bootstrap(
    a: Sequence[Measurement], b: Sequence[Measurement], *, resamples: int = 1000, seed: int = SEED
) -> list[Difference]:
    """Compare two systems by each metric: their difference, its 95 % interval and its p-value.

    `a` and `b` have the same metrics for the same sentences. p is two-sided: the probability that two equally good
    systems differ at least as much as observed. The resampled differences, shifted to a mean of zero, stand for equally
    good systems (Riezler and Maxwell 2005). sacreBLEU's p is one-sided, about half of this.
    """
    if resamples < 1:
        raise ArgumentError(f"resamples: {resamples} given, expected at least 1")
    if [each.name for each in a] != [each.name for each in b]:
        raise ArgumentError(f"b: {[each.name for each in b]} given, expected as in a: {[each.name for each in a]}")
    samples = resample([*a, *b], resamples, seed)
    comparisons = []
    for i, (first, second) in enumerate(zip(a, b, strict=True)):
        differences = samples[i + len(a)] - samples[i]
        one, other = first.score(), second.score()
        low, high = interval(differences)
        # The share of shifted differences at least as large; adding one to both counts keeps p above 0.
        as_large = np.abs(differences - differences.mean()) >= abs(other.value - one.value)
        p = float((np.count_nonzero(as_large) + 1) / (len(differences) + 1))
        comparisons.append(Difference(one, other, float(differences.mean()), low, high, p, first.higher))
    return comparisons


def resample(
    measurements: Sequence[Measurement], resamples: int, seed: int = SEED, among: Int[np.ndarray, "m"] | None = None
) -> list[Float[np.ndarray, "r"]]:
    """Compute several metrics on the same resamples of their sentences; `among` limits the sentences to draw from."""
    sizes = {len(each.rows) for each in measurements}
    if len(sizes) > 1:
        raise ArgumentError(f"measured: {sorted(sizes)} sentences given, expected the same number for all")
    rows = [each.rows if among is None else each.rows[among] for each in measurements]
    size = len(rows[0]) if rows else 0
    if not size:
        raise ArgumentError("measured: no sentences given, expected at least 1 to draw from")
    counts = np.concatenate(rows, axis=1)
    random, sums = np.random.default_rng(seed), np.empty((resamples, counts.shape[1]))
    block = max(1, BLOCK // size)
    for start in range(0, resamples, block):
        stop = min(start + block, resamples)
        draws = random.integers(0, size, size=(stop - start, size))
        # Multiply how often each sentence was drawn by its counts, instead of copying the corpus for each resample.
        draws += np.arange(stop - start)[:, None] * size
        often = np.bincount(draws.ravel(), minlength=(stop - start) * size).reshape(-1, size)
        sums[start:stop] = often.astype(np.float64) @ counts
    ends = np.cumsum([each.shape[1] for each in rows])[:-1]
    return [each.values(part) for each, part in zip(measurements, np.split(sums, ends, axis=1), strict=True)]


def interval(values: Float[np.ndarray, "r"]) -> tuple[float, float]:
    """Return the 95 % interval of values: for forty values, without the lowest and the highest."""
    ordered, out = np.sort(values), len(values) // 40
    return float(ordered[out]), float(ordered[len(values) - out - 1])


def conclusion(differences: Sequence[Difference]) -> str:
    """Summarise the first difference in a sentence, and name the metrics that significantly prefer the other system."""
    first = differences[0]
    name = first.a.name
    if first.better is None:
        return f"A and B are equal by {name}."
    amount = f"{abs(first.value):.2f} {name}"
    if first.a.unit == "share":
        amount = f"{100 * abs(first.value):.2f} percentage points of {name}"
    against = [each.a.name for each in differences[1:] if each.significant and each.better not in (None, first.better)]
    other = (
        f" But {' and '.join(against)} significantly prefer{'s' * (len(against) == 1)} the other." if against else ""
    )
    if first.significant:
        return f"{first.better} is better by {amount}; the difference is significant (p = {first.p:.2g}).{other}"
    luck = f"not significant (p = {first.p:.2g}), and may well be luck"
    return f"{first.better} is better by {amount}, but the difference is {luck}.{other}"


@dataclass(frozen=True)
class Contrast:
    """One sentence with two systems' outputs and their chrF; `reference` is the one nearest to the better output."""

    number: int  # from 1
    source: str
    reference: str
    a: str
    b: str
    a_chrf: float
    b_chrf: float


def find_contrasts(
    sources: Sequence[str],
    references: Sequence[Reference],
    a: Sequence[str],
    b: Sequence[str],
    *,
    count: int = 5,
    lowercase: bool = False,
) -> tuple[list[Contrast], list[Contrast]]:
    """Find the sentences in which A's chrF is higher by the most, and those in which B's is, at most `count` each."""
    one, other = (measure_chrf(each, references, lowercase=lowercase) for each in (a, b))
    first, second = one.values(one.rows), other.values(other.rows)
    gain, texts = second - first, alternatives(references)

    def contrast(i: int) -> Contrast:
        better = b[i] if gain[i] > 0 else a[i]
        nearest = min(texts[i], key=lambda text: edit_distance(better, text))
        return Contrast(i + 1, sources[i], nearest, a[i], b[i], float(first[i]), float(second[i]))

    worse, better = (np.argsort(sign * gain, kind="stable").tolist()[:count] for sign in (1, -1))
    return [contrast(i) for i in worse if gain[i] < 0], [contrast(i) for i in better if gain[i] > 0]


@dataclass(frozen=True)
class Comparison:
    """A comparison of two systems on a test set, by each metric, with the sentences in which they differ most."""

    differences: dict[str, Difference]  # by the key of the metric
    contrasts: tuple[list[Contrast], list[Contrast]]  # sentences in which A is better, and those in which B is
    sentences: int
    same: int  # the number of sentences with identical outputs
    resamples: int
    seed: int

    @property
    def conclusion(self) -> str:
        """Return a sentence that summarises the first metric's difference."""
        return conclusion(list(self.differences.values()))

    def table(self) -> dict[str, Any]:
        """Return the comparison as a dictionary for JSON."""
        metrics = {
            key: {
                "name": each.a.name,
                "a": each.a.value,
                "b": each.b.value,
                "difference": each.value,
                "mean": each.mean,
                "interval": [each.low, each.high],
                "p": each.p,
                "significant": each.significant,
                "better": each.better,
                "signature": each.a.signature,
            }
            for key, each in self.differences.items()
        }
        facts = {"sentences": self.sentences, "resamples": self.resamples, "seed": self.seed, "said": self.conclusion}
        a, b = ([asdict(each) for each in contrasts] for contrasts in self.contrasts)
        return {**facts, "metrics": metrics, "a_better": a, "b_better": b}


def compare_outputs(
    a: Sequence[str],
    b: Sequence[str],
    sources: Sequence[str],
    references: Sequence[Reference],
    metrics: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "auto",
    resamples: int = 1000,
    seed: int = SEED,
    examples: int = 3,
) -> Comparison:
    """Compare the outputs of two systems by `metrics`, keys of METRICS; the first decides the conclusion."""
    first, second = (
        [measure(key, outputs, references, lowercase=lowercase, tokenize=tokenize) for key in metrics]
        for outputs in (a, b)
    )
    differences = dict(zip(metrics, paired_bootstrap(first, second, resamples=resamples, seed=seed), strict=True))
    contrasts = find_contrasts(sources, references, a, b, count=examples, lowercase=lowercase)
    same = sum(one == other for one, other in zip(a, b, strict=True))
    return Comparison(differences, contrasts, len(references), same, resamples, seed)
