"""The runs that a command line names."""

import pytest

from regard.cli.runs import open_beside, open_run, split_runs_and_file
from regard.errors import CheckpointError, CommandError


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
    (tmp_path / "in.txt").write_text("x\n")


@pytest.mark.parametrize(
    ("paths", "runs", "file"),
    [
        (["one"], ["one"], "-"),
        (["one", "two"], ["one", "two"], "-"),
        (["one", "-"], ["one"], "-"),
        (["one", "two", "in.txt"], ["one", "two"], "in.txt"),
    ],
)
def test_the_file_stands_last(desk, paths, runs, file):
    assert split_runs_and_file(paths) == (runs, file)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["in.txt"], "in.txt: a file, expected a run folder first"),
        (["-"], "-: a file, expected a run folder first"),
        (["none"], "none: no such folder, expected a run folder first"),
        (["in.txt", "one"], "in.txt: a file given before one"),
        (["-", "in.txt"], "-: a file given before in.txt"),
        (["one", "none"], "none: no such file, and no run folder$"),
        (["one", "A dog ."], "A dog .: no such file, and no run folder; text to translate comes from a file"),
    ],
)
def test_what_is_no_run(desk, paths, message):
    with pytest.raises(CommandError, match=f"^{message}"):
        split_runs_and_file(paths)


def test_a_run_is_opened_on_the_device_that_is_named(furnish):
    home = furnish(run="transformer", back="luong")
    run = open_run(home / "run", checkpoint="last", device="cpu")
    other = open_beside(run, home / "back", checkpoint="best")
    assert other is not None
    assert [each.device.type for each in (run, other)] == ["cpu", "cpu"]
    assert open_beside(run, None, checkpoint="best") is None
    with pytest.raises(CommandError, match="^--device: 'abacus' given"):
        open_run(home / "run", checkpoint="best", device="abacus")
    with pytest.raises(CheckpointError, match="step-000999"):
        open_run(home / "run", checkpoint="step-000999", device="cpu")
