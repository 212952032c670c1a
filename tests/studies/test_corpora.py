"""Corpora of studies: read from a folder as it is published, prepared once, and named where they are missing."""

import gzip
from pathlib import Path

import pytest

from regard.errors import CommandError
from regard_studies.corpora.pairs import (
    Pairs,
    europarl,
    find_file,
    multi30k,
    paragraphs,
    phrasebook,
    read_aligned,
    tokenise,
)
from regard_studies.setting import Setting


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
