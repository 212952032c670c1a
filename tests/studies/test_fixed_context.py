"""The study of fixed contexts: how it counts and judges, and, in the slow form, its findings."""

import pytest

from regard.tasks import read_settings
from regard_studies import Setting, fixed_context, run
from regard_studies.corpora import Pairs, phrasebook
from regard_studies.fixed_context import (
    BINS,
    CELLS,
    EUROPARL,
    KINDS,
    Lengths,
    bins,
    mean,
    tables,
    untrained_systems,
    verdicts,
)

BOOK = phrasebook(300, 12, longest=18)
FILES = Pairs("files", {"data": {"source": "a", "target": "b"}, "tokenizer": {"kind": "bpe"}}, ["x"], ["y"])


@pytest.mark.parametrize(("pairs", "quick"), [(BOOK, True), (BOOK, False), (FILES, False)])
def test_systems_differ_in_cell_and_attention_alone(pairs, quick):
    found = {name: read_settings(table) for name, table in tables(pairs, quick).items()}
    assert len(found) == len(CELLS) * len(KINDS)
    assert len({(each.kind, each.model.cell) for each in found.values()}) == len(found)
    assert len({each.training for each in found.values()}) == len({each.data for each in found.values()}) == 1
    assert len({(each.model.size, each.model.embedding) for each in found.values()}) == 1


def test_outputs_are_counted_by_length():
    sources = [" ".join(["w"] * words) for words in (3, 5, 7, 18)]
    pairs = Pairs("some", {}, sources, ["a b c d", "e f g h", "i j k l", "m n o p"])
    lengths = Lengths(BINS, len(BINS))
    found = bins(pairs, ["a b c d", "x", "i j k l", "y"], lengths)
    assert found["exact"] == [50.0, 100.0, 0.0, 0.0, 0.0, 50.0]
    assert found["bleu"][1] == pytest.approx(100.0)
    assert mean([found, bins(pairs, ["x", "x", "x", "y"], lengths)], "exact") == [25.0, 50.0, 0.0, 0.0, 0.0, 25.0]


def figures(first, last, beyond):
    return [{"bleu": [first, 50.0, 50.0, 50.0, last, 40.0, beyond, 50.0]}]


def test_verdicts_follow_the_figures():
    lengths = Lengths(EUROPARL, 5)
    papers = {f"rnn-{cell}": figures(95.0, 10.0, 1.0) for cell in CELLS}
    papers |= {f"rnnsearch-{cell}": figures(98.0, 90.0, 30.0) for cell in CELLS}
    assert [verdict.agrees for verdict in verdicts(papers, lengths)] == [True] * 5
    other = {f"{kind}-{cell}": figures(95.0, 94.0, 20.0) for kind in KINDS for cell in CELLS}
    assert [verdict.agrees for verdict in verdicts(other, lengths)] == [False] * 5
    assert len(verdicts(papers, Lengths(EUROPARL, 7))) == 4


def test_what_has_learned_nothing_is_said():
    assert untrained_systems({"rnn-gru": figures(12.0, 5.0, 1.0)}) == []
    assert untrained_systems({"rnn-rnn": figures(1.3, 1.2, 1.0), "rnn-gru": figures(12.0, 5.0, 1.0)}) == [
        "Has hardly learned to translate short sentences, so that it has little to lose: tanh RNN, fixed context "
        "(BLEU 1.3)."
    ]


def test_a_page_of_a_hardly_trained_study(shorten):
    model, book = {"size": 16, "embedding": 8}, {"phrasebook": lambda *counts, **options: BOOK}
    setting = shorten(fixed_context, training={"validate_rows": 2}, model=model, **book)
    page = run("fixed-context", setting=setting)
    assert len(page.tables[0].rows) == len(CELLS) * len(KINDS)
    assert page.signature.command(page.name) == "regard study fixed-context --seeds 4 --quick"
    assert "seed 4" in str(page.signature)
    assert page.write(setting.out).is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claim_holds(tmp_path):
    page = run("fixed-context", setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    for verdict in page.verdicts:
        assert verdict.agrees, verdict.evidence
