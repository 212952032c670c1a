"""Output of commands: tables, messages, and mistakes in one line."""

import fcntl
import io
import os
import pty
import random
import struct
import sys
import termios

import pytest

from regard.cli.messages import (
    MAX_CHARACTERS,
    fit_columns,
    print_message,
    print_table,
    shorten,
    show_progress,
    terminal_width,
    wrap,
    wrap_cell,
)

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


@pytest.fixture
def terminal(request):
    """Return a stream to a terminal with that many columns, and a function that reads what was written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, request.param, 0, 0))
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:

        def read():
            stream.write("\f")  # an end mark, as the text may arrive in parts
            stream.flush()
            parts = []
            while not parts or not parts[-1].endswith(b"\f"):
                parts.append(os.read(ours, 100_000))
            return b"".join(parts).decode().removesuffix("\f").replace("\r\n", "\n")

        yield stream, read
    os.close(ours)


@pytest.mark.parametrize("terminal", [80, 133], indirect=True)
def test_a_terminal_has_a_width_and_a_file_has_none(terminal, tmp_path):
    stream, _ = terminal
    assert terminal_width(stream) in (80, 133)
    assert terminal_width(io.StringIO()) is None
    with open(tmp_path / "file", "w", encoding="utf-8") as file:
        assert terminal_width(file) is None
    assert terminal_width(file) is None  # closed


def test_lines_break_between_words():
    text = "what to train on? give --source FILE --target FILE, --documents FILE.tsv, or --images FOLDER"
    assert wrap(text, None) == text
    for width in (13, 40, 80):
        lines = wrap(text, width, 2).split("\n")
        assert " ".join(line.strip() for line in lines).split() == text.split()
        assert all(len(line) <= width for line in lines)
        assert all(line.startswith("  ") for line in lines[1:])


def test_a_cell_breaks_between_words_and_behind_the_bars_of_a_signature():
    assert wrap_cell(SIGNATURE, 50) == ["nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|", "version:2.6.0"]
    assert wrap_cell("two words", 80) == ["two words"]
    assert wrap_cell("", 3) == [""]
    assert wrap_cell("indivisible", 3) == ["indivisible"]


def test_columns_fit_whatever_they_hold():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(50):
        columns = [
            [" ".join("x" * rng.randint(1, 9) for _ in range(rng.randint(0, 12))) for _ in range(4)] for _ in range(4)
        ]
        widths = fit_columns(columns, 60)
        assert sum(widths) + 6 <= 60  # four columns of words of at most nine letters always fit
        for column, width in zip(columns, widths, strict=True):
            for cell in column:
                lines = wrap_cell(cell, width)
                assert all(len(line) <= width for line in lines)
                assert " ".join(lines).split() == cell.split()


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_a_table_and_a_message_fit_a_terminal(terminal, monkeypatch):
    stream, read = terminal
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    print_table(("metric", "score", "signature"), [("character error rate", "31.2", SIGNATURE)])
    stream.flush()
    assert read().split("\n") == [
        "metric                score  signature",
        "character error rate   31.2  nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|",
        " " * 29 + "version:2.6.0",
        "",
    ]
    print_message("my.en has 400 lines and s.de has 100; expected the same number, because line i of one is another's")
    stream.flush()
    assert read().split("\n") == [
        "regard: my.en has 400 lines and s.de has 100; expected the same number, because",
        "line i of one is another's",
        "",
    ]


def test_a_table_in_a_pipe_stays_whole(capsys):
    print_table(None, [("BLEU", SIGNATURE + " " + SIGNATURE), ("chrF", "7.0")])
    assert capsys.readouterr().out == f"BLEU  {SIGNATURE} {SIGNATURE}\nchrF  7.0\n"
    print_table(None, [])
    assert capsys.readouterr().out == ""


def test_a_message_goes_to_standard_error(capsys):
    print_message("nothing to do")
    assert capsys.readouterr() == ("", "regard: nothing to do\n")


def test_numbers_stand_to_the_right(capsys):
    print_table(("metric", "score"), [("BLEU", "31.2"), ("chrF", "7.0")])
    assert capsys.readouterr().out == "metric  score\nBLEU     31.2\nchrF      7.0\n"
    print_table(("metric", "score"), [("BLEU", "31.2"), ("TER", "none")])
    assert capsys.readouterr().out == "metric  score\nBLEU    31.2\nTER     none\n"
    print_table(("key", "default"), [("layers", "6")], numbers_right=False)
    assert capsys.readouterr().out == "key     default\nlayers  6\n"


def test_a_table_without_rows_has_its_head(capsys):
    print_table(("metric", "score"), [])
    assert capsys.readouterr().out == "metric  score\n"


@pytest.mark.parametrize("count", [1, MAX_CHARACTERS, MAX_CHARACTERS + 1, 100_000])
def test_a_message_is_never_longer_than_a_page(count):
    text = "x" * count
    short = shorten(text)
    assert len(short) <= MAX_CHARACTERS + 1
    assert (short == text) == (count <= MAX_CHARACTERS)


def test_a_message_is_one_line():
    assert "\n" not in shorten("a\nb")


def test_a_bar_is_for_terminals(capsys):
    assert list(show_progress(range(3), 3, "counting")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
