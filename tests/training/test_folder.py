"""Only one process uses a run folder, and a run that could not begin leaves nothing."""

import os

import pytest
from tiny import Line, table, training

from regard import report
from regard.errors import CheckpointError, ConfigError, RegardError, TrainingError
from regard.report import train_and_report
from regard.tasks import plan, start
from regard.training.folder import claim
from regard.training.loop import train


def refused(**changes):
    return lambda folder: table(folder, **changes)


def without_source(folder):
    given = table(folder)
    return {**given, "data": {**given["data"], "source": str(folder / "none.txt")}}


REFUSED = {
    "no such file": without_source,
    "a model that does not fit": refused(
        model={"kind": "transformer", "preset": "tiny", "positions": "learned", "length": 3}
    ),
    "a setting that the loop refuses": refused(training__replay=True),
    "a tokenizer that is no file": refused(tokenizer={"file": "none.json"}),
}


@pytest.mark.parametrize("how", [start, train_and_report])
@pytest.mark.parametrize("what", REFUSED)
def test_a_run_that_is_refused_leaves_no_folder(tmp_path, what, how):
    home = tmp_path / "home"
    given = REFUSED[what](home)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(RegardError):
        how(given, tmp_path / "runs/deep/run")
    assert sorted(os.listdir(tmp_path)) == before
    # It also leaves the contents of an existing folder alone.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/log.txt").write_text("my own")
    with pytest.raises(RegardError):
        how(given, tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["log.txt"]
    assert (tmp_path / "mine/log.txt").read_text().startswith("my own")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, TrainingError])
def test_so_does_one_whose_preparation_ends(tmp_path, monkeypatch, error):
    def fail(*given, **options):
        raise error("in the middle")

    monkeypatch.setattr(plan, "prepare_data", fail)
    given = table(tmp_path / "home")
    with pytest.raises(error):
        train_and_report(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_was_trained_stays(tmp_path, monkeypatch):
    """A run that fails after it began keeps its folder."""

    class Broken(Line):
        def validate(self):
            raise KeyError

    with pytest.raises(KeyError):
        train(Broken(), training(), tmp_path / "run")
    assert (tmp_path / "run/metrics.jsonl").read_text()
    assert not (tmp_path / "run/.lock").exists()


def test_a_run_is_not_written_over(tmp_path):
    """The loop alone, which users call with their own tasks, overwrites no run either."""
    train(Line(), training(), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(TrainingError, match=r"already holds a run \(step-000008\); resume it with --resume"):
        train(Line(), training(steps=4), tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        train(Line(), training(), tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("out", ["file", "loop", "dangling"])
def test_a_place_that_is_no_folder(tmp_path, out):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=f"--out: {tmp_path / out} is a file"):
        train_and_report(table(tmp_path), tmp_path / out)
    assert not (tmp_path / "nowhere").exists()


def test_the_report_is_written_under_the_lock(tmp_path, monkeypatch):
    """The lock is held from before the preparation until the last file."""
    seen = []
    real_prepare, real_write = plan.prepare_data, report.write

    def noting(name, real):
        def act(*given, **options):
            with (
                pytest.raises(TrainingError, match="another process is training into it"),
                claim(tmp_path / "run", False),
            ):
                pass
            seen.append(name)
            return real(*given, **options)

        return act

    monkeypatch.setattr(plan, "prepare_data", noting("prepare", real_prepare))
    monkeypatch.setattr(report, "write", noting("report", real_write))
    train_and_report(table(tmp_path, training__steps=1), tmp_path / "run")
    assert seen == ["prepare", "report"]
    assert not (tmp_path / "run/.lock").exists()


def test_what_a_killed_process_left_is_removed(tmp_path):
    run = tmp_path / "run"
    train(Line(), training(), run)
    left = [
        ".config.toml.123",
        ".config.toml.new",
        ".tokenizer.json.124-0a0b0c0d",
        ".report.html.125",
        ".metrics.jsonl.126-0a0b0c0d",
        "metrics.jsonl.part",
        "report.html.part",
        ".lock",
        "checkpoints/.best.json.127-0a0b0c0d",
        "checkpoints/.new-best",
        "checkpoints/.new-last",
    ]
    folders = ["checkpoints/.writing-step-000012", "checkpoints/.gone-step-000001", "checkpoints/.old-step-000008"]
    before = {path.name for path in run.rglob("*")}
    for name in left:
        (run / name).write_text("half")
    for name in folders:
        (run / name).mkdir()
        (run / name / "model.safetensors").write_text("half")
    assert train(Line(), training(steps=8), run, resume=True).step == 8
    assert {path.name for path in run.rglob("*") if not path.name.startswith("events")} == {
        name for name in before if not name.startswith("events")
    }
