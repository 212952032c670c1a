"""The files that a run was trained on: one that has changed is named, and the share of earlier pairs is what was asked
for; they come from the run that is fine-tuned.
"""

import json

import numpy as np
import pytest
import torch
from tiny import document_table, table

from regard.config import read
from regard.data import CorpusSettings, DataSettings, Order, TokenizerSettings, prepare
from regard.errors import CheckpointError, ConfigError, DataError
from regard.run import load
from regard.tasks.run_start import SOURCES, changed_files, choose_earlier, record_sources, start
from regard.tasks.settings import read_settings

WORDS = TokenizerSettings(kind="word")


@pytest.mark.parametrize("known", [True, False])
def test_data_that_changed_are_named(tmp_path, known):
    """The file, whether the run has hashes of its files or, as one of an earlier version, none."""
    given = table(tmp_path, training__steps=1)
    start(given, tmp_path / "run")
    if not known:
        (tmp_path / "run/sources.json").unlink()
    target = tmp_path / "pairs/target.txt"
    before = target.read_text()
    target.write_text("1 2 3\n" + before.partition("\n")[2])
    with pytest.raises(
        CheckpointError, match=r"^\S+pairs/target\.txt: has changed since \S+run was trained; put the old one back"
    ):
        start({**given, "training": {**given["training"], "steps": 2}}, tmp_path / "run", resume=True)
    target.write_text(before)
    assert (
        start({**given, "training": {**given["training"], "steps": 2}}, tmp_path / "run", resume=True).result.step == 2
    )


def test_every_file_of_the_data_is_known(tmp_path):
    start(document_table(tmp_path), tmp_path / "run")
    assert [*json.loads((tmp_path / "run" / SOURCES).read_text())] == [
        read(tmp_path / "run/config.toml")["data"]["documents"]
    ]
    for name in ("a.tsv", "b.src", "b.trg", "c.tsv"):
        (tmp_path / name).write_text("x\ty\n")
    data = read_settings(
        {
            "data": {
                "corpora": [
                    {"file": str(tmp_path / "a.tsv")},
                    {"source": str(tmp_path / "b.src"), "target": str(tmp_path / "b.trg")},
                ],
                "valid": [{"file": str(tmp_path / "c.tsv")}],
            }
        }
    ).data
    run = tmp_path / "run"
    record_sources(run, data)
    assert changed_files(run, data, run) == []
    for name in ("b.trg", "c.tsv"):
        (tmp_path / name).write_text("x\tz\n")
    assert changed_files(run, data, run) == [str(tmp_path / "b.trg"), str(tmp_path / "c.tsv")]
    (run / SOURCES).write_text("{")  # damaged: as if there were none, and nothing is claimed of what cannot be read
    assert changed_files(run, data, tmp_path / "none") == []


def write(folder, name, count):
    """Write pairs whose words begin with the corpus' name; every line is another."""
    lines = [" ".join(f"{name}{(7 * i + j) % 13}" for j in range(1 + i % 5)) + f" {name}{i}" for i in range(count)]
    paths = [folder / f"{name}.{side}" for side in ("src", "tgt")]
    for path in paths:
        path.write_text("".join(f"{line}\n" for line in lines))
    return {"source": str(paths[0]), "target": str(paths[1])}


@pytest.mark.parametrize("share", [0.05, 0.25, 0.8])
def test_an_epoch_has_the_share(tmp_path, share):
    new, old = write(tmp_path, "new", 300), write(tmp_path, "old", 2000)
    other = write(tmp_path, "other", 500)
    earlier = (CorpusSettings(**old), CorpusSettings(**other, weight=2.0))
    data = DataSettings(**new, rehearsal=share, earlier=earlier, held_out=0.1, cache=str(tmp_path / "cache"))
    prepared = prepare(data, WORDS)
    first_old = prepared.train.starts[1]
    order = Order(prepared.train.lengths, 200, starts=prepared.train.starts, weights=prepared.weights, window=10_000)
    drawn = np.concatenate([batch for number in range(8) for batch in order.epoch(number)])
    assert (drawn < first_old).sum() == 8 * first_old  # each new pair once an epoch
    assert (drawn >= first_old).mean() == pytest.approx(share, abs=0.02)
    assert prepared.counts["valid"] == 30
    assert prepared.weights[2] == pytest.approx(2 * prepared.weights[1])
    assert prepared.counts["earlier"] == 2500


def test_nothing_earlier_is_held_out_and_nothing_held_out_is_rehearsed(tmp_path):
    new = write(tmp_path, "new", 200)
    old = write(tmp_path, "old", 50)
    for side in ("source", "target"):  # the earlier corpus has every new pair, too
        with open(old[side], "a") as file, open(new[side]) as more:
            file.write(more.read())
    data = DataSettings(**new, rehearsal=0.5, earlier=(CorpusSettings(**old),), held_out=0.1, cache=str(tmp_path / "c"))
    prepared = prepare(data, TokenizerSettings(kind="character"))
    held_out = {source for source, _ in prepared.valid_pairs}
    texts = prepared.tokenizers.source.decode_batch(
        [prepared.train.pair(i)[0].tolist() for i in range(len(prepared.train))]
    )
    assert len(held_out) == 20
    assert all(text.startswith("new") for text in held_out)
    assert not held_out & set(texts)
    assert sum(text.startswith("old") for text in texts) == 50


def test_the_share_alone_needs_no_new_cache_and_no_share_reads_nothing(tmp_path):
    new, old = write(tmp_path, "new", 40), write(tmp_path, "old", 40)
    common = {**new, "earlier": (CorpusSettings(**old),), "cache": str(tmp_path / "cache")}
    assert (
        prepare(DataSettings(rehearsal=0.2, **common), WORDS).hash
        == prepare(DataSettings(rehearsal=0.3, **common), WORDS).hash
    )
    without = prepare(DataSettings(**common), WORDS)
    assert without.hash == prepare(DataSettings(**new, cache=str(tmp_path / "cache")), WORDS).hash
    assert without.weights == (1.0,)


def test_earlier_corpora_are_those_of_the_base_run(tmp_path):
    base = table(tmp_path, training__steps=2)
    start(base, tmp_path / "base")
    new = write(tmp_path, "new", 60)
    tuned = table(tmp_path, training__steps=4, training__validate_every=2, data__rehearsal=0.25)
    tuned["data"] = {**tuned["data"], **new}
    start(tuned, tmp_path / "tuned", base=tmp_path / "base", anyway=True)  # each target is its source
    data = load(tmp_path / "tuned").settings.data
    assert data.earlier == (CorpusSettings(base["data"]["source"], base["data"]["target"]),)
    # A resumed run sees the same pairs, and one that starts from it rehearses both corpora.
    tuned["training"]["steps"] = 2
    start(tuned, tmp_path / "halves", base=tmp_path / "base", anyway=True)
    resumed = read_config(tmp_path / "halves", steps=4, cache=base["data"]["cache"])
    start(resumed, tmp_path / "halves", resume=True)
    one, other = (load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("tuned", "halves"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    again = choose_earlier(read_settings({"data": {**new, "rehearsal": 0.1}}), tmp_path / "tuned")
    assert [corpus.source for corpus in again.data.earlier] == [new["source"], base["data"]["source"]]


def read_config(run, *, steps, cache):
    from regard.config import read

    config = read(run / "config.toml")
    return {**config, "training": {**config["training"], "steps": steps}, "data": {**config["data"], "cache": cache}}


def test_mistakes(tmp_path):
    new = write(tmp_path, "new", 10)
    with pytest.raises(ConfigError, match=r"^data\.rehearsal: 0\.2 given, but nothing to rehearse; start from a run"):
        choose_earlier(read_settings({"data": {**new, "rehearsal": 0.2}}), None)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.toml").write_text('[data]\nbuiltin = "reverse"\n')
    with pytest.raises(ConfigError, match="trained on the built-in corpus reverse; write it into files"):
        choose_earlier(read_settings({"data": {**new, "rehearsal": 0.2}}), tmp_path / "base")
    (tmp_path / "base" / "config.toml").write_text('task = "translate"\n')
    with pytest.raises(ConfigError, match=r"names no training pairs; set data\.earlier"):
        choose_earlier(read_settings({"data": {**new, "rehearsal": 0.2}}), tmp_path / "base")
    with pytest.raises(ConfigError, match="with data that is documents, expected pairs of texts"):
        choose_earlier(read_settings({"data": {"documents": "a.tsv", "rehearsal": 0.2}}), tmp_path / "base")
    for side in ("src", "tgt"):
        (tmp_path / f"blank.{side}").write_text("\n\n")
    blank = CorpusSettings(str(tmp_path / "blank.src"), str(tmp_path / "blank.tgt"))
    data = DataSettings(**new, rehearsal=0.5, earlier=(blank,), cache=str(tmp_path / "c"))
    with pytest.raises(DataError, match="no pair is left to rehearse:"):
        prepare(data, WORDS)
