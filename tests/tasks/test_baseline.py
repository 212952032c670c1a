"""Baselines: equal to scikit-learn and plain loops, within seconds, and one line at the end of training."""

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.typing_in import Command
from tiny import table, write_documents

import regard
from regard.data import Encoded
from regard.data.cache import Writer
from regard.evaluation import text_scores
from regard.tasks.baseline import Baselines, find_nearest, read_baselines, regress, save_baselines

pytestmark = pytest.mark.unchecked  # typer uses other classes than it documents


def encode(folder: Path, sources: list[list[int]], targets: list[list[int]]) -> Encoded:
    writer = Writer(folder)
    writer.write(sources, targets)
    writer.close()
    return Encoded(folder)


def test_the_nearest_source_is_that_of_a_plain_loop(tmp_path):
    draw = random.Random(0)
    sources = [[draw.randrange(5, 200) for _ in range(draw.randint(1, 12))] for _ in range(300)]
    train = encode(tmp_path / "train", sources, [[1]] * 300)
    queries = [sources[7], sources[100] + [199], [draw.randrange(5, 200) for _ in range(8)]]
    nearest = find_nearest([np.array(each) for each in queries], train, np.arange(300))
    rare = {v: max(0.0, np.log(300 / (1 + sum(v in each for each in sources)))) for v in range(200)}

    def vector(ids: list[int]) -> np.ndarray:
        whole = np.zeros(200)
        for v in set(ids):
            whole[v] = (1 + np.log(ids.count(v))) * rare[v]
        return whole / np.linalg.norm(whole)

    best = [max(range(300), key=lambda i: vector(query) @ vector(sources[i])) for query in queries]
    assert nearest == best
    assert nearest[:2] == [7, 100]
    assert find_nearest([np.array([300, 301])], train, np.arange(300)) == [0]  # no document is similar


def documents(count: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return documents of two labels, each with one word of its label among many others."""
    draw = random.Random(seed)
    labels = [draw.randrange(2) for _ in range(count)]
    return [[*(draw.randrange(10, 500) for _ in range(30)), 5 + label] for label in labels], [[each] for each in labels]


def test_regression_learns_what_one_word_says(tmp_path):
    train, valid = encode(tmp_path / "a", *documents(400, 0)), encode(tmp_path / "b", *documents(100, 1))
    state = torch.get_rng_state()
    found = regress(train, valid, 2, np.arange(100))
    assert torch.equal(state, torch.get_rng_state())
    assert np.mean(found == np.array([int(valid.pair(i)[1][0]) for i in range(100)])) > 0.9


def test_a_large_corpus_takes_seconds(tmp_path):
    draw = np.random.default_rng(0)
    rows = draw.integers(5, 8_000, (60_000, 25)).tolist()
    train = encode(tmp_path / "pairs", rows, [[1]] * len(rows))
    began = time.process_time()
    assert find_nearest([np.array(each) for each in rows[:200]], train, np.arange(50_000)) == list(range(200))
    documents_ = encode(tmp_path / "documents", [row * 8 for row in rows[:20_000]], [[i % 3] for i in range(20_000)])
    regress(documents_, encode(tmp_path / "valid", rows[:500], [[0]] * 500), 3, np.arange(500))
    assert time.process_time() - began < 15


def test_one_line_says_what_is_trivial(tmp_path, capsys):
    given = table(tmp_path, training__steps=4, training__metric="bleu", training__validate_rows=10)
    run = regard.train(given, tmp_path / "run")
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("baselines on the same")]
    baselines = read_baselines(tmp_path / "run")
    assert baselines is not None
    assert (baselines.metric, baselines.examples) == ("bleu", 10)
    assert "a copy of the source" in line
    assert "the target of the nearest training source" in line
    assert "; the model" in line
    pairs = json.loads(json.dumps(run.settings.row.load().prepare(run.settings).valid_pairs))[:10]
    copied = text_scores.bleu([source for source, _ in pairs], [target for _, target in pairs])
    assert baselines.scores["a copy of the source"] == pytest.approx(copied)
    shown = Command("show").typed(tmp_path / "run")
    assert "BLEU of a copy of the source: " in shown.stdout


def test_labels_have_the_most_frequent_one_and_a_regression(tmp_path, capsys):
    data = {"documents": str(write_documents(tmp_path, 200)), "held_out": 0.2, "cache": str(tmp_path / "cache")}
    model = {"kind": "encoder", "size": 8, "heads": 1, "layers": 1, "hidden": 8}
    training = {"steps": 2, "device": "cpu", "validate_every": 2, "batch_tokens": 512}
    whole = {"task": "classify", "data": data, "model": model, "training": training}
    regard.train(whole, tmp_path / "run")
    baselines = read_baselines(tmp_path / "run")
    assert baselines is not None
    assert baselines.metric == "accuracy"
    (majority, _), (name, regression) = baselines.scores.items()
    assert majority.startswith("the most frequent label (")
    assert name == "logistic regression"
    assert 0.5 < regression <= 1
    assert "documents held out, accuracy: the most frequent label (" in capsys.readouterr().err


def test_a_language_model_has_none(tmp_path, capsys):
    given = table(tmp_path, task="language-model", training__steps=2)
    given["model"] = {"kind": "encoder", "size": 16, "heads": 2, "layers": 1, "hidden": 16}
    (tmp_path / "run").mkdir()
    regard.train(given, tmp_path / "run")
    assert "baselines" not in capsys.readouterr().err
    assert read_baselines(tmp_path / "run") is None


def test_files_that_are_damaged_are_none(tmp_path):
    save_baselines(tmp_path, Baselines("bleu", 3, {"a copy of the source": 1.5}))
    assert read_baselines(tmp_path) == Baselines("bleu", 3, {"a copy of the source": 1.5})
    for text in ("", "[]", '{"metric": "bleu"}', '{"metric": "bleu", "examples": 1, "scores": {"a": "b"}}'):
        (tmp_path / "baseline.json").write_text(text)
        assert read_baselines(tmp_path) is None
    save_baselines(tmp_path, None)
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_called_no_better_where_it_is_not():
    baselines = Baselines("bleu", 200, {"a copy of the source": 2.0, "another": 7.25})
    assert baselines.as_text("validation pairs", 7.0) == (
        "baselines on the same 200 validation pairs, BLEU: a copy of the source 2.0, another 7.2; the model 7.0, "
        "which is no better"
    )
    assert baselines.as_text("validation pairs", 8.0).endswith("; the model 8.0")
    assert baselines.as_text("validation pairs", None).endswith("another 7.2")
