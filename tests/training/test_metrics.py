"""The records of a run, and its numbers as people write them."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training.metrics import Metrics, format_clock, format_duration, format_value, read_records


def test_metrics_are_read_as_they_were_written(tmp_path):
    with Metrics(tmp_path) as metrics:
        metrics.write("step", {"step": 1, "loss": math.nan, "rate": 1e-4})
        assert len(read_records(tmp_path / "metrics.jsonl")) == 1  # at once, not at the end
        metrics.write("valid", {"step": 1, "bleu": 12.4, "best": True, "word": "ä"})
    assert read_records(tmp_path / "metrics.jsonl") == [
        {"kind": "step", "step": 1, "loss": None, "rate": 1e-4},
        {"kind": "valid", "step": 1, "bleu": 12.4, "best": True, "word": "ä"},
    ]
    assert read_records(tmp_path / "none.jsonl") == []


@given(torn=st.integers(0, 40), resume=st.none() | st.integers(0, 12))
def test_a_resume_leaves_no_step_twice(tmp_path_factory, torn, resume):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    lines = [json.dumps({"kind": "step", "step": step}) + "\n" for step in range(1, 11)]
    path.write_text("".join(lines)[: -torn or None] if torn else "".join(lines))
    whole = path.read_text().count("\n")
    metrics = Metrics.__new__(Metrics)  # TensorBoard's writer has a test of its own
    metrics.path = path
    metrics._mend(resume)
    kept = [record["step"] for record in read_records(path)]
    assert kept == [step for step in range(1, 11) if step <= whole and (resume is None or step <= resume)]
    assert path.read_bytes()[-1:] in (b"", b"\n")
    assert [file.name for file in path.parent.iterdir()] == ["metrics.jsonl"]


def test_a_torn_line_in_the_middle_is_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"ste\n[1]\n\xff\xfe\n\n{"step": 2}\n{"step"')
    assert [record["step"] for record in read_records(path)] == [1, 2]


def test_tensorboard_gets_the_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    with Metrics(tmp_path / "metrics.jsonl") as metrics:
        metrics.write("step", {"step": 1, "loss": 4.0})
        metrics.write("step", {"step": 2, "loss": 3.0, "best": True})
    with Metrics(tmp_path / "metrics.jsonl", resume_step=1) as metrics:
        metrics.write("step", {"step": 2, "loss": 2.0})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["step/loss"]
    assert [(event.step, event.value) for event in events.Scalars("step/loss")] == [(1, 4.0), (2, 2.0)]


def test_without_tensorboard_nothing_is_said(tmp_path):
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'tensorboard' else real(name, *more)\n"
        "from regard.training.metrics import Metrics\n"
        f"Metrics({str(tmp_path)!r}).write('step', {{'step': 1}})\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *[(0.2, "under 1 s"), (40, "40 s"), (89.4, "89 s"), (90, "2 min"), (3599, "1 h 00 min"), (11100, "3 h 05 min")],
        *[(86400 * 2.2, "2 d 5 h"), (math.nan, "–"), (math.inf, "–"), (-1.0, "–"), (86399, "1 d 0 h")],
    ],
)
def test_durations(seconds, said):
    assert format_duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0:00"),
        (0.9, "0:00"),
        (59.99, "0:59"),
        (725.0, "12:05"),
        (3600.0, "1:00:00"),
        (11110.0, "3:05:10"),
        (187201.0, "2 d 4:00:01"),
    ],
)
def test_a_clock_moves_every_second(seconds, text):
    assert format_clock(seconds) == text


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        *[("loss", 3.214, "3.21"), ("loss", 0.0214, "0.021"), ("bleu", 12.44, "12.4"), ("exact", 0.831, "83.1%")],
        *[("accuracy", 83.1, "83.1"), ("rate", 4.2e-4, "4.2e-4"), ("rate", 0.0, "0"), ("loss", math.nan, "NaN")],
        *[("x", -1.5, "−1.5"), ("n", 12345, "12,345"), ("x", None, "–"), ("loss", 1e30, "1e+30"), ("word", "w", "w")],
    ],
)
def test_numbers(key, value, said):
    assert format_value(key, value) == said
