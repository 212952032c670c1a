"""Export: a folder that another toolkit opens, checked before it gets its name."""

import sys
from types import ModuleType

import pytest
from plugin_rows import forget_plugins

import regard
from regard.bench.serving import write_run
from regard.errors import ArgumentError, CheckpointError, CommandError
from regard.interop.export import export_model
from regard.interop.formats import Format
from regard.run import load


def write_notes(run, folder, shout=False):
    text = repr(run)
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text(text.upper() if shout else text)


def verify_notes(run, folder):
    if (folder / "notes" / "a.txt").read_text().isupper():
        raise CheckpointError(f"{folder.name}: it shouts")
    return "read again"


@pytest.fixture
def desk(tmp_path, monkeypatch):
    with forget_plugins(tmp_path, monkeypatch):
        module = ModuleType("notes_of_runs")
        module.write_notes, module.verify_notes = write_notes, verify_notes
        monkeypatch.setitem(sys.modules, "notes_of_runs", module)
        names = {"writer": "notes_of_runs.write_notes", "verifier": "notes_of_runs.verify_notes"}
        regard.register(format=Format("notes", "what it is", **names, options=("shout",)))
        write_run(tmp_path / "run", {"size": 8, "heads": 2, "layers": 1, "hidden": 8}, 20)
        yield tmp_path


def test_a_folder_with_what_the_writer_wrote(desk):
    report = regard.export_model("run", "out/it", to="notes")
    assert (report.files, report.verification, report.format) == (("notes/a.txt",), "read again", "notes")
    assert report.bytes == (desk / "out" / "it" / "notes" / "a.txt").stat().st_size > 0
    assert export_model(load("run"), "again", to="notes").files == report.files


def test_what_fails_its_verification_is_not_there(desk):
    with pytest.raises(CheckpointError, match="it shouts"):
        export_model("run", "out", to="notes", shout=True)
    assert sorted(path.name for path in desk.iterdir()) == ["run"]


def test_mistakes(desk):
    with pytest.raises(CommandError, match="--to: \"note\" given, no such format; did you mean 'notes'"):
        export_model("run", "out", to="note")
    with pytest.raises(CommandError, match="--whisper: given, but notes has no such option"):
        export_model("run", "out", to="notes", whisper=True)
    with pytest.raises(CommandError, match="--out: run already exists"):
        export_model("run", "run", to="notes")
    with pytest.raises(CheckpointError, match="not a run folder"):
        export_model("nothing", "out", to="notes")
    assert not (desk / "out").exists()


def test_a_run_that_does_not_translate(desk, furnish):
    folder = furnish(lm="language-model")
    with pytest.raises(ArgumentError, match="its task is language-model, expected translate"):
        export_model(folder / "lm", "out", to="notes")
