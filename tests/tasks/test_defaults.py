"""What is chosen from a corpus, and that nothing is changed that a person has set."""

import dataclasses

import numpy as np
import pytest
from tiny import table

from regard.data import prepare
from regard.tasks.defaults import (
    Corpus,
    chosen_words,
    data_defaults,
    mirrored,
    model_defaults,
    picture_defaults,
    training_defaults,
)
from regard.tasks.settings import read_settings

BATCHES = [(4096, 1), (8192, 1), (4096, 2)]  # tokens, processes
BARE = {"data": {"source": "a", "target": "b"}}


def corpus(source, target, count):
    return np.full((count, 2), (source, target))


def model(given, tokens, examples=30_000, device="cuda", spelled=False):
    return model_defaults(read_settings(given), Corpus(examples, tokens, spelled), device)


def steps(given, *of, **more):
    return training_defaults(read_settings(given), *of, **more).training.steps


def test_what_is_left_open_is_chosen_and_what_is_said_is_kept(tmp_path):
    given = table(tmp_path)
    prepared = prepare(read_settings(given).data, read_settings(given).tokenizer)
    bare = {"data": given["data"]}
    found = Corpus.of(prepared)
    assert found.examples == len(prepared.train)
    assert found.tokens == sum(len(prepared.train.pair(i)[1]) + 1 for i in range(len(prepared.train)))

    def chosen(given):
        with_model = model_defaults(read_settings(given), found, "cpu")
        return training_defaults(with_model, prepared.train.lengths, 4096, 1)

    plain = chosen(bare)
    assert (plain.model.size, plain.model.positions, plain.training.schedule) == (128, "rotary", "cosine")
    assert (plain.training.steps, plain.training.warmup, plain.training.ema) == (1000, 100, 0.999)
    assert "transformer, width 128, 2 layers" in chosen_words(plain)
    one = chosen({**bare, "model": {"layers": 1}})
    assert "1 layer, dropout" in chosen_words(one)
    kept = chosen({**bare, "model": {"size": 32}, "training": {"steps": 77, "warmup": 3, "ema": 0.9}})
    assert (kept.model.size, kept.model.layers, kept.model.positions) == (32, 2, "rotary")  # the rest is chosen
    assert (kept.training.steps, kept.training.warmup, kept.training.ema) == (77, 3, 0.9)
    assert chosen({**bare, "training": {"steps": 1}}).training.warmup == 1


@pytest.mark.parametrize(
    ("tokens", "examples", "device", "size"),
    [
        (20_000, 2_500, "cuda", 128),
        (430_000, 29_000, "cuda", 256),
        (430_000, 29_000, "cpu", 256),
        (100_000, 12_900, "cpu", 128),
        (300_000, 1_500, "cpu", 128),
        (6_000_000, 200_000, "cuda", 512),
        (6_000_000, 200_000, "cpu", 256),
    ],
)
def test_larger_corpora_get_larger_models(tokens, examples, device, size):
    assert model(BARE, tokens, examples, device).model.size == size


def test_long_lines_get_positions_that_source_and_target_share():
    assert model(BARE, 300_000, 1_500).model.positions == "sinusoidal"
    assert model(BARE, 300_000, 15_000).model.positions == "rotary"


def test_symbols_get_less_dropout():
    assert model(BARE, 400_000).model.dropout == 0.3
    assert model(BARE, 400_000, spelled=True).model.dropout == 0.1


def test_every_kind_of_text_takes_its_defaults():
    for kind in ("rnn", "rnnsearch", "luong", "lstmn", "pointer", "ntm", "transformer"):
        given = {**BARE, "model": {"kind": kind}}
        for tokens in (1_000, 400_000):
            chosen = model(given, tokens)
            assert chosen.kind == kind
            assert read_settings(chosen.table()) == chosen
    for data in ({"documents": "a.tsv"}, {"images": "a", "captions": "b"}, {"images": "a", "labels": "b"}):
        for device in ("cpu", "cuda"):
            chosen = model({"data": data}, 1_000, 20_000, device)
            assert read_settings(chosen.table()) == chosen


def test_as_many_passes_whatever_the_batch():
    many = corpus(10, 10, 100_000)
    chosen = [steps(BARE, many, *of) for of in BATCHES]
    assert abs(chosen[0] / chosen[1] - 2) < 0.2
    assert chosen[1] == chosen[2]
    assert steps(BARE, many, 4096, 1, device="cuda") == pytest.approx(2 * chosen[0], rel=0.01)


def test_pictures_are_counted_and_documents_by_what_is_read():
    pictures = {"data": {"images": "a", "captions": "b"}}
    assert steps(pictures, corpus(1, 50, 12_800), 65_536, 1) == 40 * 12_800 // 64
    few = {**pictures, "training": {"batch_rows": 128}}
    assert steps(few, corpus(1, 50, 12_800), 65_536, 1) == 40 * 12_800 // 128
    documents = {"data": {"documents": "a.tsv"}}
    assert abs(steps(documents, corpus(250, 1, 20_000), 8_192, 1) - 8 * 250 * 20_000 / 8_192) < 100


def test_a_run_to_begin_with_is_changed_gently():
    for base, rate in ((False, 1e-3), (True, 3e-4)):
        chosen = training_defaults(read_settings(BARE), corpus(10, 10, 5_000), 4096, 1, base=base)
        assert chosen.training.rate == rate
    for adapter, rate in ((0, 3e-4), (16, 1e-3)):  # with adapters the weights stay as they are
        wide = read_settings({**BARE, "model": {"kind": "transformer", "size": 512, "adapter": adapter}})
        assert training_defaults(wide, corpus(10, 10, 5_000), 4096, 1, base=True).training.rate == rate


def test_data_is_left_to_the_corpus_and_what_is_said_of_it_kept():
    def chosen(given):
        return data_defaults(read_settings(given)).overrides

    found = chosen(BARE)
    assert found["data"] == {**BARE["data"], "held_out": "auto", "longest": 1000}
    assert found["tokenizer"] == {"kind": "auto", "joint": "auto"}
    said = {"data": {**BARE["data"], "held_out": 0.2, "longest": 50}, "tokenizer": {"kind": "unigram"}}
    assert chosen(said) == {**said, "tokenizer": {"kind": "unigram", "joint": "auto"}}
    assert "joint" not in chosen({**BARE, "model": {"kind": "pointer"}})["tokenizer"]
    assert chosen({**BARE, "tokenizer": {"file": "t.json"}})["tokenizer"] == {"file": "t.json"}
    assert chosen({"data": {"documents": "a.tsv"}})["data"]["held_out"] == "auto"
    assert chosen({"data": {"builtin": "reviews"}})["data"]["held_out"] == 0.05
    assert chosen({"data": {"documents": "a.tsv", "held_out": 0.2}})["data"]["held_out"] == 0.2


def test_pictures_are_mirrored_unless_captions_name_a_side():
    plain, sided = ["a dog runs over the grass"] * 9, ["the ball is left of the box"]
    assert mirrored(plain)
    assert not mirrored([*plain, *sided])
    assert not mirrored([*plain, "der Ball liegt rechts"])
    assert mirrored([*plain, "a man is leftover from the bright party"])
    given = {"data": {"images": "a", "captions": "b"}}
    assert picture_defaults(read_settings(given), [plain]).data.flip is True
    assert picture_defaults(read_settings(given), [plain, sided]).data.flip is False
    kept = read_settings({"data": {**given["data"], "flip": False}})
    assert picture_defaults(kept, [plain]) == kept
    assert picture_defaults(read_settings(given), []) == read_settings(
        given
    )  # labels: a mirrored letter is another one


def test_every_choice_is_a_key_that_there_is():
    settings = data_defaults(read_settings(BARE))
    chosen = training_defaults(settings, corpus(10, 10, 5_000), 4096, 1).overrides["training"]
    names = {field.name for field in dataclasses.fields(read_settings(BARE).training)}
    assert set(chosen) <= names
