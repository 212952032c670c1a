"""`regard import` from the command line, with mistakes; then every command on the imported run."""

import json
import re
from pathlib import Path

import pytest
import torch
from cli.typing_in import Command
from pretrained import TEXTS, marian_folder

from regard import load
from regard.config import read
from regard.tasks import base_table, read_settings
from regard.tasks.plan import plan_run
from regard.tasks.run_start import open_group
from regard.training import Progress

pytest.importorskip("transformers")
COMMAND = Command("import")


def said(name, *arguments) -> str:
    shown = Command(name).right(*arguments)
    return shown.stdout


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("import")
    marian_folder(folder / "opus-mt-en-de")
    for side, texts in TEXTS.items():
        (folder / f"{side}.txt").write_text("".join(f"{text}\n" for text in texts))
    return folder


@pytest.fixture
def at_desk(desk, monkeypatch) -> Path:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("REGARD_CACHE", str(desk / "cache"))
    if not (desk / "run").exists():
        COMMAND.typed("opus-mt-en-de", "--out", "run")
    return desk


def test_what_was_made_and_what_to_do_next(at_desk):
    shown = COMMAND.typed("opus-mt-en-de", "-o", "runs/en-de").stdout.splitlines()
    assert re.fullmatch(r"runs/en-de: marian, [\d,]+ parameters, \d+ pieces", shown[0])
    assert [line.split(":")[0] for line in shown[1:]] == ["translate", "look", "fine-tune"]
    assert "train --from runs/en-de" in shown[3]
    table = json.loads(said("show", "runs/en-de", "--json"))
    assert table["data"] == "opus-mt-en-de (imported, marian)"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["opus-mt-en-de", "--out", "source.txt"], "--out: source.txt already exists; give another name, or remove it"),
        (["a/b", "--out", "new"], "a/b: no such folder, and nothing is downloaded; run hf download a/b"),
        (["source.txt", "--out", "new"], "source.txt: a file, expected a folder with a model in it"),
        (["cache", "--out", "new"], "cache: an empty folder; expected a folder with"),
        (["opus-mt-en-de", "--out", "new", "--format", "marien"], '--format: "marien" given, no such format; did you'),
    ],
)
def test_mistakes_are_one_sentence(at_desk, arguments, problem):
    (at_desk / "cache").mkdir(exist_ok=True)
    assert COMMAND.refused(*arguments).startswith(problem)
    assert not (at_desk / "new").exists()


def test_every_command_takes_it(at_desk):
    texts = ["--source", "source.txt", "--target", "target.txt"]
    assert said("translate", "run", "source.txt", "--longest", "5", "--alignment").count("\n") == len(TEXTS["source"])
    lines = said("score", "run", *texts, "--tokens").splitlines()
    assert all(line.split("\t")[1].endswith("</s>") for line in lines)
    assert said("align", "run", *texts).count("\n") == len(lines)
    assert "BLEU" in said("eval", "run", "--source", "source.txt", "--reference", "target.txt", "--beam", "1")
    said("look", "run", "a man", "--target", "ein Mann", "-o", "look.html")
    assert "</html>" in (at_desk / "look.html").read_text()


def test_alignments_leave_out_what_stands_around_a_text(at_desk):
    aligned = load("run").align("the dog sees a cat .", "der Hund")
    assert (aligned.source, aligned.target) == (["the", "dog", "sees", "a", "cat", "."], ["der", "Hund"])
    assert aligned.weights.shape == (2, 6)
    assert bool((aligned.weights.sum(-1) < 1).all())  # some of the weight is on </s>


def test_fine_tuning_begins_with_the_imported_loss(at_desk):
    """Before the first step the loss on held-out pairs equals the imported run's own loss."""
    data = {"source": "source.txt", "target": "target.txt", "valid_source": "source.txt", "valid_target": "target.txt"}
    table = {**base_table(read(at_desk / "run" / "config.toml"), {}, "run"), "data": data}
    settings = read_settings({**table, "training": {"device": "cpu", "batch_tokens": 200}})
    with open_group(settings.training) as group:
        planned = plan_run(settings, group, Progress(), base=Path("run"))
        planned.task.objective.eval()
        with torch.no_grad():
            loss = planned.task.loss()["loss"]
    scored = load("run").score(TEXTS["source"], TEXTS["target"])
    tokens = sum(len(each.tokens) for each in scored)
    assert loss == pytest.approx(-sum(each.log_prob for each in scored) / tokens, abs=1e-5)


def test_fine_tuned_and_exported(at_desk):
    training = ["--steps", "2", "--set", "training.threads=1", "--quiet"]
    said("train", "--from", "run", "--source", "source.txt", "--target", "target.txt", "--out", "tuned", *training)
    assert load("tuned").settings.tokenizer.after == ("</s>",)
    assert not (at_desk / "tuned" / "words.txt").exists()  # the run knows more words than these
    shown = said("export", "tuned", "--to", "marian", "--out", "exported")
    assert re.match(r"exported: marian, 8 files, ", shown)
    assert Command("export").refused("tuned", "--to", "marian", "--out", "exported").startswith("--out: exported alr")
