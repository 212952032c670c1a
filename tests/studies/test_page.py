"""A page is complete, self-contained and true to its numbers."""

import html.parser
import json
import math
import re

import pytest
import torch

from regard.errors import ArgumentError, CommandError, DataError
from regard.inspection import plot as plots
from regard_studies import STUDIES, run
from regard_studies.page import Page, Plot, Table, Verdict, precision, read_results, show, signed, write_index

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Strict(html.parser.HTMLParser):
    """A parser that checks that elements nest, ids are unique, and nothing is loaded."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.loads, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.note(attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.note(attributes)

    def note(self, attributes):
        named = dict(attributes)
        self.ids += [named["id"]] if "id" in named else []
        links = (value for name, value in attributes if name in ("src", "href", "xlink:href", "srcset", "action"))
        self.loads += [link for link in links if not link.startswith(("#", "data:"))]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page():
    figure, (axes,) = plots.panels(1, titles=["a line"])
    axes.plot([1, 2], [3, 4], color=plots.BLUE)
    other, (right,) = plots.panels(1, titles=["another"])
    right.plot([1, 2], [3, 4], color=plots.RED)
    with signed(seed=3, quick=True, dtype="float32") as clock:
        signature = clock.signature()
    return Page(
        name="trial",
        title="1 < 2 & so on",
        claim="“A claim.”",
        source="Somebody 2017 (arXiv:1706.03762)",
        measured=["What <b>was</b> measured."],
        tables=[Table("Numbers", ["name", "a|b"], [["x", 1e-9], ["y", math.inf]], ["", ".1e"], note="A note.")],
        plots=[Plot("one", figure, "caption one", 'says "one"'), Plot("two", other, "caption two", "says two")],
        verdicts=[Verdict("good", True, "1 = 1"), Verdict("bad", False, "1 ≠ 2")],
        caveats=["Not everything."],
        signature=signature,
    )


def check(text):
    parser = Strict()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert parser.loads == []
    assert len(parser.ids) == len(set(parser.ids))
    for link in re.findall(r'(?:href="#|url\(#)([^")]+)', text):
        assert link in parser.ids
    without = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)  # names, not addresses
    assert not re.search(r"https?://|@import|<script|<link|<iframe", without)
    return "".join(parser.text)


def test_a_page_is_written_whole(tmp_path):
    written = page().write(tmp_path)
    folder = tmp_path / "trial"
    assert written == folder / "index.html"
    assert {path.name for path in folder.iterdir()} == {"index.html", "README.md", "results.json", "one.png", "two.png"}
    text = check(written.read_text())
    for said in (
        "1 < 2 & so on",
        "“A claim.”",
        "<b>was</b>",
        "Does not agree",
        "1.0·10⁻⁹",
        "A note.",
        "Not everything.",
    ):
        assert said in text
    markdown = (folder / "README.md").read_text()
    assert "![says two](two.png)" in markdown
    assert "a\\|b" in markdown
    results = json.loads((folder / "results.json").read_text())
    assert results["tables"][0]["rows"] == [["x", 1e-9], ["y", None]]
    assert [verdict["agrees"] for verdict in results["verdicts"]] == [True, False]
    assert results["signature"]["seed"] == 3


def test_plots_follow_light_and_dark():
    text = page().html()
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert 'name="viewport"' in text
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert f"var(--c{plots.BLUE[1:]})" in drawings
    assert plots.BLUE not in drawings


def test_the_same_plots_give_the_same_page():
    first, second = page(), page()
    second.signature = first.signature
    assert first.html() == second.html()


@pytest.mark.parametrize(
    ("cell", "style", "shown"),
    [
        (None, "", "–"),
        ("word", "", "word"),
        (1234, "", "1,234"),
        (0.5, ".1%", "50.0%"),
        (-2.5, ".1f", "−2.5"),
        (1.5e-12, ".2g", "1.5·10⁻¹²"),
        (math.inf, ".2g", "inf"),
        (True, "", "True"),
    ],
)
def test_cells(cell, style, shown):
    assert show(cell, style) == shown


def test_a_ragged_table_is_refused():
    with pytest.raises(ArgumentError, match="2 cells"):
        Table("t", ["a", "b"], [[1]])


def test_what_was_set_is_set_again():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with signed(seed=1, quick=True, dtype=""), precision(torch.float64):
        assert torch.get_default_dtype() == torch.float64
        torch.rand(3)
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_an_unknown_study_is_named_with_the_nearest():
    with pytest.raises(CommandError, match="did you mean 'scaling'") as caught:
        run("scalling")
    assert all(name in str(caught.value) for name in STUDIES)


@pytest.mark.parametrize("name", [name for name, study in STUDIES.items() if not study.trained])
def test_every_study_writes_a_page(name, tmp_path):
    found = run(name, seed=1, quick=True)
    assert found.name == name
    check(found.write(tmp_path).read_text())
    assert found.verdicts
    assert found.tables
    assert found.plots
    again = run(name, seed=1, quick=True)
    # Timings differ from run to run.
    tables = [[each for each in page.results()["tables"] if "Milli" not in each["caption"]] for page in (found, again)]
    assert tables[0] == tables[1]
    assert tables[0]


# ---- claims, sources and outcomes in one table


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
