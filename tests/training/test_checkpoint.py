"""Checkpoints: whole or not there, refused by name when anything about them changed."""

import pytest
import torch
from training.checkpoints import MODEL, TRAINER, written

from regard.errors import CheckpointError, TrainingError
from regard.training.checkpoint import Checkpoints, read_checkpoint
from regard.training.manifest import canonical, read_manifest
from regard.training.metrics import Metrics


def test_what_is_read_is_what_was_written(tmp_path):
    odd = {"none": None, "nan": 1e300, "text": "√ \n \x00 é", "list": [1, [2.5, "x"]], "big": 2**70, "float": 0.1}
    written(tmp_path, counters=odd)
    found = read_checkpoint(tmp_path / "checkpoints/step-000004")
    assert (found.step, found.manifest["counters"]) == (4, odd)
    for mine, read in ((MODEL, found.model), (TRAINER, found.trainer)):
        assert mine.keys() == read.keys()
        for name, tensor in mine.items():
            assert tensor.dtype == read[name].dtype
            assert torch.equal(tensor, read[name])
    assert read_checkpoint(found.folder, trainer=False).trainer == {}


def test_views_and_transposed_tensors_are_saved_as_they_look(tmp_path):
    x = torch.randn(5, 7)
    Checkpoints(tmp_path).write("step-000001", {"t": x.T, "part": x[1:3, ::2]}, {}, {"step": 1})
    found = read_checkpoint(tmp_path / "checkpoints/step-000001").model
    assert torch.equal(found["t"], x.T)
    assert torch.equal(found["part"], x[1:3, ::2])


def test_a_manifest_with_numbers_that_are_not_finite(tmp_path):
    written(tmp_path, best=float("inf"), sums={"loss": float("nan")})
    manifest = read_manifest(tmp_path / "checkpoints/step-000004")
    assert manifest["best"] == float("inf")
    assert manifest["sums"]["loss"] != manifest["sums"]["loss"]


def test_a_safetensors_that_matches_its_sum_but_is_none(tmp_path):
    import hashlib

    folder = written(tmp_path).folder / "step-000004"
    manifest = {key: value for key, value in read_manifest(folder).items() if key != "sha256"}
    content = b"\xff" * 100
    manifest["files"]["model.safetensors"] = {"bytes": 100, "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "model.safetensors").write_bytes(content)
    (folder / "manifest.json").write_bytes(canonical(manifest))
    with pytest.raises(CheckpointError, match="model.safetensors: not a safetensors file"):
        read_checkpoint(folder)


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors", "manifest.json"])
def test_a_missing_file_is_named(tmp_path, file):
    folder = written(tmp_path).folder / "step-000004"
    (folder / file).unlink()
    with pytest.raises(CheckpointError, match=f"{file}: No such file"):
        read_checkpoint(folder)
    (folder / file).mkdir()
    with pytest.raises(CheckpointError, match=f"{file}: Is a directory"):
        read_checkpoint(folder)


def test_steps_are_numbers_not_words(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (999_998, 999_999, 1_000_000, 1_000_001):
        checkpoints.write(f"step-{step:06d}", MODEL, {}, {"step": step})
    assert checkpoints.last().name == "step-1000001"
    checkpoints.prune()
    assert [path.name for path in checkpoints.steps()] == ["step-1000001"]


def test_other_things_in_the_folder_are_left_alone(tmp_path):
    checkpoints = written(tmp_path, keep=1)
    (checkpoints.folder / "step-by-hand").mkdir()
    (checkpoints.folder / "notes.txt").write_text("mine")
    checkpoints.write("step-000008", MODEL, {}, {"step": 8})
    checkpoints.prune()
    checkpoints.clean()
    assert {path.name for path in checkpoints.folder.iterdir()} == {"step-by-hand", "notes.txt", "step-000008"}
    assert checkpoints.last().name == "step-000008"


def test_the_best_one_is_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in range(1, 6):
        checkpoints.write(f"step-{step:06d}", MODEL, {}, {"step": step})
        if step in (1, 3):
            checkpoints.mark_best(f"step-{step:06d}")
        checkpoints.point("last", f"step-{step:06d}")
        checkpoints.prune()
    assert [path.name for path in checkpoints.steps()] == ["step-000003", "step-000005"]
    assert checkpoints.best().name == "step-000003"
    assert (checkpoints.folder / "best" / "manifest.json").is_file()  # relative, so that a run can be moved
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert Checkpoints(moved).best() == moved / "checkpoints/step-000003"
    assert (moved / "checkpoints/best/manifest.json").is_file()


def test_a_best_one_that_is_missing_is_named(tmp_path):
    checkpoints = written(tmp_path)
    checkpoints.point("best", "step-000099")
    with pytest.raises(CheckpointError, match="step-000099: missing, but the link best leads to it; put it back"):
        checkpoints.best()
    checkpoints.mark_best("step-000004")  # and a link is not trusted over what is recorded
    checkpoints.point("best", "step-000099")
    assert checkpoints.best().name == "step-000004"
    assert Checkpoints(tmp_path / "none").best() is None
    assert Checkpoints(tmp_path / "none").last() is None


def test_the_same_name_again_replaces_it(tmp_path):
    checkpoints = written(tmp_path)
    checkpoints.write("step-000004", {"a": torch.ones(1)}, {}, {"step": 4})
    assert list(read_checkpoint(checkpoints.last()).model) == ["a"]
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000004"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "checkpoints").write_text("a file in the way")
    with pytest.raises(TrainingError, match="step-000004: not written, .*; no checkpoint was written before"):
        written(tmp_path)


def test_a_full_disk_says_to_resume_only_where_there_is_something_to_resume(tmp_path):
    full = OSError(28, "No space left on device")
    first = str(Checkpoints(tmp_path).write_error(tmp_path / "x", full))
    assert first.endswith("no checkpoint was written before. Make room, then start again")
    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert str(metrics._write_error(full)).endswith("Make room, then start again")
    Checkpoints(tmp_path).write("step-000001", {"w": torch.zeros(1)}, {}, {"step": 1})
    assert "Make room, then resume with --resume" in str(Checkpoints(tmp_path).write_error(tmp_path / "x", full))
    assert str(metrics._write_error(full)).endswith("Make room, then resume with --resume")
    metrics.close()
