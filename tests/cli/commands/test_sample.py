"""`regard sample` from the command line, with mistakes."""

import json
from pathlib import Path

import pytest
import torch
from cli.typing_in import Command
from tiny import table

from regard import load
from regard.tasks import start

COMMAND = Command("sample")
refused = COMMAND.refused


def said(*arguments) -> list[str]:
    return COMMAND.said(*arguments, silent=True)


@pytest.fixture(scope="module")
def desk(furnish) -> Path:
    folder, threads = furnish(run="transformer"), torch.get_num_threads()
    model = {"kind": "encoder", "size": 16, "heads": 2, "layers": 1, "hidden": 16}
    start(table(folder / "data", task="language-model", model=model, training__steps=30), folder / "lm")
    torch.set_num_threads(threads)
    return folder


def test_texts_are_drawn(at_desk, tmp_path):
    texts = said("lm", "--count", 20)
    assert len(texts) == 20
    assert len(set(texts)) > 10
    assert said("lm", "--count", 20) == texts == [each.text for each in load("lm").sample(20)]
    assert said("lm", "--count", 20, "--seed", 1) != texts
    assert said("lm") == texts[:1]
    assert said("lm", "--count", 3, "--out", tmp_path / "out") == []
    assert (tmp_path / "out").read_text().splitlines() == texts[:3]


def test_options_hold(at_desk):
    assert all(text.startswith("1 2") for text in said("lm", "--count", 9, "--prefix", "1 2"))
    assert all(len(text.split()) <= 3 for text in said("lm", "--count", 9, "--longest", 3))
    assert len(set(said("lm", "--count", 9, "--top-k", 1))) == 1
    assert len(set(said("lm", "--count", 9, "--top-p", 1e-6))) == 1
    assert len(set(said("lm", "--count", 9, "--temperature", 1e-3))) == 1


def test_scores_are_log_probabilities(at_desk):
    rows = [line.split("\t") for line in said("lm", "--count", 6, "--scores")]
    known = [row for row in rows if "<unk>" not in row[0]]
    assert known
    expected = [each.log_prob for each in load("lm").score([text for text, _ in known])]
    assert [float(score) for _, score in known] == pytest.approx(expected, abs=1e-3)
    found = [json.loads(line) for line in said("lm", "--count", 6, "--json")]
    assert [(row["text"], f"{row['log_prob']:.4f}") for row in found] == [tuple(row) for row in rows]
    assert all(row["tokens"] == row["text"].split() and row["finished"] in (True, False) for row in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "run: it translates; sample translations with: regard translate run --sample"),
        (["none"], "none: no such folder, expected a run folder; regard runs lists run folders"),
        (["lm", "--temperature", "0"], "--temperature: 0.0 given, expected more than 0"),
        (["lm", "--top-p", "1.5"], "--top-p: 1.5 given, expected at most 1"),
        (["lm", "--seed", "-1"], "--seed: -1 given, expected at least 0"),
        (["lm", "--longest", "2", "--prefix", "1 2 3"], "--prefix: 3 tokens given, expected at most 2"),
        (["lm", "--out", "run"], "--out: run is a folder, expected a file to write"),
    ],
)
def test_mistakes_are_one_sentence(at_desk, arguments, message):
    assert refused(*arguments).startswith(message)
