"""A file is complete or absent, whatever happens on the way; it holds one output per line."""

import gzip
import json
import math
import os
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import CommandError, DataError
from regard.io.results import (
    LISTED,
    OutputFormat,
    UntranslatedReport,
    check_output,
    format_pharaoh,
    json_number,
    open_output,
    parse_pharaoh,
    quote,
    sample_line,
)
from regard.run import Translation


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, "signal"])
def test_what_fails_leaves_what_was(tmp_path, stop, capsys):
    out = tmp_path / "out.txt"
    out.write_text("before")

    def half() -> None:
        with open_output(out) as write:
            write("half")
            if stop == "signal":
                signal.raise_signal(signal.SIGTERM)
            raise stop

    with pytest.raises(SystemExit if stop == "signal" else stop):
        half()
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]
    assert capsys.readouterr().err == ("regard: stopped by SIGTERM\n" if stop == "signal" else "")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_succeeds_is_whole(tmp_path):
    for name in ("out.txt", "out.gz"):
        with open_output(tmp_path / name) as write:
            write("ä\u2028\r\n")
            assert not (tmp_path / name).exists()
            write("b\n")
    assert (tmp_path / "out.txt").read_bytes() == "ä\u2028\r\nb\n".encode()
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == "ä\u2028\r\nb\n".encode()


def test_a_link_stays_one(tmp_path):
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    with open_output(tmp_path / "link") as write:
        write("after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"


def test_a_named_pipe_is_written_as_it_comes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    with open_output(tmp_path / "pipe") as write:
        write("one\n")
    reader.join()
    assert read == ["one\n"]
    assert (tmp_path / "pipe").is_fifo()


def test_another_process_writes(tmp_path):
    with open_output(tmp_path / "out", real=False) as write:
        write("nothing")
    assert list(tmp_path.iterdir()) == []


def test_from_a_thread(tmp_path):
    def work() -> None:
        with open_output(tmp_path / "out") as write:
            write("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (tmp_path / "out").read_text() == "done"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk at hand")
def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(file, text):
        with open("/dev/full", "w") as disk:
            disk.write(text)

    monkeypatch.setattr("regard.io.results.write_encoded", full)
    with pytest.raises(OSError, match="No space left") as error, open_output(tmp_path / "out") as write:
        write("text")
    assert error.value.filename == str(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written(tmp_path):
    check_output(None, "file")
    check_output(tmp_path / "new", "-", None)
    with pytest.raises(CommandError, match="is a folder, expected a file"):
        check_output(tmp_path)
    with pytest.raises(CommandError, match="no folder .*none to write it into"):
        check_output(tmp_path / "none" / "out")
    (tmp_path / "read").touch()
    with pytest.raises(CommandError, match="is an input file, expected another"):
        check_output(tmp_path / "read", "-", str(tmp_path / "." / "read"))


def output(*spans: tuple[int, int]) -> Translation:
    return Translation("", 0.0, 0.0, (), True, untranslated=spans)


def test_a_single_line_is_not_numbered():
    said: list[str] = []
    report = UntranslatedReport(said.append, 1)
    report.look(1, "a b", [output()])  # full coverage and unrequested fields are not named
    report.look(1, "a b", [Translation("", 0.0, 0.0, (), True)])
    report.tell()
    report.look(1, "I see the dog. I see\tthe cat.", [output((0, 3), (4, 8)), output()])
    report.tell()
    report.tell()  # nothing new
    assert said == ["perhaps not translated: “I see the”, “I see the cat.”"]


def test_lines_are_named_and_then_counted():
    said: list[str] = []
    report = UntranslatedReport(said.append, None)
    for number in range(1, 2 * LISTED + 2):
        report.look(number, "a b c d", [output((0, 3)) if number % 2 else output()])
    report.tell()
    assert said[0].startswith("perhaps not translated: “a b c” (line 1); “a b c” (line 3); ")
    assert said[0].endswith("“a b c” (line 11) and in 1 more line")
    report.look(20_000, "a b c d", [output((1, 4))])
    report.tell()
    assert said[1:] == ["perhaps not translated: “b c d” (line 20,000)"]


def test_words_are_quoted_on_one_line_that_moves_no_cursor():
    assert quote(["a\x1b[2J", "b", "c"]) == "“a\\x1b[2J b c”"
    long = quote([f"word{number}" for number in range(100)])
    assert len(long) < 100
    assert long.startswith("“word0 word1")
    assert long.endswith("word99”")
    assert " … " in long


# ---- forms of lines


FIRST = Translation("der Hund", -1.25, -2.5, ("▁der", "▁Hund"), True, ((0, 0), (1, 1)))
SECOND = Translation("ein Hund", -1.5, -3.0, ("▁ein", "▁Hund"), False)


def test_forms():
    both = [FIRST, SECOND]
    assert OutputFormat().lines(4, "the dog", both) == "der Hund\n"
    assert OutputFormat(scores=True).lines(4, "the dog", both) == "der Hund\t-1.2500\n"
    assert OutputFormat(alignment=True).lines(4, "the dog", both) == "der Hund\t0-0 1-1\n"
    assert OutputFormat(scores=True, alignment=True).lines(4, "the dog", both) == "der Hund\t-1.2500\t0-0 1-1\n"
    nbest = OutputFormat(nbest=True).lines(4, "the dog", both)
    assert nbest == "4 ||| der Hund ||| -1.2500\n4 ||| ein Hund ||| -1.5000\n"
    assert OutputFormat(nbest=True, alignment=True).lines(0, "", [SECOND]) == "0 ||| ein Hund ||| -1.5000 ||| \n"
    sampled = {"text": "ein Hund", "log_prob": -3.0, "tokens": ["▁ein", "▁Hund"], "finished": False}
    row = json.loads(OutputFormat(as_json=True).lines(4, "the dog", [SECOND]))
    assert row == {"source": "the dog", "translations": [{**sampled, "score": -1.5, "alignment": None}]}
    assert [json_number(each) for each in (0.12345678, -math.inf, math.nan)] == [0.123457, None, None]
    assert sample_line(SECOND) == "ein Hund\n"
    assert sample_line(SECOND, scores=True) == "ein Hund\t-3.0000\n"
    assert json.loads(sample_line(SECOND, as_json=True)) == sampled


@given(st.text(), st.booleans(), st.booleans(), st.booleans())
def test_an_output_is_one_line(text, scores, nbest, as_json):
    output = Translation(text, -math.inf, math.nan, (text,), True)
    line = OutputFormat(scores, False, nbest, as_json).lines(0, text, [output])
    assert line.count("\n") == 1
    assert line.endswith("\n")
    if as_json:
        row = json.loads(line)
        assert row["source"] == row["translations"][0]["text"] == text
        assert row["translations"][0]["score"] is row["translations"][0]["log_prob"] is None
    else:
        assert line.count("\t") == (scores and not nbest)
        assert "\r" not in line


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=20))
def test_there_and_back(links):
    line = format_pharaoh(links)
    assert parse_pharaoh(line) == links == parse_pharaoh(f"  {line.replace(' ', chr(9))}\n")
    assert line.count("-") == len(links)
    assert format_pharaoh([(0, 0), (2, 1)]) == "0-0 2-1"  # the source comes first


@pytest.mark.parametrize("text", ["1", "1-", "-1", "a-b", "0:1", "0-0 1–2", "1-2-3", "0-1 2", "1.0-2", "--1", "²-1"])
def test_what_is_not_is_named(text):
    with pytest.raises(DataError, match=r"expected source-target"):
        parse_pharaoh(text)
