"""Corpora as streams, and texts of tables: every format, every odd line end, every fault with its file and line."""

import gzip
import itertools
import json
import os
import re

import pytest

from regard.data.corpus import TableTexts, lines, pairs
from regard.data.settings import CorpusSettings, DataSettings
from regard.errors import DataError
from regard.io import MAX_LINE_CHARACTERS, GivenText

TRAINED = DataSettings(documents="train.tsv")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def read(say=lambda said: None, **settings):
    return list(pairs(CorpusSettings(**settings), say=say))


# Characters at which str.splitlines would split, but which do not end a file's line.
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a", ["a"]),
        (b"", []),
        (b"\n", [""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\n\r\nb\n", ["a", "", "b"]),
        (b"a\rb\nc", ["a\rb", "c"]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        (b"\xef\xbb\xbf", [""]),
        (b"a\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (f"a{SEPARATORS}b\nc".encode(), [f"a{SEPARATORS}b", "c"]),
        ("😀 e\u0301 שלום\n".encode(), ["😀 e\u0301 שלום"]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_lines(write, content, expected, packed):
    """Gzip is detected by content, not by name."""
    name, data = ("text", gzip.compress(content)) if packed else ("text.gz", content)
    assert list(lines(write(name, data))) == expected


def test_two_files_line_by_line(write):
    source, target = write("a.en", "one \r\n\n three\n"), write("a.de", gzip.compress(b"eins\nzwei\ndrei"))
    assert read(source=source, target=target) == [("one", "eins"), ("", "zwei"), ("three", "drei")]
    assert read(source=source, target=source) == [("one", "one"), ("", ""), ("three", "three")]


def test_a_tsv(write):
    path = write("a.tsv", 'x\t"one\teins\n\ny\ttwo\tzwei\tmore\n')
    assert read(file=path, source_column=2, target_column=3) == [('"one', "eins"), ("", ""), ("two", "zwei")]
    assert read(file=path, source_column=3, target_column="1")[0] == ("eins", "x")


def test_json_lines(write):
    rows = [{"source": "one", "target": "eins\nzwei"}, {"source": " é ", "target": "", "more": 3}]
    path = write("a.jsonl", "\n\n".join(json.dumps(row) for row in rows))
    assert read(file=path) == [("one", "eins zwei"), ("", ""), ("é", "")]
    nested = write("b.json", json.dumps({"translation": {"en": "one", "de": "eins"}, "a.b": "dotted"}))
    assert read(file=nested, source_column="translation.en", target_column="translation.de") == [("one", "eins")]
    assert read(file=nested, source_column="a.b", target_column="translation.de") == [("dotted", "eins")]


@pytest.mark.parametrize(("first", "second"), [(3, 2), (2, 3), (0, 2), (2, 0), (1, 1001)])
def test_unequal_counts_are_both_named(write, first, second):
    source, target = write("a", "x\n" * first), write("b", "y\n" * second)
    with pytest.raises(DataError) as error:
        read(source=source, target=target)
    s = "" if first == 1 else "s"
    assert f"{source} has {first:,} line{s} and {target} has {second:,}; expected the same number" in str(error.value)


TSV, JSON = "one\teins\n", '{"source": "one", "target": "eins"}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "two\n", "1 column, expected at least 2"),
        ("a.jsonl", '{"source": "a"}', "no key 'target'; it has 'source'"),
        ("a.jsonl", '{"source": "a", "target": 3}', "3 given under 'target', expected a text"),
        ("a.jsonl", '["a", "b"]', r'\["a", "b"\] given, expected a JSON object'),
        ("a.jsonl", "[\n", "not valid JSON.*one JSON list"),
        ("a.jsonl", '{"source": "a"\n', "not valid JSON"),
        ("a.jsonl", "[" * 100_000, "not valid JSON"),
        ("a.jsonl", '{"source": "a", "target": ' + "9" * 5_000 + "}", "not valid JSON"),
        ("a.jsonl", '{"source": "\\ud800", "target": "b"}', "half a surrogate pair under 'source'"),
        ("a.jsonl", '{"source": "a\\u0000b", "target": "b"}', "NUL under 'source'"),
        ("a.jsonl", '{"source": "' + "a" * MAX_LINE_CHARACTERS + '", "target": "b"}', "more than 1,000,000 characters"),
    ],
)
def test_a_line_that_cannot_be_read_is_blank_and_is_said_once(write, name, content, message):
    """The other lines keep their positions."""
    good = TSV if name == "a.tsv" else JSON
    said = []
    bad = content.rstrip("\n") + "\n"
    found = read(said.append, file=write(name, good + bad + good + bad + good))
    assert found == [("one", "eins"), ("", ""), ("one", "eins"), ("", ""), ("one", "eins")]
    (remark,) = [each for each in said if "were truncated" not in each]
    assert re.search(f"{name}: 2 lines that cannot be read count as blank; the first is line 2: {message}", remark)
    said.clear()
    assert read(said.append, file=write(name, good + bad))[1] == ("", "")
    assert re.search(f"a line that cannot be read counts as blank: line 2: {message}", said[-1])


def test_files_that_are_not_there(tmp_path, write):
    with pytest.raises(DataError, match="none.tsv: no such file"):
        read(file=str(tmp_path / "none.tsv"))
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(DataError, match="folder.tsv: a folder given, expected a file"):
        read(file=str(tmp_path / "folder.tsv"))


def test_a_stream_is_read_as_it_is_asked_for(write):
    """Reading only the beginning does not reach the fault at the end."""
    path = write("a.tsv", b"a\tb\n" * 10_000 + b"broken\xff\n")
    assert list(itertools.islice(pairs(CorpusSettings(file=path)), 3)) == [("a", "b")] * 3


def test_a_pipe_is_refused(tmp_path):
    """A pipe is refused: a second reading would silently lose its first lines."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: a pipe or a device given, expected a file"):
        next(lines(tmp_path / "pipe"))


# ---- texts in a table


def quiet(text):
    pass


@pytest.mark.parametrize("name", ["new.txt", "new", "-", "new.gz", "tsv", GivenText("a table.tsv")])
def test_other_files_are_texts_already(name):
    assert TableTexts.of(name, TRAINED, quiet) is None


PAIRS = CorpusSettings(file="a.tsv", source_column=3, target_column=1)
OBJECTS = CorpusSettings(file="a.jsonl.gz", source_column="translation.en")
BODY = DataSettings(documents="a.json", text_column="review.body")
FOURTH = DataSettings(documents="a.tsv.gz", text_column=4, label_column=1)
ONE, BOTH = DataSettings(corpora=(PAIRS,)), DataSettings(corpora=(OBJECTS, PAIRS))


@pytest.mark.parametrize(
    ("name", "data", "line", "said"),
    [
        ("new.tsv", TRAINED, "good\tText .", "documents in column 2; labels"),
        ("NEW.TSV.gz", TRAINED, "good\tText .\tmore", "documents in column 2; labels"),
        ("new.tsv", FOURTH, "1\t2\t3\tText .", "documents in column 4; labels"),
        ("new.tsv", BODY, "good\tText .", "documents in column 2; labels"),
        ("new.tsv", DataSettings(builtin="reviews"), "good\tText .", "documents in column 2; labels"),
        ("new.jsonl", TRAINED, '{"label": 3, "text": "Text ."}', "documents in the key 'text'; labels"),
        ("new.json", FOURTH, '{"text": "Text ."}', "documents in the key 'text'; labels"),
        ("new.jsonl.gz", BODY, '{"review": {"body": "Text ."}}', "documents in the key 'review.body'; labels"),
        ("new.tsv", DataSettings(builtin="phrasebook"), "Text .\tx\t0-0", "sources in column 1; translations"),
        ("new.tsv.gz", DataSettings(source="a", target="b"), "Text .\tx", "sources in column 1; translations"),
        ("new.tsv", BOTH, "x\ty\tText .", "sources in column 3; translations"),
        ("new.jsonl", ONE, '{"target": "x", "source": "Text ."}', "sources in the key 'source'; translations"),
        ("new.json", BOTH, '{"translation": {"en": "Text ."}}', "sources in the key 'translation.en'; translations"),
        ("new.tsv", None, "x\tText .\t0-0", "targets in column 2; sources"),
        ("new.tsv", BOTH, "Text .\ty\tx", "targets in column 1; sources"),
        ("new.jsonl", ONE, '{"target": "Text .", "source": "x"}', "targets in the key 'target'; sources"),
    ],
)
def test_what_stands_beside_the_text_is_left_out(name, data, line, said):
    told = []
    texts = TableTexts.of(name, data, told.append, "target" if said.startswith("targets") else "source")
    assert texts([line, "", line]) == ["Text .", "", "Text ."]
    assert told == [f"{name}: reading the {said} are ignored"]


def test_a_line_without_a_tab_is_a_text():
    texts = TableTexts.of("new.tsv", TRAINED, quiet)
    assert texts(["No label here .", "good\tIt has ."]) == ["No label here .", "It has ."]


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
