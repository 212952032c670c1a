"""Lines as they arrive: which characters end one, that no line waits for the next; and CSV as lines of a TSV."""

import csv
import gzip
import io
import os
import random
import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import lines as corpus_lines
from regard.errors import DataError
from regard.io.lines import (
    CHARACTERS,
    MAX_LINE_CHARACTERS,
    check_unchanged,
    count_lines,
    csv_rows,
    decompress,
    find_header,
    gather_chunks,
    is_csv,
    is_pipe,
    locate_column,
    read_chunks,
)

NOISE = random.Random(5).randbytes(5000).hex().encode()
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"), max_size=12)


class Dripping(io.RawIOBase):
    """Bytes in small portions, as from a slow pipe; `ready` reports more data only within a portion."""

    def __init__(self, data: bytes, seed: int):
        self.data, self.draw = data, random.Random(seed)

    def read1(self, size: int = -1) -> bytes:
        count = self.draw.randint(1, 7)
        portion, self.data = self.data[:count], self.data[count:]
        return portion


def all_lines(path, size=1024) -> list[str]:
    return [line for chunk in read_chunks(path, size) for line in chunk]


@given(st.lists(ANY), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 5), st.integers())
def test_any_text_comes_back(texts, last, packed, windows, size, seed):
    """In portions of any size, plain or packed, with or without an end of the last line."""
    texts = [text.removesuffix("\r") for text in texts]
    if texts:
        texts[0] = texts[0].removeprefix("\ufeff")
    end = "\r\n" if windows else "\n"
    data = end.join(texts).encode() + (end.encode() if texts and (last or not texts[-1]) else b"")
    data = gzip.compress(data) if packed else data
    found = list(gather_chunks(Dripping(data, seed), "x", size))
    assert [line for chunk in found for line in chunk] == texts
    assert all(1 <= len(chunk) <= size for chunk in found)


@given(st.lists(ANY, min_size=1), st.booleans())
def test_the_same_lines_as_the_corpus_reader(tmp_path_factory, texts, packed):
    path = tmp_path_factory.mktemp("lines") / "file"
    data = "\n".join(texts).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    assert all_lines(path, 3) == list(corpus_lines(path))
    assert count_lines(path) == len(list(corpus_lines(path)))


def test_packed_files_put_together_and_padded(tmp_path):
    data = gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree\n") + bytes(512)
    for seed in range(20):
        assert b"".join(decompress(Dripping(data, seed))) == b"one\ntwo\nthree\n"
    (tmp_path / "file").write_bytes(data)
    assert all_lines(tmp_path / "file") == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("data", "good", "said"),
    [
        (b"a\nb\xffc\nd", ["a"], "file, line 2: byte 2 (0xff) is not UTF-8; convert the file to UTF-8"),
        (b"a\nb\0c\n", ["a"], "file, line 2: byte 2 is NUL, as in binary files; expected UTF-8 text"),
        (b"\x89PNG\r\n\x1a\n\0\0", [], "file, line 1: byte 1 (0x89) is not UTF-8"),
        ("ab\ncd".encode("utf-16"), [], "file, line 1: looks like UTF-16; convert the file to UTF-8"),
        ("ab\ncd".encode("utf-16-le"), [], "file, line 1: byte 2 is NUL"),
        (gzip.compress(b"one\n" * 9, mtime=0)[:-8], ["one"] * 9, "file: broken gzip after line 9: it ends too early"),
        (gzip.compress(b"one\n", mtime=0)[:6] + b"\xff" * 9, [], "file: broken gzip after line 0: "),
        (b"\x1f\x8b\x08rubbish that is no gzip at all", [], "file: broken gzip after line 0: "),
        (gzip.compress(NOISE, mtime=0)[:3000], [], "file: broken gzip after line 0: it ends too early"),
        (gzip.compress(b"one\n", mtime=0)[:-5] + b"12345", [], "file: broken gzip after line 0: incorrect data check"),
    ],
)
def test_what_is_no_text_is_named_after_what_is(tmp_path, data, good, said):
    (tmp_path / "file").write_bytes(data)
    found = []
    with pytest.raises(DataError) as error:
        found.extend(line for chunk in read_chunks(tmp_path / "file") for line in chunk)
    assert found == good
    assert str(error.value).startswith(str(tmp_path / said))
    for read in (count_lines, lambda path: list(corpus_lines(path))):
        with pytest.raises(DataError) as other:
            read(tmp_path / "file")
        assert str(other.value) == str(error.value)


def test_what_is_no_file(tmp_path):
    with pytest.raises(DataError, match="none.txt: no such file$"):
        list(read_chunks(tmp_path / "none.txt"))
    with pytest.raises(DataError, match="a folder given, expected a file$"):
        list(read_chunks(tmp_path))
    assert not is_pipe(tmp_path)
    assert not is_pipe(tmp_path / "none.txt")
    assert is_pipe("-")


def test_chunks_of_a_file_are_full(tmp_path):
    (tmp_path / "file").write_text("".join(f"line {i}\n" for i in range(5000)))
    assert [len(chunk) for chunk in read_chunks(tmp_path / "file", 1024)] == [1024] * 4 + [904]
    assert not is_pipe(tmp_path / "file")


def test_a_long_line_is_cut_in_the_time_of_its_length(tmp_path):
    (tmp_path / "file").write_bytes(b"word " * 4_000_000 + b"\nnext\n")
    start, said = time.perf_counter(), []
    found = [line for chunk in read_chunks(tmp_path / "file", say=said.append) for line in chunk]
    assert [len(line) for line in found] == [MAX_LINE_CHARACTERS, 4]
    assert said == [f"{tmp_path / 'file'}: line 1 has more than {MAX_LINE_CHARACTERS:,} characters and was truncated"]
    assert time.perf_counter() - start < 5


def test_chunks_of_long_lines_are_small(tmp_path):
    """The lines searched together are limited in characters, too."""
    (tmp_path / "file").write_bytes((b"word " * (CHARACTERS // 20) + b"\n") * 10)
    sizes = [len(chunk) for chunk in read_chunks(tmp_path / "file")]
    assert sum(sizes) == 10
    assert max(sizes) <= 5


def test_a_file_that_changes_is_refused():
    check_unchanged("file", None, 3)
    check_unchanged("file", 3, 3)
    with pytest.raises(DataError, match="file: changed while it was read: it had 3 lines, and then 2"):
        check_unchanged("file", 3, 2)


def test_nobody_waits_for_the_next_line(tmp_path):
    """A line in a pipe is returned before the next one arrives; lines that are there come together."""
    os.mkfifo(tmp_path / "pipe")
    seen = threading.Event()

    def write() -> None:
        with open(tmp_path / "pipe", "wb", buffering=0) as pipe:
            for text in (b"one\n", b"two\nthree\nfo", b"ur\n"):
                seen.clear()
                pipe.write(text)
                assert seen.wait(20), "the line was not read until the next came"

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    for chunk in read_chunks(tmp_path / "pipe"):
        found.append(chunk)
        seen.set()
    writer.join()
    assert found == [["one"], ["two", "three"], ["four"]]
    assert is_pipe(tmp_path / "pipe")


# ---- CSV


CELLS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]) | st.sampled_from('",;\n '), max_size=8)


def read(text: str, header: bool | None = None) -> list[tuple[int, str]]:
    return list(csv_rows(text.split("\n")[: -1 if text.endswith("\n") else None], "a.csv", header))


@given(st.lists(st.lists(CELLS, min_size=2, max_size=3), min_size=1, max_size=5))
def test_what_is_written_is_read(rows):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    found = read(file.getvalue(), header=False)
    expected = ["\t".join(re.sub(r"\n+", " ", cell) for cell in row) for row in rows]
    assert [row for _, row in found] == expected
    lines = file.getvalue().split("\n")
    assert all(lines[number - 1].startswith('"') for number, _ in found[:1])
    assert [number for number, _ in found] == sorted({number for number, _ in found})


def test_quotes_commas_and_line_breaks():
    text = 'source,target\n"a, b","he said ""no"""\n"two\nlines",x\n\ny,"tab\there"\n'
    assert read(text) == [(2, 'a, b\the said "no"'), (3, "two lines\tx"), (5, ""), (6, "y\ttab here")]


@pytest.mark.parametrize(
    ("first", "header", "separator"),
    [
        ("source,target", True, ","),
        ("Source;Target", True, ";"),
        ("label;text, in words", False, ","),
        ("en,de", True, ","),
        ("english,deutsch", True, ","),
        ("id,text,label", True, ","),
        ("file_name,caption", True, ","),
        ("A dog runs.,Ein Hund läuft.", False, ","),
        ("A dog runs.;Ein Hund läuft.", False, ";"),
        ('"one; two","eins; zwei"', False, ","),
        ("good,The text is good.", False, ","),
        ("text,", False, ","),
        ("text,text", False, ","),
        ("", False, ","),
    ],
)
def test_headers_and_separators(first, header, separator):
    assert find_header([first, "a,b"], "a.csv")[1] == header
    _, (_, second) = csv_rows([first, "a;b,c"], "a.csv", header=False)
    assert second == ("a;b\tc" if separator == "," else "a\tb,c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b\n"c,d\ne,f\n', "a.csv, line 2: a quotation mark that opens a text here is not closed"),
        ('a,b\n\n"c"d,e\n', "a.csv, line 3: text behind a closing quotation mark"),
    ],
)
def test_quotation_marks_that_do_not_fit_are_named_with_their_line(text, message):
    with pytest.raises(DataError) as caught:
        read(text)
    assert str(caught.value).startswith(message)


def test_columns_are_found_by_name_alias_or_number():
    cells = ["ID", "Text", "Category"]
    assert locate_column(cells, True, "label", "a.csv") == (3, True)
    assert locate_column(cells, True, "text", "a.csv") == (2, True)
    assert locate_column(cells, True, 1, "a.csv") == (1, True)
    assert locate_column(["Frage", "Antwort"], False, "antwort", "a.csv") == (2, True)
    assert locate_column(["x", "y"], False, "label", "a.csv") == (1, False)
    with pytest.raises(DataError, match="a.csv, line 1: no column 'question'; it has 'ID', 'Text', 'Category'"):
        locate_column(cells, True, "question", "a.csv")


def test_files_are_known_by_their_names():
    assert [is_csv(name) for name in ("a.csv", "a.CSV", "a.csv.gz", "a.tsv", "csv", "-")] == [True] * 3 + [False] * 3
    assert list(csv_rows([], "a.csv")) == []
