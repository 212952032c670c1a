"""Checkpoints: complete or absent, and refused by name after any change."""

import json
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training.checkpoints import MODEL, TRAINER, written

from regard.errors import CheckpointError, TrainingError
from regard.training.checkpoint import Checkpoints, canonical, plain_weights_file, read_checkpoint, read_manifest
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
    assert (checkpoints.folder / "best" / "manifest.json").is_file()  # by a relative link, so that a run can be moved
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert Checkpoints(moved).best() == moved / "checkpoints/step-000003"
    assert (moved / "checkpoints/best/manifest.json").is_file()


def test_a_best_one_that_is_missing_is_named(tmp_path):
    checkpoints = written(tmp_path)
    checkpoints.point("best", "step-000099")
    with pytest.raises(CheckpointError, match="step-000099: missing, but the link best leads to it; put it back"):
        checkpoints.best()
    checkpoints.mark_best("step-000004")  # the record counts, not the link
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


# ---- a manifest: one canonical form, in which every byte counts


FACTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda key: key not in ("sha256", "files", "format")), FACTS, max_size=4))
def test_the_canonical_form_is_a_fixed_point(facts):
    try:
        first = canonical(facts)
    except UnicodeEncodeError:  # half a surrogate pair is no text
        return
    read = json.loads(first)
    assert canonical({key: value for key, value in read.items() if key != "sha256"}) == first


def test_every_byte_of_the_manifest_counts(tmp_path):
    folder = written(tmp_path).folder / "step-000004"
    path = folder / "manifest.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="manifest.json: "):
            read_manifest(folder)
    for short in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:short])
        with pytest.raises(CheckpointError, match="manifest.json: "):
            read_manifest(folder)
    path.write_bytes(whole)
    read_manifest(folder)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"sha256": 1}', b"1" * 5000]
)
def test_what_is_no_manifest(tmp_path, content):
    folder = written(tmp_path).folder / "step-000004"
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="manifest.json: damaged"):
        read_manifest(folder)


def test_another_format_is_named(tmp_path):
    folder = written(tmp_path).folder / "step-000004"
    manifest = {key: value for key, value in read_manifest(folder).items() if key != "sha256"}
    (folder / "manifest.json").write_bytes(canonical({**manifest, "format": 99}))
    with pytest.raises(CheckpointError, match="format 99 given, this version of regard reads 1"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("base", "key"), [(3, "base is 3"), ({"bytes": -1, "sha256": ""}, "base.bytes"), ({"bytes": 1}, "base.sha256")]
)
def test_what_it_says_of_a_base_is_checked(tmp_path, base, key):
    folder = written(tmp_path).folder / "step-000004"
    manifest = {key: value for key, value in read_manifest(folder).items() if key != "sha256"}
    (folder / "manifest.json").write_bytes(canonical({**manifest, "base": base}))
    with pytest.raises(CheckpointError) as refusal:
        read_manifest(folder)
    assert key in str(refusal.value)


def test_the_file_with_a_plain_models_names(tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "step-000004"
    assert plain_weights_file(folder, {}) == folder / "model.safetensors"
    assert plain_weights_file(folder, {"base": {}}) == tmp_path / "run" / "base.safetensors"
