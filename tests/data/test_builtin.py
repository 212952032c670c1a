"""Built-in corpora, properties of all: distinct, reproducible, split by the source."""

import dataclasses
import hashlib
import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from data.cases import texts
from PIL import Image

from regard.data import builtin
from regard.data.builtin import (
    CORPORA,
    BuiltIn,
    Example,
    choose_split,
    edition_of,
    generate,
    hash_source,
    options_of,
    write_corpus,
)
from regard.data.preparation import prepare
from regard.data.settings import DataSettings
from regard.errors import ArgumentError, ConfigError
from regard.io import parse_pharaoh

# Hashes of a hundred examples of each corpus in this edition. If they change, earlier caches and runs no longer match,
# so `EDITIONS` needs a new name.
GENERATED = {
    **{"phrasebook": "e0137b0ce6c99e60", "numbers": "14138b6b86079f41", "dates": "69f89a1df79bc065"},
    **{"reverse": "2d290d469b7f7788", "sort": "35edbbf83c28e9af", "copy": "7248c892d94b3a85"},
    **{"scenes": "25c42ddff8a3ce69", "reviews": "a8d5def410a8eafb"},
}
FURTHER = {"phrasebook": {"pair": "en-fr"}, "scenes": {"question": "which-size"}}
# Corpora whose second edition has other text.
SECOND = {"phrasebook": "da6f56e0333dba2c", "reviews": "89d06e631ca9ad0d"}


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("name", CORPORA)
def test_the_edition_is_what_is_generated(name, edition):
    if edition == 1 or name in SECOND:
        assert hash_of(name, edition) == {**GENERATED, **(SECOND if edition == 2 else {})}[name]
    else:  # equal examples draw equal numbers
        assert [*generate(name, 30, seed=3, edition=2)] == [*generate(name, 30, seed=3, edition=1)]
    assert (builtin.EDITIONS[1][:8], builtin.EDITIONS[2][:8]) == ("9dfef61b", "2-natura")
    assert edition_of(name, edition) == builtin.EDITIONS[edition if builtin.has_editions(name) else 1]


def hash_of(name, edition):
    code = hashlib.sha256()
    for options, split in itertools.product([{}, *([FURTHER[name]] if name in FURTHER else [])], ("train", "valid")):
        for example in generate(name, 100, seed=3, split=split, edition=edition, **options):
            code.update(repr((example.source, example.target, example.alignment)).encode())
            if name == "scenes":
                code.update(example.picture().tobytes())
    return code.hexdigest()[:16]


@pytest.mark.parametrize("name", CORPORA)
def test_examples_are_different_and_well_formed(name):
    examples = list(generate(name, 300, seed=3))
    assert len(examples) == len({example.source for example in examples}) == 300
    for example in examples:
        assert isinstance(example, Example)
        for side in (example.source, example.target):
            assert side == " ".join(side.split())
            assert side
        source, target = example.source.split(), example.target.split()
        assert list(example.alignment) == sorted(set(example.alignment))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in example.alignment)
        assert example.alignment


@pytest.mark.parametrize("name", CORPORA)
def test_the_same_arguments_give_the_same_examples(name):
    first = list(generate(name, 60, seed=5))
    assert list(generate(name, 60, seed=5)) == first
    assert list(itertools.islice(generate(name, 500, seed=5), 60)) == first  # a longer corpus begins alike
    assert list(generate(name, 60, seed=6)) != first


def test_other_processes_agree():
    """The hash seed has no effect."""
    code = "from regard.data.builtin import generate\nfor n in ['phrasebook', 'dates', 'sort']: print(*generate(n, 9))"
    options = {"capture_output": True, "check": True}
    runs = [subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, **options) for seed in "12"]
    assert runs[0].stdout == runs[1].stdout


def test_these_are_the_examples_of_seed_nought():
    """Pin the first examples: a change of them changes every user's corpus."""
    number = "seven hundred and eighty two thousand one hundred and fifty eight"
    first = ["t k g n k u h m p x n", number, "1 9 . 1 1 . 2 0 6 8"]
    assert [next(generate(name, 1)).source for name in ("copy", "numbers", "dates")] == first


@pytest.mark.parametrize("name", ["phrasebook", "numbers", "copy"])
def test_splits_never_meet(name):
    train = {example.source for seed in (0, 1) for example in generate(name, 500, seed=seed, edition=1)}
    for split in ("valid", "test"):
        held = {example.source for seed in (0, 2) for example in generate(name, 12, seed=seed, split=split, edition=1)}
        assert len(held) > 12
        assert not held & train
        assert {choose_split(hash_source(source)) for source in held} == {split}
    assert {choose_split(hash_source(source)) for source in train} == {"train"}


def test_splits_have_their_share():
    shares = [choose_split(hash_source(str(number))) for number in range(20_000)]
    assert 0.015 < shares.count("valid") / 20_000 < 0.025
    assert 0.015 < shares.count("test") / 20_000 < 0.025


def test_a_corpus_that_is_used_up_says_how_many_there_are(monkeypatch):
    monkeypatch.setattr(builtin, "HASTE", 50)
    total = 2**3 + 2**4
    counts = {}
    for split in ("train", "valid", "test"):
        stream = generate("copy", 1000, split=split, symbols=2, shortest=3, longest=4)
        found = []
        with pytest.raises(ArgumentError) as error:
            found.extend(example.source for example in stream)
        counts[split] = len(found)
        assert len(set(found)) == len(found)
        assert f"1,000 examples wanted, but there are only {len(found)} different ones for {split}" in str(error.value)
    assert sum(counts.values()) == total
    exactly = counts["train"]
    assert len(list(generate("copy", exactly, symbols=2, shortest=3, longest=4))) == exactly


def test_sentences_that_are_used_up_say_how_many_were_found(monkeypatch):
    monkeypatch.setattr(builtin, "PATIENCE", 100)
    with pytest.raises(ArgumentError, match="phrasebook: 9,999 examples wanted, but 100 draws in a row yielded only"):
        list(generate("phrasebook", 9_999, longest=3))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "frasebook",
            {},
            "there is no built-in corpus 'frasebook', did you mean 'phrasebook'? there are phrasebook, numbers,",
        ),
        (
            "phrasebook",
            {"longst": 3},
            "phrasebook: there is no option 'longst', did you mean 'longest'? there are longest, shortest",
        ),
        ("phrasebook", {"longest": 2}, "longest: 2 given, expected a whole number of at least 3"),
        ("phrasebook", {"longest": "x"}, 'longest: "x" given, expected a whole number'),
        ("phrasebook", {"pair": "en-es"}, 'pair: "en-es" given, expected one of en-de, en-fr'),
        ("phrasebook", {"split": "dev"}, "split: 'dev' given"),
        ("phrasebook", {"seed": -1}, "seed: -1 given"),
        ("copy", {"count": -1}, "count: -1 given"),
        ("copy", {"edition": 0}, "edition: 0 given, expected a whole number of at least 1"),
        ("phrasebook", {"edition": 3}, "edition: 3 given, expected at most 2"),
        ("copy", {"symbols": 0}, "symbols: 0 given"),
        ("sort", {"shortest": 9, "longest": 4}, "longest: 4 given, expected a whole number of at least 9"),
        ("numbers", {"language": "es"}, 'language: "es" given, expected one of en, de, fr'),
        ("numbers", {"direction": "up"}, 'direction: "up" given'),
        ("numbers", {"highest": 10**9}, "highest: 1000000000 given, expected at most 999999999"),
        ("dates", {"form": "sort"}, 'form: "sort" given, expected one of any, long'),
        ("dates", {"form": "short"}, "1900 to 2099 given, expected 1950 to 2049 for the form short"),
    ],
)
@pytest.mark.unchecked
def test_wrong_arguments_are_named_at_once(name, options, said):
    with pytest.raises(ArgumentError) as error:
        generate(name, **{"count": 5, **options})
    assert said in str(error.value)


def test_nothing_heavy_is_imported():
    code = "import sys, regard.data.builtin as b; list(b.generate('phrasebook', 3)); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_options_are_listed():
    assert options_of("copy") == {"longest": 12, "shortest": 3, "symbols": 26}
    assert not {"pair", "edition"} & options_of("phrasebook").keys()


class Halves:
    """A third-party corpus: even numbers and their halves."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        highest: int = 1000

    @staticmethod
    def draw(random, accept, options):
        while True:
            number = int(random() * options.highest)
            yield Example(str(2 * number), str(number), ((0, 0),)) if accept(str(2 * number)) else None

    @staticmethod
    def every(accept, options):
        return None


def test_a_corpus_from_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setitem(CORPORA, "halves", BuiltIn("even numbers", Halves))
    assert options_of("halves") == {"highest": 1000}
    for example in generate("halves", 20, highest=500):
        assert int(example.source) == 2 * int(example.target) < 1000
    assert edition_of("halves") != edition_of("copy") == builtin.EDITIONS[1]
    assert DataSettings(builtin="halves").reads == "text"
    DataSettings(builtin="halves", builtin_options=("highest=500",)).require()
    written = dict(write_corpus("halves", tmp_path, {"train": 5}))
    counts = dict.fromkeys(("train.source", "train.target", "train.align"), 5)
    assert {path.name: lines for path, lines in written.items()} == counts


# ---- as files


def test_what_is_written_is_what_was_generated(tmp_path):
    folder = tmp_path / "deep" / "data"
    done = dict(write_corpus("phrasebook", folder, {"train": 40, "valid": 3, "test": 0}, pair="en-fr", seed=4))
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
        list(write_corpus("copy", tmp_path, {"train": 3, "valid": 3}))
    assert [path.name for path in tmp_path.iterdir()] == ["valid.target"]
    list(write_corpus("copy", tmp_path, {"train": 3, "valid": 3}, force=True))
    assert (tmp_path / "valid.target").read_text() != "mine"
    assert len(list(tmp_path.iterdir())) == 6


def test_a_corpus_that_runs_out_leaves_no_file(tmp_path):
    with pytest.raises(ArgumentError, match="there are"):
        list(write_corpus("numbers", tmp_path, {"train": 500}, highest=99))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("question", "table"), [("none", "captions"), ("which-size", "labels")])
def test_pictures_are_written_beside_their_table(tmp_path, question, table):
    options = {"seed": 2, "size": 48, "question": question}
    done = [path.name for path, n in write_corpus("scenes", tmp_path, {"train": 3, "valid": 2}, **options) if n]
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
        list(write_corpus("scenes", tmp_path, {"train": 1}, **options))


def test_documents_are_a_table_of_label_and_text(tmp_path):
    done = dict(write_corpus("reviews", tmp_path, {"train": 30, "valid": 2}, seed=3))
    counts = {"train.tsv": 30, "train.align": 30, "valid.tsv": 2, "valid.align": 2}
    assert {path.name: n for path, n in done.items()} == counts
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
