"""What a person sees of training: true, in any window and any encoding, and never the reason that training stops."""

import contextlib
import io
import itertools
import math
import os
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from regard.training.display import ProgressGroup, open_progress
from regard.training.live import REFRESH, LiveProgress
from regard.training.progress import CurrentFigures, PlainProgress, Progress, SafeStream
from regard.training.sample import Sample, legible

SAMPLES = [
    Sample("A man rides a horse .", "Ein Mann reitet ein Pferd .", "Ein Mann fährt Pferd ."),
    Sample("שלום, עולם (מה שלומך?)", "Hello, world", "Hello, world"),
    Sample("漢字" * 60, "漢字仮名", "漢名"),
]
SHOWN = """
from regard.training.display import open_progress
shown = open_progress(None)
shown.begin('t', [], 1)
shown.end('over')
"""


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def train(told, steps=300, total=300, clock=None, seconds=0.02, **more):
    told.begin("regard train", [("model", "transformer, 1.3 M parameters"), ("data", "9 pairs")], total)
    for step in range(1, steps + 1):
        if clock:
            clock.now += seconds
        told.step({"step": step, "epoch": 1, "loss": 4.0, "rate": 4.2e-4, "tokens_per_second": 2310.4} | more)


def display(width=80, height=24, encoding="utf-8"):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    console = Console(file=SafeStream(file), force_terminal=True, width=width, height=height, highlight=False)
    clock = Clock()
    return LiveProgress(console=console, clock=clock), clock, raw


def screen(raw, encoding="utf-8"):
    """What stands there after everything was drawn over: lines written, cursor moved up, lines erased."""
    lines, at = [""], 0
    text = raw.getvalue().decode(encoding)
    for part in re.split(r"(\x1b\[[0-9;?]*[a-zA-Z]|\n|\r)", text):
        if part == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif part.startswith("\x1b[") and part.endswith("A"):
            at -= int(part[2:-1])
            assert at >= 0
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part and part != "\r" and not part.startswith("\x1b"):
            lines[at] += part
    return [line.rstrip() for line in lines]


def test_plain_lines_come_now_and_then():
    out, clock = io.StringIO(), Clock()
    train(PlainProgress(out, clock=clock), clock=clock, steps=300, total=400)
    lines = out.getvalue().splitlines()
    assert lines[:3] == ["regard train", "model: transformer, 1.3 M parameters", "data: 9 pairs"]
    assert [line.split(" · ")[0] for line in lines[3:]] == ["step 1/400", "step 101/400", "step 201/400"]
    assert lines[3] == "step 1/400 · loss 4.00 · rate 4.2e-4 · 2,310 tokens/s"


def test_slow_steps_are_told_every_ten_seconds_and_quick_ones_every_second():
    for seconds, told in [(4.0, [1, 4, 7, 10, 12]), (20.0, list(range(1, 13)))]:
        out, clock = io.StringIO(), Clock()
        train(PlainProgress(out, clock=clock), clock=clock, steps=12, total=12, seconds=seconds)
        assert [int(n) for n in re.findall(r"^step (\d+)/12", out.getvalue(), re.M)] == told
    out, clock = io.StringIO(), Clock()
    train(PlainProgress(out, clock=clock), clock=clock, steps=5000, total=6000, seconds=0.001)
    assert len(re.findall(r"^step ", out.getvalue(), re.M)) == 5  # in five seconds


def test_time_left_is_the_pace_since_the_first_record():
    course = CurrentFigures(1000)
    assert course.left is None
    course.step({"step": 500, "seconds": 30.0})  # resumed: five hundred steps were not taken in these thirty seconds
    assert course.left is None
    course.step({"step": 600, "seconds": 40.0})
    assert course.left == pytest.approx(40.0)
    course.step({"step": 1200, "seconds": 50.0})
    assert course.left == 0


@pytest.mark.parametrize(
    "records",
    [
        [{}],
        [{"step": 1, "loss": math.nan, "seconds": 0.0, "tokens_per_second": math.inf, "rate": 0.0}],
        [{"step": 1, "loss": math.inf}, {"step": 1, "loss": None, "seconds": 0}],
        [{"step": 5, "seconds": 0.0, "tokens_per_second": 0.0}, {"step": 4, "seconds": 0.0}],
        [{"step": 10, "steps": 5, "loss": -1e30, "rate": 1, "skipped": 3, "unknown": "x"}],
    ],
)
@pytest.mark.parametrize("steps", [None, 0, 1, 10])
def test_odd_records_are_shown(records, steps):
    out = io.StringIO()
    live, _, raw = display()
    told = ProgressGroup([PlainProgress(out), live])
    told.begin("t", [], steps)
    for record in records:
        told.step(record)
        told.valid(record)
    told.samples([])
    told.end("over")
    assert out.getvalue().splitlines()[-1] == "over"
    assert screen(raw)[-2] == "over"


def test_a_loss_that_is_not_finite_is_said_and_not_averaged():
    out = io.StringIO()
    told = PlainProgress(out, clock=(clock := Clock()))
    told.begin("t", [], None)
    for step, loss in enumerate([3.0, math.nan, 3.0], 1):
        clock.now += 20
        told.step({"step": step, "loss": loss, "seconds": clock.now, "skipped": int(step > 1)})
    assert out.getvalue().splitlines()[1:] == [
        "step 1 · loss 3.00 · 20 s so far",
        "step 2 · loss not finite (was 3.00) · 1 skipped · 40 s so far",
        "step 3 · loss 3.00 · 1 skipped · 60 s so far",
    ]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_the_smoothed_loss_lies_among_the_losses(losses):
    course = CurrentFigures()
    for step, loss in enumerate(losses):
        course.step({"step": 7 * step, "loss": loss})
    assert min(losses) - 1e-9 <= course.loss <= max(losses) + 1e-9


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
    assert re.search(r"\x1b\[0m *Ein \x1b", text)  # what agrees is as it is, only the reference is dim
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


def test_drawn_at_most_four_times_a_second():
    live, clock, _ = display()
    live.begin("t", [], 10_000)
    drawn = []
    live._live.refresh = lambda: drawn.append(clock.now)
    for step in range(1, 1001):
        clock.now += 0.01
        live.step({"step": step, "loss": 1.0})
    times = list(drawn)  # the end is always drawn
    live.close()
    assert 10 <= len(times) <= 10 / REFRESH + 1
    assert REFRESH >= 0.25
    assert min(b - a for a, b in itertools.pairwise(times)) >= REFRESH - 1e-9


def test_a_step_costs_next_to_nothing():
    live, clock, _ = display()
    told = ProgressGroup([live, PlainProgress(io.StringIO(), clock=clock)])
    told.begin("t", [], 10**6)
    record = {"step": 1, "epoch": 1, "loss": 4.0, "rate": 4.2e-4, "tokens_per_second": 2310.4, "seconds": 1.0}
    told.step(record)
    begun = time.perf_counter()
    for step in range(2, 1002):
        told.step({**record, "step": step})
    told.close()
    assert (time.perf_counter() - begun) / 1000 < 1e-3  # microseconds really; types are checked here


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


def test_a_stream_that_breaks_does_not_stop_training(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    file = open(writer, "w", buffering=1)  # noqa: SIM115
    for told in (PlainProgress(SafeStream(file)), LiveProgress(SafeStream(file))):
        train(told, steps=3)
        told.samples(SAMPLES)
        told.end("over")
    closed = open(tmp_path / "x", "w")  # noqa: SIM115
    closed.close()
    PlainProgress(SafeStream(closed)).say("nobody hears")
    with contextlib.suppress(BrokenPipeError):
        file.close()


def test_a_sample_cannot_command_the_terminal():
    text = legible("a\x1b[31m\nb\u202e\x07\tc\x9b")
    assert text == "a�[31m b� c�"


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


def test_the_cursor_comes_back_when_training_fails():
    live, _, raw = display()
    with contextlib.suppress(RuntimeError), live:
        live.begin("t", [], 10)
        assert b"\x1b[?25l" in raw.getvalue()
        raise RuntimeError("out of memory")
    assert raw.getvalue().rindex(b"\x1b[?25h") > raw.getvalue().rindex(b"\x1b[?25l")


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
