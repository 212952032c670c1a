"""Claims, sources and outcomes in one table."""

import json

import pytest

from regard.errors import DataError
from regard_studies import STUDIES
from regard_studies.index import read_results, write_index

SIGNED = {"device": "A card", "seed": 0, "seeds": [0, 1], "quick": False, "corpus": "A corpus"}


def put(out, name, agrees, **signed):
    folder = out / name
    folder.mkdir(parents=True)
    verdicts = [{"claim": f"claim {i}", "agrees": each, "evidence": "1"} for i, each in enumerate(agrees)]
    results = {
        "name": name,
        "title": "T",
        "claim": "A | B < C",
        "source": "S 2017",
        "tables": [],
        "verdicts": verdicts,
        "signature": {**SIGNED, **signed},
    }
    (folder / "results.json").write_text(json.dumps(results))


def test_a_line_a_study_in_the_order_of_the_list(tmp_path):
    put(tmp_path, "positions", [True, False, False])
    put(tmp_path, "fixed-context", [True, True], corpus="", seeds=[3], quick=True)
    put(tmp_path, "one of mine", [True], corpus="", seeds=[])
    text = write_index(tmp_path).read_text()
    lines = [line for line in text.splitlines() if line.startswith("| [")]
    assert [line.split("]")[0] for line in lines] == ["| [fixed-context", "| [positions", "| [one of mine"]
    claim = STUDIES["fixed-context"].claim
    assert lines[0] == (
        f"| [fixed-context](fixed-context/README.md) | {claim} | 2 of 2 | S 2017 | what is built in, A card, "
        "seed 3, quick |"
    )
    assert lines[1].endswith("| 1 of 3 | S 2017 | A corpus, A card, seeds 0, 1 |")
    assert lines[2].endswith("| nothing trained, A card, seed 0 |")
    assert "A \\| B < C" in lines[2]
    page = (tmp_path / "index.html").read_text()
    assert page.count("<tr><td>") == 3
    assert "A | B &lt; C" in page
    assert 'href="positions/index.html"' in page


def test_what_does_not_agree_stands_below_the_table(tmp_path):
    put(tmp_path, "positions", [True, False, False])
    put(tmp_path, "fixed-context", [True, True])
    below = write_index(tmp_path).read_text().partition("## What does not agree\n\n")[2]
    assert below == "**positions**\n\n- claim 1\n- claim 2\n"
    assert "<h3>positions</h3><ul><li>claim 1</li><li>claim 2</li></ul>" in (tmp_path / "index.html").read_text()


def test_where_everything_agrees_nothing_is_below_the_table(tmp_path):
    put(tmp_path, "positions", [True])
    assert "agree\n" not in write_index(tmp_path).read_text()
    assert "<h2>" not in (tmp_path / "index.html").read_text()


def test_what_is_no_result_is_named(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/results.json").write_text("{")
    with pytest.raises(DataError, match=r"broken/results\.json: not the results of a study"):
        read_results(tmp_path)
