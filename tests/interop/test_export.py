"""Exports from end to end: verified, recorded in the manifest, verified again; a failure leaves nothing behind."""

import json
import shutil
import sys
from types import ModuleType

import pytest
from plugin_rows import forget_plugins

import regard
from regard.errors import ArgumentError, CheckpointError, CommandError, VerificationError
from regard.interop import ctranslate2
from regard.interop.export import export_model, verify_export
from regard.interop.formats import Format, read_manifest
from regard_bench.serving import write_run


@pytest.fixture(scope="module")
def desk(furnish):
    return furnish(run="phrasebook")


@pytest.fixture(scope="module")
def exported(desk):
    return export_model(desk / "run", desk / "exported", to="ctranslate2")


def test_an_export_is_verified_and_says_how(desk, exported):
    found, manifest = exported.verification, read_manifest(desk / "exported", "ctranslate2")
    assert found is not None
    assert found.sentences == "validation"
    assert found.equal == found.count
    assert manifest["verification"] == json.loads(json.dumps(vars(found)))
    assert set(exported.files) == {
        "alignment.json",
        "config.json",
        "manifest.json",
        "model.bin",
        "shared_vocabulary.json",
        "tokenizer.json",
        "words.txt",
    }
    assert manifest["run"]["folder"] == "run"
    assert manifest["facts"]["quantize"] == "float32"
    assert str(desk) not in (desk / "exported" / "manifest.json").read_text(), "no path of whoever trained it"


def test_sentences_of_a_file(desk, tmp_path):
    (tmp_path / "check").write_text("the man sleeps .\nthe woman reads a book .\n")
    found = export_model(desk / "run", tmp_path / "out", to="ctranslate2", quantize="int8", check=tmp_path / "check")
    assert found.verification is not None
    assert (found.verification.sentences, found.verification.count) == ("file", 2)


def test_it_is_verified_again(desk, exported, tmp_path):
    assert verify_export(desk / "exported") == exported.verification
    for name in ("run", "exported"):
        shutil.copytree(desk / name, tmp_path / "other" / name, symlinks=True)
    assert verify_export(tmp_path / "other" / "exported") == exported.verification, "found beside it"
    shutil.move(tmp_path / "other" / "run", tmp_path / "moved")
    with pytest.raises(CheckpointError, match="no checkpoint step-.*; give its run, as in: regard export RUN --verify"):
        verify_export(tmp_path / "other" / "exported")
    assert verify_export(tmp_path / "other" / "exported", tmp_path / "moved") == exported.verification
    name = read_manifest(desk / "exported")["run"]["checkpoint"]
    checkpoint = tmp_path / "moved" / "checkpoints" / name / "manifest.json"
    checkpoint.write_text(checkpoint.read_text() + " ")
    with pytest.raises(CheckpointError, match="another checkpoint than .* was exported from"):
        verify_export(tmp_path / "other" / "exported", tmp_path / "moved")


def test_a_conversion_that_is_wrong_leaves_nothing(desk, tmp_path, monkeypatch):
    real = ctranslate2.set_norm

    def wrong(spec, norm):
        real(spec, norm)
        spec.beta = spec.beta + 0.3

    monkeypatch.setattr(ctranslate2, "set_norm", wrong)
    with pytest.raises(VerificationError, match="outputs differ; the first is “.*”, by the run “.*”, by the export “"):
        export_model(desk / "run", tmp_path / "a" / "out", to="ctranslate2")
    assert list(tmp_path.iterdir()) == []


def test_an_open_run_is_exported_as_it_is(desk, tmp_path):
    run = regard.load(desk / "run", checkpoint="last")
    found = export_model(run, tmp_path / "out", to="ctranslate2", checkpoint="last")
    assert read_manifest(found.folder)["run"]["step"] == run.step


# ---- a plugin's format


def write_notes(run, folder, shout=False):
    text = repr(run)
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text(text.upper() if shout else text)
    return {"shout": shout}


@pytest.fixture
def plugin_desk(tmp_path, monkeypatch):
    with forget_plugins(tmp_path, monkeypatch):
        module = ModuleType("notes_of_runs")
        module.write_notes = write_notes
        monkeypatch.setitem(sys.modules, "notes_of_runs", module)
        regard.register(format=Format("notes", "what it is", writer="notes_of_runs.write_notes", options=("shout",)))
        write_run(tmp_path / "run", {"size": 8, "heads": 2, "layers": 1, "hidden": 8}, 20)
        yield tmp_path


def test_a_folder_with_what_the_writer_wrote(plugin_desk):
    report = regard.export_model("run", "out/it", to="notes", shout=True)
    assert (report.files, report.verification, report.format) == (("manifest.json", "notes/a.txt"), None, "notes")
    assert report.bytes > (plugin_desk / "out" / "it" / "notes" / "a.txt").stat().st_size > 0
    assert read_manifest(plugin_desk / "out" / "it", "notes")["facts"] == {"shout": True}
    assert export_model(regard.load("run"), "again", to="notes").files == report.files


def test_an_option_that_its_writer_has_not(plugin_desk):
    with pytest.raises(CommandError, match="--whisper: given, but notes has no such option"):
        export_model("run", "out", to="notes", whisper=True)
    assert not (plugin_desk / "out").exists()


def test_a_run_that_does_not_translate(plugin_desk, furnish):
    folder = furnish(lm="language-model")
    with pytest.raises(ArgumentError, match="its task is language-model, expected translate"):
        export_model(folder / "lm", "out", to="notes")
