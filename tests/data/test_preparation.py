"""From files to encoded pairs: which are kept, dropped and held out, and when the cache is used."""

import gzip
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from child import fork
from data.cases import sentences, texts

from regard.data import preparation as module
from regard.data.preparation import CorpusReader, hash_of, prepare
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train
from regard.errors import DataError
from regard.io import MAX_LINE_CHARACTERS


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
@pytest.mark.parametrize("joint", [True, False])
def test_everything_is_there_once(files, kind, joint):
    rows, said = sentences(700), []
    prepared = prepare(files(rows, held_out=0.1), TokenizerSettings(kind=kind, joint=joint), say=said.append)
    assert prepared.tokenizers.joint == joint
    assert (len(prepared.train), len(prepared.valid)) == (630, 70)
    choose = "(by hash; give --valid-source and --valid-target to choose them)"
    assert said == [f"630 pairs; 70 held out for validation {choose}"]
    assert prepared.valid_pairs == texts(prepared, prepared.valid) if kind != "word" else True
    assert set(prepared.valid_pairs) <= set(rows)
    if kind != "word":
        held = set(prepared.valid_pairs)
        assert texts(prepared, prepared.train) == [row for row in rows if row not in held]


def test_what_is_dropped_is_counted_and_said(files):
    rows = [
        *sentences(300),
        ("", "leer"),
        ("empty", " "),
        ("\u3000", "\t"),
        ("long " * 60, "lang"),
        ("x", "lang " * 60),
    ]
    valid = [*sentences(20, seed=1), ("", ""), ("long " * 60, "lang")]
    given, said = files(valid, "valid"), []
    data = files(rows, valid_source=given.source, valid_target=given.target, longest=40)
    prepared = prepare(data, TokenizerSettings(kind="word"), say=said.append)
    dropped = "(dropped 1 blank, 1 longer than 40 tokens)"
    assert said == [f"300 pairs; dropped 3 blank, 2 longer than 40 tokens; 20 for validation {dropped}"]
    assert prepared.counts["long"] == 2
    assert prepared.valid_pairs == sentences(20, seed=1)
    assert prepared.train.lengths.max() <= 40


def test_a_pair_of_exactly_the_longest_length_is_kept(files):
    rows = [("a " * n, "b") for n in range(1, 12)]
    prepared = prepare(files(rows, longest=9, held_out=0.0), TokenizerSettings(kind="word"))
    assert prepared.train.lengths.max() == 9
    assert (len(prepared.train), len(prepared.valid), prepared.valid_pairs) == (9, 0, [])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "train.target: no pairs to train on$"),
        ([("", ""), ("", "a")], "train.target: no pairs to train on: all 2 are blank"),
        ([("a a a a", "b b b b b")] * 9, "no pair is left to train on: 0 pairs; dropped 9 longer than 3 tokens"),
    ],
)
def test_a_corpus_without_pairs_is_refused(files, rows, message):
    with pytest.raises(DataError, match=message):
        prepare(files(rows, longest=3, held_out=0.0), TokenizerSettings(kind="word"))
    assert os.listdir(files(rows).cache) == []


def test_a_validation_without_pairs_is_refused(files):
    empty = files([], "valid")
    with pytest.raises(DataError, match="valid.target: no pair is left to validate on"):
        prepare(files(sentences(9), valid_source=empty.source, valid_target=empty.target))


@pytest.mark.parametrize("lines", [3, 5])
def test_unequal_files_are_refused_and_leave_nothing(files, tmp_path, lines):
    data = files(sentences(4))
    with open(data.target, "w") as file:
        file.write("x\n" * lines)
    with pytest.raises(DataError, match=f"has 4 lines and .* has {lines}"):
        prepare(data)
    assert os.listdir(tmp_path / "cache") == []
    with pytest.raises(DataError, match="nowhere: no such file"):
        prepare(DataSettings(source=data.source, target="nowhere", cache=data.cache))


# Several corpora


def test_several_corpora_with_weights_and_tags(files, tmp_path):
    german, french = sentences(60), sentences(40, seed=1)
    (tmp_path / "de.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in german))
    with gzip.open(tmp_path / "fr.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"en": s, "fr": t}) + "\n" for s, t in french)
    data = DataSettings(
        corpora=(
            CorpusSettings(file=str(tmp_path / "de.tsv"), weight=2.0, tag="<2de>"),
            CorpusSettings(file=str(tmp_path / "fr.jsonl.gz"), source_column="en", target_column="fr", tag="<2fr>"),
        ),
        held_out=0.0,
        cache=str(tmp_path / "cache"),
    )
    prepared = prepare(data)
    assert prepared.weights == (2.0, 1.0)
    assert prepared.train.starts == (0, 60)
    expected = [(f"<2de> {s}", t) for s, t in german] + [(f"<2fr> {s}", t) for s, t in french]
    assert texts(prepared, prepared.train) == expected
    source = prepared.tokenizers.source
    assert source.pieces(prepared.train.pair(0)[0][:1]) == ["<2de>"]
    assert source.pieces(prepared.train.pair(60)[0][:1]) == ["<2fr>"]


def test_the_same_file_twice(files):
    rows = sentences(50)
    data = files(rows)
    same = DataSettings(source=data.source, target=data.source, cache=data.cache)
    prepared = prepare(same)
    assert all(source == target for source, target in texts(prepared, prepared.train))
    twice = CorpusSettings(data.source, data.target)
    prepared = prepare(DataSettings(corpora=(twice, twice), cache=data.cache, held_out=0.1))
    assert prepared.train.starts == (0, len(prepared.train) // 2)
    assert not set(prepared.valid_pairs) & set(texts(prepared, prepared.train))


def test_lowercase(files):
    prepared = prepare(files([("The MAN", "Der Mann Ä"), ("A b", "C")] * 4, lowercase=True, held_out=0.0))
    assert texts(prepared, prepared.train)[:2] == [("the man", "der mann ä"), ("a b", "c")]


# Tokenizers given


def test_given_tokenizers_are_used(files, tmp_path):
    rows = sentences(100)
    both = Tokenizers(train([*(s for s, _ in rows), *(t for _, t in rows)], size=300))
    both.save(tmp_path / "tokenizer.json")
    by_object = prepare(files(rows), tokenizers=both)
    by_file = prepare(files(rows), TokenizerSettings(file=str(tmp_path / "tokenizer.json")))
    pair = dict.fromkeys(("source_file", "target_file"), str(tmp_path / "tokenizer.json"))
    by_pair = prepare(files(rows), TokenizerSettings(**pair))
    assert by_object.tokenizers.hash == by_file.tokenizers.hash == by_pair.tokenizers.hash == both.hash
    assert by_object.hash == by_file.hash == by_pair.hash
    assert prepare(files(rows)).hash != by_object.hash
    with pytest.raises(DataError, match=r"none.json: cannot be read"):
        prepare(files(rows), TokenizerSettings(file=str(tmp_path / "none.json")))


# The cache


def test_the_second_time_it_comes_from_the_cache(files):
    data, said = files(sentences(200)), []
    first = prepare(data, say=said.append)
    stamp = os.stat(first.train.folder / "tokens.bin").st_mtime_ns
    second = prepare(data, say=said.append)
    assert said[1] == said[0] + ", from the cache"
    assert os.stat(second.train.folder / "tokens.bin").st_mtime_ns == stamp
    assert second.hash == first.hash
    assert second.counts == first.counts
    assert second.valid_pairs == first.valid_pairs
    assert texts(second, second.train) == texts(first, first.train)
    assert second.tokenizers.hash == first.tokenizers.hash


def test_a_run_that_goes_on_with_its_tokenizers_finds_the_same(files):
    data, said = files(sentences(100)), []
    first = prepare(data)
    again = prepare(data, tokenizers=first.tokenizers, say=said.append)
    assert said[0].endswith(", from the cache")
    assert again.hash == first.hash == prepare(data).hash
    assert again.train.folder == first.train.folder


def test_the_key_is_of_what_matters(files, tmp_path):
    rows = sentences(60)
    keys = {"plain": prepare(files(rows)).hash}
    for name, change in {"longest": {"longest": 50}, "held": {"held_out": 0.3}, "lower": {"lowercase": True}}.items():
        keys[name] = prepare(files(rows, **change)).hash
    for name, settings in {"kind": {"kind": "word"}, "size": {"size": 300}, "joint": {"joint": False}}.items():
        keys[name] = prepare(files(rows), TokenizerSettings(**settings)).hash
    keys["content"] = prepare(files([*rows[:-1], ("other", "andere")])).hash
    assert len(set(keys.values())) == len(keys)
    same = files(rows, name="renamed")
    assert prepare(same).hash == keys["plain"]
    assert prepare(files(rows), TokenizerSettings(dropout=0.1)).hash == keys["plain"]


def test_an_edit_of_the_same_size_at_the_same_time_is_seen(files):
    data = files(sentences(40))
    first = prepare(data)
    status = os.stat(data.source)
    path = Path(data.source)
    path.write_text(path.read_text().replace("the", "thy"))
    os.utime(data.source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepare(data).hash != first.hash


@pytest.mark.parametrize(
    ("name", "how"),
    [(f"{name}.bin", how) for name in ("train/tokens", "valid/lengths") for how in ("cut", "flipped", "gone")]
    + [("tokenizer.json", "flipped"), ("manifest.json", "cut"), ("valid.jsonl", "gone")],
)
def test_a_damaged_cache_is_built_again(files, name, how):
    data, said = files(sentences(60), held_out=0.1), []
    first = prepare(data)
    expected = texts(first, first.train), first.valid_pairs, first.tokenizers.hash
    path = first.train.folder.parent / name
    content = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(content[:-3] if how == "cut" else content[:20] + bytes([content[20] ^ 4]) + content[21:])
    again = prepare(data, say=said.append)
    assert "is damaged (" in said[0]
    assert "; it is built again." in said[0]
    assert (texts(again, again.train), again.valid_pairs, again.tokenizers.hash) == expected
    assert prepare(data, say=said.append)
    assert said[-1].endswith("from the cache")


def print_prepared(data) -> None:
    """Prepare in another process and print the result."""
    prepared = prepare(data)
    print(prepared.hash, len(prepared.train), int(prepared.train.tokens.sum()), prepared.tokenizers.hash)


def test_three_processes_at_once(files, tmp_path):
    data = files(sentences(3000))
    runs = [run.wait() for run in [fork(lambda: print_prepared(data)) for _ in range(3)]]
    assert [run.status for run in runs] == [0, 0, 0], runs
    assert len({run.stdout for run in runs}) == 1
    assert runs[0].stdout.split()[1] == "2970"
    assert sum(path.is_dir() for path in (tmp_path / "cache").iterdir()) == 1


def test_a_process_killed_while_it_writes_leaves_nothing_that_is_used(files, tmp_path):
    data, said = files(sentences(3000)), []
    run = fork(lambda: print_prepared(data))
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("cache/.partial-*/train/tokens.bin")) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(run.number, signal.SIGKILL)
    assert run.wait().status == -signal.SIGKILL
    assert prepare(data, say=said.append).counts["pairs"] == 2970
    assert len(said) == 1
    assert "damaged" not in said[0]


# ---- readers


def test_repetitions_of_a_held_out_pair_are_not_trained_on(files):
    rows = sentences(400) * 3
    prepared = prepare(files(rows, held_out=0.2), say=print)
    held = set(prepared.valid_pairs)
    assert len(held) == len(prepared.valid) == 200  # at most half of the distinct pairs, and each once
    assert not held & set(texts(prepared, prepared.train))
    assert len(prepared.train) == 600
    assert prepared.counts["repeated"] == 400


def test_what_is_held_out_does_not_hang_on_the_order(files):
    rows = sentences(500)
    first = prepare(files(rows, held_out=0.1))
    second = prepare(files(rows[::-1], held_out=0.1))
    assert set(first.valid_pairs) == set(second.valid_pairs)
    more = prepare(files([*rows, *sentences(20, seed=5)], held_out=0.1))
    assert len(set(first.valid_pairs) & set(more.valid_pairs)) >= 45


@pytest.mark.parametrize(
    ("share", "most", "expected"), [(0.01, 2000, 10), (0.5, 7, 7), (0.0001, 2000, 1), (0.5, 2000, 500)]
)
def test_how_many_are_held_out(files, share, most, expected):
    prepared = prepare(files(sentences(1000), held_out=share, held_out_most=most), TokenizerSettings(kind="character"))
    assert len(prepared.valid) == expected
    assert len(prepared.train) == 1000 - expected


def test_the_held_out_have_the_smallest_hashes(files):
    """Compare with sorting all hashes at once, which the survey never does."""
    rows = sentences(300)
    prepared = prepare(files(rows, held_out=0.1))
    assert set(prepared.valid_pairs) == set(sorted(rows, key=lambda row: hash_of(*row))[:30])
    assert hash_of("a  b", "c") == hash_of(" a b ", "c") != hash_of("a b c", "")
    assert hash_of("A", "b", lowercase=True) == hash_of("a", "B", lowercase=True)
    assert hash_of("one", "eins") == 0x724B9DD50D12CC5D  # the same on every machine


def test_the_smallest_corpora(files):
    prepared = prepare(files([("a", "b"), ("c", "d")]))
    assert (len(prepared.train), len(prepared.valid)) == (1, 1)
    said = "one pair is too few to train on and to hold out for validation; give --valid-source"
    with pytest.raises(DataError, match=said):
        prepare(files([("a", "b")] * 5))
    assert len(prepare(files([("a", "b")] * 5, held_out=0.0)).train) == 5


def test_the_tokenizer_never_sees_what_is_held_out(files):
    """A word that occurs only in a held-out pair is not in the vocabulary."""
    rows = [(f"w{i}", f"t{i}") for i in range(200)]
    prepared = prepare(files(rows, held_out=0.1), TokenizerSettings(kind="word"))
    assert len(prepared.valid) == 20
    assert prepared.tokenizers.source.size == 4 + 2 * 180


def test_a_large_corpus_is_sampled(files, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 3000)
    seen = {}
    monkeypatch.setattr(module, "train_both", lambda s, t, *a, **k: seen.update(s=s, t=t) or train_words(s, t))

    def train_words(sources, targets):
        return Tokenizers(train([*sources, *targets], "character"))

    rows = sentences(1000)
    prepare(files(rows))
    assert 1000 < sum(map(len, (*seen["s"], *seen["t"]))) <= 3000
    places = [rows.index(pair) for pair in zip(seen["s"], seen["t"], strict=True)]
    assert places == sorted(places)
    assert max(places) > 900


def test_a_line_that_was_cut_is_no_pair():
    counts, reader = Counter(), CorpusReader(DataSettings(source="a", target="b"), TokenizerSettings(kind="word"))
    tokenizers = Tokenizers(train(["a b c d", "d c b a"], "word"))
    assert reader.encode([("x" * MAX_LINE_CHARACTERS, "a")], None, tokenizers, counts).texts == []
    assert counts["long"] == 1
