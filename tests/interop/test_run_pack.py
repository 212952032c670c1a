"""A pack equals its run, without anything about the machine that trained it."""

import dataclasses
import hashlib
import json
import random
import shutil
import subprocess
import zipfile

import pytest
import torch
from stored_runs.write import HOME
from tiny import table

from regard.errors import CheckpointError, CommandError, DataError, RegardError
from regard.interop.run_pack import pack, without_folders
from regard.run import load
from regard.tasks import start, summarise
from regard.training import Checkpoints

TRIES = [40, pytest.param(200, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train and measure a run."""
    home = tmp_path_factory.mktemp("trained")
    start(table(home, training__steps=4, training__validate_every=2, training__metric="bleu"), home / "run")
    return home / "run"


@pytest.fixture(scope="module")
def packed(run, tmp_path_factory):
    return pack(run, tmp_path_factory.mktemp("packed") / "model.regard", licence="CC-BY-4.0")


def weights(run):
    return run.model.state_dict()


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "han", "captioner", "encoder-language-model", "convnet"])
def test_it_loads_as_its_run_does(tmp_path, kind):
    one, other = load(HOME / kind), load(pack(HOME / kind, tmp_path / "file"))
    assert weights(one).keys() == weights(other).keys()
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(one).items())
    assert (one.step, one.labels, one.settings.table()) == (other.step, other.labels, other.settings.table())
    if kind != "convnet":
        assert one.tokenizers.hash == other.tokenizers.hash
    if one.can("translate"):
        assert one.translate(["the dog sleeps"]) == other.translate(["the dog sleeps"])


def test_nothing_of_the_trainers_machine_is_in_it(run, packed):
    assert str(run.parent) in (run / "config.toml").read_text()
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        assert not [name for name in archive.namelist() if "trainer" in name]
        assert all(str(run.parent).encode() not in archive.read(name) for name in archive.namelist())
        card = json.loads(archive.read("card.json"))
    assert card["licence"] == "CC-BY-4.0"
    assert card["scores"].keys() >= {"bleu"}
    assert "tok:13a" in card["signatures"]["bleu"]
    source = next(each for each in card["data"] if "sha256" in each)
    path = next(run.parent.rglob(source["file"]))
    assert source["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert source["bytes"] == path.stat().st_size


def test_paths_are_cut_to_names():
    given = {"a": "/home/me/train.en", "b": ["C:\\me\\x.tsv", "plain", 3], "c": {"d": "rel/x"}}
    assert without_folders(given) == {"a": "train.en", "b": ["x.tsv", "plain", 3], "c": {"d": "rel/x"}}


def test_equal_runs_give_equal_packs(run, packed, tmp_path):
    assert pack(run, tmp_path / "again", licence="CC-BY-4.0").read_bytes() == packed.read_bytes()


def test_its_summary_is_the_runs(run, packed):
    one, other = summarise(run), summarise(packed)
    assert (one.best, one.scores, one.step, one.parameters) == (other.best, other.scores, other.step, other.parameters)
    assert (other.commands, other.licence) == ((), "CC-BY-4.0")


def test_unzip_makes_a_run_folder(packed, tmp_path):
    subprocess.run(["python3", "-m", "zipfile", "-e", str(packed), str(tmp_path / "run")], check=True)
    assert weights(load(tmp_path / "run")).keys() == weights(load(packed)).keys()


def test_a_checkpoint_by_name_is_the_best_of_its_pack(run, tmp_path):
    first = Checkpoints(run).steps()[0].name
    opened = load(pack(run, tmp_path / "file", checkpoint=first))
    assert opened.step == int(first[5:])
    with pytest.raises(CheckpointError, match="no checkpoint step-000999"):
        load(tmp_path / "file", checkpoint="step-000999")


def test_it_is_fine_tuned(run, packed, tmp_path):
    own = table(tmp_path, training__steps=1)
    ended = start(own, tmp_path / "new", base=packed)
    assert ended.result.step == 1


def test_it_is_neither_resumed_nor_changed(packed, tmp_path):
    with pytest.raises(CheckpointError, match="a pack cannot be resumed"):
        start(table(tmp_path), packed, resume=True)
    opened = load(packed)
    with pytest.raises(DataError, match="a pack is not changed"):
        opened.alignment_settings.write(packed)


def test_how_alignments_are_read_goes_with_it(run, tmp_path):
    shutil.copytree(run, tmp_path / "run", symlinks=True)
    opened = load(tmp_path / "run")
    dataclasses.replace(opened.alignment_settings, head=1, by="a test").write(tmp_path / "run")
    assert load(pack(tmp_path / "run", tmp_path / "file")).alignment_settings.by == "a test"


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("how", ["flip", "cut", "longer"])
def test_every_changed_byte_is_refused(packed, tmp_path, tries, how):
    """This includes bytes of the zip file that no program reads."""
    content, rng = packed.read_bytes(), random.Random(random.randrange(2**32))
    path = tmp_path / "spoilt"
    for _ in range(tries):
        place = rng.randrange(len(content))
        spoilt = bytearray(content)
        if how == "flip":
            spoilt[place] ^= 1 << rng.randrange(8)
        elif how == "cut":
            del spoilt[place:]
        else:
            spoilt.insert(place, rng.randrange(256))
        path.unlink(missing_ok=True)
        path.write_bytes(spoilt)
        with pytest.raises(RegardError) as refusal:
            load(path)
        assert str(path) in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_bad_input(run, packed, tmp_path):
    (tmp_path / "there").write_text("mine")
    for arguments, message in (
        ((run, tmp_path / "there"), "there exists already"),
        ((tmp_path, tmp_path / "new"), "not a run folder"),
        ((packed, tmp_path / "new"), "a pack already"),
    ):
        with pytest.raises((CommandError, CheckpointError), match=message):
            pack(*arguments)
    (tmp_path / "scores.json").write_text("{")
    with pytest.raises(CommandError, match="scores.json: not JSON"):
        pack(run, tmp_path / "new", scores=tmp_path / "scores.json")
    with pytest.raises(RegardError, match="not written"):
        pack(run, tmp_path / "no" / "such" / "folder.regard")
    assert (tmp_path / "there").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.json", "there"]


def test_scores_of_a_test_set(run, tmp_path):
    (tmp_path / "scores.json").write_text(json.dumps({"system": "/home/me/runs/x", "scores": {"bleu": 41.2}}))
    file = pack(run, tmp_path / "file", scores=tmp_path / "scores.json")
    with zipfile.ZipFile(file) as archive:
        assert json.loads(archive.read("card.json"))["evaluation"] == {"system": "x", "scores": {"bleu": 41.2}}
