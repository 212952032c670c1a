"""Texts of tables: the columns and keys of training, lines that cannot be read, names that are no table."""

import pytest

from regard.data.settings import CorpusSettings, DataSettings
from regard.data.table_texts import TableTexts
from regard.io import GivenText

TRAINED = DataSettings(documents="train.tsv")


def quiet(text):
    pass


@pytest.mark.parametrize("name", ["new.txt", "new", "-", "new.gz", "tsv", GivenText("a table.tsv")])
def test_other_files_are_texts_already(name):
    assert TableTexts.of(name, TRAINED, quiet) is None


@pytest.mark.parametrize(
    ("name", "data", "line", "place"),
    [
        ("new.tsv", TRAINED, "good\tThe text .", "column 2"),
        ("NEW.TSV.gz", TRAINED, "good\tThe text .\tmore", "column 2"),
        (
            "new.tsv",
            DataSettings(documents="a.tsv.gz", text_column=4, label_column=1),
            "1\t2\t3\tThe text .",
            "column 4",
        ),
        ("new.tsv", DataSettings(documents="a.jsonl", text_column="body"), "good\tThe text .", "column 2"),
        ("new.tsv", DataSettings(builtin="reviews"), "good\tThe text .", "column 2"),
        ("new.jsonl", TRAINED, '{"label": 3, "text": "The text ."}', "the key 'text'"),
        ("new.json", DataSettings(documents="a.tsv", text_column=4), '{"text": "The text ."}', "the key 'text'"),
        (
            "new.jsonl.gz",
            DataSettings(documents="a.json", text_column="review.body"),
            '{"review": {"body": "The text ."}}',
            "the key 'review.body'",
        ),
    ],
)
def test_the_label_is_left_out(name, data, line, place):
    said = []
    texts = TableTexts.of(name, data, said.append)
    assert texts([line, "", line]) == ["The text .", "", "The text ."]
    assert said == [f"{name}: reading the documents in {place}; labels are ignored"]


PAIRS = CorpusSettings(file="a.tsv", source_column=3, target_column=1)
OBJECTS = CorpusSettings(file="a.jsonl.gz", source_column="translation.en")


@pytest.mark.parametrize(
    ("name", "data", "line", "place"),
    [
        ("new.tsv", DataSettings(builtin="phrasebook"), "The text .\tDer Text .\t0-0", "column 1"),
        ("new.tsv.gz", DataSettings(source="a", target="b"), "The text .\tDer Text .", "column 1"),
        ("new.tsv", DataSettings(corpora=(OBJECTS, PAIRS)), "x\ty\tThe text .", "column 3"),
        ("new.jsonl", DataSettings(corpora=(PAIRS,)), '{"target": "x", "source": "The text ."}', "the key 'source'"),
        (
            "new.json",
            DataSettings(corpora=(PAIRS, OBJECTS)),
            '{"translation": {"en": "The text ."}}',
            "the key 'translation.en'",
        ),
    ],
)
def test_the_translation_is_left_out(name, data, line, place):
    said = []
    texts = TableTexts.of(name, data, said.append)
    assert texts([line, "", line]) == ["The text .", "", "The text ."]
    assert said == [f"{name}: reading the sources in {place}; translations are ignored"]


@pytest.mark.parametrize(
    ("name", "data", "line", "place"),
    [
        ("new.tsv", None, "The text .\tDer Text .\t0-0", "column 2"),
        ("new.tsv", DataSettings(corpora=(OBJECTS, PAIRS)), "Der Text .\ty\tThe text .", "column 1"),
        ("new.jsonl", DataSettings(corpora=(PAIRS,)), '{"target": "Der Text .", "source": "x"}', "the key 'target'"),
    ],
)
def test_the_source_is_left_out(name, data, line, place):
    said = []
    texts = TableTexts.of(name, data, said.append, "target")
    assert texts([line, "", line]) == ["Der Text .", "", "Der Text ."]
    assert said == [f"{name}: reading the targets in {place}; sources are ignored"]


def test_a_line_without_a_tab_is_a_text():
    assert TableTexts.of("new.tsv", TRAINED, quiet)(["No label here .", "good\tIt has ."]) == [
        "No label here .",
        "It has .",
    ]


@pytest.mark.parametrize(
    ("name", "data", "line", "problem"),
    [
        ("new.jsonl", TRAINED, "The text .", "line 2: not valid JSON"),
        ("new.jsonl", TRAINED, '{"body": "x"}', "line 2: no key 'text'; it has 'body'"),
        ("new.tsv", DataSettings(documents="a.tsv", text_column=3), "a\tb", "line 2: 2 columns, expected at least 3"),
    ],
)
def test_a_line_that_cannot_be_read_is_empty_and_the_first_is_named(name, data, line, problem):
    said = []
    texts = TableTexts.of(name, data, said.append)
    assert texts([""]) == [""]
    assert texts([line, line]) == ["", ""]
    assert len(said) == 2
    assert said[1].startswith(f"{name}, {problem}")
