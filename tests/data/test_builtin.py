"""Built-in corpora, what holds for all of them: different, the same again, split by the source."""

import dataclasses
import functools
import hashlib
import itertools
import subprocess
import sys

import pytest

from regard.data import builtin
from regard.data.builtin import CORPORA, BuiltIn, Example, edition_of, generate, options_of, split_of
from regard.data.builtin_files import write
from regard.data.settings import DataSettings
from regard.errors import ArgumentError

# What an edition of the corpora generates, for a hundred examples of each: with another one a cache or a run that was
# made before is not the same any more, and `EDITIONS` has to have another name for it, too.
GENERATED = {
    "phrasebook": "e0137b0ce6c99e60",
    "numbers": "14138b6b86079f41",
    "dates": "69f89a1df79bc065",
    "reverse": "2d290d469b7f7788",
    "sort": "35edbbf83c28e9af",
    "copy": "7248c892d94b3a85",
    "scenes": "25c42ddff8a3ce69",
    "reviews": "a8d5def410a8eafb",
}
FURTHER = {"phrasebook": {"pair": "en-fr"}, "scenes": {"question": "which-size"}}


# Corpora whose second edition is another text.
SECOND = {"phrasebook": "da6f56e0333dba2c", "reviews": "89d06e631ca9ad0d"}


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("name", CORPORA)
def test_the_edition_is_what_is_generated(name, edition):
    if edition == 1 or name in SECOND:
        assert hash_of(name, edition) == {**GENERATED, **(SECOND if edition == 2 else {})}[name]
    else:  # what equal examples draw is the same
        assert examples_of(name, 2) == examples_of(name, 1)
    assert (builtin.EDITIONS[1][:8], builtin.EDITIONS[2][:8]) == ("9dfef61b", "2-natura")
    assert edition_of(name, edition) == builtin.EDITIONS[edition if builtin.has_editions(name) else 1]


@functools.cache  # two tests ask for those of the first edition
def examples_of(name, edition):
    return [
        example
        for options in [{}, *([FURTHER[name]] if name in FURTHER else [])]
        for split in ("train", "valid")
        for example in generate(name, 100, seed=3, split=split, edition=edition, **options)
    ]


def hash_of(name, edition):
    code = hashlib.sha256()
    for example in examples_of(name, edition):
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
    """Whatever the hash seed."""
    code = "from regard.data.builtin import generate\nfor n in ['phrasebook', 'dates', 'sort']: print(*generate(n, 9))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_these_are_the_examples_of_seed_nought():
    """Written down: a change of them is a change of everybody's corpus."""
    assert [next(generate(name, 1)).source for name in ("copy", "numbers", "dates")] == FIRST


FIRST = [
    "t k g n k u h m p x n",
    "seven hundred and eighty two thousand one hundred and fifty eight",
    "1 9 . 1 1 . 2 0 6 8",
]


@pytest.mark.parametrize("name", ["phrasebook", "numbers", "copy"])
def test_splits_never_meet(name):
    train = {example.source for seed in (0, 1) for example in generate(name, 500, seed=seed, edition=1)}
    for split in ("valid", "test"):
        held = {example.source for seed in (0, 2) for example in generate(name, 12, seed=seed, split=split, edition=1)}
        assert len(held) > 12
        assert not held & train
        assert {split_of(source) for source in held} == {split}
    assert {split_of(source) for source in train} == {"train"}


def test_splits_have_their_share():
    shares = [split_of(str(number)) for number in range(20_000)]
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
    """A corpus from elsewhere: even numbers, and half of each."""

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
    written = dict(write("halves", tmp_path, {"train": 5}))
    assert {path.name: lines for path, lines in written.items()} == dict.fromkeys(
        ("train.source", "train.target", "train.align"), 5
    )
