"""Luong's claims: what his own figures say of them, and what others would."""

import pytest

from regard_studies.luong_table.draw import LABELS, PAPER, quality_plot, system_table
from regard_studies.luong_table.verdicts import ERRORS, POINTS, SHARE, better, verdicts
from regard_studies.seed_statistics import SeedStatistics


def figures(perplexity, bleu, aer):
    both = {"written": SeedStatistics((aer,)), "read": SeedStatistics((aer + 5,)), "aer": SeedStatistics((aer,))}
    return {
        "perplexity": SeedStatistics((perplexity,)),
        "bleu": SeedStatistics((bleu,)),
        **both,
        "seconds": SeedStatistics((1.0,)),
    }


# His, and where he has none what his text says of them; general's AER is made up.
PAPERS = {
    "global-location": figures(6.4, 17.0, 39.0),
    "global-dot": figures(6.1, 18.6, 37.0),
    "global-general": figures(6.1, 17.3, 37.5),
    "global-concat": figures(6.7, 16.0, 40.0),
    "local-m-dot": figures(7.1, 16.0, 38.0),
    "local-m-general": figures(6.2, 18.4, 34.0),
    "local-p-dot": figures(6.6, 18.0, 37.0),
    "local-p-general": figures(5.9, 19.2, 36.0),
    "unfed-global-dot": figures(7.0, 17.0, 41.0),
    "unfed-global-general": figures(7.0, 16.0, 41.0),
    "unfed-local-p-general": figures(6.9, 17.0, 41.0),
}


def test_his_own_figures_agree():
    assert [verdict.agrees for verdict in verdicts(PAPERS)] == [True] * 9


def test_figures_without_a_difference_agree_with_nothing_but_that_concat_is_no_better():
    same = {name: figures(6.0, 18.0, 36.0) for name in LABELS}
    found = {verdict.claim: verdict.agrees for verdict in verdicts(same)}
    assert [claim for claim, agrees in found.items() if agrees] == ["concat is no better than dot and general"]


@pytest.mark.parametrize(
    ("name", "other", "word"),
    [
        ("global-general", figures(6.1, 18.6, 37.5), "dot is the best"),
        ("local-m-dot", figures(6.2, 18.4, 38.0), "general is better than dot"),
        ("local-m-general", figures(5.8, 18.4, 34.0), "best of all"),
        ("global-dot", figures(6.1, 19.2, 37.0), "beats the best global"),
        ("global-location", figures(6.0, 17.0, 39.0), "location compares worst"),
        ("global-concat", figures(6.0, 19.2, 40.0), "concat is no better"),
        ("unfed-local-p-general", figures(5.9, 19.2, 41.0), "input feeding helps"),
        ("local-p-general", figures(5.9, 19.2, 38.5), "by location"),
        ("local-m-general", figures(6.2, 18.4, 37.0), "with the same score"),
    ],
)
def test_each_claim_falls_with_one_figure(name, other, word):
    fallen = next(verdict for verdict in verdicts(PAPERS | {name: other}) if word in verdict.claim)
    assert not fallen.agrees
    assert LABELS[name.removeprefix("unfed-")] in fallen.evidence or name == "local-p-general"


def test_what_lies_within_the_seeds_is_no_difference():
    assert better(SeedStatistics((1.0,)), SeedStatistics((1.0 + 2 * POINTS,)), POINTS)
    assert not better(SeedStatistics((1.0,)), SeedStatistics((1.0 + POINTS / 2,)), POINTS)
    assert not better(SeedStatistics((0.0, 4.0)), SeedStatistics((3.0, 7.0)), POINTS)  # 3 apart, deviations 2.8 each
    assert better(SeedStatistics((1.9, 2.1)), SeedStatistics((4.9, 5.1)), POINTS)
    assert 0 < SHARE < 0.05
    assert ERRORS > 0


def test_tables_and_plots_have_every_system():
    assert set(PAPER) <= set(LABELS)
    assert len(system_table(PAPERS).rows) == len(LABELS)
    several = {
        name: {key: SeedStatistics(each.values * 2) for key, each in row.items()} for name, row in PAPERS.items()
    }
    assert system_table(several).rows[1][2] == "18.6 ± 0"
    panels = quality_plot(several).figure.axes
    assert [text.get_text() for text in panels[0].get_yticklabels()] == list(LABELS.values())[::-1]
