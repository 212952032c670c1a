"""The study of alignments: its systems, its measures, a page, and, in the slow form, its findings."""

from dataclasses import replace

import pytest

from regard.alignment import selection
from regard.evaluation import Gold
from regard.tasks import read_settings
from regard_studies import Setting, alignment, run
from regard_studies.alignment import (
    LABELS,
    SystemFigures,
    average_curves,
    best_single_links,
    by_layer,
    curves,
    diagonal_error,
    heat_map,
    held_out_error,
    layer_means,
    mechanism_table,
    step_table,
    tables,
    verdicts,
)
from regard_studies.corpora import AlignedPairs, Pairs, generate_aligned, phrasebook
from regard_studies.seed_statistics import SeedStatistics

QUICK = Setting((0,), quick=True, device="cpu")


def test_systems_differ_in_their_model_and_a_transformers_rate_alone(tmp_path):
    real = Pairs("real", {"data": {"source": "a", "target": "b"}, "tokenizer": {"size": 500}}, [], [])
    phrases = phrasebook(300, 0, longest=18)
    for setting, corpus in ((QUICK, phrases), (Setting(), phrases), (Setting(data=tmp_path), real)):
        made = tables(setting, corpus)
        found = [read_settings(table).table() for table in made.values()]
        models = [table.pop("model") for table in found]
        rates = [table["training"].pop("rate") for table in found]
        assert len({rate for rate, model in zip(rates, models, strict=True) if model["kind"] != "transformer"}) == 1
        assert list(made) == list(LABELS)
        assert all(table == found[0] for table in found)
        assert len({model["size"] for model in models}) == 1
        every, steps = found[0]["training"]["validate_every"], found[0]["training"]["steps"]
        assert steps % every == 0
        assert found[0]["training"]["keep"] > steps // every  # every checkpoint is kept


def test_the_diagonal_is_right_where_words_follow_each_other():
    def pair(source, target, *links):
        return AlignedPairs([source], [target], [Gold(frozenset(links), frozenset())])

    assert diagonal_error(pair("a b c", "a b c", (0, 0), (1, 1), (2, 2))) == 0
    assert diagonal_error(pair("a b c", "a b c", (2, 0), (1, 1), (0, 2))) == pytest.approx(100 * 2 / 3)
    assert diagonal_error(pair("a b", "a a b b", (0, 0), (0, 1), (1, 2), (1, 3))) == 0
    assert diagonal_error(pair("a b c d", "a d", (1, 0), (3, 1))) == 0  # the middles of both halves


def test_one_link_a_word_finds_what_it_can():
    gold = Gold(frozenset({(0, 0), (1, 0), (2, 2)}), frozenset({(0, 2), (1, 3)}))
    words, linked, least = best_single_links(AlignedPairs(["a b c"], ["a b c d"], [gold]))
    assert (words, linked) == (4, 3)
    # Four links: one of the two sure ones of word 0, a wrong one, the sure one of word 2, a possible one.
    assert least == pytest.approx(100 * (1 - (2 + 3) / (4 + 3)))


def test_a_head_is_judged_by_the_pairs_that_did_not_choose_it():
    def half(first, second):
        return [selection.Reading("x", 0, 0, first), selection.Reading("x", 1, 0, second)]

    assert held_out_error(half(0.1, 0.5), half(0.2, 0.6)) == pytest.approx(0.15)
    assert held_out_error(half(0.1, 0.5), half(0.9, 0.3)) == pytest.approx(
        (0.9 + 0.5) / 2
    )  # each has what the other lacks


def test_curves_are_averaged_step_by_step():
    found = average_curves([[(5, 1.0, 80.0), (10, 3.0, 60.0)], [(5, 2.0, 70.0), (10, 5.0, 50.0)]])
    assert found == [(5, 1.5, 75.0), (10, 4.0, 55.0)]


def test_a_page_of_a_hardly_trained_study(shorten):
    texts = phrasebook(300, 5, longest=18), generate_aligned(5, longest=18)
    setting = shorten(
        alignment,
        training={"validate_every": 1, "validate_rows": 2},
        model={"size": 8},
        only=[name for name in LABELS if name != "luong-global"],
        aligned_texts=lambda setting: texts,
    )
    page = run("alignment", setting=setting)
    assert [row[0] for row in page.tables[0].rows] == [
        *(label for name, label in LABELS.items() if name != "luong-global"),
        "along the diagonal",
    ]
    layers, heads = 3, 4
    assert [len(page.tables[1].rows), len(page.tables[1].columns)] == [layers, 1 + heads + 1]
    assert [row[0] for row in page.tables[3].rows] == ["1", "2"]
    assert page.signature.command(page.name) == "regard study alignment --seeds 4 --quick"
    assert page.write(setting.out).is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_holds_in_small(tmp_path):
    page = run("alignment", setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    found = {verdict.claim: verdict for verdict in page.verdicts}
    # Differences of heads and layers, and to which word the weights belong, depend on corpus and size.
    claim = found["alignments get better with training while translations do"]
    assert claim.agrees, claim.evidence


CURVE = [(100, 5.0, 80.0), (200, 20.0, 35.0)]


def readings(*layers):
    """Return readings of layers: the rates of the heads and of their mean for the word written; the read has worse."""
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
    assert [verdict.agrees for verdict in verdicts(PAPERS, 60.0)] == [True] * 6


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
    found = verdicts(PAPERS | {name: other}, 60.0)
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
