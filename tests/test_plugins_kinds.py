"""A kind of model that a plugin adds, for every task: commands train, resume, use, evaluate and inspect it."""

import json
import shutil
from pathlib import Path

import pytest
import tomli_w
from cli.typing_in import Command
from plugin_rows import forget_plugins
from tiny import caption_table, document_table, question_table, table, write_pictures

from regard.inspection import exhibit_of
from regard.run import load

pytestmark = pytest.mark.unchecked  # typer's own classes differ from the documented ones
MODELS = {
    "translate": "own-translator",
    "language-model": "own-language-model",
    "caption": "own-captioner",
    "classify": "own-classifier",
    "classify-pictures": "own-picture-classifier",
}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Provide a folder with the plugin; forget its registrations afterwards."""
    shutil.copy(Path(__file__).with_name("own_kinds.py"), tmp_path / "mine.py")
    with forget_plugins(tmp_path, monkeypatch):
        yield tmp_path


def configure(desk: Path, name: str, attends: bool) -> Path:
    """Write a configuration of a task with the plugin's kind."""
    whole = {
        "translate": lambda: table(desk),
        "language-model": lambda: table(desk, task="language-model"),
        "caption": lambda: caption_table(desk),
        "classify": lambda: document_table(desk),
        "classify-pictures": lambda: question_table(desk),
    }[name]()
    whole["model"] = {"kind": MODELS[name], "attends": attends}
    whole["training"] |= {"steps": 2, "validate_every": 2}
    (desk / "c.toml").write_text(tomli_w.dumps(whole))
    return desk / "c.toml"


def typed(command: str, *arguments) -> str:
    """Run a command with the plugin; return its output."""
    shown = Command(command).typed(*arguments, "--plugin", "mine.py")
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def refused(command: str, *arguments) -> str:
    """Return the one-sentence error of a command with the plugin."""
    return Command(command).refused(*arguments, "--plugin", "mine.py")


USES = {
    "translate": ("translate", "pairs/source.txt", "--beam", "2", "--shortest", "1"),
    "language-model": ("sample", "--count", "2", "--prefix", "1"),
    "caption": ("caption", "captioned/pictures/0.png", "--beam", "2", "--shortest", "1"),
    "classify": ("classify", "documents/reviews.tsv"),
    "classify-pictures": ("classify", "questions/pictures/0.png"),
}
MEASURES = {
    "translate": ("--source", "pairs/source.txt", "--reference", "pairs/target.txt", "--metrics", "chrf"),
    "language-model": ("--reference", "pairs/target.txt"),
    "caption": ("--images", "captioned/pictures", "--captions", "captioned/captions.tsv"),
    "classify": ("--documents", "documents/reviews.tsv"),
    "classify-pictures": ("--images", "questions/pictures", "--labels", "questions/labels.tsv"),
}
ITEMS = {
    "translate": "1 2 3",
    "language-model": "1 2 3",
    "caption": "captioned/pictures/0.png",
    "classify": "this was not too bad . a good film .",
    "classify-pictures": "questions/pictures/0.png",
}
VIEWS = {
    "translate": ("decoder, to the source", "cross"),
    "language-model": ("encoder", "decoder"),
    "caption": ("decoder, to the picture", "cross"),
    "classify": ("the document, to its words", "words"),
    "classify-pictures": ("the label, to the picture", "places"),
}
BOTH = pytest.mark.parametrize("attends", [False, True], ids=["without-attention", "with-attention"])


@BOTH
@pytest.mark.parametrize("name", MODELS)
def test_a_kind_of_ones_own_does_all_that_a_task_does(desk, name, attends):
    typed("train", configure(desk, name, attends), "--out", "run")
    typed("train", "--resume", "run", "--set", "training.steps=4", "--set", f"data.cache={desk / 'cache'}")
    run = load("run", checkpoint="last")
    assert (run.step, run.settings.kind, run.settings.plugins) == (4, MODELS[name], ("mine.py",))
    assert (desk / "run" / "report.html").is_file()
    command, *arguments = USES[name]
    assert typed(command, "run", *arguments).strip()
    measured = json.loads(typed("eval", "run", *MEASURES[name], "--json"))
    assert measured["system"] == "run"
    assert measured.keys() & {"scores", "accuracy"}
    typed("look", "run", ITEMS[name], "--walk", "--out", "look.html")
    assert f'"kind":"{MODELS[name]}"' in (desk / "look.html").read_text()
    exhibit = exhibit_of(run, ITEMS[name])
    if not attends:
        assert exhibit.views == ()
        assert "without attention has nothing to draw" in refused("look", "run", ITEMS[name], "--out", "a.svg")
        assert "no attention to silence" in refused("look", "run", ITEMS[name], "--ablate")
        return
    (view,) = exhibit.views
    assert (view.title, view.role) == VIEWS[name]
    assert [len(exhibit.sides[side].pieces) for side in (view.rows, view.columns)] == list(view.weights.shape[1:])
    assert typed("look", "run", ITEMS[name], "--ablate", "--out", "a.svg").startswith("log-probability")


def test_what_a_command_leaves_open_is_chosen_for_a_kind_of_ones_own(desk):
    data = write_pictures(desk)
    given = ("--images", data / "pictures", "--captions", data / "captions.tsv", "--set", "training.steps=1")
    typed("train", "--model", "own-captioner", *given, "--set", "training.device=cpu", "--out", "run")
    assert load("run").settings.table()["model"] == {
        "kind": "own-captioner", "dropout": 0.5, "size": 8, "attends": False,
    }  # fmt: skip


def test_a_kind_that_is_too_large_is_refused_though_none_of_its_options_is_known(desk):
    configure(desk, "caption", False)
    (desk / "mine.py").write_text((desk / "mine.py").read_text().replace("size", "breadth"))
    wide = ("--set", "model.breadth=4000000000")
    assert refused("train", "c.toml", *wide, "--out", "run").startswith("model")


def test_what_a_kind_attends_to_that_nobody_else_knows_is_numbered(desk):
    """An encoder returns two states per word; a picture encoder does not give the shape of its grid."""
    code = (desk / "mine.py").read_text()
    code = code.replace(
        "Memory(self.source(source.ids), source.span)", "twice(self.source(source.ids), source.lengths)"
    )
    code = code.replace("grid=(grid.shape[-2], grid.shape[-1]) if self.config.attends else None", "grid=None")
    code += """

def twice(states, lengths):
    return Memory(states.repeat_interleave(2, 1), Lengths(2 * lengths))
"""
    (desk / "mine.py").write_text(code)
    for name, rows in (("translate", "written"), ("caption", "written")):
        typed("train", configure(desk, name, True), "--out", name)
        typed("look", name, ITEMS[name], "--walk", "--out", "look.html")
        typed("look", name, ITEMS[name], "--out", "look.svg")
        (view,) = exhibit_of(load(name), ITEMS[name]).views
        assert (view.role, view.title, view.rows) == ("memory", "attention", rows)
        assert view.weights.shape[2] == {"translate": 6, "caption": 16}[name]
