"""Measurements of alignment: how well every head of a system aligns, by training step, and how well one can do without
looking.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.decoding import first_model
from regard.evaluation import measure_links
from regard.inspection import selection
from regard.run import Run, load
from regard.training import metrics
from regard_studies.corpora.pairs import AlignedPairs, Pairs
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.systems import TrainedSystem
from regard_studies.translation import perplexity

__all__ = [
    "Curve",
    "EncodedPairs",
    "SystemFigures",
    "average_curves",
    "best_single_links",
    "curve",
    "diagonal_error",
    "held_out_error",
    "measure_systems",
]

Curve = Sequence[tuple[int, float, float]]  # step, BLEU, AER in percent


@dataclass(frozen=True)
class SystemFigures:
    """Figures of a system, rates in percent; `selected_aer` is of the head, mean and word best on other pairs."""

    bleu: SeedStatistics
    perplexity: SeedStatistics
    written_aer: SeedStatistics
    read_aer: SeedStatistics
    selected_aer: SeedStatistics
    seconds: SeedStatistics
    readings: Sequence[selection.Reading]
    curve: Curve

    @property
    def plain(self) -> SeedStatistics:
        """Return the AER for the word written or the word read, whichever is aligned better."""
        return min(self.written_aer, self.read_aer, key=lambda each: each.mean)


@dataclass(frozen=True)
class EncodedPairs:
    """Aligned pairs as a run's tokens."""

    pairs: list[tuple[list[int], list[int]]]
    aligned: AlignedPairs

    @classmethod
    def of(cls, run: Run, aligned: AlignedPairs) -> "EncodedPairs":
        """Encode pairs of texts with a run's tokenizers."""
        sides = run.tokenizers.source.encode_batch(aligned.sources), run.tokenizers.target.encode_batch(aligned.targets)
        return cls(list(zip(*sides, strict=True)), aligned)

    def read(self, run: Run, which: slice = slice(None)) -> list[selection.Reading]:
        """Every head and offset."""
        return selection.score_heads(
            first_model(run.model), run.tokenizers, self.pairs[which], self.aligned.gold[which]
        )


def measure_systems(systems: Sequence[TrainedSystem], corpus: Pairs, aligned: AlignedPairs) -> SystemFigures:
    """Measure the seeds of a system."""
    rates: list[tuple[float, float, float]] = []
    readings: list[list[selection.Reading]] = []
    grown: list[Curve] = []
    for each in systems:
        pieces = EncodedPairs.of(each.run, aligned)
        by_head = pieces.read(each.run)
        halves = pieces.read(each.run, slice(0, None, 2)), pieces.read(each.run, slice(1, None, 2))
        plain = {
            one.offset: one.aer
            for one in by_head
            if one.head is None and one.view == first_model(each.run.model).alignment_attention
        }
        rates.append((100 * plain[0], 100 * plain[1], 100 * held_out_error(*halves)))
        readings.append(by_head)
        grown.append(curve(each, pieces))
    written_aer, read_aer, selected_aer = (SeedStatistics(values) for values in zip(*rates, strict=True))
    return SystemFigures(
        bleu=over_seeds(systems, lambda each: corpus.bleu(each.run.translate(corpus.sources, beam=1))),
        perplexity=over_seeds(systems, lambda each: perplexity(each.run, corpus)),
        written_aer=written_aer,
        read_aer=read_aer,
        selected_aer=selected_aer,
        seconds=over_seeds(systems, lambda each: each.seconds),
        readings=readings[0],
        curve=average_curves(grown),
    )


def held_out_error(one: Sequence[selection.Reading], other: Sequence[selection.Reading]) -> float:
    """Compute the AER of the reading that is best on the other half, averaged over both halves."""
    rates = []
    for chooses, judges in ((one, other), (other, one)):
        best = min(chooses, key=lambda each: each.aer)
        same = (best.view, best.head, best.offset)
        rates.append(next(each.aer for each in judges if (each.view, each.head, each.offset) == same))
    return sum(rates) / len(rates)


def curve(system: TrainedSystem, pieces: EncodedPairs) -> Curve:
    """Trace a system by training step: BLEU as it was validated, and AER, by the better one of both words."""
    run, points = system.run, []
    for record in metrics.read_records(run.folder / "metrics.jsonl"):
        step = int(record["step"])
        name = f"step-{step:06d}"
        if record["kind"] == "valid" and (run.folder / "checkpoints" / name).is_dir():
            then = load(run.folder, checkpoint=name, device=run.device.type)
            by_head = pieces.read(then)
            plain = [
                each.aer
                for each in by_head
                if each.head is None and each.view == first_model(then.model).alignment_attention
            ]
            points.append((step, float(record["bleu"]), 100 * min(plain)))
    return points


def average_curves(grown: Sequence[Curve]) -> Curve:
    """Average over seeds, step by step."""
    count = len(grown)
    return [
        (points[0][0], sum(each[1] for each in points) / count, sum(each[2] for each in points) / count)
        for points in zip(*grown, strict=True)
    ]


def diagonal_error(aligned: AlignedPairs) -> float:
    """Compute the AER, in percent, of links along the diagonal, which need no attention."""
    links = []
    for source, target in zip(aligned.sources, aligned.targets, strict=True):
        m, n = len(source.split()), len(target.split())
        links.append([(min(m - 1, (2 * i + 1) * m // (2 * n)), i) for i in range(n)])
    return 100 * measure_links(links, aligned.gold)["aer"].score().value


def best_single_links(aligned: AlignedPairs) -> tuple[int, int, float]:
    """Count target words and linked ones, and compute the lowest AER, in percent, with one link a target word."""
    links, words, linked = [], 0, 0
    for target, gold in zip(aligned.targets, aligned.gold, strict=True):
        best = {i: (j, i) for j, i in [*sorted(gold.possible), *sorted(gold.sure)]}  # a sure one before a possible one
        count = len(target.split())
        words, linked = words + count, linked + sum(i in best for i in range(count))
        links.append([best.get(i, (-1, i)) for i in range(count)])
    return words, linked, 100 * measure_links(links, aligned.gold)["aer"].score().value
