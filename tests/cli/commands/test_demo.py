"""The demonstrations: what they print and leave behind."""

import re

import pytest
from typer.testing import CliRunner

from regard.cli.program import app
from regard_corpora import demo

RUN = CliRunner()


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "PAIRS", 300)
    monkeypatch.setattr(demo, "TEST", 20)
    monkeypatch.setattr(demo, "LINEAGE_TEST", 20)
    return tmp_path / "out"


def test_demo_trains_translates_and_draws(small):
    found = RUN.invoke(app, ["demo", "--steps", "4", "--out", str(small)])
    assert found.exit_code == 0, found.output
    assert found.stdout.count("and more") == 10  # a legend under each of ten drawings
    assert re.search(r"\d+\.\d% of 20 held-out sentences", found.stdout)
    assert "What next" in found.stdout
    assert found.stdout.splitlines()[-1].split("  ")[1] == f"regard serve {small} --open"
    assert (small / "report.html").read_text().startswith("<!doctype html>")
    assert (small / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert (small / "checkpoints" / "best" / "manifest.json").is_file()
    again = RUN.invoke(app, ["demo", "--steps", "2", "--out", str(small)])
    assert again.exit_code == 0, again.output


def test_demo_leaves_other_folders_alone(small):
    small.mkdir()
    (small / "thesis.tex").write_text("years of work")
    found = RUN.invoke(app, ["demo", "--steps", "2", "--out", str(small)])
    assert found.exit_code == 2
    assert "give another --out" in found.stderr
    assert (small / "thesis.tex").read_text() == "years of work"


def test_lineage_compares_three(small):
    found = RUN.invoke(app, ["demo", "--lineage", "--steps", "2", "--out", str(small)])
    assert found.exit_code == 0, found.output
    for name in demo.MODELS:
        assert re.search(rf"^{name} ", found.stdout, re.MULTILINE)
        assert (small / name / "report.html").is_file()
    assert (small / "lineage.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_lineage_makes_room_for_itself(small):
    for _ in range(2):
        found = RUN.invoke(app, ["demo", "--lineage", "--steps", "1", "--out", str(small)])
        assert found.exit_code == 0, found.output
