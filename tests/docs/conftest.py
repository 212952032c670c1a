"""The folder that the guide assumes: text files, a run in runs/en-de, the shipped configurations."""

import os
import shutil
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def furnished(tmp_path_factory) -> Path:
    """Create the folder; its run has trained for twenty steps, and has learned almost nothing."""
    from regard.data import generate
    from regard.report import train_and_report

    desk = tmp_path_factory.mktemp("desk")
    examples = list(generate("phrasebook", 1000, longest=8))
    for side, texts in (("en", [each.source for each in examples]), ("de", [each.target for each in examples])):
        (desk / f"train.{side}").write_text("".join(f"{text}\n" for text in texts))
    shutil.copytree(ROOT / "configs", desk / "configs")
    table = {
        "data": {"source": str(desk / "train.en"), "target": str(desk / "train.de"), "cache": str(desk / "cache")},
        "tokenizer": {"size": 512},
        "model": {"kind": "transformer", "size": 16, "heads": 4, "layers": 2, "hidden": 16},
        "training": {
            "steps": 20,
            "batch_tokens": 128,
            "validate_every": 10,
            "validate_rows": 4,
            "metric": "loss",
            "device": "cpu",
        },
    }
    here, threads = Path.cwd(), torch.get_num_threads()
    os.chdir(desk)
    try:
        train_and_report(table, Path("runs/en-de"))
    finally:
        os.chdir(here)
        torch.set_num_threads(threads)
    for name in ("opus", "nllb"):  # stand-ins for imported runs, where only the configuration is read
        shutil.copytree(desk / "runs" / "en-de", desk / "runs" / name)
    return desk


@pytest.fixture
def desk(furnished, monkeypatch) -> Path:
    """Make the furnished folder the current one, and return it."""
    monkeypatch.chdir(furnished)
    monkeypatch.setenv("REGARD_CACHE", str(furnished / "cache"))
    return furnished
