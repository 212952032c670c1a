"""The summary of a run folder: read without torch, from any folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import CheckpointError
from regard.run import load
from regard.tasks.summary import describe_data, find_runs, record_command, summarise


@pytest.fixture(scope="module")
def home(furnish):
    return furnish(run="transformer", han="han")


def test_a_run_says_what_it_is(home):
    summary, run = summarise(home / "run"), load(home / "run", checkpoint="last")
    assert (summary.task, summary.kind) == ("translate", "transformer")
    assert summary.parameters == sum(each.numel() for each in run.model.parameters())
    assert summary.step == run.step
    assert summary.data == "source.txt, target.txt"
    records = [json.loads(line) for line in (home / "run" / "metrics.jsonl").read_text().splitlines()]
    best = [each for each in records if each["kind"] == "valid" and each["best"]][-1]
    assert (summary.best_step, summary.best) == (best["step"], best[run.settings.training.metric])
    walked = (Path(folder) / name for folder, _, names in os.walk(home / "run") for name in names)
    assert summary.bytes == sum(path.lstat().st_size for path in walked)
    assert json.loads(json.dumps(summary.table(), allow_nan=False))["kind"] == "transformer"


def test_runs_are_found_wherever_they_stand(home, tmp_path):
    shutil.copytree(home / "run", tmp_path / "a" / "b" / "deep", symlinks=True)
    shutil.copytree(home / "han", tmp_path / "top", symlinks=True)
    shutil.copytree(home / "han", tmp_path / "damaged", symlinks=True)
    (tmp_path / "damaged" / "config.toml").write_text("task = [")
    (tmp_path / "empty").mkdir()
    assert [each.folder for each in find_runs(tmp_path)] == [str(tmp_path / "a/b/deep"), str(tmp_path / "top")]
    assert [each.folder for each in find_runs(tmp_path / "top")] == [str(tmp_path / "top")]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="not a run folder, it has no config.toml; regard runs lists run folders"):
        summarise(tmp_path)
    with pytest.raises(CheckpointError, match="none: no such folder, expected a run folder; regard runs lists run"):
        summarise(tmp_path / "none")
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(CheckpointError, match="no checkpoint in it"):
        summarise(tmp_path)


def test_commands_are_kept_in_their_order(home, tmp_path):
    shutil.copytree(home / "run", tmp_path / "run", symlinks=True)
    for command in ("regard train --source 'a b' --out run", "regard train --resume run"):
        record_command(tmp_path / "run", command)
    with open(tmp_path / "run" / "commands.jsonl", "a") as file:
        file.write("torn {\n")
    assert summarise(tmp_path / "run").commands[-2:] == (
        "regard train --source 'a b' --out run",
        "regard train --resume run",
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"builtin": "phrasebook", "pair": "en-fr"}, "phrasebook en-fr (built-in)"),
        ({"builtin": "copy", "pair": "en-de"}, "copy (built-in)"),
        ({"source": "/d/a.en", "target": "/d/a.de"}, "a.en, a.de"),
        ({"corpora": [{"file": "/d/a.tsv"}, {"file": "b.tsv"}]}, "a.tsv and 1 more"),
        ({"documents": "/d/reviews.tsv"}, "reviews.tsv"),
        ({"images": "/d/photos", "captions": "/d/c.tsv"}, "c.tsv"),
        ({}, ""),
    ],
)
def test_data_are_named(data, words):
    assert describe_data(data) == words


def test_no_torch_is_needed():
    code = "import sys, regard.tasks.summary; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
