"""Settings of data: impossible combinations are refused with the wrong key, before torch is imported."""

import subprocess
import sys

import pytest

from regard.config import parse
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings, cache_folder
from regard.errors import ConfigError

REFUSED_DATA = [
    ({"source": "a"}, "data.target: missing, as source is given"),
    ({"valid_target": "a"}, "data.valid_source: missing, as valid_target is given"),
    ({"source": "a", "target": "b", "builtin": "copy"}, "data.builtin: given together with source"),
    ({"corpora": [{"file": "a.tsv"}], "builtin": "copy"}, "data.builtin: given together with corpora"),
    ({"valid_source": "a", "valid_target": "b", "valid": [{"file": "a.tsv"}]}, "data.valid: given together with"),
    ({"corpora": [{"file": "a.tsv"}, {"source": "a"}]}, r"data.corpora\[1\].target: missing"),
    ({"corpora": [{}]}, r"data.corpora\[0\].source: missing; give source and target, or file"),
    ({"corpora": [{"file": "a.txt"}]}, r'data.corpora\[0\].file: "a.txt" given, expected a name that ends'),
    ({"corpora": [{"file": "a.tsv", "source": "b"}]}, r"data.corpora\[0\].source: given together with file"),
    ({"corpora": [{"source": "a", "target": "b", "source_column": 2}]}, "source_column: given without file"),
    ({"corpora": [{"file": "a.tsv", "source_column": "en"}]}, 'source_column: "en" given, expected a column'),
    ({"corpora": [{"file": "a.tsv", "target_column": 0}]}, "target_column: 0 given, expected at least 1"),
    ({"corpora": [{"file": "a.tsv", "weight": 0}]}, r"data.corpora\[0\].weight: 0.0 given, expected at least"),
    ({"corpora": [{"file": "a.tsv", "tag": "to de"}]}, r'data.corpora\[0\].tag: "to de" given, expected one'),
    ({"corpora": [{"file": "a.tsv", "tag": ""}]}, r"data.corpora\[0\].tag"),
    ({"builtin": "copy", "builtin_options": ["longest"]}, 'builtin_options: "longest" given, expected name'),
    ({"held_out": 0.9}, "data.held_out: 0.9 given, expected at most 0.5"),
    ({"longest": 0}, "data.longest: 0 given, expected at least 1"),
    ({"alignment": "a"}, "alignment: given without source and target"),
    ({"source": "a", "target": "b", "alignment": "gold"}, 'alignment: "gold" given with files, expected a file'),
    ({"builtin": "copy", "alignment": "a"}, 'alignment: "a" given with a built-in corpus, expected "gold"'),
    ({"builtin": "scenes", "alignment": "gold"}, "alignment: given without source and target"),
    ({"documents": "a.tsv", "alignment": "a"}, "alignment: given without source and target"),
    ({"corpora": [{"file": "a.tsv"}], "alignment": "a"}, "alignment: given together with corpora"),
    ({"corpora": [{"source": "a", "target": "b", "alignment_column": 3}]}, "alignment_column: given without file"),
    (
        {"corpora": [{"file": "a.tsv", "alignment_column": "c"}]},
        'alignment_column: "c" given, expected a column number',
    ),
    ({"corpora": [{"file": "a.tsv", "alignment_column": 3, "alignment": "b"}]}, "given together with alignment_column"),
]
REFUSED_TOKENIZERS = [
    ({"kind": "bbpe"}, 'data.kind: "bbpe" given, expected .*did you mean'),
    ({"size": "large"}, 'data.size: "large" given, expected a whole number or "auto"'),
    ({"size": 100}, "data.size: 100 given, expected at least 300"),
    ({"kind": "word", "size": 4}, "data.size: 4 given, expected at least 5"),
    ({"kind": "word", "dropout": 0.1}, 'data.dropout: 0.1 given, but a tokenizer of kind "word"'),
    ({"dropout": 1.5}, "data.dropout: 1.5 given, expected at most 1"),
    ({"source_file": "a"}, "data.target_file: missing"),
    ({"file": "a", "source_file": "a", "target_file": "b"}, "data.file: given together with source_file"),
]
REFUSED = [(DataSettings, *row) for row in REFUSED_DATA] + [(TokenizerSettings, *row) for row in REFUSED_TOKENIZERS]


@pytest.mark.parametrize(("cls", "given", "message"), REFUSED)
def test_impossible_settings_are_named(cls, given, message):
    with pytest.raises(ConfigError, match=message):
        parse(cls, given, "data")


def test_what_is_possible_is_taken():
    data = parse(DataSettings, {"corpora": [{"file": "a.TSV.gz", "source_column": "3", "weight": 2, "tag": "<2de>"}]})
    (corpus,) = data.training
    assert (corpus.form, corpus.source_column, corpus.target_column) == (".tsv", "3", None)
    assert corpus.weight == 2.0
    assert parse(CorpusSettings, {"file": "a.jsonl", "source_column": "de"}).key("source_column") == "de"
    assert parse(CorpusSettings, {"file": "a.jsonl"}).key("target_column") == "target"
    short = DataSettings(source="a", target="b", valid_source="c", valid_target="d")
    assert [corpus.files for corpus in (*short.training, *short.validation)] == [("a", "b"), ("c", "d")]
    assert parse(TokenizerSettings, {"kind": "word", "size": 5}).size == 5
    options = DataSettings(builtin="copy", builtin_options=("longest=20", "letters=abc", "x = [1, 2]")).options()
    assert options == {"longest": 20, "letters": "abc", "x": [1, 2]}


def test_settings_without_pairs_are_refused_when_they_are_needed():
    with pytest.raises(
        ConfigError, match="^data.source: missing; give source and target, or corpora, documents, images, builtin"
    ):
        DataSettings().require()
    DataSettings(source="a", target="b").require()


def test_the_cache_is_where_it_was_said_to_be(monkeypatch, tmp_path):
    for name in ("REGARD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "regard"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert str(cache_folder()) == "/x/regard"
    monkeypatch.setenv("REGARD_CACHE", "/r")
    assert str(cache_folder()) == "/r"
    assert cache_folder("~/own") == tmp_path / "own"


def test_settings_import_no_torch():
    code = "import sys, regard.data.settings; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
