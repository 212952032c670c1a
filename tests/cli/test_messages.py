"""What commands print: tables, messages, and mistakes in one line."""

import pytest

from regard.cli import messages
from regard.cli.messages import LONGEST, print_commands, print_message, print_table, shorten, show_progress


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


def test_commands_are_never_broken(capsys, monkeypatch):
    """What they are for stands beside them, or below them in a narrow terminal."""
    commands = {"regard look RUN TEXT": "see what it attends to", "regard demo": "begin"}
    print_commands(commands)
    beside = "  regard look RUN TEXT  see what it attends to\n  regard demo           begin\n"
    assert capsys.readouterr().out == beside
    monkeypatch.setattr(messages, "terminal_width", lambda stream: 46)
    print_commands(commands)
    assert capsys.readouterr().out == beside
    monkeypatch.setattr(messages, "terminal_width", lambda stream: 45)
    print_commands(commands)
    assert capsys.readouterr().out == (
        "  regard look RUN TEXT\n      see what it attends to\n  regard demo\n      begin\n"
    )


def test_a_table_without_rows_has_its_head(capsys):
    print_table(("metric", "score"), [])
    assert capsys.readouterr().out == "metric  score\n"


@pytest.mark.parametrize("count", [1, LONGEST, LONGEST + 1, 100_000])
def test_a_message_is_never_longer_than_a_page(count):
    text = "x" * count
    short = shorten(text)
    assert len(short) <= LONGEST + 1
    assert (short == text) == (count <= LONGEST)


def test_a_message_is_one_line():
    assert "\n" not in shorten("a\nb")


def test_a_bar_is_for_terminals(capsys):
    assert list(show_progress(range(3), 3, "counting")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
