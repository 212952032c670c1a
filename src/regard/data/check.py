"""Checks of a corpus before training, which find its faults: `check_pairs`, `check_documents`, `check_texts`.

Each check reads the rows once, keeps a sample of consecutive stretches, and returns a `DataReport`: statistics of the
rows, and a `Finding` for each fault. It raises no error: a finding is marked as `fatal` if a model cannot learn
anything from such rows, and the caller decides whether to train.

A line that is missing or duplicated on one side shifts all lines after it. Parallel sentences agree in their lengths
(Gale and Church 1993, Computational Linguistics 19:1), and in the numbers and names that occur in both. How well they
agree depends on languages and tasks, so the check compares each target with its own source and the sources near it:
$d_i(k) = a(s_{i+k}, t_i) - a(s_i, t_i)$ is negative on average for correct pairs of any corpus, and positive for pairs
shifted by k. The stretch of lines with the largest sum of $d_i(k)$ is a shift if that sum is far above chance. Pairs
whose two texts would be identical at distance k are left out: in a dialogue or in next-sentence prediction, each target
is the next source.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8

from regard.io import reading

SAMPLE = 100_000  # maximum rows of a sample
READ = 1_000_000  # maximum rows that are read for a sample, from the first on
STRETCH = 500  # consecutive rows of a sample
WORTH = 0.0005  # minimum share of faulty rows for a finding
RATIO = 3.0  # a pair is unusual if the ratio of its lengths differs from the median by more than this factor
LONG = 20  # minimum characters of the longer side of an unusual pair
UNUSUAL = 0.005  # minimum share of unusual pairs for a finding
ONCE = 0.9  # share of labels with only one example from which the column does not hold labels
MANY = 10  # minimum number of different labels for that conclusion
ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}\d{0,2}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
TAGS = "a|abbr|b|body|br|center|code|div|em|font|h[1-6]|head|hr|html|i|img|li|link|meta|ol|p|pre|script|small|span|"
TAGS += "strong|style|sub|sup|table|tbody|td|th|title|tr|tt|u|ul"
MARKUP = re.compile(rf"</?(?:{TAGS})(?:\s[^<>]*)?/?>", re.IGNORECASE)
BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One fault of a corpus, with the number of rows that have it and the line of one of them, from 1."""

    name: str  # empty, duplicates, copies, same, lengths, entities, script, shift, labels, rare
    text: str  # a sentence without a full stop
    count: int
    line: int
    fatal: bool = False  # a model cannot learn anything from such rows


@dataclass(frozen=True)
class Shift:
    """A stretch of pairs in which target i agrees with source i + `by`."""

    by: int
    first: int  # indices of its first and last pair, from 0
    last: int
    evidence: float  # how much better the stretch agrees there, in standard deviations


@dataclass(frozen=True)
class DataReport:
    """Statistics of a corpus, and its faults."""

    rows: int  # number of rows read
    findings: tuple[Finding, ...]
    words: float = 0.0  # median number of words of a target

    @property
    def fatal(self) -> Finding | None:
        """Return the first fatal finding, or None."""
        return next((each for each in self.findings if each.fatal), None)


@dataclass
class Sample:
    """Evenly spaced stretches of rows of two texts, with their line numbers, and all lines that repeat earlier rows."""

    rows: int = 0
    lines: list[int] = field(default_factory=list)
    firsts: list[str] = field(default_factory=list)
    seconds: list[str] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)  # lines of rows that repeat an earlier one

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def share(self) -> float:
        """Return how many rows each row of the sample represents."""
        return self.rows / max(1, len(self))


def take_sample(rows: Iterable[tuple[str, ...]], most: int = SAMPLE, read: int = READ) -> Sample:
    """Take a sample of at most `most` rows: every stretch, or every second, every fourth … stretch.

    Repetitions are found among all rows, by their hashes.
    """
    sample, step, known = Sample(), 1, set[int]()
    for number, (first, second, *_) in enumerate(rows):
        if number == read:
            break
        sample.rows += 1
        if number // STRETCH % step == 0:
            sample.lines.append(number + 1)
            sample.firsts.append(first)
            sample.seconds.append(second)
            if len(sample.lines) > most:
                step *= 2
                keep = [i for i, line in enumerate(sample.lines) if (line - 1) // STRETCH % step == 0]
                for name in ("lines", "firsts", "seconds"):
                    setattr(sample, name, [getattr(sample, name)[i] for i in keep])
        if first and second:
            identity = hash((first, second))
            if identity in known:
                sample.repeated.append(number + 1)
            known.add(identity)
    return sample


def check_pairs(rows: Iterable[tuple[str, ...]], sides: Sequence[str] = ("the source", "the target")) -> DataReport:
    """Check pairs of source and target; `sides` are the names of the two sides in messages, such as their files."""
    sample = take_sample(rows)
    findings = [*find_empty(sample, "pairs"), *find_duplicates(sample, "pairs"), *find_copies(sample)]
    findings += find_lengths(sample)
    for texts, name in ((sample.firsts, "source"), (sample.seconds, "target")):
        findings += find_markup(sample, texts, name)
        findings += find_script(sample, texts, name)
    shift = find_shift(sample.firsts, sample.seconds, sample.lines)
    if shift is not None:
        findings.append(describe_shift(shift, sample, sides))
    words = statistics.median([len(text.split()) for text in sample.seconds] or [0])
    return DataReport(sample.rows, tuple(findings), words)


def check_texts(rows: Iterable[str], name: str = "text", what: str = "lines") -> DataReport:
    """Check single texts, such as those of a language model."""
    sample = take_sample((text, "-") for text in rows)
    findings = [*find_duplicates(sample, what)]
    findings += [*find_markup(sample, sample.firsts, name), *find_script(sample, sample.firsts, name)]
    return DataReport(sample.rows, tuple(findings))


def check_documents(rows: Iterable[tuple[str, ...]], swap: str = "") -> DataReport:
    """Check labelled texts; `swap` tells the user what to do if the two columns are swapped."""
    sample = take_sample(rows)
    labels = Counter(label for label in sample.seconds if label)
    findings = [*find_labels(sample, labels, swap)]
    findings += [*find_empty(sample, "documents"), *find_duplicates(sample, "documents")]
    texts = [BREAK.sub(" ", text) if "<" in text else text for text in sample.firsts]
    findings += [*find_markup(sample, texts, "text"), *find_script(sample, texts, "text")]
    return DataReport(sample.rows, tuple(findings))


def find_empty(sample: Sample, what: str) -> list[Finding]:
    """Find rows with exactly one empty side; rows with two are blank lines."""
    sides = zip(sample.firsts, sample.seconds, strict=True)
    places = [i for i, (one, two) in enumerate(sides) if bool(one) != bool(two)]
    return report_rows("empty", f"{what} have an empty side and are dropped", places, sample)


def find_duplicates(sample: Sample, what: str) -> list[Finding]:
    """Find rows that are identical to an earlier one."""
    count = len(sample.repeated)
    if not count or count < WORTH * sample.rows:
        return []
    text = f"{count:,} of {sample.rows:,} {what} repeat an earlier one, such as line {sample.repeated[0]:,}"
    return [Finding("duplicates", text, count, sample.repeated[0])]


def find_copies(sample: Sample) -> list[Finding]:
    """Find pairs whose target is a copy of the source; if all are copies, the finding is fatal."""
    both = [i for i, (one, two) in enumerate(zip(sample.firsts, sample.seconds, strict=True)) if one and two]
    copies = [i for i in both if sample.firsts[i] == sample.seconds[i]]
    if copies and len(copies) == len(both) and len(both) > 1:
        text = "every target is a copy of its source; give the translations of the sources as targets"
        return [Finding("same", text, round(len(copies) * sample.share), sample.lines[copies[0]], fatal=True)]
    return report_rows("copies", "pairs are copies: the target is the source", copies, sample)


def find_lengths(sample: Sample) -> list[Finding]:
    """Find pairs whose length ratio is far from the median."""
    sizes = np.array([list(map(len, sample.firsts)), list(map(len, sample.seconds))], np.int64).T
    full = np.flatnonzero(sizes.all(1))
    if not len(full):
        return []
    ratios = np.log((sizes[full, 1] + 3) / (sizes[full, 0] + 3))
    usual = float(np.median(ratios))
    far = (np.abs(ratios - usual) > np.log(RATIO)) & (sizes[full].max(1) >= LONG)
    places = full[far].tolist()
    if len(places) < max(2, UNUSUAL * len(full)):
        return []
    what = f"pairs are over {RATIO:g} times longer on one side than is usual"
    return report_rows("lengths", what, places, sample)


def find_markup(sample: Sample, texts: Sequence[str], name: str) -> list[Finding]:
    """Find texts with HTML entities or tags."""
    places, example = list[int](), ""
    for i, text in enumerate(texts):
        if ("&" in text and (match := ENTITY.search(text))) or ("<" in text and (match := MARKUP.search(text))):
            places.append(i)
            example = example or match[0]
    return report_rows("entities", f"{name}s have HTML in them ({example[:30]})", places, sample, worth=0.0)


def find_script(sample: Sample, texts: Sequence[str], name: str) -> list[Finding]:
    """Find texts in another script than the rest of their side."""
    own, places, others = find_foreign(texts)
    what = f"{name}s are mostly in another script ({', '.join(others[:3])}) than the rest ({', '.join(own)})"
    return report_rows("script", what, places, sample, worth=0.0)


def describe_shift(shift: Shift, sample: Sample, sides: Sequence[str]) -> Finding:
    """Describe a shift by its lines, and tell the user which lines to remove or add."""
    first, last = sample.lines[shift.first], sample.lines[shift.last]
    far = "one line" if abs(shift.by) == 1 else f"{abs(shift.by)} lines"
    to_end = sample.rows - last <= STRETCH * max(1.0, sample.share)
    start = f"from about line {first:,} on" if first > 1 + abs(shift.by) else "from the first line on"
    start = start if to_end else f"from about line {first:,} to {last:,}"
    # Target i belongs to source i + by: if `by` is positive, the target lacks lines, or the source has extra ones.
    more, less = (sides[0], sides[1]) if shift.by > 0 else (sides[1], sides[0])
    text = (
        f"the two sides are shifted by {far} {start} (lengths, numbers and names agree better with the line "
        f"{'before' if shift.by < 0 else 'after'}); remove what {more} has too much there, or add what {less} lacks"
    )
    return Finding("shift", text, round((shift.last - shift.first + 1) * sample.share), first, fatal=True)


def find_labels(sample: Sample, labels: Counter[str], swap: str) -> list[Finding]:
    """Find a label column that holds no labels, as almost every value occurs once, and labels with one example."""
    if not labels:
        return []
    once = {label for label, count in labels.items() if count == 1}
    place = next((i for i, label in enumerate(sample.seconds) if label in once), 0)
    line = sample.lines[place]
    if len(labels) >= MANY and len(once) >= ONCE * len(labels):
        text = f"{len(once):,} of {len(labels):,} different labels occur once, so they are no labels"
        others = {*sample.firsts}
        kinds, short = len(others), sum(map(len, others)) <= 40 * len(others)
        if swap and short and kinds <= max(2, 0.2 * len(sample)):  # few, short, repeated values
            values = f"{kinds:,} different value{'s' * (kinds != 1)}"
            text += f"; the other column has {values}, so the two columns are swapped: {swap}"
        else:
            text += "; name the column of labels and that of texts (data.label_column, data.text_column)"
        return [Finding("labels", text, len(once), line, fatal=True)]
    if not once:
        return []
    named = ", ".join(sorted(once)[:3]) + (", …" if len(once) > 3 else "")
    has = "labels have" if len(once) > 1 else "label has"
    text = f"{len(once):,} {has} one example ({named[:60]}), too few to train on and to validate, such as line {line:,}"
    return [Finding("rare", text, len(once), line)]


def report_rows(name: str, what: str, places: Sequence[int], sample: Sample, worth: float = WORTH) -> list[Finding]:
    """Return a finding with the estimated number of such rows, if their share in the sample is at least `worth`."""
    if not places or len(places) < worth * len(sample):
        return []
    count, line = round(len(places) * sample.share), sample.lines[places[0]]
    return [Finding(name, f"{count:,} of {sample.rows:,} {what}, such as line {line:,}", count, line)]


# ---- scripts: lines in another script than the rest of their side


# The ranges of letters of each script, as first and last code points.
RANGES: dict[str, list[list[int]]] = reading.read_facts("regard.data", "scripts.toml")
SCRIPTS = tuple(RANGES)
CHUNK = 10_000  # texts counted together
LETTERS = 4  # minimum letters of a line in another script; three may be a name or a formula
MAIN_SCRIPT = 0.2  # minimum share of a side's letters for one of its main scripts


# The number of each code point's script, from 1; 0 if it is not a letter.
TABLE: UInt8[np.ndarray, " codes"] = np.zeros(0x110000, np.uint8)
for script, ranges in enumerate(RANGES.values(), 1):
    for start, end in ranges:
        TABLE[start : end + 1] = script
TABLE[[0xD7, 0xF7]] = 0  # × and ÷


def scripts_of(texts: Sequence[str]) -> Int64[np.ndarray, "n scripts"]:
    """Count the letters of each script in each text."""
    counts = np.zeros((len(texts), len(RANGES)), np.int64)
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        scripts = TABLE[np.frombuffer("".join(chunk).encode("utf-32-le", "surrogatepass"), "<u4")]
        rows = np.repeat(np.arange(len(chunk)), [*map(len, chunk)])
        letters = scripts > 0
        np.add.at(counts, (start + rows[letters], scripts[letters] - 1), 1)
    return counts


def find_foreign(texts: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
    """Find the texts whose letters are mostly in a script that the others do not use.

    Return the main scripts, the indices of the texts found, from 0, and their scripts; most frequent scripts first.
    """
    counts = scripts_of(texts)
    totals = counts.sum(0)
    order = [int(i) for i in np.argsort(-totals, kind="stable") if totals[i]]
    own = [i for i in order if totals[i] >= MAIN_SCRIPT * totals.sum()] or order[:1]
    letters, mine = counts.sum(1), counts[:, own].sum(1)
    lines = np.flatnonzero((letters >= LETTERS) & (2 * mine < letters))
    theirs = counts[lines].sum(0)
    theirs[own] = 0
    others = [SCRIPTS[i] for i in np.argsort(-theirs, kind="stable") if theirs[i]]
    return [SCRIPTS[i] for i in own], lines.tolist(), others


# ---- shifts: from some line on, one side is a few lines away from its translation


FARTHEST = 3  # maximum distance of a shift in lines
LEAST = 40  # minimum pairs of a shifted stretch
EFFECT = 0.3  # minimum mean gain of a stretch, in standard deviations of all pairs
CLOSE = 1.0  # differences of log lengths are clipped to this: beyond it, texts do not belong together
ANCHORS = 20_000  # about how many pairs are searched for numbers and names; lengths are compared in all pairs
WEIGHT = 2.0  # weight of numbers and names relative to lengths
COMMON = 0.02  # share of lines from which a word is too common to be evidence
WORD = re.compile(r"[^\W\d_]*\d\w*|[A-ZÀ-Þ]\w{3,}")  # numbers, and words that may be names


def find_shift(
    sources: Sequence[str], targets: Sequence[str], lines: Sequence[int] | Int64[np.ndarray, " n"] | None = None
) -> Shift | None:
    """Find the clearest shift; if the pairs are a sample, `lines` are their line numbers in the files.

    Two pairs are only compared if their lines are as far apart as their places in the sample.
    """
    count = len(sources)
    if count < LEAST:
        return None
    places = np.arange(count) if lines is None else np.asarray(lines, np.int64)
    agreement = Agreement(sources, targets, places)
    at_home, _ = agreement.at(0)
    shifts = []
    for by in (*range(-FARTHEST, 0), *range(1, FARTHEST + 1)):
        there, valid = agreement.at(by)
        shifts.append(find_stretch((there - at_home)[valid], np.flatnonzero(valid), by))
    return max(filter(None, shifts), key=lambda shift: shift.evidence, default=None)


def find_stretch(gains: Float64[np.ndarray, " m"], places: Int64[np.ndarray, " m"], by: int) -> Shift | None:
    """Find the stretch with the largest sum (Kadane's algorithm), if it is long enough and its sum is above chance."""
    if len(gains) < LEAST or not (deviation := float(gains.std())):
        return None
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    rise = sums - np.minimum.accumulate(sums)
    end = int(rise.argmax())
    start = int(sums[: end + 1].argmin())
    length = end - start
    if length < LEAST:
        return None
    effect = float(sums[end] - sums[start]) / length / deviation
    evidence = effect * math.sqrt(length)
    # A longer file has more stretches, so a high sum is more likely by chance.
    needed = 4.1 + 0.6 * math.log10(max(1.0, len(gains) / 60))
    if effect < EFFECT or evidence < needed:
        return None
    return Shift(by, int(places[start]), int(places[end - 1]), evidence)


class Agreement:
    """The agreement of targets with sources at a distance, by their lengths and common numbers and names."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str], lines: Int64[np.ndarray, " n"]):
        self.count, self.lines = len(sources), lines
        self.sizes = [np.log(np.fromiter(map(len, texts), np.float64, self.count) + 3) for texts in (sources, targets)]
        self.usual = float(np.median(self.sizes[1] - self.sizes[0]))
        self.hashes = [np.fromiter(map(hash, texts), np.int64, self.count) for texts in (sources, targets)]
        self.blank = np.array([not source or not target for source, target in zip(sources, targets, strict=True)])
        stretches = np.cumsum(np.concatenate([[0], np.diff(lines) != 1]))  # numbers of the consecutive stretches
        every = 1 + self.count // ANCHORS
        chosen = np.flatnonzero((stretches if stretches[-1] else np.arange(self.count) // 500) % every == 0)
        # Numbers and names of the chosen pairs that occur on both sides, each with its weight.
        rows = [[set(WORD.findall(texts[i])) for i in chosen.tolist()] for texts in (sources, targets)]
        counts = [Counter(word for row in side for word in row) for side in rows]
        most = COMMON * len(chosen) + 2
        ids = dict[str, int]()
        for word, count in counts[0].items():
            if word in counts[1] and max(count, counts[1][word]) <= most:
                ids[word] = len(ids)
        weights = [math.log((len(chosen) + 1) / max(counts[0][word], counts[1][word])) for word in ids]
        self.size, self.weights = len(ids) + 1, np.array([*weights, 0.0])
        self.rows, self.words = list[Int64[np.ndarray, " a"]](), list[Int64[np.ndarray, " a"]]()
        for side in rows:
            pairs = [
                (row, ids[word])
                for row, words in zip(chosen.tolist(), side, strict=True)
                for word in words & ids.keys()
            ]
            array = np.array(pairs, np.int64).reshape(-1, 2)
            self.rows.append(array[:, 0])
            self.words.append(array[:, 1])
        self.keys = np.sort(self.rows[0] * self.size + self.words[0])
        self.totals = [
            np.bincount(rows, self.weights[words], self.count)
            for rows, words in zip(self.rows, self.words, strict=True)
        ]

    def at(self, by: int) -> tuple[Float64[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Return each target's agreement with the source `by` places further on, and whether the two are comparable."""
        places = np.arange(self.count) + by
        others = places.clip(0, self.count - 1)
        valid = (places == others) & (self.lines[others] - self.lines == by)
        valid &= (self.hashes[0][others] != self.hashes[1]) & ~self.blank & ~self.blank[others]
        lengths = -np.minimum(np.abs(self.sizes[1] - self.sizes[0][others] - self.usual), CLOSE)
        if not len(self.keys):
            return lengths, valid
        wanted = (self.rows[1] + by) * self.size + self.words[1]
        nearest = np.searchsorted(self.keys, wanted).clip(0, len(self.keys) - 1)
        found = np.where(self.keys[nearest] == wanted, self.weights[self.words[1]], 0.0)
        shared = np.bincount(self.rows[1], found, self.count)
        whole = np.maximum(np.maximum(self.totals[0][others], self.totals[1]), 4.0)
        return lengths + WEIGHT * shared / whole, valid
