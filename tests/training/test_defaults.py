"""What is chosen from the size of a corpus."""

import numpy as np
from tiny import table

from regard.data.prepare import prepare
from regard.training.defaults import data_defaults, model_defaults, training_defaults
from regard.training.settings import read_settings

BATCHES = [(4096, 1), (8192, 1), (4096, 2)]  # tokens, processes


def corpus(source, target, count):
    return np.full((count, 2), (source, target))


def defaults(given, prepared, device, batch=4096):
    chosen = model_defaults(given, len(prepared.train), device)
    return training_defaults(chosen, read_settings(chosen), prepared.train.lengths, batch, 1)


def test_what_is_left_open_is_chosen_and_what_is_said_is_kept(tmp_path):
    given = table(tmp_path)
    prepared = prepare(read_settings(given).data, read_settings(given).tokenizer)
    bare = {"data": given["data"]}
    chosen = read_settings(defaults(bare, prepared, "cpu"))
    assert chosen.model == read_settings({"model": {"preset": "tiny", "dropout": 0.3}}).model
    assert chosen.training.steps == 1000
    assert chosen.training.warmup == 100
    kept = read_settings(
        defaults({**bare, "model": {"size": 32}, "training": {"steps": 77, "warmup": 3}}, prepared, "cpu")
    )
    assert (kept.model.size, kept.training.steps, kept.training.warmup) == (32, 77, 3)
    tiny_run = read_settings(defaults({**bare, "training": {"steps": 1}}, prepared, "cpu"))
    assert tiny_run.training.warmup == 1
    assert model_defaults(bare, 29_000, "cuda")["model"] == {"preset": "small", "dropout": 0.3}
    assert model_defaults(bare, 200_000, "cuda")["model"] == {"preset": "base", "dropout": 0.1}
    many = corpus(10, 10, 100_000)
    chosen = [training_defaults(bare, read_settings(bare), many, *of)["training"]["steps"] for of in BATCHES]
    assert abs(chosen[0] / chosen[1] - 2) < 0.2  # as many passes over the corpus, whatever the batch
    assert chosen[1] == chosen[2]
    for kind in ("rnn", "rnnsearch", "luong"):
        assert read_settings(defaults({**bare, "model": {"kind": kind}}, prepared, "cpu")).kind == kind


def test_pictures_are_counted_and_documents_by_what_is_read():
    pictures = {"data": {"images": "a", "captions": "b"}}
    found = training_defaults(pictures, read_settings(pictures), corpus(1, 50, 12_800), 65_536, 1)
    assert found["training"]["steps"] == 40 * 12_800 // 64
    few = {**pictures, "training": {"batch_rows": 128}}
    found = training_defaults(few, read_settings(few), corpus(1, 50, 12_800), 65_536, 1)
    assert found["training"]["steps"] == 40 * 12_800 // 128
    documents = {"data": {"documents": "a.tsv"}}
    found = training_defaults(documents, read_settings(documents), corpus(250, 1, 20_000), 16_384, 1)
    assert abs(found["training"]["steps"] - 10 * 250 * 20_000 / 16_384) < 100


def test_more_is_held_out_of_what_is_labelled_or_described():
    assert data_defaults({"data": {"documents": "a.tsv"}})["data"]["held_out"] == 0.05
    assert data_defaults({"data": {"documents": "a.tsv", "held_out": 0.2}})["data"]["held_out"] == 0.2
    assert data_defaults({"data": {"source": "a", "target": "b"}})["data"] == {"source": "a", "target": "b"}
