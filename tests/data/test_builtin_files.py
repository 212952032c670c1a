"""Files of built-in corpora: complete or not there, and read back as they were."""

import json
import os

import numpy as np
import pytest
from data.cases import texts
from PIL import Image

from regard.data.builtin import generate
from regard.data.builtin_files import write
from regard.data.preparation import prepare
from regard.data.settings import DataSettings
from regard.errors import ArgumentError, ConfigError
from regard.io import parse_pharaoh


def test_what_is_written_is_what_was_generated(tmp_path):
    folder = tmp_path / "deep" / "data"
    done = dict(write("phrasebook", folder, {"train": 40, "valid": 3, "test": 0}, pair="en-fr", seed=4))
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in done)
    assert {path.name: n for path, n in done.items()} == {
        f"{split}.{end}": n
        for split, n in (("train", 40), ("valid", 3))
        for end in ("en", "fr", "align", "en.heads", "fr.heads", "en.relations", "fr.relations")
    }
    read = {path.name: path.read_text(encoding="utf-8").split("\n") for path in done}
    for index, example in enumerate(generate("phrasebook", 40, pair="en-fr", seed=4)):
        assert read["train.en"][index] == example.source
        assert read["train.fr"][index] == example.target
        assert tuple(parse_pharaoh(read["train.align"][index])) == example.alignment
        assert tuple(map(int, read["train.en.heads"][index].split())) == example.source_heads
        assert tuple(map(int, read["train.fr.heads"][index].split())) == example.target_heads
        assert tuple(read["train.en.relations"][index].split()) == example.source_relations
        assert tuple(read["train.fr.relations"][index].split()) == example.target_relations
    assert all(lines[-1] == "" for lines in read.values())


def test_nothing_is_overwritten_unasked(tmp_path):
    (tmp_path / "valid.target").write_text("mine")
    with pytest.raises(ArgumentError, match="valid.target already exists"):
        write("copy", tmp_path, {"train": 3, "valid": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["valid.target"]
    list(write("copy", tmp_path, {"train": 3, "valid": 3}, force=True))
    assert (tmp_path / "valid.target").read_text() != "mine"
    assert len(list(tmp_path.iterdir())) == 6


def test_a_corpus_that_runs_out_leaves_no_file(tmp_path):
    with pytest.raises(ArgumentError, match="there are"):
        list(write("numbers", tmp_path, {"train": 500}, highest=99))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("question", "table"), [("none", "captions"), ("which-size", "labels")])
def test_pictures_are_written_beside_their_table(tmp_path, question, table):
    options = {"seed": 2, "size": 48, "question": question}
    done = [path.name for path, n in write("scenes", tmp_path, {"train": 3, "valid": 2}, **options) if n]
    assert done == [f"{split}.{end}" for split in ("train", "valid") for end in (f"{table}.tsv", "gold.jsonl")]
    rows = [line.split("\t") for line in (tmp_path / f"train.{table}.tsv").read_text().splitlines()]
    gold = [json.loads(line) for line in (tmp_path / "train.gold.jsonl").read_text().splitlines()]
    for row, told, example in zip(rows, gold, generate("scenes", 3, **options), strict=True):
        assert row == [told["picture"], example.target]
        assert np.array_equal(np.asarray(Image.open(tmp_path / "images" / row[0])), example.picture())
        assert [tuple(shape["box"]) for shape in told["shapes"]] == list(example.boxes)
        assert tuple(told["speaks_of"]) == example.speaks_of
    assert len(list((tmp_path / "images").iterdir())) == 5
    with pytest.raises(ArgumentError, match="already exists"):
        write("scenes", tmp_path, {"train": 1}, **options)


def test_documents_are_a_table_of_label_and_text(tmp_path):
    done = dict(write("reviews", tmp_path, {"train": 30, "valid": 2}, seed=3))
    assert {path.name: n for path, n in done.items()} == {
        "train.tsv": 30,
        "train.align": 30,
        "valid.tsv": 2,
        "valid.align": 2,
    }
    rows = (tmp_path / "train.tsv").read_text().splitlines(), (tmp_path / "train.align").read_text().splitlines()
    for example, row, links in zip(generate("reviews", 30, seed=3), *rows, strict=True):
        assert row == f"{example.target}\t{example.source}"
        assert tuple(parse_pharaoh(links)) == example.alignment


def test_a_builtin_corpus(tmp_path):
    said = []
    data = DataSettings(builtin="phrasebook", pair="en-fr", count=300, cache=str(tmp_path))
    prepared = prepare(data, say=said.append)
    assert (len(prepared.train), len(prepared.valid)) == (300, 3)
    assert said == ["300 pairs; 3 for validation"]
    assert not set(prepared.valid_pairs) & set(texts(prepared, prepared.train))
    assert not [path for path in tmp_path.rglob("*") if "drawn" in path.name]
    prepare(data, say=said.append)
    assert said[1] == said[0] + ", from the cache"
    other = DataSettings(builtin="phrasebook", pair="en-fr", count=300, builtin_seed=1, cache=str(tmp_path))
    assert prepare(other).hash != prepared.hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"builtin": "phrasbook"}, 'builtin: "phrasbook" given; did you mean .phrasebook'),
        ({"builtin": "phrasebook", "pair": "en-xx"}, "pair: .en-xx. given"),
        ({"builtin": "phrasebook", "builtin_options": ("langest=3",)}, "builtin_options: .*no option 'langest'"),
        ({}, "source: missing"),
    ],
)
def test_impossible_settings_are_refused_at_once(change, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        prepare(DataSettings(**change, cache=str(tmp_path)))
    assert os.listdir(tmp_path) == []
