"""The study of documents: how it counts and judges, and, in the slow form, its findings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.inspection import WeighedSentence
from regard.tasks import read_settings
from regard_studies import Setting, documents, run
from regard_studies.corpora import Reviews, built_in_reviews
from regard_studies.documents import (
    SYSTEMS,
    ClassifierFigures,
    PointingRates,
    chance_rates,
    choose_tasks,
    length_quarters,
    measure_pointing,
    tables,
    verdicts,
)
from regard_studies.seed_statistics import SeedStatistics

REAL = Reviews("IMDB", {"data": {"documents": "train.tsv"}, "tokenizer": {"kind": "bpe"}}, ["a b"], ["pos"])


def test_systems_differ_in_how_words_become_a_document_alone():
    made_up = {"opinion": built_in_reviews(100, 4)}
    for found in (tables(made_up, True), tables(made_up, False), tables({"stars": REAL}, False)):
        settings = [read_settings(table) for table in found.values()]
        assert len({each.model for each in settings}) == len(SYSTEMS) == len(settings)
        assert len({each.training for each in settings}) == len({each.data for each in settings}) == 1
        assert len({(m.size, m.embedding, m.hidden, m.dropout) for m in (each.model for each in settings)}) == 1
        names = {(each.model.attention, each.model.pooling, each.model.levels) for each in settings}
        assert names == {(False, "mean", 2), (False, "max", 2), (True, "mean", 2), (True, "mean", 1)}


def test_what_has_the_largest_weight_is_compared_with_what_decides():
    """Two documents "a b . c d ." with sentence weights 0.2 and 0.8, and 0.9 and 0.1."""
    words = (["a", "b", "."], ["c", "d", "."])
    first = [WeighedSentence(words[0], [1.0, 0.0, 0.0], 0.2), WeighedSentence(words[1], [0.3, 0.3, 0.4], 0.8)]
    second = [WeighedSentence(words[0], [0.1, 0.8, 0.1], 0.9), WeighedSentence(words[1], [1.0, 0.0, 0.0], 0.1)]
    assert measure_pointing([first, second], [frozenset({5}), frozenset({1})]) == (100.0, 100.0)
    assert measure_pointing([first, second], [frozenset({0}), frozenset({0, 3})]) == (50.0, 0.0)
    assert measure_pointing([first], [frozenset({3})]) == (100.0, 0.0)


def test_chance_is_the_share_of_what_decides():
    texts = ["a b . c d .", "a b c ."]
    reviews = Reviews("", {}, texts, ["x", "x"], [frozenset({0, 1}), frozenset({2})])
    assert chance_rates(reviews) == pytest.approx((100 * (1 / 2 + 1) / 2, 100 * (2 / 6 + 1 / 4) / 2))


def test_quarters_are_all_documents_once():
    random = np.random.default_rng(1)
    for words in ([5], [1, 2, 3, 4], [7] * 9, random.integers(1, 300, 101).tolist()):
        groups = length_quarters(words)
        assert np.sum([chosen for _, chosen in groups], 0).tolist() == [1] * len(words)
        for name, chosen in groups:
            low, high = map(int, name.split("–"))
            assert all(low <= words[i] <= high for i in np.flatnonzero(chosen))
    assert [chosen.sum() for _, chosen in length_quarters(list(range(100)))] == [25, 25, 25, 25]


def figures(accuracy, seed=0, looked=None):
    random = np.random.default_rng(seed)
    right = random.random((2, 4000)) < accuracy
    own = None if looked is None else PointingRates(SeedStatistics((looked, looked)), SeedStatistics((looked, looked)))
    return ClassifierFigures(right, SeedStatistics((1.0, 1.0)), SeedStatistics((1.0, 1.0)), 7, own)


def test_figures_are_shares():
    found = ClassifierFigures(np.array([[True, False, True, True]]), SeedStatistics((1.0,)), SeedStatistics((1.0,)), 7)
    assert found.accuracy == SeedStatistics((75.0,))
    assert found.within(np.array([True, True, False, False])) == SeedStatistics((50.0,))


def test_verdicts_follow_the_figures():
    papers = {
        "mean": figures(0.8, 1),
        "max": figures(0.82, 2),
        "attention": figures(0.9, 3, 95.0),
        "flat": figures(0.85),
    }
    assert [each.agrees for each in verdicts({"opinion": papers}, (40.0, 5.0))] == [True] * 4
    assert [each.agrees for each in verdicts({"opinion": papers}, (48.0, 5.0))] == [True, True, True, False]
    alike = {name: figures(0.9, i, 30.0) for i, name in enumerate(SYSTEMS)}
    assert [each.agrees for each in verdicts({"opinion": alike}, (40.0, 5.0))] == [False] * 4
    both = {"polarity": papers, "stars": {**papers, "mean": figures(0.9, 4)}}
    found = verdicts({name: {key: figures_of(each) for key, each in row.items()} for name, row in both.items()})
    assert [each.agrees for each in found] == [False, True, True]  # on every task, or not at all
    assert "(polarity)" in found[0].evidence
    assert "(stars)" in found[0].evidence


def figures_of(each):
    """Return the figures without attention, as for a real corpus."""
    return ClassifierFigures(each.right, each.f1, each.seconds, each.parameters)


def test_a_page_of_a_hardly_trained_study(shorten):
    tasks = {"opinion": built_in_reviews(200, 12, longest=4)}
    setting = shorten(documents, model={"size": 16}, choose_tasks=lambda setting: tasks)
    page = run("documents", setting=setting)
    assert [len(table.rows) for table in page.tables] == [4, 4, 3]
    assert len(page.verdicts) == 4
    assert page.signature.command(page.name) == "regard study documents --seeds 4 --quick"
    assert page.write(setting.out).is_file()


def test_a_page_of_two_tasks(tmp_path, shorten):
    """As for IMDB, whose deciding words are unknown; built-in reviews take its place."""
    reviews = built_in_reviews(200, 12, longest=4)
    reviews = Reviews("some reviews", reviews.tables, reviews.texts, reviews.labels)
    tasks = {"polarity": reviews, "stars": reviews}
    setting = shorten(documents, model={"size": 16}, choose_tasks=lambda setting: tasks)
    setting = replace(setting, quick=False, data=tmp_path)
    page = run("documents", setting=setting)
    assert [len(table.rows) for table in page.tables] == [8, 4, 4]
    assert len(page.verdicts) == 3
    assert "IMDB" in str(page.signature)
    assert page.write(setting.out).is_file()


def test_forms_of_the_study(monkeypatch):
    asked = []
    monkeypatch.setattr(
        documents, "built_in_reviews", lambda *given, **options: asked.append((*given, *options.values())) or REAL
    )
    monkeypatch.setattr(documents, "imdb", lambda *given: asked.append(given) or REAL)
    folder = Path("corpora")
    settings = Setting(quick=True), Setting(), Setting(quick=True, data=folder), Setting(data=folder)
    assert [list(choose_tasks(each)) for each in settings] == [["opinion"]] * 3 + [["polarity"]]
    quick, whole, again, *real = asked
    assert all(few < many for few, many in zip(quick, whole, strict=True))
    assert again == quick
    assert real == [(folder,)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claim_holds(tmp_path):
    page = run("documents", setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    mean, _, _, pointed = page.verdicts
    assert mean.agrees, mean.evidence
    assert pointed.agrees, pointed.evidence
