"""A run copied by any tool loads the same model and resumes like the original.

A file with a hash records the best checkpoint. Links are a convenience: a copy may have none of them, dangling ones, or
whole folders in their place.
"""

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from tiny import records, same_tensors, table

from regard.errors import CheckpointError
from regard.report import train_and_report
from regard.run import load
from regard.tasks import start, translate
from regard.training import Checkpoints, read_checkpoint, weight_files

SCORES = {"step": [9.0, 5.0, 7.0, 8.0, 6.0, 6.0], "average": [9.0, 5.0, 7.0, 4.0, 6.0, 6.0]}  # the losses, in order
BEST = {"step": "step-000004", "average": "average"}
LONGER = {"training__steps": 8, "training__validate_every": 2, "training__keep": 2, "training__average": 2}
SHORTER = {**LONGER, "training__steps": 6}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


def trained(home: Path, out: Path, best: str, steps: dict, resume: bool = False) -> None:
    """Train a run with scripted validations, so that the best checkpoint is not the last."""
    scores = SCORES[best][4 if resume else 0 :]

    def validate(self):
        return {"loss": scores.pop(0)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translate.Translate, "validate", validate)
        start(table(home, **steps), out, resume=resume)


@pytest.fixture(scope="module", params=["step", "average"])
def best(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def run(home, best) -> Path:
    trained(home, home / best, best, SHORTER)
    assert Checkpoints(home / best).best().name == BEST[best]
    assert Checkpoints(home / best).last().name == "step-000006"
    return home / best


@pytest.fixture(scope="module")
def resumed(run, home, best) -> Path:
    """Resume the run itself."""
    shutil.copytree(run, home / f"{best}-resumed", symlinks=True)
    trained(home, home / f"{best}-resumed", best, LONGER, resume=True)
    return home / f"{best}-resumed"


# ---- ways to copy


def by_cp(one: Path, other: Path) -> None:
    subprocess.run(["cp", "-rL", one, other], check=True)


def by_zip(one: Path, other: Path) -> None:
    """Copy by zip, which most programs fill with the targets of links."""
    with zipfile.ZipFile(other.with_suffix(".zip"), "w") as file:
        for folder, _, names in os.walk(one, followlinks=True):
            for name in names:
                file.write(Path(folder) / name, (Path(folder) / name).relative_to(one))
    with zipfile.ZipFile(other.with_suffix(".zip")) as file:
        file.extractall(other)


def by_tar(one: Path, other: Path) -> None:
    with tarfile.open(other.with_suffix(".tar"), "w", dereference=True) as file:
        file.add(one, "run")
    with tarfile.open(other.with_suffix(".tar")) as file:
        file.extractall(other.with_name("unpacked"), filter="data")
    (other.with_name("unpacked") / "run").rename(other)


def without_links(one: Path, other: Path) -> None:
    """Copy like rsync --no-links, a web download, or git on Windows."""
    shutil.copytree(one, other, symlinks=True)
    for link in ("best", "last"):
        (other / "checkpoints" / link).unlink()


def links_as_text(one: Path, other: Path) -> None:
    """Copy like unzip on a system without links."""
    without_links(one, other)
    for link in ("best", "last"):
        (other / "checkpoints" / link).write_text(os.readlink(one / "checkpoints" / link))


def links_to(target: str):
    def copy(one: Path, other: Path) -> None:
        without_links(one, other)
        for link in ("best", "last"):
            (other / "checkpoints" / link).symlink_to(target)

    return copy


WAYS = {
    "cp -rL": by_cp,
    "zip": by_zip,
    "tar -h": by_tar,
    "none": without_links,
    "text": links_as_text,
    "dangling": links_to("step-000099"),
    "looping": links_to("best"),
    "wrong": links_to("step-000006"),
    "outside": links_to("/"),
}
RESUMED = ["cp -rL", "text", *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS)]


def same_model(one: Path, other: Path) -> bool:
    mine, its = load(one), load(other)
    return mine.step == its.step and same_tensors(
        weight_files.weights_of(mine.model), weight_files.weights_of(its.model)
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_loads_the_same_model(run, tmp_path, way):
    WAYS[way](run, tmp_path / "copy")
    assert same_model(run, tmp_path / "copy")
    assert load(tmp_path / "copy", checkpoint="last").step == 6


@pytest.mark.parametrize("way", RESUMED)
def test_a_copy_resumes_as_the_run_would(run, resumed, home, best, tmp_path, way):
    copy = tmp_path / "copy"
    WAYS[way](run, copy)
    real = (copy / "checkpoints/best").is_dir() and not (copy / "checkpoints/best").is_symlink()
    assert real == (way in ("cp -rL", "zip", "tar -h"))
    trained(home, copy, best, LONGER, resume=True)
    assert same_model(resumed, copy)
    for name in [*(path.name for path in Checkpoints(resumed).steps()), "average"]:
        mine, its = (read_checkpoint(each / "checkpoints" / name) for each in (resumed, copy))
        assert same_tensors(mine.model, its.model)
        assert same_tensors(mine.trainer, its.trainer)
    assert records(resumed) == records(copy)
    counters = read_checkpoint(Checkpoints(copy).last()).manifest["counters"]
    assert counters["best"] == counters["best_loss"] == min(SCORES[best])  # the loss to beat, also that of the average
    # Training does not write through folders in place of links, and removes them: they would hold another step.
    for link in ("best", "last"):
        assert Checkpoints(copy).linked(link) == Checkpoints(resumed).linked(link)
    assert not [path for path in (copy / "checkpoints").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("way", ["kept", *WAYS])
def test_a_run_from_before_there_was_a_record(run, resumed, home, best, tmp_path, way):
    """A run has only links: they decide, or if a copy lost them, the counters in the manifests."""
    old, copy = tmp_path / "old", tmp_path / "copy"
    shutil.copytree(run, old, symlinks=True)
    (old / "checkpoints/best.json").unlink()
    if way == "kept":
        copy = old
    else:
        WAYS[way](old, copy)
    if way == "dangling":  # a link that a user made is the only record
        with pytest.raises(CheckpointError, match="step-000099: missing, but the link best leads to it"):
            load(copy)
        return
    if way != "wrong":
        assert same_model(run, copy)
    if way in ("kept", "zip"):
        trained(home, copy, best, LONGER, resume=True)
        assert same_model(resumed, copy)
        assert Checkpoints(copy).best_record() == Checkpoints(resumed).best_record()


# ---- differences that Regard reports


def test_a_best_folder_that_is_gone(run, home, best, tmp_path):
    """Regard never loads another model: it says one sentence, and a resume keeps the record."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    kept = tmp_path / "kept"
    (copy / "checkpoints" / BEST[best]).rename(kept)
    missing = f"checkpoints/{BEST[best]}: missing, but best.json says that it is the best checkpoint; put it back, or"
    with pytest.raises(CheckpointError, match=missing):
        load(copy)
    with pytest.raises(CheckpointError, match=missing):
        start(table(home, **SHORTER), tmp_path / "other", base=copy)
    assert not (tmp_path / "other").exists()
    assert load(copy, checkpoint="last").step == 6
    trained(
        home, copy, best, {**LONGER, "training__average": 0}, resume=True
    )  # 6.0, which is not better than 5.0 or 4.0
    assert Checkpoints(copy).last().name == "step-000008"
    with pytest.raises(CheckpointError, match=missing):
        load(copy)
    kept.rename(copy / "checkpoints" / BEST[best])
    assert same_model(run, copy)


def test_a_resume_says_that_the_best_is_missing(run, home, best, tmp_path, capsys):
    """The command says so at the start, and writes the report at the end."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    shutil.rmtree(copy / "checkpoints" / BEST[best])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translate.Translate, "validate", lambda self: {"loss": 8.0})
        train_and_report(table(home, **{**LONGER, "training__average": 0}), copy, resume=True)
    said = capsys.readouterr().err
    assert f"{BEST[best]}: missing, but best.json says that it is the best checkpoint" in said
    assert "Training resumes from the last checkpoint" in said
    assert "missing" in (copy / "log.txt").read_text()
    assert (copy / "report.html").is_file()


def test_a_missing_best_is_replaced_by_a_better_one(run, home, best, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    shutil.rmtree(copy / "checkpoints" / BEST[best])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translate.Translate, "validate", lambda self: {"loss": 1.0})
        start(table(home, **{**LONGER, "training__average": 0}), copy, resume=True)
    assert load(copy).step == 8


def test_a_renamed_step_folder(run, home, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    (copy / "checkpoints/step-000006").rename(copy / "checkpoints/step-000007")
    said = "step-000007/manifest.json: from step 6; the folder step-000007 was renamed or exchanged"
    assert same_model(run, copy)  # the best checkpoint is another
    with pytest.raises(CheckpointError, match=said):
        load(copy, checkpoint="last")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=said):
        start(table(home, **LONGER), copy, resume=True)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_an_old_run_whose_best_folder_is_gone(run, tmp_path, best):
    copy = tmp_path / "copy"
    without_links(run, copy)
    (copy / "checkpoints/best.json").unlink()
    shutil.rmtree(copy / "checkpoints" / BEST["step"])
    if best == "average":
        assert same_model(run, copy)
        return
    with pytest.raises(CheckpointError, match="step-000004: missing, but step-000006 says that it is the best"):
        load(copy)
