"""Exported folders and runs, opened with CTranslate2: the same texts, links and scores; one export per checkpoint."""

import json
import shutil

import pytest

import regard
from regard.alignment import AlignmentSettings
from regard.decoding import Options
from regard.errors import ArgumentError, CheckpointError, CommandError, DataError
from regard.interop import exported
from regard.interop.export import export_model
from regard.interop.exported import open_engine, open_exported

TEXTS = ["the man sleeps .", "", "the woman reads a book .", "the dog", "I ate pizza yesterday ."]


@pytest.fixture(scope="module")
def desk(furnish):
    desk = furnish(run="phrasebook", small="transformer")
    AlignmentSettings("decoder.blocks.0.cross", 1, 1, by="a test").write(desk / "run")
    export_model(desk / "run", desk / "exported", to="ctranslate2")
    return desk


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "exports"


@pytest.mark.parametrize(
    "options", [{}, {"beam": 1}, {"nbest": 3, "beam": 4}, {"longest": 4}, {"prefixes": ["der"] * 5}]
)
def test_a_folder_does_what_its_run_does(desk, options):
    run, other = regard.load(desk / "run"), open_engine(desk / "exported")
    found = [list(each.stream(TEXTS, alignment=True, **options)) for each in (run, other)]
    for one, two in zip(*found, strict=True):
        assert (two[0].text, two[0].tokens, two[0].finished) == (one[0].text, one[0].tokens, one[0].finished)
        assert two[0].alignment == one[0].alignment
        assert two[0].score == pytest.approx(one[0].score, abs=1e-4)
    assert any(each[0].alignment for each in found[1])
    assert other.alignment_settings == run.alignment_settings
    assert other.unknown.message() == run.unknown.message()


def test_scores_links_and_alignments(desk):
    run, other = regard.load(desk / "run"), open_engine(desk / "exported")
    pair = "the man sleeps .", "der mann schläft ."
    assert other.score([pair[0]], [pair[1]])[0].tokens == pytest.approx(
        run.score([pair[0]], [pair[1]])[0].tokens, abs=1e-4
    )
    assert list(other.links([pair])) == list(run.links([pair]))
    assert other.align(*pair).source == run.align(*pair).source
    with pytest.raises(ArgumentError, match="model: .* is opened by ctranslate2, which cannot be looked into"):
        other.force("the man", None, Options(), False)
    with pytest.raises(ArgumentError, match="its task is translate"):
        other.sample(1)


def test_a_run_is_exported_once_for_each_checkpoint_and_quantisation(desk, cache):
    told = []
    first = open_engine(desk / "run", say=told.append)
    assert first.folder == desk / "run"
    assert len(told) == 1
    assert "exported to ctranslate2 (float32) for the first time" in told[0]
    assert open_engine(desk / "run", say=told.append).translate(TEXTS) == first.translate(TEXTS)
    assert len(told) == len(list(cache.iterdir())) == 1
    open_engine(desk / "run", quantize="int8", say=told.append)
    open_engine(desk / "run", checkpoint="last", say=told.append)
    assert (
        len(told)
        == len(list(cache.iterdir()))
        == 3 - ((desk / "run" / "checkpoints" / "last").resolve() == (desk / "run" / "checkpoints" / "best").resolve())
    )


def test_an_export_in_the_cache_that_is_damaged_is_made_again(desk, cache):
    told = []
    before = open_engine(desk / "run").translate(TEXTS)
    (folder,) = cache.iterdir()
    (folder / "model.bin").write_bytes(b"x")
    assert open_engine(desk / "run", say=told.append).translate(TEXTS) == before
    assert "damaged" in told[0]
    assert len(list(cache.iterdir())) == 1


def test_a_number_format_that_this_machine_lacks(desk, monkeypatch, tmp_path):
    monkeypatch.setattr(exported, "compute_types", lambda device: {"float32", "int8"})
    half = tmp_path / "half"
    export_model(desk / "run", half, to="ctranslate2", quantize="float16")
    assert json.loads((half / "manifest.json").read_text())["verification"]["versions"]["compute"] == "float32"
    for run in ("run", "exported"):
        with pytest.raises(
            CommandError, match="--quantize: float16 given, which this CPU lacks; expected float32, int8"
        ):
            open_engine(desk / run, quantize="float16")
    with pytest.raises(
        CommandError, match="half: float16 weights, which this CPU cannot compute with; give --quantize"
    ):
        open_engine(half)
    assert open_engine(half, quantize="float32").translate(TEXTS[:1])


def test_what_cannot_be_opened(desk, tmp_path, cache):
    with pytest.raises(CommandError, match="--engine: ctranslate2 given with 2 runs, expected one"):
        open_engine(desk / "run", desk / "small")
    with pytest.raises(CommandError, match="--checkpoint: last given, but .*exported is exported"):
        open_engine(desk / "exported", checkpoint="last")
    with pytest.raises(CommandError, match="--quantize: int1 given, expected float32"):
        open_engine(desk / "run", quantize="int1")
    with pytest.raises(CommandError, match="--device: mps given, but CTranslate2 runs on cpu and cuda alone"):
        open_engine(desk / "run", quantize="int8", device="mps")
    with pytest.raises(CheckpointError, match="not a run folder"):
        open_engine(tmp_path)
    with pytest.raises(DataError, match="not an exported folder"):
        open_exported(desk / "run")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("settings", {"model": {"kind": "rnn"}}), ("settings", 3), ("positions", "x"), ("quantize", None)],
)
def test_a_folder_whose_manifest_says_nonsense(desk, tmp_path, key, value):
    path = shutil.copytree(desk / "exported", tmp_path / "copy") / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["facts"][key] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(regard.RegardError):
        open_exported(tmp_path / "copy")
