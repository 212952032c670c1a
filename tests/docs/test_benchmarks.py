"""Every ratio on the page of benchmarks is in the benchmark's own file."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = (ROOT / "docs" / "results.md").read_text().split("\n## ")[1:]
COSTS = (ROOT / "docs" / "guide" / "benchmarks.md").read_text().partition("## On a CPU")[2]


def test_every_figure_was_measured():
    figures = re.findall(r"\| ([0-9.]+) × [^|]+\|$", COSTS, re.MULTILINE)
    files = set(re.findall(r"`(benchmarks/results/[^`]+\.json)`", COSTS))
    results = [result for file in files for result in json.loads((ROOT / file).read_text())["results"]]
    measured = {f"{result['ratio']:.2f}" for result in results if result["ratio"] is not None}
    assert len(files) == 4
    assert len(figures) >= 8
    assert set(figures) <= measured
    (alone,) = (result["ratio"] for result in results if "sentence alone" in result["what"])
    assert re.findall(r"takes ([0-9.]+) times as long", COSTS) == [f"{alone:.1f}"]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda text: text.partition("\n")[0])
def test_tables_of_results_name_their_file_or_that_there_is_none(section):
    files = re.findall(r"`(?:benchmarks/results/)?([\w-]+\.json)`", section)
    assert all((ROOT / "benchmarks" / "results" / file).is_file() for file in files)
    if "\n| --- |" in section:
        assert files or re.search(r"[Nn]o (?:results )?file", section)
        assert "changed since" in section or "before later changes" in section or "log" in section


@pytest.mark.parametrize("page", ["README.md", "docs/results.md", "docs/guide/benchmarks.md"])
def test_transformers_model_is_not_called_by_the_name_of_the_toolkit(page):
    assert not re.search(r"\bMarian\b(?!-)", (ROOT / page).read_text())
