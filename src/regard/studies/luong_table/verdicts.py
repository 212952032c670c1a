"""Luong's claims, judged by figures: `luong_table` measures them."""

from collections.abc import Mapping

from regard.studies.luong_table.draw import LABELS, Figures, best_of, list_figures
from regard.studies.page import Verdict
from regard.studies.seed_statistics import SeedStatistics

__all__ = ["ERRORS", "POINTS", "SHARE", "verdicts"]

# What is less than this counts as no difference, whatever the seeds say.
POINTS = 0.5  # BLEU
SHARE = 0.01  # of a perplexity
ERRORS = 1.0  # percentage points of AER
GLOBAL = [name for name in LABELS if name.startswith("global-")]
LOCAL = [name for name in LABELS if name.startswith("local-")]
UNFED = [name for name in LABELS if name.startswith("unfed-")]


def better(one: SeedStatistics, other: SeedStatistics, margin: float) -> bool:
    """Whether one figure is lower than another by more than what is no difference."""
    return other.mean - one.mean > max(margin, one.deviation + other.deviation)


def higher(found: Mapping[str, Figures], one: str, other: str) -> bool:
    """By BLEU."""
    return better(found[other]["bleu"], found[one]["bleu"], POINTS)


def likelier(found: Mapping[str, Figures], one: str, other: str) -> bool:
    """By perplexity."""
    worse = found[other]["perplexity"]
    return better(found[one]["perplexity"], worse, SHARE * worse.mean)


def verdicts(found: Mapping[str, Figures]) -> list[Verdict]:
    """The paper's claims."""
    fed = [name for name in found if name not in UNFED]
    others = [name for name in fed if name != "local-p-general"]
    windows = ["local-m-general", "local-p-general"]
    return [
        Verdict(
            "of the global scores dot is the best",
            all(higher(found, "global-dot", name) for name in GLOBAL if name != "global-dot"),
            f"BLEU: {list_figures(found, GLOBAL, 'bleu')}; perplexity: "
            f"{list_figures(found, GLOBAL, 'perplexity', '.2f')}",
        ),
        Verdict(
            "in a window general is better than dot",
            all(
                higher(found, f"{span}-general", f"{span}-dot") and likelier(found, f"{span}-general", f"{span}-dot")
                for span in ("local-m", "local-p")
            ),
            f"BLEU: {list_figures(found, LOCAL, 'bleu')}; perplexity: "
            f"{list_figures(found, LOCAL, 'perplexity', '.2f')}",
        ),
        Verdict(
            "a predicted window with general is the best of all, by perplexity and BLEU",
            all(likelier(found, "local-p-general", name) and higher(found, "local-p-general", name) for name in others),
            f"perplexity {found['local-p-general']['perplexity'].as_text('.2f')}, BLEU "
            f"{found['local-p-general']['bleu'].as_text()}; best of the others: {best_of(found, others)}",
        ),
        Verdict(
            "the best predicted window beats the best global attention",
            higher(found, "local-p-general", max(GLOBAL, key=lambda name: found[name]["bleu"].mean)),
            f"BLEU: {list_figures(found, [*GLOBAL, 'local-p-general'], 'bleu')}",
        ),
        Verdict(
            "location compares worst of the global scores, and aligns worst",
            all(
                likelier(found, name, "global-location")
                and better(found[name]["aer"], found["global-location"]["aer"], ERRORS)
                for name in ("global-dot", "global-general")
            ),
            f"perplexity: {list_figures(found, GLOBAL, 'perplexity', '.2f')}; AER: "
            f"{list_figures(found, GLOBAL, 'aer')}",
        ),
        Verdict(
            "concat is no better than dot and general",
            not any(higher(found, "global-concat", name) for name in ("global-dot", "global-general")),
            f"BLEU: {list_figures(found, ['global-concat', 'global-dot', 'global-general'], 'bleu')}; the paper's "
            "perplexities: concat 6.7, dot and general 6.1",
        ),
        Verdict(
            "input feeding helps, whatever the attention",
            all(
                higher(found, name.removeprefix("unfed-"), name) and likelier(found, name.removeprefix("unfed-"), name)
                for name in UNFED
            ),
            "; ".join(
                f"{LABELS[name.removeprefix('unfed-')]}: perplexity {found[name]['perplexity'].as_text('.2f')} → "
                f"{found[name.removeprefix('unfed-')]['perplexity'].as_text('.2f')}, BLEU "
                f"{found[name]['bleu'].as_text()} → "
                f"{found[name.removeprefix('unfed-')]['bleu'].as_text()}"
                for name in UNFED
            ),
        ),
        Verdict(
            "windows align better than global attention by location",
            all(better(found[name]["aer"], found["global-location"]["aer"], ERRORS) for name in windows),
            f"AER: {list_figures(found, ['global-location', *windows], 'aer')}; in the paper 39, 34 and 36",
        ),
        Verdict(
            "windows align better than global attention with the same score",
            all(better(found[name]["aer"], found["global-general"]["aer"], ERRORS) for name in windows),
            f"AER: {list_figures(found, ['global-general', *windows], 'aer')}",
        ),
    ]
