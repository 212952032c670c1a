"""Tokens around a text in training and every action of a run: read, forced and scored, but part of no word."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import table

from regard import load
from regard.config import read
from regard.data import END, START, BpeDropout, Tokenizers, TokenizerSettings, prepare, train
from regard.data.alignments import Words
from regard.decoding import tokens_of
from regard.errors import ConfigError
from regard.inspection import exhibit_of
from regard.tasks.run_start import start
from regard.tasks.settings import base_table, read_settings

TEXTS = ["ein alter Mann", "der Hund sieht", "sie lacht laut und lange"] * 5
AROUND = {"before": ("<2de>",), "after": ("</s>",), "first": ("▁", "n")}


@pytest.fixture(scope="module")
def both() -> Tokenizers:
    return Tokenizers(train(TEXTS, "bpe", 320, tags=["<2de>"])).surround(**AROUND)


def test_pieces_stand_around_a_text_that_is_not_empty(both):
    pieces = both.source.pieces(both.source.encode("ein Hund"))
    assert (pieces[0], pieces[-1]) == ("<2de>", "</s>")
    assert both.source.encode_batch(["ein Hund", "", " "]) == [both.source.encode("ein Hund"), [], []]
    assert both.target.pieces(both.target.encode("ein"))[:2] == ["▁", "n"]
    assert both.target.encode_prefixes(["", "ein"]) == [both.target.encode("x")[:2], both.target.encode("ein")]
    assert both.joint
    assert both.hash == Tokenizers(both.source).hash  # the tokenizer itself is equal


def test_they_are_of_no_word(both):
    ids = both.source.encode("ein Hund")
    assert both.source.decode(ids) == "ein Hund"
    words = both.source.words(ids)
    assert (words[0], words[-1], max(word for word in words if word is not None)) == (None, None, 1)


@given(
    st.lists(
        st.lists(st.sampled_from(["ein", "alter", "Mann", "<2de>", "x", "▁"]), max_size=5).map(" ".join), max_size=5
    )
)
def test_words_of_many_rows_are_those_of_one(both, texts):
    rows = both.source.encode_batch(texts)
    cut = Words(both.source).cut(
        np.array([i for row in rows for i in row], np.int64), np.array([*map(len, rows)], np.int64)
    )
    starts, sizes = iter(cut.starts.tolist()), iter(cut.sizes.tolist())
    for row, count in zip(rows, cut.counts.tolist(), strict=True):
        words = both.source.words(row)
        assert count == len({word for word in words if word is not None})
        for word in range(count):
            start, size = next(starts), next(sizes)
            assert words[start : start + size] == [word] * size


def test_dropout_leaves_them(both):
    ids = both.source.encode("ein alter Mann"), both.target.encode("der Hund")
    source, target = BpeDropout(both, 1.0).pair(*ids, epoch=0, index=0)
    assert (source[0], source[-1], target[: len(both.target.before)]) == (ids[0][0], END, [*both.target.before])
    assert len(source) > len(ids[0])


def test_a_piece_that_is_not_there_is_named(both):
    for name in AROUND:
        with pytest.raises(ConfigError, match=f'tokenizer.{name}: "<nothing>" given, which is no piece'):
            both.surround(**{name: ("<nothing>",)})
    with pytest.raises(ConfigError, match="first: 17 pieces given, expected at most 16"):
        TokenizerSettings(first=("a",) * 17)
    with pytest.raises(ConfigError, match='tokenizer.after: given with task = "language-model"'):
        read_settings({"task": "language-model", "tokenizer": {"after": ["</s>"]}})


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """Train a run on two tagged corpora: sources end with </s>, and targets begin with a piece."""
    folder, threads = tmp_path_factory.mktemp("around"), torch.get_num_threads()
    (folder / "data").mkdir()
    settings = table(folder / "data", training__steps=3, training__validate_rows=2)
    settings["tokenizer"] = {**settings.get("tokenizer", {}), "after": ["</s>"], "first": ["7"]}
    settings["model"] |= {"tied": "all"}
    start(settings, folder / "run")
    torch.set_num_threads(threads)
    return folder


def test_training_reads_and_writes_them(desk):
    run = load(desk / "run")
    settings = run.settings
    prepared = prepare(settings.data, settings.tokenizer, tokenizers=Tokenizers.load(desk / "run" / "tokenizer.json"))
    source, target = (side.tolist() for side in prepared.train.pair(0))
    assert source[-1] == END
    assert run.tokenizers.target.pieces(target)[0] == "7"
    plain = prepare(settings.data, TokenizerSettings(), tokenizers=Tokenizers.load(desk / "run" / "tokenizer.json"))
    assert plain.hash != prepared.hash  # the caches differ
    assert plain.train.pair(0)[1].tolist() == target[1:]


@torch.no_grad()
def test_a_run_forces_scores_and_strips_them(desk):
    run = load(desk / "run")
    first = run.tokenizers.target.before
    for beam in (1, 3):
        (translations,) = run.stream(["1 2 3"], beam=beam, nbest=beam, longest=6)
        for each in translations:
            ids = [*first, *(run.tokenizers.target.library.token_to_id(piece) for piece in each.tokens)]
            hidden, _ = run.model.decode(
                run.model.encode(tokens(run.tokenizers.source.encode("1 2 3"))), tokens([START, *ids])
            )
            likely = run.model.output(hidden)[0].log_softmax(-1)
            total = sum(float(row[i]) for row, i in zip(likely, [*ids, END], strict=True))
            assert each.log_prob == pytest.approx(total, abs=1e-4)  # including the forced tokens, as in training
    scored = run.score(["1 2 3"], ["3 2 1"])[0]
    assert len(scored.tokens) == len(run.tokenizers.target.encode("3 2 1")) + 1
    assert len(run.score(["1 2 3"], [""])[0].tokens) == len(first) + 1
    assert run.translate([""]) == [""]


def tokens(ids):
    return tokens_of([ids])


def test_alignments_and_pages_leave_them_out(desk):
    run = load(desk / "run")
    aligned = run.align("1 2 3", "3 2")
    assert (aligned.source, aligned.target, tuple(aligned.weights.shape)) == (["1", "2", "3"], ["3", "2"], (2, 3))
    (links,) = run.links([("1 2 3", "3 2")])
    assert all(source < 3 and target < 2 for source, target in links)
    exhibit = exhibit_of(run, "1 2 3", target="3 2")
    assert exhibit.sides["source"].texts == ("1", "2", "3")
    assert exhibit.sides["source"].pieces[-1] == "</s>"


def test_prefixes_come_behind_them(desk):
    run = load(desk / "run")
    (translations,) = run.stream(["1 2 3"], prefixes=["9 9"], longest=6)
    assert translations[0].text.startswith("9 9")


def test_another_run_may_begin_with_other_pieces(desk):
    base = read(desk / "run" / "config.toml")
    merged = base_table(base, {"tokenizer": {"first": ["8"]}}, "run")
    assert (merged["tokenizer"]["first"], merged["tokenizer"]["after"]) == (["8"], ["</s>"])
    with pytest.raises(ConfigError, match="tokenizer: given, but the run run has another"):
        base_table(base, {"tokenizer": {"kind": "unigram", "first": ["8"]}}, "run")


def test_a_service_forces_and_strips_them(desk):
    pytest.importorskip("fastapi")
    from serving.served import serve

    (expected,) = load(desk / "run").stream(["1 2 3"], longest=6)
    with serve(str(desk / "run")) as served:
        table = {"texts": ["1 2 3"], "longest": 6, "scores": True, "alignment": True}
        (result,) = served.results("/v1/translate", table)
        (begun,) = served.results("/v1/translate", {**table, "prefixes": ["9 9"]})
    assert result["text"] == expected[0].text
    assert len(result["outputs"][0]["scores"]) == len(expected[0].tokens)
    assert begun["text"].startswith("9 9")
