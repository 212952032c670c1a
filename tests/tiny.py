"""Small tasks that train quickly: one fits a line, and reversed digits are for the real tasks."""

import itertools
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import TrainingError
from regard.training import Loss, Progress, Task, TrainingSettings

TIMES = {"seconds", "tokens_per_second", "waited"}  # keys of a record that differ in every run
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"kind": "transformer", "size": 16, "heads": 2, "layers": 1, "hidden": 16},
    "rnnsearch": {"kind": "rnnsearch", "size": 16, "embedding": 8, "hidden": 8, "maxout": 8},
    "luong": {"kind": "luong", "size": 16, "embedding": 8, "layers": 1},
    "rnn": {"kind": "rnn", "size": 16, "embedding": 8},
}


class Fit(nn.Module):
    """Return the summed squared error of a small net."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).to(dtype)

    def forward(self, batch: tuple[Tensor, Tensor]) -> Loss:
        x, y = batch
        return Loss((self.net(x) - y).square().sum())


class Line(Task):
    """Fit y = 2x + 1: only what the loop requires of a task, without translation."""

    def __init__(self, rows: int = 8, batches: int = 5, dtype: torch.dtype = torch.float32):
        torch.manual_seed(3)
        self.objective, self.rows, self.batches, self.dtype = Fit(dtype), rows, batches, dtype

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(number)
        for _ in range(self.batches):
            x = torch.randn(self.rows, 1, generator=generator, dtype=self.dtype)
            yield x, 2 * x + 1

    def count(self, plan: tuple[Tensor, Tensor]) -> int:
        return len(plan[0])

    def halves(self, batch: tuple[Tensor, Tensor]) -> list[tuple[Tensor, Tensor]]:
        if len(batch[0]) < 2:
            raise TrainingError("one row, and no room")
        return list(zip(batch[0].chunk(2), batch[1].chunk(2), strict=True))

    def validate(self) -> dict[str, float]:
        x = torch.linspace(-1, 1, 9, dtype=self.dtype)[:, None]
        return {"loss": float(self.objective((x, 2 * x + 1)).total) / 9}


def training(**given: Any) -> TrainingSettings:
    """Return settings of a short run with a constant rate."""
    short: dict[str, Any] = {"steps": 8, "rate": 0.01, "schedule": "constant", "warmup": 0, "metric": "loss"}
    return TrainingSettings(**{**short, "validate_every": 4, "log_every": 2, "device": "cpu", **given})


class StopAt(Progress):
    """Raise a signal after a step was recorded, like a user at the keyboard."""

    def __init__(self, step: int, number: int = signal.SIGTERM):
        self.step_to_stop, self.number = step, number

    def step(self, record: Any) -> None:
        if record["step"] == self.step_to_stop:
            os.kill(os.getpid(), self.number)


def write_pairs(folder: Path, count: int = 200, seed: int = 0, longest: int = 6) -> tuple[str, str]:
    """Write numbers, digit by digit, and their reversals."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    rows = [[draw.choice("0123456789") for _ in range(draw.randint(1, longest))] for _ in range(count)]
    paths = folder / "source.txt", folder / "target.txt"
    if paths[1].exists():
        return str(paths[0]), str(paths[1])
    paths[0].write_text("".join(" ".join(row) + "\n" for row in rows))
    paths[1].write_text("".join(" ".join(reversed(row)) + "\n" for row in rows))
    return str(paths[0]), str(paths[1])


def table(folder: Path, kind: str = "transformer", **changes: Any) -> dict[str, Any]:
    """Return a configuration for them; `changes` by key, with __ for the dot, as in training__steps=4."""
    source, target = write_pairs(folder / "pairs")
    whole: dict[str, Any] = {
        "data": {"source": source, "target": target, "held_out": 0.05, "cache": str(folder / "cache")},
        "tokenizer": {"kind": "word"},
        "model": dict(MODELS[kind]),
        "training": {
            "steps": 8,
            "batch_tokens": 64,
            "warmup": 4,
            "validate_every": 4,
            "validate_rows": 4,
            "log_every": 2,
            "device": "cpu",
            "metric": "loss",
        },
    }
    for key, value in changes.items():
        part, _, name = key.partition("__")
        if name:
            whole[part][name] = value
        else:
            whole[part] = value
    return whole


def records(run: Path, but: set[str] = TIMES) -> list[dict[str, Any]]:
    """Return a run's metrics without the times."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in but} for line in lines]


def same_tensors(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Return whether names and every bit are equal."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def free_port() -> int:
    """Return a port on which no process listens."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def first(stream: Iterator[Any], count: int) -> list[Any]:
    """Return the first items of an endless stream."""
    return list(itertools.islice(stream, count))


# ---- pictures and documents


def write_pictures(folder: Path, count: int = 24, question: str = "none") -> Path:
    """Write drawn scenes as PNG files, with captions.tsv or labels.tsv beside them."""
    from PIL import Image

    from regard.data import generate

    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    lines = []
    for i, example in enumerate(generate("scenes", count, size=32, question=question)):
        Image.fromarray(example.picture()).save(folder / "pictures" / f"{i}.png")
        lines.append(f"{i}.png\t{example.target}\n")
    (folder / ("captions.tsv" if question == "none" else "labels.tsv")).write_text("".join(lines))
    return folder


def write_documents(folder: Path, count: int = 40) -> Path:
    """Write reviews, with a label and a text per line."""
    from regard.data import generate

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reviews.tsv"
    path.write_text("".join(f"{each.target}\t{each.source}\n" for each in generate("reviews", count)))
    return path


SHORT: dict[str, Any] = {
    "steps": 4,
    "warmup": 1,
    "validate_every": 2,
    "validate_rows": 2,
    "log_every": 2,
    "device": "cpu",
}


def caption_table(folder: Path, **model: Any) -> dict[str, Any]:
    """Return a configuration for pictures with captions."""
    home = write_pictures(folder / "captioned")
    small = {"kind": "captioner", "channels": 4, "stages": 2, "blocks": 1, "size": 8, "embedding": 8, "hidden": 8}
    return {
        "data": {
            "images": str(home / "pictures"),
            "captions": str(home / "captions.tsv"),
            "image_size": 32,
            "held_out": 0.1,
            "workers": 1,
            "cache": str(folder / "cache"),
        },
        "tokenizer": {"kind": "word"},
        "model": {**small, **model},
        "training": {**SHORT, "batch_rows": 8},
    }


def question_table(folder: Path, **model: Any) -> dict[str, Any]:
    """Return a configuration for pictures with labels."""
    home = write_pictures(folder / "questions", question="which-size")
    return {
        "data": {
            "images": str(home / "pictures"),
            "labels": str(home / "labels.tsv"),
            "image_size": 32,
            "held_out": 0.1,
            "workers": 1,
            "cache": str(folder / "cache"),
        },
        "model": {"kind": "convnet", "channels": 8, "stages": 2, "blocks": 1, "after": 1, **model},
        "training": {**SHORT, "batch_rows": 8},
    }


def document_table(folder: Path, kind: str = "han") -> dict[str, Any]:
    """Return a configuration for labelled documents."""
    small: dict[str, Any] = {
        "han": {"size": 4, "embedding": 8, "hidden": 8},
        "encoder": {"size": 8, "heads": 2, "layers": 1, "hidden": 8},
        "lstmn": {"size": 8, "embedding": 8, "hidden": 8},
    }
    return {
        "data": {
            "documents": str(write_documents(folder / "documents")),
            "held_out": 0.1,
            "cache": str(folder / "cache"),
        },
        "tokenizer": {"kind": "word"},
        "model": {"kind": kind, **small[kind]},
        "training": {**SHORT, "batch_tokens": 512},
    }
