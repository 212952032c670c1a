"""Corpora of studies: read from a published folder, prepared once, and named if they are missing."""

import gzip
import tarfile
from pathlib import Path

import numpy as np
import pytest
from studies.galleries import SCENES, photographs

from regard.errors import CommandError
from regard.tasks import read_settings
from regard_studies import Setting
from regard_studies.corpora import (
    Pairs,
    built_in_reviews,
    english_europarl,
    english_multi30k,
    europarl,
    find_file,
    german,
    imdb,
    multi30k,
    paragraphs,
    phrasebook,
    read_aligned,
    tokenise,
    unpack,
)
from regard_studies.soft_hard import gallery_of


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def test_words_are_told_from_punctuation():
    assert tokenise("Mr. President, the EU-budget isn't (A7-0421/2011)!") == (
        "mr . president , the eu-budget isn't ( a7-0421 / 2011 ) !"
    )
    assert tokenise("L’Europe: 3,5 %") == "l’europe : 3 , 5 %"
    assert tokenise(tokenise("A – b… “c”")) == tokenise("A – b… “c”")


def test_europarl_is_tokenised_once(tmp_path):
    for part in ("train", "dev", "test", "test.para"):
        for side in ("de", "en"):
            put(tmp_path, f"europarl/{part}.{side}.gz", f"Herr {part}, {side}!\nJa.\n")
    setting = Setting(out=tmp_path / "out", data=tmp_path)
    found = europarl(setting, "de", "en")
    assert found.sources == ["herr test , de !", "ja ."]
    assert found.references == ["herr test , en !", "ja ."]
    assert paragraphs(setting, "de", "en")[1] == ["herr test . para , en !", "ja ."]
    assert Path(found.tables["data"]["source"]).read_text() == "herr train , de !\nja .\n"
    put(tmp_path, "europarl/test.de.gz", "Anders.\nJa.\n")
    assert europarl(setting, "de", "en").sources == found.sources
    assert found.bleu(found.references) == pytest.approx(100)


def test_links_may_be_turned_around(tmp_path):
    put(tmp_path, "alignment/de-en/test.de", "\ufeffdas haus ist\nja\n")
    put(tmp_path, "alignment/de-en/test.en", "the house\nyes\n")
    put(tmp_path, "alignment/de-en/de-en.wa", "0-0 1-1 2-1\n0-0\n")
    one, other = read_aligned(tmp_path), read_aligned(tmp_path, "en", "de")
    assert (one.sources, one.targets) == (["das haus ist", "ja"], ["the house", "yes"])
    assert (other.sources, other.targets) == (one.targets, one.sources)
    assert one.gold[0].sure == {(0, 0), (1, 1), (2, 1)}
    assert other.gold[0].sure == {(0, 0), (1, 1), (1, 2)}


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"--data: .*multi30k/train\.en\.gz is missing, which this study reads"):
        multi30k(tmp_path)
    put(tmp_path, "there", "x")
    assert find_file(tmp_path, "there") == tmp_path / "there"


def test_multi30k_is_judged_in_lower_case(tmp_path):
    for part in ("train", "val", "test_2016_flickr"):
        for side in ("en", "de"):
            put(tmp_path, f"multi30k/{part}.{side}.gz", "Ein Hund läuft schnell .\n")
    found = multi30k(tmp_path)
    assert found.bleu(["ein hund läuft schnell ."]) == pytest.approx(100)
    assert Pairs("same", {}, found.sources, found.references).bleu(["ein hund läuft schnell ."]) < 90


def test_the_phrasebook_has_a_test_set_of_its_own():
    found = phrasebook(50, 7, longest=9)
    assert len(found.sources) == len(found.references) == 7
    assert found.tables["data"]["builtin_options"] == ["longest=9"]
    assert max(len(source.split()) for source in found.sources) <= 9


def test_a_first_look_takes_what_is_built_in(tmp_path):
    assert Setting(quick=True, data=tmp_path).corpora is None
    assert Setting(quick=False, data=tmp_path).corpora == tmp_path


def write_lines(folder, names, lines):
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
        english_multi30k(tmp_path)
    long = " ".join(["word"] * 40)
    write_lines(
        tmp_path, [f"multi30k/{part}.en.gz" for part in ("train", "val", "test_2016_flickr")], ["A dog runs.", long]
    )
    write_lines(
        tmp_path, [f"europarl/{part}.en.gz" for part in ("train", "dev", "test")], ["Madam President,", long, "", "Yes"]
    )
    assert english_multi30k(tmp_path).texts == ["A dog runs.", long]
    assert english_multi30k(tmp_path).words == [5, 41]
    setting = Setting(out=tmp_path / "studies", data=tmp_path)
    assert english_europarl(setting).texts == ["madam president ,", "yes"]
    assert english_europarl(setting, tests=1).words == [4]
    for corpus in (english_multi30k(tmp_path), english_europarl(setting)):
        data = read_settings({"task": "language-model", **corpus.tables}).data
        assert data.source == data.target  # source and target are equal: no other language is needed


def test_built_in_reviews_know_what_decides():
    reviews = built_in_reviews(50, 20, longest=3)
    assert not reviews.real
    assert len(reviews.texts) == len(reviews.labels) == len(reviews.deciding) == 20
    assert all(own and max(own) < count for own, count in zip(reviews.deciding, reviews.words, strict=True))
    assert max(text.count(" .") for text in reviews.texts) <= 3
    assert read_settings({"task": "classify", **reviews.tables}).data.options() == {"longest": 3}


def write_rows(folder, name, rows):
    (folder / "imdb").mkdir(exist_ok=True)
    with gzip.open(folder / "imdb" / name, "wt") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


def test_imdb_is_for_or_against(tmp_path):
    rows = [("neg", "2", "0", "Not good ."), ("pos", "9", "1", "Good , good ."), ("pos", "10", "2", "Fine .")]
    write_rows(tmp_path, "train.tsv.gz", rows)
    with pytest.raises(CommandError, match=r"test\.tsv\.gz is missing, which this study reads"):
        imdb(tmp_path)
    write_rows(tmp_path, "test.tsv.gz", rows)
    found = imdb(tmp_path)
    assert found.labels == ["neg", "pos", "pos"]
    assert found.texts == ["Not good .", "Good , good .", "Fine ."]
    assert found.real
    assert read_settings({"task": "classify", **found.tables}).data.label_column == 1


def test_photographs_are_unpacked_once_and_split_as_listed(tmp_path):
    setting = Setting(data=photographs(tmp_path / "data"), out=tmp_path / "studies")
    gallery = gallery_of(setting)
    assert [each.shape for each in gallery.pixels] == [(3, 96, 96)]
    assert gallery.pixels[0][0].mean() == pytest.approx(200, abs=5)
    assert gallery.references == [["A picture number 5 , told 0 times .", "A picture number 5 , told 1 times ."]]
    (setting.data / "flickr8k" / "images.tar").write_bytes(b"")
    unpack(setting.data / "flickr8k" / "images.tar", setting.out / "data" / "flickr8k" / "images")
    assert len(list((setting.out / "data" / "flickr8k" / "images").iterdir())) == 6
    with pytest.raises(tarfile.ReadError):
        unpack(setting.data / "flickr8k" / "images.tar", tmp_path / "images")
    assert not (tmp_path / "images").exists()


def test_scenes_are_those_that_words_are_known_of():
    assert [each.shape for each in SCENES.pixels] == [(3, 32, 32)] * 6
    assert SCENES.references == [[each.target] for each in SCENES.scenes]
    assert np.array_equal(SCENES.pixels[2], SCENES.scenes[2].picture().transpose(2, 0, 1))
