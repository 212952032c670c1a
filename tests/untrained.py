"""Run folders of every kind, complete but untrained, to save time; and changes of their files with new checksums."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from regard.data import Tokenizers, train
from regard.tasks import build_model, read_settings, write_config
from regard.training import Checkpoints, Counters, Prediction, read_manifest, weight_files
from regard.training.checkpoint import canonical

LABELS = ["bad", "good"]
TEXTS = ["1 2 3", "4 5 6 7", "8 9 0", "1 3 5 7 9"]
STEP = "step-000001"
SMALL: dict[str, dict[str, Any]] = {
    "rnn": {"size": 8, "embedding": 8},
    "rnnsearch": {"size": 8, "embedding": 8, "hidden": 8, "maxout": 4},
    "luong": {"size": 8, "embedding": 8, "layers": 1},
    "transformer": {"size": 8, "heads": 2, "layers": 1, "hidden": 8},
    "encoder": {"size": 8, "heads": 2, "layers": 1, "hidden": 8},
    "lstmn": {"size": 8, "embedding": 8, "hidden": 8},
    "pointer": {"size": 8, "embedding": 8, "hidden": 8},
    "ntm": {"size": 8, "embedding": 8, "slots": 8, "width": 4},
    "captioner": {"channels": 4, "stages": 2, "blocks": 1, "size": 8, "embedding": 8, "hidden": 8},
    "han": {"size": 4, "embedding": 8, "hidden": 8},
    "convnet": {"channels": 8, "stages": 2, "blocks": 1, "after": 1},
}
DATA: dict[str, dict[str, Any]] = {
    "captioner": {"images": "pictures", "captions": "captions.tsv", "image_size": 32},
    "convnet": {"images": "pictures", "labels": "labels.tsv", "image_size": 32},
    "han": {"documents": "reviews.tsv"},
}
TASKS = {"encoder": "classify", "han": "classify", "convnet": "classify", "captioner": "caption"}


def make_run(folder: Path, kind: str, task: str | None = None, **model: Any) -> Path:
    """Make a run of a kind with untrained weights."""
    task = task or TASKS.get(kind, "translate")
    data = DATA.get(kind, {"documents": "reviews.tsv"} if task == "classify" else {"source": "a", "target": "b"})
    table = {"task": task, "data": data, "tokenizer": {"kind": "word"}, "model": {"kind": kind, **SMALL[kind], **model}}
    settings = read_settings(table)
    tokenizers = None if kind == "convnet" else Tokenizers(train(TEXTS, "word"))
    labels = LABELS if task == "classify" else []
    torch.manual_seed(3)
    built = build_model(settings, tokenizers, labels)
    folder.mkdir(parents=True)
    write_config(folder / "config.toml", settings)
    if tokenizers is not None:
        tokenizers.save(folder / "tokenizer.json")
    facts: dict[str, Any] = {
        "task": task,
        "model": settings.table()["model"],
        "tokenizer": None if tokenizers is None else tokenizers.hash,
    }
    if labels:
        facts["labels"] = labels
    manifest = {"step": 1, "counters": Counters(1).table(), "task": facts}
    Checkpoints(folder).write(STEP, weight_files.weights_of(Prediction(built)), {}, manifest)
    return folder


def change_weights(run: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    """Change a run's weights and update their checksum."""
    path = run / "checkpoints" / STEP / "model.safetensors"
    weights = load(path.read_bytes())
    change(weights)
    replace_file(run, save(weights))


def replace_file(run: Path, content: bytes, name: str = "model.safetensors") -> None:
    """Replace a checkpoint's file and update its checksum."""
    (run / "checkpoints" / STEP / name).write_bytes(content)
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def fit(manifest: dict[str, Any]) -> None:
        manifest["files"][name] = facts

    change_manifest(run, fit)


def change_manifest(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a run's manifest and update its checksum."""
    folder = run / "checkpoints" / STEP
    manifest = read_manifest(folder)
    change(manifest)
    write_manifest(run, manifest)


def write_manifest(run: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest with its checksum, whatever its content."""
    content = canonical({key: value for key, value in manifest.items() if key != "sha256"})
    (run / "checkpoints" / STEP / "manifest.json").write_bytes(content)


def change_tokenizer(run: Path, content: bytes) -> None:
    """Replace a run's tokenizer.json and update its checksum."""
    (run / "tokenizer.json").write_bytes(content)

    def fit(manifest: dict[str, Any]) -> None:
        manifest["task"]["tokenizer"] = hashlib.sha256(content).hexdigest()

    change_manifest(run, fit)
