"""The pages' pictures are up to date: the library draws the same words and numbers, though not the same pixels."""

import importlib.util
import re
from html import unescape
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from regard.inspection import svg
from regard_corpora import find_example

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)


def written(drawing: str) -> list[str]:
    """Return the texts of an SVG."""
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]+)</text>", drawing)]


def texts(figure: Figure) -> list[str]:
    """Return a figure's texts, line by line, without drawing it."""
    found = []
    for axes in figure.axes:
        found += [*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts, axes.xaxis.label]
    return [line for text in found for line in text.get_text().splitlines()]


def parted(texts: list[str]) -> tuple[list[float], list[str]]:
    """Separate numbers from words."""
    numbers = [text for text in texts if re.fullmatch(r"-?\d*\.?\d+", text)]
    return [float(number) for number in numbers], [text for text in texts if text not in numbers]


@pytest.mark.parametrize("name", sorted(pictures.PICTURES))
def test_kept_picture_says_what_is_computed_today(name):
    path = pictures.IMAGES / f"{name}.svg"
    assert path.stat().st_size < 40_000
    made = pictures.PICTURES[name]()
    (kept, kept_words), (now, words) = parted(written(path.read_text())), parted(texts(pictures.draw(made)))
    assert sorted(kept_words) == sorted(words)
    if not made.drawn:  # a random generator may draw other keys on another machine
        assert sorted(kept) == pytest.approx(sorted(now), abs=0.011)  # the picture shows two decimal places


def test_drawn_again_it_is_the_same():
    kept = written((pictures.IMAGES / "dot.svg").read_text())
    assert written(svg(pictures.draw(pictures.PICTURES["dot"]()))) == kept
    assert kept.count(".95") == 5


def test_every_picture_is_on_a_page():
    pages = "".join(page.read_text() for page in DOCS.glob("attention/*.md"))
    used = set(re.findall(r"images/([\w-]+)\.svg", pages))
    assert used == set(pictures.PICTURES) == {path.stem for path in pictures.IMAGES.iterdir()}


def test_a_verb_looks_at_its_object():
    """The example that opens the page on self-attention: the phrasebook's tree, and the numbers of the picture."""
    made = pictures.verb_object()
    example = find_example(pictures.PIZZA)
    assert (made.tree.heads, made.tree.relations) == (example.source_heads, example.source_relations)
    torch.testing.assert_close(made.weights.sum(-1), torch.ones(4), atol=0.02, rtol=0)  # the end has a little weight
    ate, pizza = 1, 3
    assert made.weights.argmax(-1).tolist() == [ate, pizza, pizza, pizza]
    page = (DOCS / "attention" / "self.md").read_text()
    begins = page.split("\n\n")[1]
    assert begins.startswith("![")
    assert "(images/verb-object.svg)" in begins
    assert f"*ate* attends to *pizza* ({made.weights[ate, pizza]:.2f})".replace("0.", ".") in " ".join(page.split())
    view, head = made.title.rsplit(", head ", 1)
    assert f'--view "{view}" --head {head} ' in page


@pytest.mark.parametrize("kind", pictures.GRAPHS)
def test_kept_graph_is_that_of_the_model_today(kind):
    path = pictures.GRAPH_IMAGES / f"graph-{kind}.svg"
    assert path.read_text().endswith(pictures.draw_graph(kind).svg)
    assert f"(images/{path.name})" in (DOCS / "guide" / "models.md").read_text()
    assert len(list(pictures.GRAPH_IMAGES.iterdir())) == len(pictures.GRAPHS)
