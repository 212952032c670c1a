"""Evaluation of a run through the library: `Run.evaluate`, and texts that are known already."""

import pytest
from tiny import table

from regard import load
from regard.errors import ArgumentError
from regard.tasks.evaluation import AlignmentTest, TextTest, describe_search, drop_unfit_metrics, lead_with
from regard.tasks.run_start import start


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("measured")
    start(table(home, training__steps=2, data__longest=20), home / "run")
    (home / "source").write_text("1 2 3\n\n9 8 7 6\n")
    (home / "reference").write_text("3 2 1\n\n6 7 8 9\n")
    return home


def test_a_run_translates_and_is_compared(home):
    run, kept, notes = load(home / "run"), [], []
    report = run.evaluate(source=home / "source", reference=home / "reference", keep=kept.extend, say=notes.append)
    outputs = run.translate(["1 2 3", "", "9 8 7 6"], beam=5)
    assert kept == outputs
    assert report.heading == f"{home / 'run'}, beam 5, length penalty 0.6: 3 sentences, 1 of them with an empty source"
    assert list(report.json["scores"])[:3] == [
        "perplexity",
        "bleu",
        "chrf",
    ]  # its best checkpoint has the least loss
    assert report.json["search"] == {"beam": 5, "length_penalty": 0.6}
    assert [table.title for table in report.tables] == ["", "BLEU by source length"]
    assert [row[0] for row in report.tables[0].rows] == [each["name"] for each in report.json["scores"].values()]
    test = TextTest.read(home / "reference", home / "source", run=False)
    known = TextTest(test.items, test.keys, outputs).measure(None, "known")
    assert known.json["scores"] == {key: each for key, each in report.json["scores"].items() if key != "perplexity"}
    assert known.json["search"] is None


def test_a_source_that_is_too_long_is_cut_and_said_so(home):
    run, notes = load(home / "run"), []
    (home / "long").write_text("1 " * 40 + "\n")
    (home / "short").write_text("1\n")
    run.evaluate(source=home / "long", reference=home / "short", metrics="exact", say=notes.append)
    assert notes == [f"1 of 1 sources were truncated to the 20 tokens of {home / 'run'}"]


def test_what_a_task_is_not_measured_on_is_refused(home):
    run = load(home / "run")
    for files, expected in (
        ({"documents": "a.tsv"}, "classify"),
        ({"images": "a", "labels": "b"}, "classify"),
        ({"images": "a", "captions": "b"}, "caption"),
    ):
        with pytest.raises(ArgumentError, match=f"its task is translate, expected {expected}; use regard translate"):
            run.evaluate(**files)
    with pytest.raises(ArgumentError, match="source: missing, expected the text that"):
        run.evaluate(reference=home / "reference")


def test_ter_is_left_out_of_long_texts_unless_it_is_asked_for():
    said = []
    assert drop_unfit_metrics(["bleu", "ter"], ["a b c d"], say=said.append) == ["bleu", "ter"]
    assert said == []
    assert drop_unfit_metrics(["bleu", "ter"], ["a " * 1000], say=said.append) == ["bleu"]
    assert said[0].startswith("TER is skipped")


@pytest.mark.parametrize("references", [["Hund", "Katze"], [("to be", "be"), ("a house",)], [""], ["犬が", "猫"]])
def test_bleu_is_left_out_where_hardly_a_reference_has_four_words(references):
    said = []
    assert drop_unfit_metrics(["bleu", "chrf", "lengths"], references, say=said.append) == ["chrf"]
    assert said[0].startswith("BLEU is skipped, because it counts runs of four words")


@pytest.mark.parametrize(
    "references", [["Hund", "ein Hund bellt laut"], ["犬が庭で寝ています", "猫"], ["a b c d"] + ["a"] * 8]
)
def test_bleu_stays_where_some_have_four(references):
    assert drop_unfit_metrics(["bleu", "chrf"], references) == ["bleu", "chrf"]


@pytest.mark.parametrize(
    ("metric", "first"),
    [("chrf", "chrf"), ("exact", "exact"), ("loss", "perplexity"), ("bleu", "bleu"), (None, "bleu")],
)
def test_the_metric_that_chose_the_best_checkpoint_comes_first(home, metric, first):
    keys = ["bleu", "chrf", "exact", "perplexity", "lengths"]
    ordered = lead_with(metric, keys)
    assert ordered[0] == first
    assert [key for key in keys if key != first] == ordered[1:]


def test_an_evaluation_begins_with_the_metric_of_the_run(home):
    start(table(home, training__steps=2, training__metric="chrf"), home / "by-chrf")
    files = {"source": home / "source", "reference": home / "reference"}
    report = load(home / "by-chrf").evaluate(**files)
    assert next(iter(report.json["scores"])) == "chrf"
    assert report.tables[0].rows[0][0] == "chrF"
    asked = load(home / "by-chrf").evaluate(**files, metrics="exact,chrf")  # the user's order stays
    assert list(asked.json["scores"]) == ["exact", "chrf"]


def test_words():
    assert describe_search({"beam": 3, "length_penalty": 0.5}) == ", beam 3, length penalty 0.5"
    assert describe_search(None) == describe_search({}) == ""


def test_links_are_measured():
    from regard.evaluation import alignment_scores

    report = AlignmentTest([alignment_scores.parse_links("0-0 1-1")], links=[[(0, 0)]], system="mine").measure()
    assert report.heading == "mine: 1 sentence"
    assert report.json["scores"]["recall"]["value"] == 0.5
