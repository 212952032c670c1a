"""What the options of `regard train` give: tables of a configuration, and messages that name the option."""

import pytest

from regard.cli.training import LIMITS, find_run_config, read_checked, read_table, tables_of
from regard.errors import CheckpointError, CommandError, ConfigError


def test_options_are_sorted_into_the_tables_of_their_keys():
    tables, flags = tables_of({"source": "a.en", "target": "a.de", "model": "luong", "steps": 7, "seed": None})
    assert tables == {
        "data": {"source": "a.en", "target": "a.de"},
        "model": {"kind": "luong"},
        "training": {"steps": 7},
    }
    assert flags["model.kind"] == "--model"
    assert flags["training.steps"] == "--steps"
    assert "training.seed" not in flags


def test_a_file_of_pairs_is_a_corpus():
    tables, flags = tables_of({"pairs": "a.tsv", "valid_pairs": "b.tsv"})
    assert tables == {"data": {"corpora": [{"file": "a.tsv"}], "valid": [{"file": "b.tsv"}]}}
    assert flags["data.valid"] == "--valid-pairs"


@pytest.mark.parametrize("name", ["steps", "minutes", "batch_tokens", "rate", "seed"])
def test_an_option_has_the_limits_of_its_key(name):
    assert "least" in LIMITS[name] or "above" in LIMITS[name]


def test_a_mistake_is_named_by_its_option_or_by_its_key():
    tables, flags = tables_of({"source": "a.en", "target": "a.de", "model": "lung"})
    with pytest.raises(CommandError, match="^--model: .*lung"):
        read_checked(tables, flags)
    with pytest.raises(ConfigError, match="model.kind"):
        read_checked(tables, {})
    with pytest.raises(CommandError, match="^--target: "):
        read_checked(*tables_of({"source": "a.en"}))
    with pytest.raises(CommandError, match="what to train on"):
        read_checked({}, {})


def test_a_folder_without_a_configuration_is_no_run(tmp_path):
    with pytest.raises(CheckpointError, match=r"not a run folder, it has no config\.toml"):
        find_run_config(tmp_path)
    with pytest.raises(CheckpointError, match="not a run folder"):
        read_table(None, tmp_path, None)


def test_the_table_of_a_run_is_read_to_resume_it(tmp_path):
    (tmp_path / "config.toml").write_text('task = "translate"\n[data]\nsource = "a"\ntarget = "b"\ncache = "c"\n')
    table, cached = read_table(None, tmp_path, None)
    assert table["data"]["source"] == "a"
    assert cached
    assert read_table(None, None, None) == ({}, False)
