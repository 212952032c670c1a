"""From settings to a run folder."""

import pytest
from tiny import same_tensors, table, write_pairs

from regard.config import read
from regard.errors import CheckpointError, ConfigError, DataError, TrainingError
from regard.tasks.run_start import start
from regard.tasks.settings import read_settings
from regard.training import Checkpoints, read_checkpoint


def test_positions_that_a_model_does_not_know(tmp_path):
    """Refused before training, not at the first long sentence."""
    given = table(tmp_path)
    given["model"] = {"kind": "transformer", "preset": "tiny", "positions": "learned", "length": 3}
    with pytest.raises(ConfigError, match="model.length: 3 given, expected at least"):
        start(given, tmp_path / "run")
    given["model"] = {"kind": "luong", "preset": "tiny", "score": "location", "length": 3}
    with pytest.raises(ConfigError, match="model.length: 3 given, expected at least"):
        start(given, tmp_path / "run")


def test_a_folder_is_trained_into_by_one_process(tmp_path):
    from regard.training import run_folder

    with run_folder.claim(tmp_path / "run", resume=False):
        with pytest.raises(TrainingError, match="another process is training into it"):
            start(table(tmp_path), tmp_path / "run")
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    assert not (tmp_path / "run").exists()


def test_the_folder_says_what_was_trained(tmp_path, monkeypatch):
    given = table(tmp_path)
    monkeypatch.chdir(tmp_path)
    given["data"] |= {"source": "pairs/source.txt", "target": "pairs/target.txt"}
    start(given, tmp_path / "run")
    written = read(tmp_path / "run/config.toml")
    assert written["data"]["source"] == str(tmp_path / "pairs/source.txt")  # wherever it is resumed from
    assert read_settings(written).table() == written
    assert {"config.toml", "tokenizer.json", "metrics.jsonl", "checkpoints"} <= {
        p.name for p in (tmp_path / "run").iterdir()
    }
    monkeypatch.chdir("/")
    assert (
        start({**written, "training": {**written["training"], "steps": 9}}, tmp_path / "run", resume=True).result.step
        == 9
    )


def test_folders_that_are_in_the_way(tmp_path):
    given = table(tmp_path, training__steps=1)
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        start(given, tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file, expected a folder"):
        start(given, tmp_path / "file")
    start(given, tmp_path / "run")
    with pytest.raises(TrainingError, match=r"already holds a run \(step-000001\); resume it with --resume"):
        start(given, tmp_path / "run")


def test_other_data_is_not_a_resume(tmp_path):
    start(table(tmp_path, training__steps=1), tmp_path / "run")
    given = table(tmp_path, training__steps=2)
    given["data"]["source"], given["data"]["target"] = write_pairs(tmp_path / "other", seed=5)
    with pytest.raises(CheckpointError, match="step-000001: made with data"):
        start(given, tmp_path / "run", resume=True)


def test_from_another_run(tmp_path):
    first = start(table(tmp_path), tmp_path / "first")
    given = table(tmp_path, training__steps=1, training__rate=1e-30)
    given["data"]["source"], given["data"]["target"] = write_pairs(tmp_path / "other", seed=5, longest=3)
    second = start(given, tmp_path / "second", base=tmp_path / "first")
    assert second.task.prepared.tokenizers.hash == first.task.prepared.tokenizers.hash
    assert same_tensors(
        read_checkpoint(Checkpoints(tmp_path / "second").last()).model,
        read_checkpoint(Checkpoints(tmp_path / "first").best()).model,
    )
    start({**given, "training": {**given["training"], "steps": 2}}, tmp_path / "second", resume=True)
    with pytest.raises(CheckpointError, match="not a run folder"):
        start(given, tmp_path / "third", base=tmp_path / "nothing")


def test_a_corpus_that_is_not_there(tmp_path):
    given = table(tmp_path)
    given["data"]["source"] += ".gone"
    with pytest.raises(DataError, match="source.txt.gone: no such file"):
        start(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_of_the_first_edition_is_resumed_on_it(tmp_path):
    given = table(tmp_path)
    given["data"] = {"builtin": "phrasebook", "count": 40, "builtin_options": ["longest=5"], "cache": str(tmp_path)}
    run, one_more = tmp_path / "run", {**given, "training": {**given["training"], "steps": 2}}
    given["training"]["steps"] = 1
    start({**given, "data": {**given["data"], "builtin_edition": 1}}, run)
    text = (run / "config.toml").read_text(encoding="utf-8")
    assert "builtin_edition = 1\n" in text
    (run / "config.toml").write_text(text.replace("builtin_edition = 1\n", ""), encoding="utf-8")  # as it was written
    assert start(one_more, run, resume=True).settings.data.builtin_edition == 1
    assert "builtin_edition = 1\n" in (run / "config.toml").read_text(encoding="utf-8")
    start(given, tmp_path / "new")
    assert "builtin_edition = 2\n" in (tmp_path / "new/config.toml").read_text(encoding="utf-8")
