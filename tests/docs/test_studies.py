"""The studies' pages in docs/ exist, are complete, and agree with their index."""

import json
from pathlib import Path

import pytest

from regard_studies import STUDIES, write_index

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "studies"


def results(name):
    return json.loads((PAGES / name / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_page_of_a_full_run(name):
    found = results(name)
    assert found["name"] == name
    assert not found["signature"]["quick"]
    text = (PAGES / name / "README.md").read_text(encoding="utf-8")
    for verdict in found["verdicts"]:
        word = "Agrees" if verdict["agrees"] else "Does not agree"
        assert f"- **{word}**: {verdict['claim']} — {verdict['evidence']}" in text
    assert found["signature"]["device"] in text
    pictures = {path.name for path in (PAGES / name).glob("*.png")}
    assert pictures
    assert all(f"({picture})" in text for picture in pictures)
    assert found["title"] in (PAGES / name / "index.html").read_text(encoding="utf-8") if "title" in found else True


def test_the_index_is_made_of_them(tmp_path):
    for name in STUDIES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(results(name)))
    write_index(tmp_path)
    for file in ("index.md", "index.html"):
        assert (PAGES / file).read_text(encoding="utf-8") == (tmp_path / file).read_text(encoding="utf-8")


CLAIMS = {"fixed-context", "ending", "heads", "positions", "relations"}  # their titles are claims, not subjects


@pytest.mark.parametrize("name", STUDIES)
def test_a_title_that_is_a_claim_says_so(name):
    title = results(name).get("title")
    written = (PAGES / name / "README.md").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    assert title in (written, None)
    assert written.startswith("Claim: ") == (name in CLAIMS)
    page = (PAGES / name / "index.html").read_text(encoding="utf-8")
    assert f"<title>{written}</title>" in page
    assert f"<h1>{written}</h1>" in page
    source = ROOT / "src" / "regard_studies" / f"{name.replace('-', '_')}.py"
    assert f'title="{written}"' in source.read_text(encoding="utf-8")
