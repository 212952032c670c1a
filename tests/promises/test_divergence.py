"""If training diverges, one sentence gives the reason and the last safe state; earlier checkpoints can be loaded.

This covers every kind of model, with and without validation, at rates at which scores, gradients or weights become
non-finite.
"""

import math

import pytest
import torch
from tiny import caption_table, document_table, question_table, records, table

from regard.errors import TrainingError
from regard.models import KINDS
from regard.run import load
from regard.tasks import start
from regard.training import Checkpoints, read_checkpoint, update

SMALL = {"size": 8, "embedding": 8, "hidden": 8}
MODELS = {
    "lstmn": {"kind": "lstmn", **SMALL},
    "pointer": {"kind": "pointer", "size": 8, "embedding": 8},
    "ntm": {"kind": "ntm", "size": 8},
    "encoder": {"kind": "encoder", "size": 8, "heads": 2, "layers": 1, "hidden": 8},
}
TABLES = {
    **{kind: lambda folder, kind=kind: table(folder, kind) for kind in ("transformer", "rnnsearch", "luong", "rnn")},
    **{kind: lambda folder, kind=kind: table(folder, model=MODELS[kind]) for kind in ("lstmn", "pointer", "ntm")},
    "encoder": lambda folder: table(folder, model=MODELS["encoder"], task="language-model"),
    "han": lambda folder: document_table(folder, "han"),
    "documents by an encoder": lambda folder: document_table(folder, "encoder"),
    "captioner": caption_table,
    "captioner, hard": lambda folder: caption_table(folder, attention="hard"),
    "convnet": question_table,
}
SAFE = ("lower training.rate", "the last checkpoint is", "no checkpoint was saved")


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_every_kind_is_here():
    assert KINDS.keys() <= {name.split(",")[0] for name in TABLES}


def diverging(folder, name, rate, valid, steps):
    """Return a configuration that starts well for two steps and then takes far too large steps."""
    whole = TABLES[name](folder)
    whole["data"]["held_out"] = 0.1 if valid else 0.0
    whole["training"] |= {
        "steps": steps,
        "rate": rate,
        "warmup": 1,
        "validate_every": 4 if steps < 100 else 50,
        "log_every": 2,
    }
    return whole


def outcome(whole, run) -> str:
    """Train, and return the sentence of the failure, or an empty string."""
    try:
        start(whole, run)
    except TrainingError as error:
        said = str(error)
        assert "\n" not in said
        assert said.startswith("step ")
        assert "finite" in said
        assert SAFE[0] in said
        assert any(words in said for words in SAFE[1:])
        return said
    return ""


def check_folder(run, valid) -> None:
    """Check that all checkpoints are finite and can be loaded, and that the best one had a finite loss."""
    for folder in Checkpoints(run).steps():
        for name, tensor in read_checkpoint(folder, trainer=False).model.items():
            assert bool(tensor.isfinite().all()), f"{folder.name}: {name}"
    if Checkpoints(run).last() is not None:
        load(run, device="cpu")
    if valid:
        for record in records(run):
            assert not record.get("best") or math.isfinite(record["loss"])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("valid", "steps"),
    [(True, 8), *(pytest.param(valid, 150, marks=pytest.mark.slow) for valid in (True, False))],
)
def test_no_kind_ends_otherwise(tmp_path, name, valid, steps):
    """The rate is the highest that a configuration accepts."""
    outcome(diverging(tmp_path, name, 1e6, valid, steps), tmp_path / "run")
    check_folder(tmp_path / "run", valid)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("rate", "valid", "steps"),
    [
        (1e30, True, 8),
        (1e38, False, 4),
        *(pytest.param(rate, valid, 150, marks=pytest.mark.slow) for rate in (1e30, 1e38) for valid in (True, False)),
    ],
)
def test_whatever_overflows_first(tmp_path, monkeypatch, name, rate, valid, steps):
    """Scores, gradients or weights overflow; no configuration accepts such rates."""
    monkeypatch.setattr(update, "rate_at", lambda step, settings: rate)
    said = outcome(diverging(tmp_path, name, 1.0, valid, steps), tmp_path / "run")
    check_folder(tmp_path / "run", valid)
    if rate == 1e38:
        assert "the weights are no longer finite" in said


def test_no_finite_gradient_in_a_hundred_steps(tmp_path):
    said = outcome(diverging(tmp_path, "transformer", 1e6, True, steps=130), tmp_path / "run")
    assert "no finite gradient in the last 1" in said
    assert f"the last checkpoint is {tmp_path / 'run' / 'checkpoints' / 'step-'}" in said


def test_a_short_run_that_learned_nothing_is_not_finished(tmp_path):
    """The run has fewer than a hundred steps, and no finite gradient after the first."""
    assert "finite" in outcome(diverging(tmp_path, "transformer", 1e6, True, steps=12), tmp_path / "run")


def test_what_was_good_before_stays_the_best(tmp_path, monkeypatch):
    """A run resumed at too high a rate keeps its best checkpoint, and can be loaded."""
    whole = table(tmp_path)
    start(whole, tmp_path / "run")
    best = (tmp_path / "run" / "checkpoints" / "best.json").read_text()
    monkeypatch.setattr(update, "rate_at", lambda step, settings: 1e38)
    whole["training"]["steps"] = 200
    with pytest.raises(TrainingError, match="finite"):
        start(whole, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "checkpoints" / "best.json").read_text() == best
    check_folder(tmp_path / "run", True)
