"""Verdicts on alignments: figures as the papers have them, and figures that fall."""

from dataclasses import replace

import pytest

from regard.inspection import selection
from regard_studies.alignment.draw import by_layer, curves, heat_map, mechanism_table, step_table
from regard_studies.alignment.measure import SystemFigures
from regard_studies.alignment.verdicts import Findings, layer_means, verdicts
from regard_studies.seed_statistics import SeedStatistics

CURVE = [(100, 5.0, 80.0), (200, 20.0, 35.0)]


def readings(*layers):
    """Of each layer the rates of its heads, and then of their mean, the word written; the word read is far worse."""
    return [
        selection.Reading(f"blocks.{layer}", None if head == len(rates) - 1 else head, offset, rate + 0.05 * offset)
        for layer, rates in enumerate(layers)
        for offset in (0, 1)
        for head, rate in enumerate(rates)
    ]


def system(written, read, heads=(), selected=30.0, curve=CURVE):
    spreads = (SeedStatistics((value,)) for value in (20.0, 6.0, written, read, selected, 9.0))
    return SystemFigures(*spreads, list(heads), curve)


HEADS = readings((0.8, 0.9, 0.85), (0.7, 0.5, 0.6), (0.3, 0.5, 0.4), (0.6, 0.5, 0.5))
PAPERS = {
    "rnnsearch": system(33.0, 60.0),
    "luong-global": system(60.0, 36.0),
    "luong-local": system(61.0, 34.0),
    "transformer": system(40.0, 45.0, HEADS),
}


def test_figures_as_in_the_papers_agree():
    assert [verdict.agrees for verdict in verdicts(Findings(PAPERS, 60.0))] == [True] * 6


@pytest.mark.parametrize(
    ("name", "other", "word"),
    [
        ("luong-local", system(61.0, 45.0), "39 %"),
        ("rnnsearch", system(33.0, 32.0), "the word that it reads"),
        ("luong-global", system(36.0, 37.0), "the word that it reads"),
        (
            "transformer",
            system(40.0, 45.0, readings((0.6, 0.5, 0.6), (0.5, 0.5, 0.3), (0.4, 0.5, 0.4))),
            "heads differ",
        ),
        ("transformer", system(40.0, 45.0, readings(*[(0.3, 0.9, rate) for rate in (0.8, 0.5, 0.4)])), "last but one"),
        ("transformer", system(40.0, 45.0, HEADS, selected=39.5), "that is best on other sentences"),
        ("rnnsearch", system(33.0, 60.0, curve=[(100, 5.0, 33.0), (200, 20.0, 35.0)]), "with training"),
        ("rnnsearch", system(33.0, 60.0, curve=[(100, 5.0, 80.0), (200, 4.0, 35.0)]), "with training"),
    ],
)
def test_each_claim_falls_with_one_figure(name, other, word):
    found = verdicts(Findings(PAPERS | {name: other}, 60.0))
    assert [word in verdict.claim for verdict in found if not verdict.agrees] == [True]


def test_means_of_layers_are_in_order_and_of_one_word():
    assert layer_means(HEADS, 0) == pytest.approx([85.0, 60.0, 40.0, 50.0])
    assert layer_means(HEADS, 1) == pytest.approx([90.0, 65.0, 45.0, 55.0])


def test_tables_and_plots_hold_every_head_and_step():
    assert [row[1:] for row in by_layer(HEADS, 0).rows][2] == pytest.approx([30.0, 50.0, 40.0])
    drawn = heat_map(HEADS).figure.axes
    assert sorted(text.get_text() for text in drawn[0].texts) == sorted(
        f"{100 * each.aer:.0f}" for each in HEADS if each.offset == 0
    )
    assert [row[0] for row in step_table(PAPERS).rows] == ["100", "200"]
    assert len(curves(PAPERS, 60.0).figure.axes[0].lines) == len(PAPERS)
    several = {name: replace(each, bleu=SeedStatistics((19.0, 21.0))) for name, each in PAPERS.items()}
    assert mechanism_table(several, 60.0).rows[0][4] == "20.0 ± 1.4"
    assert mechanism_table(PAPERS, 60.0).rows[-1][1] == 60.0
