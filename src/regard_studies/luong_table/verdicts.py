"""Luong's claims, judged by figures: `luong_table` measures them."""

from collections.abc import Mapping

from regard_studies.luong_table.draw import LABELS, Figures, best_of, list_figures
from regard_studies.page import Verdict
from regard_studies.seed_statistics import SeedStatistics

__all__ = ["ERRORS", "POINTS", "SHARE", "verdicts"]

# What is less than this counts as no difference, whatever the seeds say.
POINTS = 0.5  # BLEU
SHARE = 0.01  # of a perplexity
ERRORS = 1.0  # percentage points of AER
GLOBAL = [name for name in LABELS if name.startswith("global-")]
LOCAL = [name for name in LABELS if name.startswith("local-")]
UNFED = [name for name in LABELS if name.startswith("unfed-")]


def better(one: SeedStatistics, other: SeedStatistics, margin: float) -> bool:
    """Return whether one figure is lower than another by more than chance."""
    return other.mean - one.mean > max(margin, one.deviation + other.deviation)


def higher(figures: Mapping[str, Figures], one: str, other: str) -> bool:
    """Return whether one system is better than the other by BLEU."""
    return better(figures[other]["bleu"], figures[one]["bleu"], POINTS)


def likelier(figures: Mapping[str, Figures], one: str, other: str) -> bool:
    """Return whether one system is better than the other by perplexity."""
    worse = figures[other]["perplexity"]
    return better(figures[one]["perplexity"], worse, SHARE * worse.mean)


def verdicts(figures: Mapping[str, Figures]) -> list[Verdict]:
    """Judge the paper's claims."""
    fed = [name for name in figures if name not in UNFED]
    others = [name for name in fed if name != "local-p-general"]
    windows = ["local-m-general", "local-p-general"]
    return [
        Verdict(
            "of the global scores dot is the best",
            all(higher(figures, "global-dot", name) for name in GLOBAL if name != "global-dot"),
            f"BLEU: {list_figures(figures, GLOBAL, 'bleu')}; perplexity: "
            f"{list_figures(figures, GLOBAL, 'perplexity', '.2f')}",
        ),
        Verdict(
            "in a window general is better than dot",
            all(
                higher(figures, f"{span}-general", f"{span}-dot")
                and likelier(figures, f"{span}-general", f"{span}-dot")
                for span in ("local-m", "local-p")
            ),
            f"BLEU: {list_figures(figures, LOCAL, 'bleu')}; perplexity: "
            f"{list_figures(figures, LOCAL, 'perplexity', '.2f')}",
        ),
        Verdict(
            "a predicted window with general is the best of all, by perplexity and BLEU",
            all(
                likelier(figures, "local-p-general", name) and higher(figures, "local-p-general", name)
                for name in others
            ),
            f"perplexity {figures['local-p-general']['perplexity'].as_text('.2f')}, BLEU "
            f"{figures['local-p-general']['bleu'].as_text()}; best of the others: {best_of(figures, others)}",
        ),
        Verdict(
            "the best predicted window beats the best global attention",
            higher(figures, "local-p-general", max(GLOBAL, key=lambda name: figures[name]["bleu"].mean)),
            f"BLEU: {list_figures(figures, [*GLOBAL, 'local-p-general'], 'bleu')}",
        ),
        Verdict(
            "location compares worst of the global scores, and aligns worst",
            all(
                likelier(figures, name, "global-location")
                and better(figures[name]["aer"], figures["global-location"]["aer"], ERRORS)
                for name in ("global-dot", "global-general")
            ),
            f"perplexity: {list_figures(figures, GLOBAL, 'perplexity', '.2f')}; AER: "
            f"{list_figures(figures, GLOBAL, 'aer')}",
        ),
        Verdict(
            "concat is no better than dot and general",
            not any(higher(figures, "global-concat", name) for name in ("global-dot", "global-general")),
            f"BLEU: {list_figures(figures, ['global-concat', 'global-dot', 'global-general'], 'bleu')}; the paper's "
            "perplexities: concat 6.7, dot and general 6.1",
        ),
        Verdict(
            "input feeding helps, whatever the attention",
            all(
                higher(figures, name.removeprefix("unfed-"), name)
                and likelier(figures, name.removeprefix("unfed-"), name)
                for name in UNFED
            ),
            "; ".join(
                f"{LABELS[name.removeprefix('unfed-')]}: perplexity {figures[name]['perplexity'].as_text('.2f')} → "
                f"{figures[name.removeprefix('unfed-')]['perplexity'].as_text('.2f')}, BLEU "
                f"{figures[name]['bleu'].as_text()} → "
                f"{figures[name.removeprefix('unfed-')]['bleu'].as_text()}"
                for name in UNFED
            ),
        ),
        Verdict(
            "windows align better than global attention by location",
            all(better(figures[name]["aer"], figures["global-location"]["aer"], ERRORS) for name in windows),
            f"AER: {list_figures(figures, ['global-location', *windows], 'aer')}; in the paper 39, 34 and 36",
        ),
        Verdict(
            "windows align better than global attention with the same score",
            all(better(figures[name]["aer"], figures["global-general"]["aer"], ERRORS) for name in windows),
            f"AER: {list_figures(figures, ['global-general', *windows], 'aer')}",
        ),
    ]
