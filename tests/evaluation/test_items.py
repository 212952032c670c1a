"""Test sets from files, with alternatives and with mistakes."""

import gzip
import os
import threading

import pytest

from regard.errors import DataError
from regard.evaluation.items import read_items, read_texts

AS_MANY = "expected the same number, because line i of one is the translation of line i of the other"


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return [tmp_path / name for name in texts]

    return write


def test_lines_are_items(files):
    source, reference, output = files(source="a b\n\nc\u2028d", reference="x\n\r\ny", output="1\n2\n3\n")
    items = read_items(source, reference)
    assert items.sources == ["a b", "", "c\u2028d"]
    assert items.references == [("x",), ("",), ("y",)]
    assert (len(items), items.empty) == (3, 1)
    assert items.read_outputs(output) == items.by_line(["1", "2", "3"]) == ["1", "2", "3"]
    assert list(items.pairs()) == [("a b", "x"), ("c\u2028d", "y")]


def test_both_sides_of_a_table(tmp_path):
    (tmp_path / "test.tsv").write_text("a b\tx y\t0-0\n\nc\tz\n")
    (tmp_path / "test.jsonl").write_text('{"source": "a b", "target": "x y"}\n\n{"source": "c", "target": "z"}\n')
    for name, places in (
        ("test.tsv", ("column 2", "column 1")),
        ("test.jsonl", ("the key 'target'", "the key 'source'")),
    ):
        said, path = [], tmp_path / name
        items = read_items(path, path, say=said.append)
        assert (items.sources, items.references) == (["a b", "", "c"], [("x y",), ("",), ("z",)])
        assert said == [
            f"{path}: reading the targets in {places[0]}; sources are ignored",
            f"{path}: reading the sources in {places[1]}; translations are ignored",
        ]


def test_the_same_source_is_one_item(files):
    source, reference = files(source="read\ncat\nread \ndog\nread", reference="R EH D\nK AE T\nR IY D\nD AO G\nR EH D")
    items = read_items(source, reference, alternatives=True)
    assert items.sources == ["read", "cat", "dog"]
    assert items.references == [("R EH D", "R IY D"), ("K AE T",), ("D AO G",)]
    assert items.by_line(["1", "2", "3"]) == ["1", "2", "1", "3", "1"]
    by_line, by_item, wrong = files(by_line="1\n2\n-\n3\n-", by_item="1\n2\n3", wrong="1\n2\n3\n4")
    assert items.read_outputs(by_line) == items.read_outputs(by_item) == ["1", "2", "3"]
    assert list(items.pairs()) == [("read", "R EH D"), ("read", "R IY D"), ("cat", "K AE T"), ("dog", "D AO G")]
    with pytest.raises(DataError) as error:
        items.read_outputs(wrong)
    assert str(error.value) == f"{wrong} has 4 lines and {reference} has 5; expected the same number, or one per item"


def test_references_alone_and_gzip(files, tmp_path):
    (tmp_path / "r.gz").write_bytes(gzip.compress(b"x\ny\n"))
    items = read_items(None, tmp_path / "r.gz")
    assert (items.sources, len(items), items.empty) == (None, 2, 0)
    assert list(items.pairs()) == [("", "x"), ("", "y")]


def test_a_pipe_is_read_once(files, tmp_path):
    """As in --reference <(cut -f 2 test.tsv), which bash makes a pipe of."""
    os.mkfifo(tmp_path / "pipe")
    text = "".join(f"{i}\n" for i in range(30_000))
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=[text])
    writer.start()
    found = read_texts(tmp_path / "pipe")
    writer.join()
    assert found == text.split()


def test_mistakes_name_the_file(files, tmp_path):
    source, one, empty, binary, zero = files(
        source="a\nb\n", one="x", empty=b"", binary=bytes(range(128, 256)), zero=b"a\nb\0c\n"
    )
    for wrong, said in (
        (lambda: read_items(source, one), f"{source} has 2 lines and {one} has 1; {AS_MANY}"),
        (lambda: read_items(one, source), f"{one} has 1 line and {source} has 2; {AS_MANY}"),
        (lambda: read_items(source, empty), f"{empty}: empty, expected one sentence per line"),
        (lambda: read_texts(binary), f"{binary}, line 1: byte 1 (0x80) is not UTF-8; convert the file to UTF-8"),
        (lambda: read_texts(zero), f"{zero}, line 2: byte 2 is NUL, as in binary files; expected UTF-8 text"),
        (lambda: read_texts(tmp_path), f"{tmp_path}: a folder given, expected a file"),
        (lambda: read_texts(tmp_path / "no"), f"{tmp_path / 'no'}: no such file"),
        (
            lambda: read_items(source, source, alternatives=True),
            f"{source}: none of its 2 lines occurs twice, so there are no alternatives",
        ),
    ):
        with pytest.raises(DataError) as error:
            wrong()
        assert str(error.value) == said
