"""`regard look` from the command line, with mistakes."""

import re
import shutil
from pathlib import Path

import pytest
from cli.typing_in import Command

from regard.inspection import dependency_trees, exhibit_of, model_graph, page
from regard.run import load

COMMAND = Command("look")
STORED = Path(__file__).parents[2] / "stored_runs"
right, refused = COMMAND.right, COMMAND.refused


def said(*arguments, stdin=None) -> list[str]:
    shown = right(*arguments, stdin=stdin)
    assert re.fullmatch(r"(regard: [^\n]* never seen in training\n)?", shown.stderr)  # the run was trained on digits
    return shown.stdout.splitlines()


@pytest.fixture(scope="module")
def furnished(furnish) -> Path:
    """Create runs of four kinds, two of them for the same task, pictures and texts."""
    folder = furnish(run="transformer", other="rnnsearch", rnn="rnn", captions="captioner", reviews="han")
    (folder / "photos").mkdir()
    for i in (0, 1):
        shutil.copy(folder / "data" / "captioned" / "pictures" / f"{i}.png", folder / "photos" / f"{i}.png")
    (folder / "lines.txt").write_text("1 2 3\n\n4 5\n6 7 8 9\n")
    (folder / "blank.txt").write_text("\n \n")
    return folder


@pytest.fixture
def desk(furnished, monkeypatch) -> Path:
    monkeypatch.chdir(furnished)
    return furnished


def test_a_text_becomes_a_page(desk, tmp_path):
    assert said("run", "1 2 3", "--out", tmp_path / "a.html") == [str(tmp_path / "a.html")]
    expected = page(exhibit_of(load("run"), "1 2 3"))
    assert (tmp_path / "a.html").read_text() == str(expected)
    assert said("run", "1 2 3") == ["look.html"]
    assert (desk / "look.html").read_text() == str(expected)


def test_a_file_becomes_a_page_a_line(desk, tmp_path):
    out = tmp_path / "some.html"
    assert said("run", "lines.txt", "--out", out) == [str(tmp_path / f"some-{i}.html") for i in (1, 2, 3)]
    assert (tmp_path / "some-2.html").read_text() == str(page(exhibit_of(load("run"), "4 5")))
    shown = right("run", "1 2", "lines.txt", "--count", 2, "--out", tmp_path)
    assert shown.stderr == "regard: only the first 2 texts are shown; --count says how many\n"
    assert shown.stdout.splitlines() == [str(tmp_path / "look-1.html"), str(tmp_path / "look-2.html")]
    assert said("run", "--out", out, stdin="1 2\n") == [str(out)]


def test_a_folder_is_made(desk, tmp_path):
    """A name with an unknown suffix is a folder, which exists or is created."""
    out = tmp_path / "some" / "pages"
    assert said("run", "1 2", "3 4", "--out", out) == [str(out / "look-1.html"), str(out / "look-2.html")]
    assert said("run", "1 2", "--out", out) == [str(out / "look-1.html")]
    assert said("run", "1 2", "--out", tmp_path / "v1.2", "--format", "png") == [str(tmp_path / "v1.2" / "look-1.png")]


WORDS = ["and/or", "1/2", "U.S.A.", "node.js", "~", "http://a.b/c", "x" * 300, "1/" * 200 + "2"]
FOLDERS = ["photos", "run", ".", ".."]
TEXTS = ["a/b c.txt", "1\n2", "1 " * 300]


@pytest.mark.parametrize("text", [*WORDS, *FOLDERS, *TEXTS], ids=lambda text: repr(text)[:20])
def test_what_is_a_text(desk, tmp_path, text):
    """An argument with white space is a text; a single word may be a mistyped file name unless --text is given."""
    given = ("run", "--out", tmp_path / "a.html", "--longest", 3)
    if text not in TEXTS:
        problem = "a folder given, expected a file" if text in FOLDERS else "no such file"
        assert refused(*given, "--", text) == f"{text}: {problem}; if it is a text, add --text"
        assert not (tmp_path / "a.html").exists()
        given += ("--text",)
    assert said(*given, "--", text) == [str(tmp_path / "a.html")]


def test_the_folder_of_a_file_is_made(desk, tmp_path):
    out = tmp_path / "some" / "new" / "look.html"
    assert said("run", "1 2", "--out", out) == [str(out)]
    assert out.is_file()
    assert said("rnn", "--graph", "--out", tmp_path / "more" / "graph.svg") == [str(tmp_path / "more" / "graph.svg")]
    refused("nowhere", "1 2", "--out", tmp_path / "none" / "look.html")
    assert not (tmp_path / "none").exists()


def test_pictures_for_papers(desk, tmp_path):
    for kind, begins in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        assert said("run", "1 2 3", "--format", kind, "--out", tmp_path / f"a.{kind}") == [str(tmp_path / f"a.{kind}")]
        assert (tmp_path / f"a.{kind}").read_bytes().startswith(begins)
    assert [f"head {number}" in (tmp_path / "a.svg").read_text(encoding="utf-8") for number in (1, 2)] == [True] * 2
    said("run", "1 2 3", "--out", tmp_path / "b.svg", "--view", "encoder, layer 1", "--head", 2)
    said("run", "1 2 3", "--out", tmp_path / "c.svg", "--view", "encoder.blocks.0.attention", "--head", 2)
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "c.svg").read_bytes() != (tmp_path / "a.svg").read_bytes()
    against = refused("run", "1 2 3", "--out", tmp_path / "d.png", "--against", "other")
    assert against == "--against: png cannot show it; write a page, such as look.html"
    said("captions", "photos", "--out", tmp_path / "e.png", "--longest", 3)
    assert (tmp_path / "e-2.png").stat().st_size > 1000


def test_colours_are_stretched_when_that_is_asked_for(desk, tmp_path):
    for form in ("svg", "html"):
        for name, options in (("a", []), ("b", ["--stretch"])):
            said("run", "1 2 3", *options, "--target", "3 2 1", "--out", tmp_path / f"{name}.{form}")
        one, other = ((tmp_path / f"{name}.{form}").read_text() for name in "ab")
        assert one != other
    assert ">stretched: the largest is " in (tmp_path / "b.svg").read_text()
    assert "stretched: the largest is " not in (tmp_path / "a.svg").read_text()
    expected = page(exhibit_of(load("run"), "1 2 3", target="3 2 1"), stretch=True)
    assert (tmp_path / "b.html").read_text() == str(expected)
    assert (
        refused("run", "--graph", "--stretch") == "--stretch: --graph without a text draws only the model; add a text"
    )


def test_ablation_is_a_table_too(desk, tmp_path):
    lines = said("run", "1 2 3", "--ablate", "--out", tmp_path / "a.html", "--target", "3 2 1")
    assert lines[0].startswith("log-probability -")
    assert [line.split("  ")[0] for line in lines[2:-1]] == [
        "encoder, layer 1",
        "decoder, layer 1",
        "decoder, layer 1, to the source",
    ]
    assert lines[-1] == str(tmp_path / "a.html")
    assert said("run", "1 2 3", "--ablate", "--out", tmp_path / "a.png")[-1] == str(tmp_path / "a.png")
    assert refused("rnn", "1 2 3", "--ablate") == "ablate: the model has no attention to silence"


def test_a_walk_shows_a_word(desk, tmp_path):
    out = tmp_path / "a.html"
    said("run", "1 2 3", "--walk", "--out", out)
    first = out.read_text()
    assert "√d" in first or "\\u221ad" in first
    said("run", "1 2 3", "--walk", "--word", 2, "--head", 2, "--view", "encoder, layer 1", "--out", out)
    assert out.read_text() != first
    said("rnn", "1 2 3", "--walk", "--out", out)
    assert (
        refused("run", "1 2 3", "--walk", "--head", 3)
        == "head 3: decoder, layer 1, to the source has 2 heads, numbered 1 to 2"
    )
    assert "expected one of: encoder, layer 1; " in refused("run", "1 2 3", "--walk", "--view", "x")
    assert (
        refused("run", "1 2 3", "--head", 9, "--view", "encoder, layer 1", "--out", tmp_path / "a.png")
        == "head 9: encoder, layer 1 has 2 heads, numbered 1 to 2"
    )
    said("run", "1 2 3", "--steps", "--out", tmp_path / "old.html")  # the option's former name
    said("run", "1 2 3", "--walk", "--out", tmp_path / "new.html")
    assert (tmp_path / "old.html").read_text() == (tmp_path / "new.html").read_text()


def test_two_runs_side_by_side(desk, tmp_path):
    said("run", "1 2 3", "--against", "other", "--beam", 2, "--out", tmp_path / "a.html")
    both = [exhibit_of(load(name), "1 2 3", beam=2) for name in ("run", "other")]
    assert (tmp_path / "a.html").read_text() == str(page(both[0], against=both[1]))
    assert "has the task caption, but run has translate" in refused("run", "1 2", "--against", "captions")
    lines = said("run", "1 2", "--against", "other", "--ablate", "--target", "2 1", "--out", tmp_path / "b.html")
    assert lines[0].startswith("log-probability")
    assert lines[-1] == str(tmp_path / "b.html")


def test_two_inputs_side_by_side(desk, tmp_path):
    """An argument that is no run folder is a second input: a text or picture for all, or a file with one for each."""
    out = tmp_path / "a.html"
    said("run", "1 2 3", "--against", "1 3", "--beam", 2, "--out", out)
    both = [exhibit_of(load("run"), text, beam=2) for text in ("1 2 3", "1 3")]
    assert out.read_text() == str(page(both[0], against=both[1]))
    said("run", "1 1", "2 2", "3 3", "--against", "lines.txt", "--out", out)
    assert (tmp_path / "a-2.html").read_text() == str(
        page(exhibit_of(load("run"), "2 2"), against=exhibit_of(load("run"), "4 5"))
    )
    said("run", "1 2 3", "--against", "and / or", "--out", out, "--target", "3 2 1")
    said("captions", "photos/0.png", "--against", "photos/1.png", "--longest", 3, "--out", out)
    said("reviews", "It was not bad .", "--against", "It was bad .", "--out", out)
    assert "It was not bad" in out.read_text()
    for given, problem in {
        "photos": "--against: photos: no config.toml in it, expected a run folder, or a text, a file or a picture",
        "photos/run": "--against: photos/run: no such folder or file, expected a run folder, or a text",
        "none.txt": "--against: none.txt: no such folder or file, expected a run folder",
        "pizza": "a file or a picture for the same run; if it is a text, add --text",
        "lines.txt": "--against: more than 2 inputs in lines.txt, expected one for all, or one for each of the 2",
    }.items():
        assert problem in refused("run", "1 1", "2 2", "--against", given)


def test_pictures_and_documents(desk, tmp_path):
    paths = said("captions", "photos", "--out", tmp_path, "--longest", 4)
    assert paths == [str(tmp_path / "look-1.html"), str(tmp_path / "look-2.html")]
    assert said("captions", "photos/1.png", "--target", "a red circle", "--out", tmp_path / "one.html")
    assert said("reviews", "the pizza is not too bad .", "--out", tmp_path / "review.html")
    assert "words of each sentence" in (tmp_path / "review.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "missing.txt"], "missing.txt: no such file"),
        (["run", "./some/where"], "./some/where: no such file"),
        (["run", "some/where.txt"], "some/where.txt: no such file"),
        (["run", "/no/where"], "/no/where: no such file"),
        (["run", "somewhere/"], "somewhere/: no such file"),
        (["run", ""], "text: nothing in it, expected words to look at"),
        (["run", "blank.txt"], "blank.txt: no text in it"),
        (["run", "./photos"], "./photos: a folder given, expected a file"),
        (["run", "1 " * 1100], "text: 1,100 tokens given, expected at most 1,024 to look at"),
        (["run", "1 2", "--target", " "], "--target: nothing in it, expected words to look at"),
        (["captions", "missing.png"], "missing.png: no such file"),
        (["captions"], "which pictures? captions reads pictures; give files, or folders of them"),
        (["nowhere", "1 2"], "nowhere: no such folder, expected a run folder; regard runs lists run folders"),
        (["run", "1", "--out", "lines.txt"], "--out: lines.txt given, expected a name that ends in .html, .png, "),
        (["run", "1", "--out", "lines.txt/pages"], "--out: lines.txt/pages: Not a directory; expected another name"),
        (["run", "1", "--format", "gif"], "--format: 'gif' given, expected html, png, svg or pdf"),
        (["run", "1", "--format", "png", "--out", "a.html"], "--out: a.html given with --format png, expected a name "),
        (["run", "1", "--out", "a.html"], "1: no such file; if it is a text, add --text"),
        (["run", "1", "--word", "2"], "--word: 2 given without --walk; add --walk"),
        (["run", "1", "--view", "x"], "--view: x given without --walk; add --walk"),
        (["run", "1", "--head", "1"], "--head: 1 given without --walk; add --walk"),
        (["run", "1", "--word", "1", "--format", "png"], "--word: 1 given without --walk; add --walk"),
        (["run", "1", "--walk", "--word", "0"], "--word: 0 given, expected at least 1"),
        (["run", "1", "--walk", "--head", "0"], "--head: 0 given, expected at least 1"),
        (
            ["run", "1", "--walk", "--format", "png"],
            "--walk: png cannot show it; write a page, such as look.html",
        ),
        (["run", "1", "--beam", "0"], "--beam: 0 given, expected at least 1"),
        (["run", "1", "--top-k", "3"], "--top-k: 3 given without --sample; add --sample"),
        (["rnn", "1 2", "--format", "png"], "exhibit: a rnn without attention has nothing to draw"),
    ],
    ids=lambda given: " ".join(given)[:40] if isinstance(given, list) else "",
)
def test_mistakes(desk, arguments, expected):
    assert refused(*arguments).startswith(expected)


def test_what_is_read_is_not_overwritten(desk, tmp_path):
    shutil.copy(desk / "photos" / "0.png", tmp_path / "mine.png")
    assert "is an input file" in refused("captions", tmp_path / "mine.png", "--out", tmp_path / "mine.png")


def test_a_graph_is_drawn_of_the_model_alone(desk, tmp_path):
    assert said("run", "--graph") == ["graph.svg"]
    expected = model_graph(load("run").model).svg
    assert (desk / "graph.svg").read_text().endswith(expected)
    for run in ("other", "rnn", "captions", "reviews"):
        assert said(run, "--graph", "--out", tmp_path / f"{run}.svg") == [str(tmp_path / f"{run}.svg")]
    assert said("rnn", "--graph", "--out", tmp_path / "folder") == [str(tmp_path / "folder" / "graph.svg")]
    assert said("rnn", "--graph", "--out", tmp_path) == [str(tmp_path / "graph.svg")]


def test_a_graph_stands_on_the_page_of_a_text(desk, tmp_path):
    out = tmp_path / "a.html"
    assert said("run", "1 2 3", "--graph", "--out", out) == [str(out)]
    assert out.read_text() == str(page(exhibit_of(load("run"), "1 2 3", graph=True)))
    assert said("run", "1 2 3", "--against", "other", "--graph", "--out", out) == [str(out)]
    assert "graph-1-title" in out.read_text()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--graph", "--walk"), "--walk: --graph without a text draws only the model; add a text"),
        (("--graph", "--target", "1"), "--target: --graph without a text draws only the model; add a text"),
        (("--graph", "--against", "other"), "--against: --graph without a text draws only the model"),
        (("--graph", "--out", "a.html"), "--out: a.html given, expected a name that ends in .svg"),
        (("--graph", "--format", "png"), "--format: 'png' given, expected svg for a graph alone"),
        (("1 2", "--graph", "--out", "a.png"), "--graph: png cannot show it with a text"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(desk, given, words):
    (desk / "graph.svg").unlink(missing_ok=True)
    assert words in refused("run", *given)
    assert not any((desk / name).exists() for name in ("a.html", "a.png", "graph.svg"))


def test_a_tree_beside_a_file(desk, tmp_path):
    (tmp_path / "some.txt").write_text("1 2 3\n4 5\n")
    (tmp_path / "trees").write_text("1 -1 1\n-1 0\n")
    shown = said("run", tmp_path / "some.txt", "--tree", tmp_path / "trees", "--out", tmp_path)
    assert shown[:2] == [str(tmp_path / "look-1.html"), str(tmp_path / "look-2.html")]
    assert shown[2].split() == ["relation", "words", "follows", "it", "most", "share", "best", "distance", "share"]
    assert shown[3].split()[:2] == ["all", "3"]
    tree = dependency_trees.read_trees(tmp_path / "trees")[1]
    assert (tmp_path / "look-2.html").read_text() == str(page(exhibit_of(load("run"), "4 5", dependencies=tree)))
    (tmp_path / "some.txt.heads").write_text("1 -1 1\n-1 0\n")  # the command finds this file beside the text
    before = (tmp_path / "look-2.html").read_text()
    assert said("run", tmp_path / "some.txt", "--out", tmp_path) == shown[:2]  # without the table, which needs --tree
    assert (tmp_path / "look-2.html").read_text() == before
    (tmp_path / "one").write_text("-1 0\n")
    out = tmp_path / "a.html"
    assert said("other", "4 5", "--tree", tmp_path / "one", "--out", out) == [str(out)]  # no self-attention, no table


def test_the_phrasebook_needs_no_tree(tmp_path):
    """An older run, trained on the first edition, needs no tree for a sentence of the phrasebook; others get none."""
    out = tmp_path / "a.html"
    shown = said(STORED / "transformer", "she ate the pizza .", "--out", out)
    assert shown == [str(out)]  # the table is on the page without an option
    assert all(f'"{name}"' in out.read_text() for name in ("det", "nsubj", "obj", "punct"))
    assert said(STORED / "transformer", "she ate the xylophone .", "--out", out) == [str(out)]
    picture = tmp_path / "a.svg"
    said(STORED / "transformer", "she ate the pizza .", "--view", "encoder, layer 1", "--head", 1, "--out", picture)
    assert all(f">{text}</text>" in picture.read_text() for text in ("nsubj", "obj", "det", "punct", "root", "pizza"))


def test_trees_that_do_not_fit(desk, tmp_path):
    (tmp_path / "trees").write_text("1 -1 1\n")
    assert "3 heads given, but the text has 2 words" in refused("run", "4 5", "--tree", tmp_path / "trees")
    assert "has 1 tree, but 3 texts are shown" in refused("run", "lines.txt", "--tree", tmp_path / "trees")
    assert "no such file" in refused("run", "4 5", "--tree", tmp_path / "nowhere")
