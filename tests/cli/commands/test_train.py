"""`regard train` from the command line, with mistakes."""

import dataclasses
import json
import re

import pytest
import tomli_w
import typer
from cli.typing_in import Command
from forked import fork_for_spawn
from tiny import table, write_documents

from regard.cli.program import app
from regard.data import DataSettings
from regard.training import Checkpoints

pytestmark = pytest.mark.usefixtures("without_report")

COMMAND = Command("train")
typed, right, refused = COMMAND.typed, COMMAND.right, COMMAND.refused


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(tomli_w.dumps(table(tmp_path, training__steps=2)))
    return path


def test_a_run_from_beginning_to_end(tmp_path, config):
    run = tmp_path / "run"
    shown = right(config, "--out", run)
    assert "finished after 2 steps" in shown.stderr
    assert shown.stdout == ""
    assert "already holds a run" in refused(config, "--out", run)
    right("--resume", run, "--set", "training.steps=3")
    assert Checkpoints(run).last().name == "step-000003"
    right(config, "--from", run, "--out", tmp_path / "second")
    assert "leave out --model and --preset" in refused(config, "--from", run, "--model", "rnn", "--out", tmp_path / "x")
    wrong = typed("--resume", run, "--set", "model.heads=4")
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines()[-1].endswith("step-000003: made with model.heads 2, but this run has 4")
    assert typed("--resume", run, "--set", "training.steps=4").exit_code == 0  # the mistake did not harm the run


def test_two_files_and_a_folder_are_enough(tmp_path):
    given = table(tmp_path)["data"]
    settings = [each for key in ("training.steps=1", f"data.cache={tmp_path}/cache") for each in ("--set", key)]
    right("--source", given["source"], "--target", given["target"], "--out", tmp_path / "run", *settings)


def test_checking_trains_nothing(tmp_path, config):
    shown = typed(config, "--check")
    assert (shown.exit_code, shown.stdout) == (0, "the configuration is valid\n")
    assert {path.name for path in tmp_path.iterdir()} == {"pairs", "config.toml"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "what to train on? give --source FILE --target FILE, --pairs FILE.tsv"),
        ("none.toml", "none.toml: no such file, expected a TOML configuration"),
        ("config.toml", "--out: missing, expected the run folder to write"),
        ("config.toml --set training.stepz=3", "training.stepz: no such key"),
        ("config.toml --set training.steps", "training.steps: given to --set, expected key=value"),
        ("config.toml --set training.steps=many", 'training.steps: "many" given, expected a whole number'),
        ("config.toml --set data.source.x=1", "data.source: not a table"),
        ("config.toml --model trnsformer", "--model: \"trnsformer\" given, no such kind; did you mean 'transformer'?"),
        ("config.toml --set model.kind=lung", 'model.kind: "lung" given, no such kind'),
        ("config.toml --preset huge", '--preset: "huge" given, no such preset'),
        ("--source a.txt", "--target: missing, as --source is given"),
        ("--captions a.tsv", "--images: missing, as --captions is given"),
        ("--documents a.tsv --images b", "--images: given together with --documents; give one of them"),
        ("--pairs a.tsv --documents b.tsv", "--documents: given together with --pairs; give one of them"),
        ("--source a.txt --target b.txt --out RUN", "a.txt: no such file"),
        ("--resume pairs", "pairs: not a run folder, it has no config.toml"),
        ("--from pairs", "pairs: not a run folder, it has no config.toml"),
        ("--resume NONE", "NONE: no such folder, expected a run folder; regard runs lists run folders"),
        ("config.toml --resume NONE", "--resume: uses the run's own configuration"),
        (
            "config.toml --from NONE --out RUN",
            "NONE: no such folder, expected a run folder; regard runs lists run folders",
        ),
        ("config.toml --out config.toml", ""),
        ("config.toml --set data.builtin=copy", "data.builtin: given together with source"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, monkeypatch, config, arguments, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert refused(*arguments.split()).startswith(said)
    assert not (tmp_path / "NONE").exists()


def test_a_text_file_is_no_configuration(tmp_path):
    text = tmp_path / "train.en"
    text.write_text("You know that\n", encoding="utf-8")
    how = "give a text file with --source or --target, pairs with --pairs, documents with --documents"
    assert refused(text, "--out", tmp_path / "run") == f"{text}: not a configuration in TOML; {how}"


FIELDS = {field.name for field in dataclasses.fields(DataSettings)}
OPTIONS = {option.name for option in typer.main.get_command(app).commands["train"].params}


@pytest.mark.parametrize("name", sorted(OPTIONS & FIELDS))
def test_every_option_of_data_reaches_its_key(name, tmp_path, monkeypatch, config):
    given: dict = {}
    monkeypatch.setattr("regard.tasks.read_settings", lambda table: given.update(table) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        typed(f"--{name.replace('_', '-')}", "a file.tsv")
    assert given == {"data": {name: "a file.tsv"}}


@pytest.mark.parametrize(
    ("words", "tables"),
    [
        (["--pairs", "a.tsv"], {"data": {"corpora": [{"file": "a.tsv"}]}}),
        (
            ["--pairs", "a.tsv", "--valid-pairs", "b.tsv"],
            {"data": {"corpora": [{"file": "a.tsv"}], "valid": [{"file": "b.tsv"}]}},
        ),
        (["--model", "rnn", "--preset", "tiny"], {"model": {"kind": "rnn", "preset": "tiny"}}),
        (["--steps", 7, "--minutes", "0.5"], {"training": {"steps": 7, "minutes": 0.5}}),
        (["--seed", 3, "--device", "cpu"], {"training": {"seed": 3, "device": "cpu"}}),
        (["--batch-tokens", 512, "--rate", "2e-4"], {"training": {"batch_tokens": 512, "rate": 2e-4}}),
        (["--batch-tokens", "auto"], {"training": {"batch_tokens": "auto"}}),
    ],
)
def test_every_flag_reaches_its_key(words, tables, monkeypatch):
    given: dict = {}
    monkeypatch.setattr("regard.tasks.read_settings", lambda table: given.update(table) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        typed(*words)
    assert given == tables


def test_flags_are_keys_of_a_run_that_is_resumed(tmp_path, config):
    right(config, "--out", tmp_path / "run")
    right("--resume", tmp_path / "run", "--steps", 3)
    assert Checkpoints(tmp_path / "run").last().name == "step-000003"
    assert refused("--resume", tmp_path / "run", "--preset", "tiny").startswith(
        "--resume: uses the run's own configuration"
    )
    assert refused(config, "--device", "abacus", "--check").startswith('--device: "abacus" given, expected')


def test_pairs_of_one_file_are_trained_on(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pairs.tsv").write_text("".join(f"{i} a\tb {i}\n" for i in range(40)))
    shown = right(
        "--pairs", tmp_path / "pairs.tsv", "--preset", "tiny", "--steps", 1, "--device", "cpu", "-o", tmp_path / "run"
    )
    assert "36 pairs" in shown.stderr


def test_a_dry_run_says_what_would_be_trained(tmp_path, config, monkeypatch):
    fork_for_spawn(monkeypatch)  # tests/tasks/test_run_start.py spawns new processes
    shown = right(config, "--dry-run", "--steps", 6)
    rows = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
    assert list(rows) == ["model", "data", "vocabulary", "batch", "device", "steps", "memory", "time"]
    assert re.fullmatch(r"transformer, [\d,]+ parameters", rows["model"])
    assert rows["steps"] == "6; a validation every 4"
    assert re.fullmatch(r"[\d.]+ GB at most", rows["memory"])
    assert re.match(r".* per step, and .* s for each of 2 validations", rows["time"])
    assert not list(tmp_path.glob("run*"))


def test_what_is_trained_on_by_an_option_is_validated_on_by_one():
    trained = {name.removeprefix("valid_") for name in FIELDS if name.startswith("valid_")} & OPTIONS
    assert trained == {"source", "target", "documents", "captions"}
    assert {f"valid_{name}" for name in trained} <= OPTIONS


def test_documents_for_validation(tmp_path):
    files = [write_documents(tmp_path / name, count) for name, count in (("train", 40), ("valid", 7))]
    settings = ["training.steps=1", "model.size=4", "tokenizer.kind=word", f"data.cache={tmp_path}/cache"]
    shown = right(
        *("--documents", files[0], "--valid-documents", files[1], "--out", tmp_path / "run"),
        *(each for setting in settings for each in ("--set", setting)),
    )
    assert "40 documents" in shown.stderr
    assert "7 for validation" in shown.stderr


def test_quiet_and_json(tmp_path, config):
    shown = typed(config, "--quiet", "--out", tmp_path / "quiet")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "")
    shown = typed(config, "--json", "--out", tmp_path / "json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    kinds = [json.loads(line)["kind"] for line in shown.stdout.splitlines()]
    assert {"begin", "step", "valid", "end"} <= set(kinds)
    assert kinds[-1] == "end"


def test_a_tracker_that_is_not_there_is_refused(tmp_path, config):
    assert refused(config, "--track", "wandbb", "--check").startswith('--track: "wandbb" given, no such tracker')
