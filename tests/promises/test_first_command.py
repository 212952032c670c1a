"""The first command keeps the best model that it found, whatever the targets and the metric are."""

import json
import random

import pytest

from regard.run import load
from regard.tasks import start

DRAW = random.Random(8)
LETTERS = "abcdefgh"
UPPER = {"names": str.maketrans(LETTERS, "ABCDEFGH"), "chinese": str.maketrans(LETTERS, "天地玄黄宇宙洪荒")}


def names(count):
    return ["".join(DRAW.choices(LETTERS, k=DRAW.randint(2, 5))) for _ in range(count)]


CORPORA = {
    "names": [(name, name.translate(UPPER["names"])) for name in names(300)],
    "without spaces": [(name, 3 * name.translate(UPPER["chinese"])) for name in names(300)],
    "letters apart": [(" ".join(name), " ".join(name.translate(UPPER["names"]))) for name in names(300)],
}
METRICS = {"names": "exact", "without spaces": "chrf", "letters apart": "exact"}
SHORT = {"steps": 60, "validate_every": 10, "device": "cpu", "threads": 1, "log_every": 10}


def trained(folder, pairs, **training):
    sources, targets = folder / "a.source", folder / "a.target"
    sources.write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    targets.write_text("".join(f"{target}\n" for _, target in pairs), encoding="utf-8")
    table = {
        "data": {"source": str(sources), "target": str(targets), "cache": str(folder / "cache")},
        "model": {"size": 32, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.0},
        "training": {**SHORT, **training},
    }
    done = start(table, folder / "run", choose=True)
    records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    return done, [record for record in records if record["kind"] == "valid"]


@pytest.mark.parametrize("name", CORPORA)
def test_the_best_model_is_kept_by_a_metric_that_moves(tmp_path, name):
    done, valid = trained(tmp_path, CORPORA[name])
    metric = METRICS[name]
    assert done.settings.training.metric == done.task.metric == metric
    best = max(valid, key=lambda record: (record[metric], -record["loss"]))
    assert done.result.best_step == best["step"] > SHORT["validate_every"]  # never the first: the model learns
    assert load(tmp_path / "run", device="cpu").step == best["step"]


def test_a_metric_that_never_moves_loses_nothing(tmp_path):
    done, valid = trained(tmp_path, CORPORA["names"], metric="bleu", patience=1)
    assert {record["bleu"] for record in valid} == {0.0}
    assert done.result.stop_reason == "finished"  # the loss still fell
    assert done.result.best_step == min(valid, key=lambda record: record["loss"])["step"] == SHORT["steps"]
