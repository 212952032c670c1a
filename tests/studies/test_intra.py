"""The study of intra-attention: how it counts and judges, and, in the slow form, its findings."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from regard.models import build, read_model_config
from regard.run import Run
from regard.tasks import read_settings
from regard_studies import Setting, intra, run
from regard_studies.corpora import Reviews, Sentences, built_in_reviews, german
from regard_studies.documents import ClassifierFigures
from regard_studies.intra import (
    PLACES,
    Corpora,
    Likelihood,
    choose_corpora,
    parameters,
    perplexity_course,
    shares,
    sum_by_place,
    tables,
    verdicts,
    widen,
)
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.systems import TrainedSystem

FILES = {"data": {"source": "a", "target": "a"}, "tokenizer": {"kind": "bpe", "size": 700}}
TEXTS = Sentences("some text", FILES, ["a b"])
LABELLED = Reviews("some reviews", {"data": {"documents": "a.tsv"}, "tokenizer": {"kind": "word"}}, ["a"], ["x"])


@pytest.mark.parametrize("quick", [True, False])
def test_systems_differ_in_looking_back_and_width_alone(quick):
    found = tables(Corpora({"german": TEXTS}, {"reviews": LABELLED}), quick)
    for corpus in ("german", "reviews"):
        lstm, wide, lstmn = (read_settings(found[f"{corpus}-{name}"]) for name in ("lstm", "wide", "lstmn"))
        assert len({each.training for each in (lstm, wide, lstmn)}) == 1
        assert len({each.data for each in (lstm, wide, lstmn)}) == 1
        assert [each.model.intra for each in (lstm, wide, lstmn)] == [False, False, True]
        assert lstm.model.size == lstmn.model.size < wide.model.size
        assert len({(each.model.embedding, each.model.dropout) for each in (lstm, wide, lstmn)}) == 1


@pytest.mark.parametrize("job", ["language-model", "classify"])
def test_the_wider_one_has_as_many_parameters(job):
    model = {"kind": "lstmn", "size": 32, "embedding": 16, "hidden": 16}
    target = 300 if job == "language-model" else 2
    made = build("lstmn", read_model_config({**model, "job": job, "intra": True}), 300, target)
    own = sum(parameter.numel() for parameter in made.parameters())
    assert parameters({**model, "intra": True}, job, 300, 2) == own
    found = widen(model, job, 300)
    assert not found["intra"]
    assert parameters({**found, "size": found["size"] - 1}, job, 300, 2) < own
    assert own <= parameters(found, job, 300, 2) < 1.05 * own


def test_log_probabilities_are_summed_by_place():
    rows = [[-1.0] * 5 + [-2.0] * 5 + [-4.0], [-0.5, -0.25], [-1.0] * 250]
    nll, tokens = sum_by_place(rows)
    assert nll[:, 0].tolist() == [5.0, 10.0, 4.0, 0.0, 0.0, 0.0]
    assert tokens[:, 0].tolist() == [5, 5, 1, 0, 0, 0]
    assert nll[:, 1].tolist() == [0.75, 0, 0, 0, 0, 0]
    assert tokens.sum(0).tolist() == [11, 2, 200]  # no test sentence has more than 200 tokens
    assert [last + 1 for _, last in PLACES[:-1]] == [first for first, _ in PLACES[1:]]


def test_the_course_is_read_from_what_training_noted(tmp_path):
    """The mean of the seeds' losses; if an interrupted run recorded a step twice, the last record counts."""

    def system(name, *rows):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        run = Run(
            folder, read_settings({}), None, build("lstmn", read_model_config({"kind": "lstmn", "size": 2}), 3, 3), 4
        )
        return TrainedSystem("lstm", 0, run, 1.0, 4)

    valid = [{"kind": "valid", "step": step, "loss": loss} for step, loss in ((2, 9.0), (2, 1.0), (4, 0.5))]
    one = system("one", {"kind": "step", "step": 2, "loss": 7.0}, *valid)
    other = system("other", {"kind": "valid", "step": 2, "loss": 3.0}, {"kind": "valid", "step": 4, "loss": 0.5})
    assert perplexity_course([one, other]) == pytest.approx({2: math.exp(2.0), 4: math.exp(0.5)})


def test_weights_are_counted_by_distance():
    """Of twelve steps the last two are late, with 10 and 11 states to attend to."""
    last = np.eye(12, 11, -1)  # each step attends to the one before it
    assert shares([last]).tolist() == [100, 0, 0, 0, 0]
    first = np.zeros((12, 11))
    first[:, 0] = 1
    assert shares([first]).tolist() == [0, 0, 0, 50, 50]
    assert shares([last, first]).tolist() == [50, 0, 0, 25, 25]
    assert shares([np.eye(9, 8, -1)]).tolist() == [0] * 5  # too short for late steps


def likely(costs, seed=0, noise=0.05):
    """Return likelihoods of sentences of 24 tokens; `costs` are nats per token for each group of places."""
    random = np.random.default_rng(seed)
    counts = np.array([5.0, 5.0, 5.0, 5.0, 4.0, 0.0])
    each = np.array(costs)[:, None, None] + noise * random.normal(size=(6, 2, 400))
    tokens = np.repeat(counts[:, None], 400, 1)
    return Likelihood(each * tokens[:, None], tokens, np.full(400, 12.0), SeedStatistics((1.0, 1.0)), 7)


def test_perplexity_and_gain():
    even = likely([math.log(8.0)] * 6, noise=0.0)
    assert even.perplexity().values == pytest.approx((8.0, 8.0))
    assert even.perplexity(even.words).values == pytest.approx((64.0, 64.0))
    better = likely([math.log(8.0)] * 2 + [math.log(4.0)] * 4, noise=0.0)
    assert better.gain(even).mean == pytest.approx(14 / 24 * math.log(2))
    assert better.gain(even, 0).mean == pytest.approx(0)
    assert better.gain(even, slice(2, None)).mean == pytest.approx(math.log(2))
    assert even.filled == [0, 1, 2, 3, 4]


def right(accuracy, seed):
    given = np.random.default_rng(seed).random((2, 4000)) < accuracy
    return ClassifierFigures(given, SeedStatistics((1.0, 1.0)), SeedStatistics((1.0, 1.0)), 7)


def test_verdicts_follow_the_figures():
    late = likely([2.0, 1.9, 1.7, 1.6, 1.5, 1.5], 1)
    papers = {"lstm": likely([2.0] * 6, 2), "wide": likely([1.98] * 6, 3), "lstmn": late}
    labelled = {"lstm": right(0.8, 1), "wide": right(0.81, 2), "lstmn": right(0.86, 3)}
    assert [each.agrees for each in verdicts({"a": papers}, {"b": labelled})] == [True] * 5
    alike = {name: likely([2.0] * 6, seed) for seed, name in enumerate(papers)}
    same = {name: right(0.8, seed) for seed, name in enumerate(labelled)}
    found = verdicts({"a": alike}, {"b": same})
    assert [each.agrees for each in found] == [False] * 5
    worse = {**papers, "lstmn": likely([2.5] * 6, 5)}
    found = verdicts({"a": papers, "c": worse}, {"b": labelled})
    assert [each.agrees for each in found] == [False, False, False, True, True]
    assert "% lower" in found[0].evidence
    assert "% higher" in found[0].evidence
    early = {**papers, "lstmn": likely([1.5, 1.5, 2.0, 2.0, 2.0, 2.0], 6)}
    assert [each.agrees for each in verdicts({"a": early}, {})] == [True, True, False]


def test_a_page_of_a_hardly_trained_study(shorten):
    small = Corpora({"german": german(200, 30, 9)}, {"reviews": built_in_reviews(200, 12, longest=3)})
    setting = shorten(intra, training={"batch_tokens": 256}, choose_corpora=lambda setting: small)
    page = run("intra", setting=setting)
    assert [len(table.rows) for table in page.tables] == [3, 3, 3, 2, 3]
    own, even = (row[2:] for row in page.tables[3].rows)
    assert sum(own) == pytest.approx(100, abs=0.01)
    assert sum(even) == pytest.approx(100)
    assert own == pytest.approx(even, abs=5)  # after two updates the weights are almost uniform
    assert len(page.verdicts) == 5
    assert page.signature.command(page.name) == "regard study intra --seeds 4 --quick"
    assert page.write(setting.out).is_file()


def test_forms_of_the_study(monkeypatch):
    for name in ("english_multi30k", "english_europarl"):
        monkeypatch.setattr(intra, name, lambda folder: TEXTS)
    monkeypatch.setattr(intra, "german", lambda *given: TEXTS)
    monkeypatch.setattr(intra, "built_in_reviews", lambda *given, **options: LABELLED)
    for setting in (Setting(), Setting(quick=True, data=Path("a"))):
        assert [list(each) for each in choose_corpora(setting)] == [["german"], ["reviews"]]
    found = choose_corpora(Setting(data=Path("a")))
    assert [list(each) for each in found] == [["multi30k", "europarl"], []]
    assert list(tables(found, False)) == [
        f"{a}-{b}" for a in ("multi30k", "europarl") for b in ("lstm", "wide", "lstmn")
    ]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_study_ends(tmp_path):
    """On a grammar's sentences, after minutes, looking back need not help: the test asserts nothing about it."""
    page = run("intra", setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    (lstm, wide, lstmn) = (float(row[2]) for row in page.tables[0].rows)
    assert max(lstm, wide, lstmn) < 40  # of 1,000 pieces; a system that learns nothing has hundreds
