"""Test sets with mistakes; all scores of a system together; by length, each bucket's own score."""

import gzip
import json
import math
import os
import random
import threading
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError, DataError
from regard.evaluation.evaluation import FEW, Items, evaluate, measure_lengths, read_items, read_texts, score_by_length
from regard.evaluation.text import (
    bleu,
    measure_bleu,
    measure_exact,
    perplexity,
)

REFERENCES = ["the cat is here", "a dog barks", "nothing"]
OUTPUTS = ["the cat is there", "a dog barks", ""]
ITEMS = Items(Path("r"), ["le chat est là", "un chien aboie", ""], [(text,) for text in REFERENCES], [0, 1, 2])
AS_MANY = "expected the same number, because line i of one is the translation of line i of the other"


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return [tmp_path / name for name in texts]

    return write


def test_lines_are_items(files):
    source, reference, output = files(source="a b\n\nc\u2028d", reference="x\n\r\ny", output="1\n2\n3\n")
    items = read_items(source, reference)
    assert items.sources == ["a b", "", "c\u2028d"]
    assert items.references == [("x",), ("",), ("y",)]
    assert (len(items), items.empty) == (3, 1)
    assert items.read_outputs(output) == items.by_line(["1", "2", "3"]) == ["1", "2", "3"]
    assert list(items.pairs()) == [("a b", "x"), ("c\u2028d", "y")]


def test_both_sides_of_a_table(tmp_path):
    (tmp_path / "test.tsv").write_text("a b\tx y\t0-0\n\nc\tz\n")
    (tmp_path / "test.jsonl").write_text('{"source": "a b", "target": "x y"}\n\n{"source": "c", "target": "z"}\n')
    for name, places in (
        ("test.tsv", ("column 2", "column 1")),
        ("test.jsonl", ("the key 'target'", "the key 'source'")),
    ):
        said, path = [], tmp_path / name
        items = read_items(path, path, say=said.append)
        assert (items.sources, items.references) == (["a b", "", "c"], [("x y",), ("",), ("z",)])
        assert said == [
            f"{path}: reading the targets in {places[0]}; sources are ignored",
            f"{path}: reading the sources in {places[1]}; translations are ignored",
        ]


def test_the_same_source_is_one_item(files):
    source, reference = files(source="read\ncat\nread \ndog\nread", reference="R EH D\nK AE T\nR IY D\nD AO G\nR EH D")
    items = read_items(source, reference, alternatives=True)
    assert items.sources == ["read", "cat", "dog"]
    assert items.references == [("R EH D", "R IY D"), ("K AE T",), ("D AO G",)]
    assert items.by_line(["1", "2", "3"]) == ["1", "2", "1", "3", "1"]
    by_line, by_item, wrong = files(by_line="1\n2\n-\n3\n-", by_item="1\n2\n3", wrong="1\n2\n3\n4")
    assert items.read_outputs(by_line) == items.read_outputs(by_item) == ["1", "2", "3"]
    assert list(items.pairs()) == [("read", "R EH D"), ("read", "R IY D"), ("cat", "K AE T"), ("dog", "D AO G")]
    with pytest.raises(DataError) as error:
        items.read_outputs(wrong)
    assert str(error.value) == f"{wrong} has 4 lines and {reference} has 5; expected the same number, or one per item"


def test_references_alone_and_gzip(files, tmp_path):
    (tmp_path / "r.gz").write_bytes(gzip.compress(b"x\ny\n"))
    items = read_items(None, tmp_path / "r.gz")
    assert (items.sources, len(items), items.empty) == (None, 2, 0)
    assert list(items.pairs()) == [("", "x"), ("", "y")]


def test_a_pipe_is_read_once(files, tmp_path):
    """As in --reference <(cut -f 2 test.tsv), for which bash makes a pipe."""
    os.mkfifo(tmp_path / "pipe")
    text = "".join(f"{i}\n" for i in range(30_000))
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=[text])
    writer.start()
    found = read_texts(tmp_path / "pipe")
    writer.join()
    assert found == text.split()


def test_mistakes_name_the_file(files, tmp_path):
    source, one, empty, binary, zero = files(
        source="a\nb\n", one="x", empty=b"", binary=bytes(range(128, 256)), zero=b"a\nb\0c\n"
    )
    for wrong, said in (
        (lambda: read_items(source, one), f"{source} has 2 lines and {one} has 1; {AS_MANY}"),
        (lambda: read_items(one, source), f"{one} has 1 line and {source} has 2; {AS_MANY}"),
        (lambda: read_items(source, empty), f"{empty}: empty, expected one sentence per line"),
        (lambda: read_texts(binary), f"{binary}, line 1: byte 1 (0x80) is not UTF-8; convert the file to UTF-8"),
        (lambda: read_texts(zero), f"{zero}, line 2: byte 2 is NUL, as in binary files; expected UTF-8 text"),
        (lambda: read_texts(tmp_path), f"{tmp_path}: a folder given, expected a file"),
        (lambda: read_texts(tmp_path / "no"), f"{tmp_path / 'no'}: no such file"),
        (
            lambda: read_items(source, source, alternatives=True),
            f"{source}: none of its 2 lines occurs twice, so there are no alternatives",
        ),
    ):
        with pytest.raises(DataError) as error:
            wrong()
        assert str(error.value) == said


def test_everything_in_the_order_asked_for():
    found = evaluate(ITEMS, OUTPUTS, ["perplexity", "exact", "bleu", "lengths"], tokens=[[-1.0, -2.0], [-3.0]])
    assert list(found.scores) == ["perplexity", "exact", "bleu"]
    assert found.scores["perplexity"].value == pytest.approx(math.exp(2))
    assert found.scores["perplexity"].signature == "tokens:3"
    assert found.scores["exact"].value == 1 / 3
    assert found.scores["bleu"].value == found.lengths.value == bleu(OUTPUTS, REFERENCES)
    assert found.counted() == "3 sentences, 1 of them with an empty source"
    table = json.loads(json.dumps(found.table(), allow_nan=False))
    assert table["scores"]["bleu"]["value"] == bleu(OUTPUTS, REFERENCES)
    assert sum(bucket["sentences"] for bucket in table["lengths"]["buckets"]) == 3


def test_only_lengths_and_only_perplexity():
    assert evaluate(ITEMS, OUTPUTS, ["lengths"]).scores == {}
    found = evaluate(ITEMS, None, ["perplexity"], tokens=[[-5000.0]], tokenizer="bpe[9]")
    assert str(found.scores["perplexity"]) == "inf"
    assert found.table()["scores"]["perplexity"]["value"] is None
    assert found.scores["perplexity"].signature == "tok:bpe[9]|tokens:1"
    assert math.isnan(perplexity([]).value)


def test_what_is_missing():
    with pytest.raises(ArgumentError, match="outputs: 2 given, expected one for each of 3 items"):
        evaluate(ITEMS, OUTPUTS[:2], ["bleu"])
    with pytest.raises(ArgumentError, match="outputs: none given, expected them for bleu, ter"):
        evaluate(ITEMS, None, ["bleu", "ter"])
    with pytest.raises(ArgumentError, match="lengths: no sources given"):
        evaluate(Items(Path("r"), None, ITEMS.references, [0, 1, 2]), OUTPUTS, ["lengths"])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.sampled_from([None, 1, 7, 10]))
def test_each_sentence_is_in_one_bucket(sizes, width):
    sources = [" ".join(["w"] * size) for size in sizes]
    lengths, unit = measure_lengths(sources)
    found = score_by_length(measure_exact(sources, sources), sources, width=width, resamples=2)
    assert found.unit == unit
    for bucket in found.buckets:
        inside = [size for size in lengths if bucket.first <= size and (bucket.last is None or size <= bucket.last)]
        assert len(inside) == bucket.sentences > 0
        assert (bucket.interval is None) == (bucket.sentences < FEW)
    assert sum(bucket.sentences for bucket in found.buckets) == len(sizes)
    firsts = [bucket.first for bucket in found.buckets]
    assert firsts == sorted(set(firsts))
    assert all(bucket.last is not None for bucket in found.buckets[:-1])


def test_a_buckets_score_is_that_of_its_sentences():
    draw = random.Random(0)
    sources = [" ".join(draw.choices("abcdefgh", k=draw.randint(1, 39))) for _ in range(200)]
    outputs = [" ".join(w if draw.random() < 0.8 else "x" for w in text.split()) for text in sources]
    found = score_by_length(measure_bleu(outputs, sources), sources, width=10)
    assert [bucket.name for bucket in found.buckets] == ["1–9", "10–19", "20–29", "30–39"]
    for bucket in found.buckets:
        chosen = [i for i, text in enumerate(sources) if len(text.split()) // 10 == bucket.first // 10]
        some = [outputs[i] for i in chosen], [[sources[i] for i in chosen]]
        assert bucket.value == pytest.approx(sacrebleu.BLEU(force=True).corpus_score(*some).score)
        low, high = bucket.interval
        assert low < bucket.value < high
    assert found.value == sacrebleu.BLEU(force=True).corpus_score(outputs, [sources]).score


def names(sizes, width=None):
    sources = [" ".join(["w"] * size) for size in sizes]
    return [bucket.name for bucket in score_by_length(measure_exact(sources, sources), sources, width=width).buckets]


def test_names_and_widths():
    assert names([*range(1, 60)] * 3) == ["1–9", "10–19", "20–29", "30–39", "40–49", "50–59"]
    assert names([*range(1, 13)] * 9) == ["1", "2–3", "4–5", "6–7", "8–9", "10–11", "12–13"]
    assert names([*range(1, 30)] * 50 + [900]) == ["1–4", "5–9", "10–14", "15–19", "20–24", "25+"]
    assert names([0, 3, 25, 25], width=10) == ["0", "1–9", "20–29"]
    assert names([1, 2, 3]) == ["1", "2", "3"]


def test_without_spaces_characters_are_counted():
    assert measure_lengths(["今天下雨", "", "你好 "]) == ([4, 0, 2], "characters")
    assert measure_lengths(["今天 下雨", "你好"]) == ([2, 1], "words")
    assert measure_lengths([]) == ([], "characters")
