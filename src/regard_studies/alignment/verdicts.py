"""Verdicts on how attention aligns, by the figures that `alignment` measures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.inspection import selection
from regard_studies.alignment.measure import Curve, SystemFigures
from regard_studies.page import Verdict, show
from regard_studies.seed_statistics import SeedStatistics

__all__ = ["LABELS", "Findings", "layer_means", "verdicts"]


LABELS = {
    "rnnsearch": "Bahdanau's, additive",
    "luong-global": "Luong's, global (general)",
    "luong-local": "Luong's, local-p (general)",
    "transformer": "Transformer",
}
LUONGS = 39.0  # the highest AER of Luong's table 6
ERRORS = 1.0  # percentage points of AER that are no difference


@dataclass(frozen=True)
class Findings:
    """All systems, and the error of the diagonal."""

    systems: Mapping[str, SystemFigures]
    diagonal: float


def layer_means(readings: Sequence[selection.Reading], offset: int) -> list[float]:
    """Return the AER, in percent, of the mean of each layer's heads, from the first layer on."""
    return [100 * each.aer for each in readings if each.head is None and each.offset == offset]


def is_lower(one: SeedStatistics, other: SeedStatistics) -> bool:
    """Return whether one rate is lower by more than the seeds vary."""
    return other.mean - one.mean > max(ERRORS, one.deviation + other.deviation)


def verdicts(figures: Findings) -> list[Verdict]:
    """Judge the papers' claims."""
    systems = figures.systems
    recurrent = [name for name in systems if name != "transformer"]
    transformer = systems["transformer"]
    heads = [100 * each.aer for each in transformer.readings if each.head is not None and each.offset == 0]
    means = [
        min(rates) for rates in zip(*(layer_means(transformer.readings, offset) for offset in (0, 1)), strict=True)
    ]
    luongs = [name for name in recurrent if name.startswith("luong")]
    return [
        Verdict(
            "recurrent attention aligns words, with an AER of 39 % or less, as Luong's systems have",
            all(systems[name].plain.mean <= LUONGS for name in recurrent),
            f"AER: {', '.join(f'{LABELS[name]} {systems[name].plain.as_text()}' for name in recurrent)}; along the "
            f"diagonal {show(figures.diagonal, '.1f')}",
        ),
        Verdict(
            "Bahdanau's weights are of the word that a step writes, Luong's of the word that it reads",
            is_lower(systems["rnnsearch"].written_aer, systems["rnnsearch"].read_aer)
            and all(is_lower(systems[name].read_aer, systems[name].written_aer) for name in luongs),
            "AER, written and read: "
            + ", ".join(
                f"{LABELS[name]} {systems[name].written_aer.as_text()} and {systems[name].read_aer.as_text()}"
                for name in recurrent
            ),
        ),
        Verdict(
            "a Transformer's heads differ: the best has at most half of the errors of the worst",
            min(heads) <= max(heads) / 2,
            f"AER of {len(heads)} heads, the word written: {show(min(heads), '.1f')} to {show(max(heads), '.1f')}",
        ),
        Verdict(
            "of its layers, on average of their heads, the last but one aligns best",
            len(means) > 1 and means[-2] == min(means),
            f"AER by layer, the word written or read: {', '.join(show(each, '.1f') for each in means)}",
        ),
        Verdict(
            "the head or the mean that is best on other sentences aligns better than the layer that is read",
            is_lower(transformer.selected_aer, transformer.plain),
            f"AER {transformer.selected_aer.as_text()} against {transformer.plain.as_text()}; the best head of all, by "
            "the same "
            f"sentences: {show(min(heads), '.1f')}",
        ),
        Verdict(
            "alignments get better with training while translations do",
            all(improves(system.curve) for system in systems.values()),
            "; ".join(
                f"{LABELS[name]}: BLEU {show(each.curve[0][1], '.1f')} → {show(each.curve[-1][1], '.1f')}, AER "
                f"{show(each.curve[0][2], '.1f')} → {show(each.curve[-1][2], '.1f')}"
                for name, each in systems.items()
            ),
        ),
    ]


def improves(curve: Curve) -> bool:
    """Return whether BLEU rose and AER fell from the first checkpoint to the last."""
    return curve[-1][1] > curve[0][1] and curve[0][2] - curve[-1][2] > ERRORS
