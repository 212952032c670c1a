"""`regard score` from the command line, with mistakes."""

import gzip
import json
import math
import shlex
from pathlib import Path

import pytest
import torch
from cli.typing_in import Command
from tiny import table

from regard import load
from regard.tasks import start

COMMAND = Command("score")
typed, said, refused = COMMAND.typed, COMMAND.said, COMMAND.refused
SOURCES = ["1 2 3", "", "4 5", "9 x"]
TARGETS = ["3 2 1", "", "7 7 7 7", "9"]


@pytest.fixture(scope="module")
def desk(furnish) -> Path:
    folder, threads = furnish(run="transformer", other="rnnsearch", lm="language-model"), torch.get_num_threads()
    short = table(folder / "data", training__steps=2, data__longest=6)
    short["model"] |= {"positions": "learned", "length": 7}
    start(short, folder / "short")
    torch.set_num_threads(threads)
    for name, lines in (("source.txt", SOURCES), ("target.txt", TARGETS), ("two.txt", ["1", "2"])):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    (folder / "target.gz").write_bytes(gzip.compress((folder / "target.txt").read_bytes()))
    (folder / "long.txt").write_text("1\n2\n1 2 3 4 5 6 7\n4\n")
    (folder / "latin.txt").write_bytes(b"1\n2\n\xe4\n4\n")
    return folder


def test_a_line_a_pair(at_desk):
    scored = load("run").score(SOURCES, TARGETS)
    shown = typed("run", "--source", "source.txt", "--target", "target.txt")
    assert [float(line) for line in shown.stdout.splitlines()] == [round(each.log_prob, 4) for each in scored]
    count = 3 + 0 + 4 + 1 + len(TARGETS)  # including the END of each
    perplexity = math.exp(-sum(each.log_prob for each in scored) / count)
    unseen = "regard: x was never seen in training\n"
    assert shown.stderr == f"{unseen}4 pairs, {count} tokens, perplexity {perplexity:.4g}\n"


def test_both_sides_of_a_table(at_desk, tmp_path):
    rows = tmp_path / "pairs.tsv"
    rows.write_text("".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True)))
    assert said("run", "--source", rows, "--target", rows) == said(
        "run", "--source", "source.txt", "--target", "target.txt"
    )
    shown = typed("run", "--source", "source.txt", "--target", rows)
    assert f"{rows}: reading the targets in column 2; sources are ignored" in shown.stderr


def test_pieces_and_means(at_desk):
    files = ["--source", "source.txt", "--target", "target.gz"]
    scored = load("run").score(SOURCES, TARGETS)
    rows = [line.split("\t") for line in said("run", *files, "--tokens", "--normalise")]
    for (mean, pieces, log_probs), target, each in zip(rows, TARGETS, scored, strict=True):
        assert pieces.split(" ") == [*target.split(), "</s>"]
        assert [float(value) for value in log_probs.split(" ")] == [round(value, 4) for value in each.tokens]
        assert float(mean) == round(each.log_prob / len(each.tokens), 4)
    found = [json.loads(line) for line in said("run", *files, "--json", "--tokens")]
    for row, source, target, each in zip(found, SOURCES, TARGETS, scored, strict=True):
        assert (row["source"], row["target"], row["tokens"]) == (source, target, [*target.split(), "</s>"])
        assert row["log_prob"] == pytest.approx(each.log_prob, abs=1e-5)
        assert row["normalised"] == pytest.approx(each.log_prob / len(each.tokens), abs=1e-5)
        assert row["log_probs"] == pytest.approx(each.tokens, abs=1e-5)


def test_several_runs_are_an_ensemble(at_desk):
    """The score of an ensemble is the mean of the probabilities, token by token."""
    files = ["--source", "source.txt", "--target", "target.txt"]
    both = [load(name).score(SOURCES, TARGETS) for name in ("run", "other")]
    expected = [
        sum(math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(one.tokens, two.tokens, strict=True))
        for one, two in zip(*both, strict=True)
    ]
    assert [float(line) for line in said("run", "other", *files)] == pytest.approx(expected, abs=1e-3)


def test_a_translation_has_the_score_that_is_given_here(at_desk, tmp_path):
    texts = [f"{i} {j}" for i in range(4) for j in range(4)]
    found = [
        (text, each)
        for text, outputs in zip(texts, load("run").stream(texts, nbest=3), strict=True)
        for each in outputs
    ]
    found = [(text, each) for text, each in found if "<unk>" not in each.tokens]  # <unk> cannot be typed
    assert found
    (tmp_path / "source").write_text("".join(f"{text}\n" for text, _ in found))
    (tmp_path / "target").write_text("".join(f"{each.text}\n" for _, each in found))
    given = said("run", "--source", tmp_path / "source", "--target", tmp_path / "target")
    assert [float(line) for line in given] == pytest.approx([each.log_prob for _, each in found], abs=1e-3)


def test_a_language_model_scores_texts(at_desk):
    shown = typed("lm", "--target", "-", stdin="".join(f"{line}\n" for line in TARGETS))
    assert [float(line) for line in shown.stdout.splitlines()] == [
        round(each.log_prob, 4) for each in load("lm").score(TARGETS)
    ]
    assert shown.stderr.startswith("4 lines, 12 tokens, perplexity ")
    assert "source" not in json.loads(said("lm", "--target", "target.txt", "--json")[0])


def test_chunks_do_not_matter(at_desk, monkeypatch, tmp_path):
    files = ["--source", "source.txt", "--target", "target.txt"]
    expected = said("run", *files)
    monkeypatch.setattr("regard.io.inputs.CHUNK", 3)
    assert [float(line) for line in said("run", *files)] == pytest.approx([float(line) for line in expected], abs=1e-3)
    assert said("run", *files, "--out", tmp_path / "out") == []
    assert len((tmp_path / "out").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run", "--target: missing, expected a text to score, or a file of them"),
        ("run --target target.txt", "--source: missing, expected the text file of the sources, because run translates"),
        ("run --source two.txt --target target.txt", "two.txt has 2 lines and target.txt has 4; expected"),
        ("run --source source.txt --target two.txt", "source.txt has 4 lines and two.txt has 2; expected"),
        ("run --source none.txt --target two.txt", "none.txt: no such file"),
        ("run --source data --target two.txt", "data: a folder given, expected a file"),
        ("run --source - --target -", "--target: standard input is the source already, expected a file"),
        ("run --source source.txt --target latin.txt", "latin.txt, line 3: byte 1 (0xe4) is not UTF-8"),
        ("lm --source two.txt --target two.txt", "--source: lm is a language model and reads no source"),
        (
            "data --source two.txt --target two.txt",
            "data: not a run folder, it has no config.toml; regard runs lists run folders",
        ),
        ("short --source source.txt --target long.txt", "long.txt, line 3: 7 tokens, expected at most 6"),
        ("run --source two.txt --target two.txt --out two.txt", "--out: two.txt is an input file"),
    ],
)
def test_mistakes_are_one_sentence(at_desk, arguments, message):
    assert refused(*shlex.split(arguments)).startswith(message)


@pytest.mark.parametrize(
    ("lines", "counts"), [(2, "has 2 lines and target.txt has 4"), (6, "has 6 lines and target.txt has 4")]
)
def test_a_pipe_of_another_length(at_desk, lines, counts):
    shown = typed("run", "--source", "-", "--target", "target.txt", stdin="1\n" * lines)
    assert shown.exit_code == 2
    assert shown.stderr.startswith(f"regard: standard input {counts}; expected the same number")


def test_a_pair_is_scored_as_it_is_typed(at_desk):
    lines = said("run", "--source", "1 2 3", "--target", "3 2 1")
    scored = load("run").score(["1 2 3"], ["3 2 1"])[0]
    assert lines == [f"{scored.log_prob:.4f}"]
    assert said("run", "--source", "7", "--target", "8", "--text") == [
        f"{load('run').score(['7'], ['8'])[0].log_prob:.4f}"
    ]
    expected = "none: no such file; if it is a text, add --text"
    assert refused("run", "--source", "1 2 3", "--target", "none") == expected
