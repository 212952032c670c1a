"""The demonstrations: their output and their files."""

import re

import pytest
from cli.typing_in import Command

from regard_corpora import demo

COMMAND = Command("demo")


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "PAIRS", 300)
    monkeypatch.setattr(demo, "TEST", 20)
    monkeypatch.setattr(demo, "LINEAGE_TEST", 20)
    return tmp_path / "out"


def test_demo_trains_translates_and_draws(small):
    found = COMMAND.right("--steps", "4", "--out", small)
    assert found.stdout.count("and more") == 10  # a legend under each of ten drawings
    assert re.search(r"\d+\.\d% of 20 held-out sentences", found.stdout)
    assert "What next" in found.stdout
    assert found.stdout.splitlines()[-2] == f"  regard serve {small} --open"
    assert (small / "report.html").read_text().startswith("<!doctype html>")
    assert (small / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert (small / "checkpoints" / "best" / "manifest.json").is_file()
    COMMAND.right("--steps", "2", "--out", small)


def test_demo_leaves_other_folders_alone(small):
    small.mkdir()
    (small / "thesis.tex").write_text("years of work")
    found = COMMAND.refused("--steps", 2, "--out", small)
    assert "give another --out" in found
    assert (small / "thesis.tex").read_text() == "years of work"


def test_lineage_compares_three(small):
    found = COMMAND.right("--lineage", "--steps", "2", "--out", small)
    for name in demo.MODELS:
        assert re.search(rf"^{name} ", found.stdout, re.MULTILINE)
        assert (small / name / "report.html").is_file()
    assert (small / "lineage.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_lineage_makes_room_for_itself(small):
    for _ in range(2):
        COMMAND.right("--lineage", "--steps", "1", "--out", small)
