"""CSV as lines of a TSV: what the standard library's reader finds, with the number of each record's first line."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.io.csv_lines import csv_rows, find_header, is_csv, locate_column, separator_of

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
    assert separator_of(first) == separator


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
