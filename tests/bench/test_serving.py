"""The server benchmark: its model, words and figures; the full run loads a real server."""

import importlib.util

import pytest

from regard.errors import RegardError
from regard.run import load
from regard_bench import serving

TINY = {"size": 8, "heads": 2, "layers": 1, "hidden": 8}


def test_a_run_with_random_weights_translates_its_words(tmp_path):
    folder = serving.write_run(tmp_path / "run", TINY, 500)
    run, words = load(folder), serving.Words(500)
    assert len(set(words.words)) == 490
    text = words.sentence(7)
    ids = run.tokenizers.source.encode(text)
    assert len(ids) == 7
    assert run.tokenizers.source.decode(ids) == text  # no word is unknown
    (output,) = next(iter(run.stream([text], beam=2, shortest=5, longest=5)))
    assert len(output.tokens) == 5


def test_answers_that_differ_are_not_measured(tmp_path):
    run, text = load(serving.write_run(tmp_path / "run", TINY, 100)), serving.Words(100).sentence(4)
    search = {"beam": 2, "shortest": 3, "longest": 3}
    expected = next(iter(run.stream([text], **search)))[0]
    answer = {"results": [{"outputs": [{"text": expected.text, "score": expected.score}]}]}
    serving.compare_answers(run, [({"texts": [text]}, answer)], search)
    answer["results"][0]["outputs"][0]["score"] += 1e-3
    with pytest.raises(RegardError, match="is answered with"):
        serving.compare_answers(run, [({"texts": [text]}, answer)], search)


def test_goals_are_lower_or_upper_limits():
    assert serving.result("a", "", "", 0.8, 0.7).reached
    assert not serving.result("a", "", "", 0.6, 0.7).reached
    assert serving.result("a", "", "", 1.2, 1.3, less=True).reached
    assert not serving.result("a", "", "", 1.4, 1.3, less=True).reached
    assert serving.result("a", "", "", 1.4, 1.3, less=True).goal == "at most 1.3"


def test_mixed_requests_differ_and_are_about_as_long():
    words = serving.Words(100)
    tables = [serving.varied(words, number) for number in range(20)]
    assert {table["beam"] for table in tables} == {1, 2, 3, 4, 5}
    assert all(table["nbest"] <= table["beam"] for table in tables)
    assert all(25 <= table["shortest"] == table["longest"] <= 29 for table in tables)
    assert 5 < sum("prefixes" in table for table in tables) < 15


def test_the_late_ones():
    assert serving.late(list(range(100))) == pytest.approx(95, abs=1.5)


def test_a_peer_that_is_not_installed_is_named_as_such(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (result,) = serving.compare_peer(tmp_path, "cpu", "many clients", [], 4, 10.0, [])
    assert result.what == "many clients, beside CTranslate2"
    assert result.ratio is None
    assert "regard[peers]" in result.peer


def test_a_server_that_does_not_start_says_why():
    with (
        pytest.raises(RegardError, match="did not start: .*No module named regard.no_such"),
        serving.start(["regard.no_such"]),
    ):
        pass


@pytest.mark.slow
def test_a_server_is_measured(monkeypatch):
    """Run the command, its clients and the library side by side, with a tiny model and little time."""
    monkeypatch.setattr(serving, "SMALL", TINY)
    monkeypatch.setattr(serving, "TURN", 3.0)
    results = list(serving.run(3))
    assert len(results) == 4
    assert all(result.ratio is None or result.ratio > 0 for result in results)
    assert "CTranslate2" in results[-1].what
