"""Every ratio on the page of benchmarks stands in the benchmark's own file."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COSTS = (ROOT / "docs" / "guide" / "benchmarks.md").read_text().partition("## On a CPU")[2]


def test_every_figure_was_measured():
    figures = re.findall(r"\| ([0-9.]+) × [^|]+\|$", COSTS, re.MULTILINE)
    files = set(re.findall(r"`(benchmarks/results/[^`]+\.json)`", COSTS))
    results = [result for file in files for result in json.loads((ROOT / file).read_text())["results"]]
    measured = {f"{result['ratio']:.2f}" for result in results if result["ratio"] is not None}
    assert len(files) == 3
    assert len(figures) >= 8
    assert set(figures) <= measured
