"""With configs/scenes-question.toml the attention layer gains at least ten points on questions about two places."""

import tomllib
from pathlib import Path

import pytest

from regard.tasks.run_start import start

CONFIG = Path(__file__).parents[2] / "configs" / "scenes-question.toml"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_self_attention_is_worth_ten_points(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    accuracy = {}
    for attention in (True, False):
        table = tomllib.loads(CONFIG.read_text())
        table["model"]["attention"] = attention
        table["training"]["device"] = "cpu"
        accuracy[attention] = start(table, tmp_path / f"run-{attention}").task.validate()["accuracy"]
    assert accuracy[True] > 0.9
    assert accuracy[True] - accuracy[False] > 0.1
