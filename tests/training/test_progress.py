"""The progress that a user sees: correct, in any window and encoding, and never the reason for a failure."""

import contextlib
import io
import math
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.displays import SAMPLES, Clock, display, screen, train

from regard.training.display import LiveProgress
from regard.training.progress import (
    CurrentFigures,
    PlainProgress,
    ProgressGroup,
    SafeStream,
    Sample,
    bracketed,
    clip,
    legible,
    nearest,
)


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
    assert len(re.findall(r"^step ", out.getvalue(), re.M)) == 5  # one line a second for five seconds


def test_time_left_is_the_pace_since_the_first_record():
    course = CurrentFigures(1000)
    assert course.seconds_left() is None
    course.step({"step": 500, "seconds": 30.0})  # resumed: these thirty seconds had fewer steps
    assert course.seconds_left() is None
    course.step({"step": 600, "seconds": 40.0})
    assert course.seconds_left() == pytest.approx(40.0)
    course.step({"step": 1200, "seconds": 50.0})
    assert course.seconds_left() == 0


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


# ---- differences between an output and its reference


WORDS = st.text(alphabet="abc dé\u0301漢字", max_size=24)


def test_pieces_of_a_known_pair():
    assert bracketed("Ein Mann fährt Pferd .", "Ein Mann reitet ein Pferd .") == "Ein Mann [fährt] Pferd ."
    assert bracketed("Ein Pferd .", "Ein braunes Pferd .") == "Ein ‸ Pferd ."
    assert bracketed("", "etwas") == "‸"
    assert bracketed("etwas", "") == "[etwas]"
    assert bracketed("", "") == ""
    assert bracketed("23.5.1998", "23.4.1998") == "23.[5].1998"
    assert bracketed("我昨天吃", "我昨日吃") == "我昨[天]吃"
    assert bracketed("e\u0301", "e\u0300") == "[e\u0301]"  # a combining mark stays with its letter


@given(WORDS, WORDS)
def test_pieces_are_the_output_and_the_rest_is_common(output, reference):
    pieces = Sample("", reference, output).pieces
    assert " ".join("".join(text for text, _ in pieces).split()) == " ".join(output.split())
    assert any(differs for _, differs in pieces) == (output.split() != reference.split())
    rest = iter(" ".join(reference.split()))  # equal parts occur in the reference, in that order
    assert all(letter in rest for text, differs in pieces if not differs for letter in text if letter != " ")


def test_a_label_is_right_or_wrong_as_a_whole():
    wrong = Sample("a film", "positive", "negative", label=True)
    assert wrong.pieces == [("negative", True)]
    assert bracketed("very bad", "very good", label=True) == "[very bad]"
    assert Sample("a film", "positive", "positive", label=True).pieces == [("positive", False)]
    assert wrong.record() == {"source": "a film", "reference": "positive", "output": "negative", "label": True}
    assert set(Sample("a", "b", "c").record()) == {"source", "reference", "output"}


def test_the_nearest_reference():
    references = ["a dog runs", "two dogs play in the grass", "dogs"]
    assert nearest("two dogs run in the grass", references) == references[1]
    assert nearest("", references) == references[0]


@given(text=st.text(alphabet="ab é語 ", max_size=40), width=st.integers(4, 30))
def test_a_line_is_cut_at_a_screens_width(text, width):
    def columns(line):
        return sum(2 if letter == "語" else 1 for letter in line)

    cut = clip(text, width)
    assert columns(cut) <= width
    assert cut == text if columns(text) <= width else (cut.endswith(" …") and text.startswith(cut[:-2]))
