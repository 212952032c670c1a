"""A reported training, and the screen that shows it."""

import io
import re

from rich.console import Console

from regard.training.display import LiveProgress
from regard.training.progress import SafeStream, Sample

SAMPLES = [
    Sample("A man rides a horse .", "Ein Mann reitet ein Pferd .", "Ein Mann fährt Pferd ."),
    Sample("שלום, עולם (מה שלומך?)", "Hello, world", "Hello, world"),
    Sample("漢字" * 60, "漢字仮名", "漢名"),
]


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
    """Return the final screen: lines written, cursor moved up, lines erased."""
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
