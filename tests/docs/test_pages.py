"""The code on the pages runs and prints what they show, and their links and names exist."""

import contextlib
import io
import re
from pathlib import Path
from types import ModuleType

import pytest

from regard.attention import score, span, weighting

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
OTHERS = {"three-parts", "notebook", "slips", "glossary"}  # pages that are not about a single mechanism
MECHANISMS = [path for path in PAGES if path.parent.name == "attention" and path.stem not in OTHERS]
# A text block right after a Python block is that block's output.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n*```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(DOCS))


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=name)
def test_code_runs_and_prints_what_is_said(page, request):
    text = page.read_text()
    if page.parent.name == "guide":
        request.getfixturevalue("desk")  # with files and a run
    names: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        code, said = block.groups()
        if "localhost:8080" in code:  # test_serve_page.py has a server
            continue
        before = text[: block.start(1)].count("\n")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * before + code, str(page), "exec"), names)
        assert out.getvalue() == (said or "")


def test_what_the_readme_does_with_a_run(desk):
    readme = (DOCS.parent / "README.md").read_text()
    blocks = [code for code, _ in BLOCK.findall(readme) if "runs/" in code]
    assert blocks
    for code in blocks:
        exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("page", MECHANISMS, ids=name)
def test_page_has_all_its_parts(page):
    text = page.read_text()
    assert re.match(r"# .*`.+`", text), "a title with the code that makes it"
    assert re.search(r"^\$\$\n.+?^\$\$$", text, re.MULTILINE | re.DOTALL), "a formula"
    (paper,) = re.findall(r"^\*\*Paper\.\*\*(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert re.search(r"arxiv\.org/abs/\d{4}\.\d{4,5}|aclanthology\.org/", paper), "a paper"
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["When to use it", "In code", "What it looks like"]
    assert re.search(r"```python\n.*?^```.*^!\[.{10,}\]\(images/.+\)$", text, re.MULTILINE | re.DOTALL), (
        "code, a picture"
    )


def made_of(module: ModuleType, kind: type) -> list[type]:
    """Return a module's public classes of this kind, which a user can choose from."""
    found = [getattr(module, name) for name in module.__all__]
    return [one for one in found if isinstance(one, type) and issubclass(one, kind) and one is not kind]


@pytest.mark.parametrize(
    "part",
    [
        *made_of(score, score.Score),
        *(one for one in made_of(span, span.Span) if one is not span.Joined),
        *made_of(weighting, weighting.Weighting),
    ],
    ids=lambda part: part.__name__,
)
def test_every_part_has_a_page(part):
    assert any(re.match(rf"# .*`{part.__name__}\(", page.read_text()) for page in MECHANISMS)


def anchors(page: Path) -> set[str]:
    """Return the anchors that Sphinx makes from a page's headings."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if re.match(r"https://", link):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.is_file(), link
        assert there.suffix != ".md" or there.is_relative_to(DOCS), f"{link}: not a page of the documentation"
        assert not anchor or anchor in anchors(there), link


def contents(page: Path) -> list[Path]:
    """Return the pages in a page's tables of contents."""
    trees = "".join(re.findall(r"```\{toctree\}(.*?)```", page.read_text(), re.DOTALL))
    listed = re.findall(r"^(?:.*<)?([\w./-]+)>?$", trees, re.MULTILINE)
    return [(page.parent / f"{each}.md").resolve() for each in listed]


def test_every_page_is_in_the_contents_once():
    listed = [each for page in PAGES for each in contents(page)]
    assert sorted(map(name, listed)) == sorted(name(page) for page in PAGES if page != DOCS / "index.md")


def test_studies_are_behind_one_link():
    assert not [each for each in contents(DOCS / "index.md") if each.is_relative_to(DOCS / "studies")]
    assert DOCS / "studies" / "index.md" in contents(DOCS / "guide" / "studies.md")


def test_the_version_of_torch_to_install_is_the_one_that_was_tested():
    pinned = re.search(r"^torch==(\S+)$", (DOCS.parent / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"torch==([\d.]+)", (DOCS / "guide" / "install.md").read_text(encoding="utf-8"))
    assert named == [pinned[1]] * 2
