"""The sentences of studies of language models."""

import gzip

import pytest

from regard.errors import CommandError
from regard.tasks import read_settings
from regard_studies.corpora.sentences import europarl, german, multi30k
from regard_studies.setting import Setting


def write(folder, names, lines):
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.writelines(f"{line}\n" for line in lines)


def test_words_are_counted_with_punctuation_and_the_end():
    corpus = german(50, 5, 6)
    assert not corpus.real
    assert corpus.words == [len(text.split()) + 1 for text in corpus.texts]
    settings = read_settings({"task": "language-model", **corpus.tables})
    assert settings.data.options() == {"longest": 6}
    assert settings.tokenizer.size == corpus.pieces == 1000


def test_real_corpora_are_read_from_a_folder(tmp_path):
    with pytest.raises(CommandError, match=r"test_2016_flickr\.en\.gz is missing, which this study reads"):
        multi30k(tmp_path)
    long = " ".join(["word"] * 40)
    write(tmp_path, [f"multi30k/{part}.en.gz" for part in ("train", "val", "test_2016_flickr")], ["A dog runs.", long])
    write(
        tmp_path, [f"europarl/{part}.en.gz" for part in ("train", "dev", "test")], ["Madam President,", long, "", "Yes"]
    )
    assert multi30k(tmp_path).texts == ["A dog runs.", long]
    assert multi30k(tmp_path).words == [5, 41]
    setting = Setting(out=tmp_path / "studies", data=tmp_path)
    assert europarl(setting).texts == ["madam president ,", "yes"]
    assert europarl(setting, tests=1).words == [4]
    for corpus in (multi30k(tmp_path), europarl(setting)):
        data = read_settings({"task": "language-model", **corpus.tables}).data
        assert data.source == data.target  # what is read is what is written: no other language is needed
