"""The reviews of studies: what decides in built-in ones, and IMDB's files."""

import gzip

import pytest

from regard.errors import CommandError
from regard.tasks import read_settings
from regard_studies.corpora.reviews import built_in_reviews, imdb


def test_built_in_reviews_know_what_decides():
    reviews = built_in_reviews(50, 20, longest=3)
    assert not reviews.real
    assert len(reviews.texts) == len(reviews.labels) == len(reviews.deciding) == 20
    assert all(own and max(own) < count for own, count in zip(reviews.deciding, reviews.words, strict=True))
    assert max(text.count(" .") for text in reviews.texts) <= 3
    assert read_settings({"task": "classify", **reviews.tables}).data.options() == {"longest": 3}


def write(folder, name, rows):
    (folder / "imdb").mkdir(exist_ok=True)
    with gzip.open(folder / "imdb" / name, "wt") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


def test_imdb_is_for_or_against(tmp_path):
    rows = [("neg", "2", "0", "Not good ."), ("pos", "9", "1", "Good , good ."), ("pos", "10", "2", "Fine .")]
    write(tmp_path, "train.tsv.gz", rows)
    with pytest.raises(CommandError, match=r"test\.tsv\.gz is missing, which this study reads"):
        imdb(tmp_path)
    write(tmp_path, "test.tsv.gz", rows)
    found = imdb(tmp_path)
    assert found.labels == ["neg", "pos", "pos"]
    assert found.texts == ["Not good .", "Good , good .", "Fine ."]
    assert found.real
    assert read_settings({"task": "classify", **found.tables}).data.label_column == 1
