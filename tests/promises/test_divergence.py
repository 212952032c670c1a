"""Training that diverges ends in a sentence that says why and what is safe; what was saved before can be loaded.

Every kind of model, with and without validation: rates at which scores, gradients or the weights themselves are no
numbers any more.
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
    """A configuration that begins well for two steps and then takes steps that are far too large."""
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
    """How it ended: its sentence, or an empty one."""
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
    """All that is saved is finite and can be loaded; what is called best had a finite loss."""
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
    """At the highest rate that can be set."""
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
    """Scores, gradients, or the weights themselves: steps that no rate could be set to take."""
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
    """Fewer steps than a hundred, none of which had a finite gradient after the first."""
    assert "finite" in outcome(diverging(tmp_path, "transformer", 1e6, True, steps=12), tmp_path / "run")


def test_what_was_good_before_stays_the_best(tmp_path, monkeypatch):
    """A run that is resumed at a rate that is too high keeps its best checkpoint, and can be loaded."""
    whole = table(tmp_path)
    start(whole, tmp_path / "run")
    best = (tmp_path / "run" / "checkpoints" / "best.json").read_text()
    monkeypatch.setattr(update, "rate_at", lambda step, settings: 1e38)
    whole["training"]["steps"] = 200
    with pytest.raises(TrainingError, match="finite"):
        start(whole, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "checkpoints" / "best.json").read_text() == best
    check_folder(tmp_path / "run", True)
