"""The choice of a display: live on a terminal, plain lines elsewhere, and log.txt always."""

import io
import json
import os
import re
import subprocess
import sys

import pytest
from training.displays import display, train

from regard.training.display import open_progress
from regard.training.progress import PlainProgress, Progress, Sample

SHOWN = """
from regard.training.display import open_progress
shown = open_progress(None)
shown.begin('t', [], 1)
shown.end('over')
"""


def test_order_does_not_matter():
    for told in (Progress(), PlainProgress(io.StringIO()), display()[0]):
        told.step({"step": 1, "loss": 1.0})
        told.say("x")
        told.begin("a", [], None)
        told.begin("b", [], None)
        told.end("over")
        told.step({"step": 2, "loss": 1.0})
        told.end("over")
        with told:
            pass


def test_the_log_is_written_with_the_time_and_kept_after_a_resume(tmp_path, capsys):
    for text in ("first", "second"):
        with open_progress(tmp_path / "run", terminal=False) as told:
            train(told, steps=1)
            told.end(text)
    log = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert [line[21:] for line in log if line.endswith(("first", "second"))] == ["first", "second"]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \S", line) for line in log)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [line[21:] for line in log]


def test_without_a_terminal_there_are_plain_lines(tmp_path):
    settings = {**os.environ, "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True, env=settings)
    assert (done.stdout, done.stderr) == ("", "t\nover\n")


@pytest.mark.parametrize(("term", "live"), [("xterm-256color", True), ("dumb", False)])
def test_on_a_terminal_there_is_a_display(term, live):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": term}
    subprocess.run([sys.executable, "-c", SHOWN], stderr=theirs, stdout=theirs, check=True, env=settings)
    os.close(theirs)
    text = os.read(ours, 65536)
    os.close(ours)
    assert (b"\x1b[?25l" in text and b"\x1b[?25h" in text) == live
    assert text.endswith(b"over\r\n")


def test_quiet_shows_nothing_and_writes_the_log(tmp_path, capsys):
    with open_progress(tmp_path, terminal=False, display="quiet") as progress:
        train(progress, steps=3)
        progress.end("done")
    assert capsys.readouterr() == ("", "")
    assert "done" in (tmp_path / "log.txt").read_text()


def test_a_line_a_record_for_programs(tmp_path, capsys):
    with open_progress(tmp_path, terminal=True, display="json") as progress:
        progress.begin("run", [("model", "transformer")], 8)
        progress.step({"step": 2, "loss": float("nan")})
        progress.tick(3, 1.0)
        progress.valid({"step": 4, "loss": 2.0, "best": True})
        progress.samples([Sample("a", "b", "c")])
        progress.say("a message")
        progress.end("done")
    out, err = capsys.readouterr()
    assert err == ""
    assert [json.loads(line) for line in out.splitlines()] == [
        {"kind": "begin", "run": "run", "steps": 8, "model": "transformer"},
        {"kind": "step", "step": 2, "loss": None},
        {"kind": "valid", "step": 4, "loss": 2.0, "best": True},
        {"kind": "sample", "source": "a", "reference": "b", "output": "c"},
        {"kind": "message", "text": "a message"},
        {"kind": "end", "text": "done"},
    ]
