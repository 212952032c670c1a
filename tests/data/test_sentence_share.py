"""Whether a run was trained on single sentences: what is counted, and what is kept of it."""

import json

import pytest
import torch
from tiny import table

from regard import load
from regard.data.sentence_share import FILE, SAMPLE, SentenceCounter, SentenceShare, describe_several
from regard.interop import open_engine, pack
from regard.tasks import start


@pytest.mark.parametrize(
    ("share", "single"),
    [
        (SentenceShare(), True),
        (SentenceShare(100, 5), True),
        (SentenceShare(100, 6), False),
        (SentenceShare(10_000, 500), True),
        (SentenceShare(10_000, 501), False),
    ],
)
def test_more_than_five_in_a_hundred_are_many(share, single):
    assert share.single is single


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"sources": 5, "several": 4}',
        json.dumps({"format": "regard sentences 1", "sources": 5, "several": 6}),
        json.dumps({"format": "regard sentences 1", "sources": -5, "several": -6}),
        json.dumps({"format": "regard sentences 1", "sources": True, "several": 0}),
        json.dumps({"format": "regard sentences 1", "sources": "5", "several": 4}),
        "\0" * 20_000,
    ],
)
def test_a_file_that_is_none_counts_for_nothing(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert SentenceShare.read(tmp_path) == SentenceShare()
    assert SentenceShare.read(tmp_path / "none") == SentenceShare()


def test_what_is_written_is_read(tmp_path):
    (tmp_path / FILE).write_text(SentenceShare(100, 7).dumps())
    assert SentenceShare.read(tmp_path) == SentenceShare(100, 7)


def train(home, lines, several):
    """Train a tiny run on lines of digits, some of them in two sentences."""
    given, threads = table(home, training__steps=1), torch.get_num_threads()
    sources = [f"{i % 7} {i % 5} . {i % 9} 1 ." if i < several else f"{i % 7} {i % 5} {i} ." for i in range(lines)]
    (home / "two.source").write_text("".join(f"{line}\n" for line in sources))
    (home / "two.target").write_text("".join(f"{line}\n" for line in sources))
    data = {**given["data"], "source": str(home / "two.source"), "target": str(home / "two.target"), "held_out": 0.1}
    start({**given, "data": data}, home / "run", anyway=True)  # a side given twice
    torch.set_num_threads(threads)
    return home / "run"


def test_training_counts_its_sources_and_everything_that_is_made_of_the_run_keeps_that(tmp_path):
    run = train(tmp_path, 300, 120)
    share = SentenceShare.read(run)
    assert 240 < share.sources < 300  # without those that are held out
    assert 0.3 < share.several / share.sources < 0.5
    assert load(run).sentence_share == load(run, run).sentence_share == share
    assert load(pack(run, tmp_path / "run.regard")).sentence_share == share
    pytest.importorskip("ctranslate2")
    assert open_engine(run).sentence_share == share


def test_a_large_corpus_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.sentence_share.SAMPLE", 50)
    share = SentenceShare.read(train(tmp_path, 300, 100))
    assert SAMPLE == 10_000
    assert 40 <= share.sources <= 50
    assert 0.2 < share.several / share.sources < 0.45


def test_texts_are_counted_on_their_way():
    counter = SentenceCounter(["<2de>"])
    texts = ["A dog. A cat.", "A dog.", "", "<2de> a dog. a cat."]
    assert list(counter.watch(texts)) == texts
    assert (counter.texts, counter.several) == (4, 2)
    expected = "lines with several sentences: 2 of 4; trained on single ones, the model may leave some out; look"
    assert describe_several(counter, "lines", "look") == expected
