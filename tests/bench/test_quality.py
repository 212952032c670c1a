"""The script behind docs/results.md, on corpora of a few lines: data, test sets, scores, a run from end to end."""

import gzip
import json
from pathlib import Path

import pytest

from regard.config import assign, read
from regard.tasks import read_settings
from regard_bench import quality

ROOT = Path(__file__).parents[2]

FILES = {
    "multi30k/test_2016_flickr.en.gz": "A dog.\nA dog.\nTwo cats.\n",
    "multi30k/test_2016_flickr.de.gz": "Ein Hund schläft im Gras.\nDer Hund.\nZwei Katzen.\n",
    "cmudict/train.tsv.gz": "A T\tAE T\nT O\tT UW\n",
    "cmudict/dev.tsv.gz": "A T\tAH T\nN O\tN OW\n",
    "cmudict/test.tsv.gz": "R E A D\tR IY D\nG O\tG OW\nR E A D\tR EH D\n",
    "inflection/deu.test.tsv.gz": "abblitzen\tblitzt ab\tV;IND;SG;3;PRS\nzu Haus\tzu Haus\tN;SG\n",
    "scan/simple.train.txt.gz": "IN: walk OUT: I_WALK\nIN: walk twice OUT: I_WALK I_WALK\n" * 8,
    "scan/simple.test.txt.gz": "IN: run twice OUT: I_RUN I_RUN\nIN: walk OUT: I_WALK\n",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Return a folder of prepared corpora."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(gzip.compress(text.encode()))
    quality.prepare(folder, folder / "data")
    return folder / "data"


def test_what_is_prepared(data):
    assert (data / "inflection" / "test.tsv").read_text() == (
        "a b b l i t z e n <V> <IND> <SG> <3> <PRS>\tb l i t z t _ a b\nz u _ H a u s <N> <SG>\tz u _ H a u s\n"
    )
    assert (data / "scan" / "simple.test.tsv").read_text() == "run twice\tI_RUN I_RUN\nwalk\tI_WALK\n"
    assert (data / "cmudict" / "dev.tsv").read_text() == "N O\tN OW\n"  # `A T` is in the training set
    assert gzip.decompress((data / "cmudict" / "train.tsv.gz").read_bytes()).decode() == FILES["cmudict/train.tsv.gz"]


def test_a_word_is_one_item_and_a_sentence_stays_a_line(data):
    sources, right = quality.test_set(quality.LINES["cmudict"], data)
    assert (sources, right) == (["R E A D", "G O"], [["R IY D", "R EH D"], ["G OW"]])
    sources, right = quality.test_set(quality.LINES["multi30k"], data)
    assert (sources, right) == (
        ["A dog.", "A dog.", "Two cats."],
        [["Ein Hund schläft im Gras."], ["Der Hund."], ["Zwei Katzen."]],
    )


def test_scores_by_hand(data):
    line = quality.LINES["cmudict"]
    right = quality.test_set(line, data)[1]
    values, signature = quality.scores(line, ["R EH D", "K OW OW"], right)
    assert values == {"PER": pytest.approx(100 * 2 / 5), "WER": 50.0}
    assert "nrefs:var" in signature
    line = quality.LINES["multi30k"]
    values, signature = quality.scores(
        line, ["ein hund schläft im gras.", "DER HUND.", "zwei Katzen."], quality.test_set(line, data)[1]
    )
    assert values == {"BLEU": pytest.approx(100.0)}
    assert "case:lc" in signature


@pytest.mark.parametrize("name", quality.LINES)
def test_commands_are_right(name):
    words = quality.command(name, 3, Path("runs/x"), 8.5)
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    found = read_settings(assign(read(ROOT / words[2]), settings))
    assert (found.training.seed, found.training.minutes) == (3, 8.5)
    files = [*found.data.corpora, *found.data.valid]
    assert all(file.startswith("data/") for each in files for file in each.files)


def test_from_a_run_to_the_page(data, tmp_path, monkeypatch):
    from regard.tasks import start

    monkeypatch.chdir(data.parent)
    training = {"steps": 2, "batch_tokens": 64, "warmup": 1, "device": "cpu", "metric": "loss", "validate_rows": 0}
    table = {
        "data": {
            "corpora": [{"file": "data/scan/simple.train.tsv"}],
            "held_out": 0.0,
            "cache": str(tmp_path / "cache"),
        },
        "tokenizer": {"kind": "word", "joint": False},
        "model": {"kind": "luong", "size": 4, "embedding": 4, "layers": 1},
        "training": training,
    }
    for seed in (1, 2):
        start({**table, "training": {**training, "seed": seed}}, tmp_path / f"scan-{seed}")
    quality.evaluate([tmp_path / "scan-1", tmp_path / "cache"], Path("data"), tmp_path / "quality-here.json")
    quality.evaluate([tmp_path / "scan-2"], Path("data"), tmp_path / "quality-here.json")  # beside the existing results
    runs = json.loads((tmp_path / "quality-here.json").read_text())["runs"]
    assert [(run["name"], run["seed"], run["steps"]) for run in runs] == [("scan", 1, 2), ("scan", 2, 2)]
    assert str(tmp_path) not in (tmp_path / "quality-here.json").read_text()  # no paths of the machine

    page = tmp_path / "results.md"
    page.write_text("Above.\n\n<!-- table -->\n\nold\n\n<!-- end -->\n\n<!-- commands -->\n\n<!-- end -->\n")
    quality.table(tmp_path, page)
    once = page.read_text()
    quality.table(tmp_path, page)
    assert page.read_text() == once
    assert "old" not in once
    (row,) = [line for line in once.splitlines() if line.startswith("| SCAN simple")]
    assert row.startswith(
        "| SCAN simple | `luong` | exact | 0.00 ± 0.00 | ≥ 99.8 | 99.8 (LSTM, Lake and Baroni 2018) |"
    )
    assert "regard train configs/scan.toml --set training.seed=1 --out runs/quality/scan-1" in once


def test_the_page_is_what_the_results_say(tmp_path):
    page = tmp_path / "results.md"
    page.write_text(quality.PAGE.read_text())
    quality.table(quality.RESULTS, page)
    assert page.read_text() == quality.PAGE.read_text()
