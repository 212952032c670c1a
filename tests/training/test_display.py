"""The choice of a display: live on a terminal, plain lines elsewhere, and log.txt always."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len
from training.displays import SAMPLES, display, screen, train

from regard.training.display import open_progress
from regard.training.progress import PlainProgress, Progress, SafeStream, Sample

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


# ---- the live display on a terminal: complete, within its window, drawn rarely


def test_the_display_shows_all_of_it():
    live, clock, raw = display()
    train(live, steps=100, total=400, clock=clock, skipped=2)
    live.valid({"step": 50, "loss": 3.0, "bleu": 12.44, "exact": 0.831, "best": True})
    live.valid({"step": 100, "loss": 3.1, "bleu": 11.0, "exact": 0.8, "best": False, "patience": 4})
    live.samples(SAMPLES)
    live.say("saved [step] 100")
    live.end("done")
    shown = screen(raw)
    assert shown[:4] == ["regard train", "model  transformer, 1.3 M parameters", "data   9 pairs", "saved [step] 100"]
    text = "\n".join(shown)
    assert re.search(r"^step 100/400  ━{10}┄{30}  25%  epoch 1$", text, re.M)
    assert "loss 4.00 · rate 4.2e-4 · 2,310 tokens/s · 2 skipped" in text
    assert "validation step 100 · loss 3.10 · BLEU 11.0 · exact match 80.0% · patience 4" in text
    assert "best       step 50 · loss 3.00 · BLEU 12.4 · exact match 83.1%" in text
    assert "output     Ein Mann fährt ‸ Pferd ." in text or "output     Ein Mann fährt Pferd ." in text
    assert "source     שלום, עולם (מה שלומך?)" in text
    assert shown[-2:] == ["done", ""]


def test_what_differs_is_underlined():
    live, _, raw = display()
    live.begin("t", [], None)
    live.samples([Sample("a", "Ein Mann reitet", "Ein Hund reitet")])
    live.close()
    text = raw.getvalue().decode()
    assert "4" in re.search(r"\x1b\[([0-9;]+)mHund", text)[1].split(";")
    assert re.search(r"\x1b\[0m *Ein \x1b", text)  # equal words are unmarked, and only the reference is dim
    assert re.search(r"\x1b\[2mEin Mann reitet", text)


@pytest.mark.parametrize("width", [1, 2, 7, 20, 39, 40, 60, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 12, 24, 60])
def test_the_display_fits_its_window(width, height):
    live, _, _ = display(width, height)
    live._course.step({"step": 1234567, "epoch": 12, "loss": 3.0, "rate": 4.2e-4, "seconds": 1.0, "steps": 9999999})
    live._course.valid({"step": 1, "loss": 1.0, "bleu": 100.0, "chrf": 100.0, "exact": 1.0, "best": True})
    live._samples = SAMPLES
    lines = live._console.render_lines(live, pad=False)
    assert len(lines) <= max(1, height - 1)
    if width >= 8:
        assert max(sum(cell_len(segment.text) for segment in line) for line in lines) <= min(width, 100)


def test_a_window_of_24_lines_holds_three_samples():
    live, clock, raw = display(80, 24)
    train(live, clock=clock)
    live.valid({"step": 300, "loss": 1.0, "bleu": 10.0, "best": True})
    long = Sample("word " * 40, "wort " * 40, "wert " * 40)
    live.samples([long] * 3)
    live.close()
    assert sum(line.startswith("output") for line in screen(raw)) == 3


def test_a_narrow_encoding_is_written_to():
    raw = io.BytesIO()
    told = PlainProgress(SafeStream(io.TextIOWrapper(raw, encoding="ascii", write_through=True)))
    train(told, steps=1)
    told.samples(SAMPLES)
    told.valid({"step": 1, "loss": -1.5})
    text = raw.getvalue().decode("ascii")
    assert "step 1/300 - loss 4.00 - rate 4.2e-4" in text
    assert "f?hrt" in text
    live, clock, raw = display(encoding="ascii")
    train(live, steps=150, clock=clock)
    live.samples(SAMPLES)
    live.end("done")
    assert re.search(r"step 150/300  ={20}\.{20}  50%", "\n".join(screen(raw, "ascii")))


def test_the_cursor_comes_back_when_training_fails():
    live, _, raw = display()
    with contextlib.suppress(RuntimeError), live:
        live.begin("t", [], 10)
        assert b"\x1b[?25l" in raw.getvalue()
        raise RuntimeError("out of memory")
    assert raw.getvalue().rindex(b"\x1b[?25h") > raw.getvalue().rindex(b"\x1b[?25l")


def test_step_bar_and_time_left_move_between_two_records():
    live, clock, raw = display()
    live.begin("t", [], 100)
    live.step({"step": 20, "loss": 4.0, "seconds": 20.0, "steps": 100})
    shown = []
    for step in range(21, 25):
        clock.now += 1.0
        live.tick(step, float(step))
        live._live.refresh()
        shown.append("\n".join(screen(raw)))
    live.close()
    for step, text in zip(range(21, 25), shown, strict=True):
        assert f"step {step}/100" in text
        assert f"{step // 60}:{step % 60:02d} so far" in text
        assert f"{(100 - step) // 60}:{(100 - step) % 60:02d} left" in text
        assert "loss 4.00" in text  # from the last record


LONG_STEP = """
import time
from regard.training.display import open_progress

with open_progress(None, terminal=True) as progress:
    progress.begin("a run", [], 4)
    for step in range(3):
        progress.tick(step, 30.0 * step)
    time.sleep(3)
    progress.tick(3, 90.0)
    progress.begin_validation()
    time.sleep(2.2)
    progress.valid({"step": 3, "loss": 1.0, "best": True})
    progress.end("what to do next")
"""


def test_times_move_within_a_long_step_and_while_it_validates():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen([sys.executable, "-c", LONG_STEP], stderr=theirs, stdout=theirs, env=settings)
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError), open(ours, "rb", buffering=0) as terminal:
        while part := terminal.read(65536):
            parts.append(part)
    assert process.wait() == 0
    text = b"".join(parts).decode()
    step, _, validation = text.partition("validating")
    # Four seconds of a step of thirty, two of a validation; a busy machine may draw fewer of them.
    assert len(set(re.findall(r"1:0\d so far", step))) >= 3
    assert len(set(re.findall(r"(?:1:00|0:5\d) left", step))) >= 3
    assert len(set(re.findall(r"… 0:0\d", validation))) >= 2
    assert len(set(re.findall(r"1:3\d so far", validation))) >= 2
    assert text.endswith("what to do next\r\n")


def test_a_display_that_is_closed_is_drawn_no_more():
    live, clock, raw = display()
    live.begin("t", [], 10)
    thread = live._live._refresh_thread
    live.begin_validation()
    live.close()
    drawing = raw.getvalue()
    clock.now += 10
    thread.join(timeout=10)
    assert not thread.is_alive()
    live.step({"step": 1, "loss": 1.0})
    assert raw.getvalue() == drawing
    assert "validating" not in screen(raw)[-3:]
