"""The files that a run was trained on: one that has changed is named."""

import json

import pytest
from tiny import document_table, table

from regard.config import read
from regard.errors import CheckpointError
from regard.tasks.run_start import start
from regard.tasks.settings import read_settings
from regard.tasks.sources import FILE, changed_files, record_sources


@pytest.mark.parametrize("known", [True, False])
def test_data_that_changed_are_named(tmp_path, known):
    """The file, whether the run has hashes of its files or, as one of an earlier version, none."""
    given = table(tmp_path, training__steps=1)
    start(given, tmp_path / "run")
    if not known:
        (tmp_path / "run/sources.json").unlink()
    target = tmp_path / "pairs/target.txt"
    before = target.read_text()
    target.write_text("1 2 3\n" + before.partition("\n")[2])
    with pytest.raises(
        CheckpointError, match=r"^\S+pairs/target\.txt: has changed since \S+run was trained; put the old one back"
    ):
        start({**given, "training": {**given["training"], "steps": 2}}, tmp_path / "run", resume=True)
    target.write_text(before)
    assert (
        start({**given, "training": {**given["training"], "steps": 2}}, tmp_path / "run", resume=True).result.step == 2
    )


def test_every_file_of_the_data_is_known(tmp_path):
    start(document_table(tmp_path), tmp_path / "run")
    assert [*json.loads((tmp_path / "run" / FILE).read_text())] == [
        read(tmp_path / "run/config.toml")["data"]["documents"]
    ]
    for name in ("a.tsv", "b.src", "b.trg", "c.tsv"):
        (tmp_path / name).write_text("x\ty\n")
    data = read_settings(
        {
            "data": {
                "corpora": [
                    {"file": str(tmp_path / "a.tsv")},
                    {"source": str(tmp_path / "b.src"), "target": str(tmp_path / "b.trg")},
                ],
                "valid": [{"file": str(tmp_path / "c.tsv")}],
            }
        }
    ).data
    run = tmp_path / "run"
    record_sources(run, data)
    assert changed_files(run, data, run) == []
    for name in ("b.trg", "c.tsv"):
        (tmp_path / name).write_text("x\tz\n")
    assert changed_files(run, data, run) == [str(tmp_path / "b.trg"), str(tmp_path / "c.tsv")]
    (run / FILE).write_text("{")  # damaged: as if there were none, and nothing is claimed of what cannot be read
    assert changed_files(run, data, tmp_path / "none") == []
