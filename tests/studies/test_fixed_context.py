"""The study of fixed contexts: how it counts, how it judges, and, in full, what it finds."""

import pytest

from regard.data.builtin import Example, generate
from regard.studies import fixed_context, run
from regard.studies.fixed_context import BINS, CELLS, KINDS, averaged, bins, tables, verdicts
from regard.studies.setting import Setting
from regard.training.settings import read_settings


def example(words, target):
    return Example(" ".join(["w"] * words), target, ())


def test_systems_differ_in_cell_and_attention_alone():
    for quick in (True, False):
        found = {name: read_settings(table) for name, table in tables(quick).items()}
        assert len(found) == len(CELLS) * len(KINDS)
        assert len({(each.kind, each.model.cell) for each in found.values()}) == len(found)
        assert len({each.training for each in found.values()}) == len({each.data for each in found.values()}) == 1
        assert len({(each.model.size, each.model.embedding) for each in found.values()}) == 1


def test_outputs_are_counted_by_length():
    tests = [example(3, "a b c d"), example(5, "e f g h"), example(7, "i j k l"), example(20, "m n o p")]
    found = bins(tests, ["a b c d", "x", "i j k l", "y"])
    assert found["exact"] == [50.0, 100.0, 0.0, 0.0, 0.0, 50.0]
    assert found["bleu"][1] == pytest.approx(100.0)
    assert averaged([found, bins(tests, ["x", "x", "x", "y"])])["exact"] == [25.0, 50.0, 0.0, 0.0, 0.0, 25.0]


def figures(first, last):
    return {"bleu": [first, *[50.0] * (len(BINS) - 2), last, 50.0], "exact": [0.0] * (len(BINS) + 1)}


def test_verdicts_follow_the_figures():
    papers = {f"rnn-{cell}": figures(95.0, 10.0) for cell in CELLS}
    papers |= {f"rnnsearch-{cell}": figures(98.0, 90.0) for cell in CELLS}
    assert [verdict.agrees for verdict in verdicts(papers)] == [True] * 4
    other = {f"{kind}-{cell}": figures(95.0, 94.0) for kind in KINDS for cell in CELLS}
    assert [verdict.agrees for verdict in verdicts(other)] == [False] * 4


def test_a_page_of_a_hardly_trained_study(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))

    def short(quick):
        made = tables(quick)
        for table in made.values():
            table["data"]["count"] = 300
            table["training"] |= {"steps": 2, "validate_every": 2, "warmup": 1, "validate_rows": 2}
        return made

    monkeypatch.setattr(fixed_context, "tables", short)
    monkeypatch.setattr(fixed_context, "generate", lambda name, count, **options: generate(name, 12, **options))
    setting = Setting((4,), quick=True, device="cpu", out=tmp_path / "studies")
    page = run("fixed-context", setting=setting)
    assert len(page.tables[0].rows) == len(CELLS) * len(KINDS)
    assert page.signature.again(page.name) == "regard study fixed-context --seeds 4 --quick"
    assert "seed 4" in str(page.signature)
    assert page.write(setting.out).is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claim_holds(tmp_path):
    page = run("fixed-context", setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    for verdict in page.verdicts:
        assert verdict.agrees, verdict.evidence
