"""`regard caption` from the command line, with mistakes."""

import json
import shutil
from pathlib import Path

import pytest
from cli.typing_in import Command

from regard import load

COMMAND = Command("caption")
typed, right, refused = COMMAND.typed, COMMAND.right, COMMAND.refused


def said(*arguments) -> list[str]:
    return COMMAND.said(*arguments, silent=True)


@pytest.fixture(scope="module")
def desk(furnish) -> Path:
    """Create a captioning run, a text run, and a folder of pictures with some files that are not pictures."""
    folder = furnish(run="captioner", **{"text-run": "transformer"})
    (folder / "pictures" / "more").mkdir(parents=True)
    for i in (0, 1, 2):
        shutil.copy(folder / "data" / "captioned" / "pictures" / f"{i}.png", folder / "pictures" / f"{i}.png")
    shutil.copy(folder / "pictures" / "0.png", folder / "pictures" / "more" / "again.png")
    (folder / "broken").mkdir()
    (folder / "broken" / "text.jpg").write_text("not a picture")
    (folder / "broken" / "half.png").write_bytes((folder / "pictures" / "0.png").read_bytes()[:60])
    (folder / "empty").mkdir()
    return folder


def test_one_picture_is_described_in_a_line(at_desk, tmp_path):
    (text,) = said("run", "pictures/0.png", "--longest", 5)
    assert [text] == load("run").caption(["pictures/0.png"], longest=5)
    assert said("run", "pictures/0.png", "--longest", 5, "--out", tmp_path / "out") == []
    assert (tmp_path / "out").read_text() == f"{text}\n"


def test_several_pictures_stand_behind_their_paths(at_desk):
    lines = said("run", "pictures", "pictures/0.png", "--longest", 5)
    paths, texts = zip(*(line.split("\t") for line in lines), strict=True)
    assert paths == (*(f"pictures/{name}" for name in ("0.png", "1.png", "2.png", "more/again.png")), "pictures/0.png")
    assert texts[0] == texts[3] == texts[4]
    assert list(texts) == load("run").caption(paths, longest=5)
    assert said("run", "pictures/more", "--longest", 5) == [f"pictures/more/again.png\t{texts[0]}"]


def test_scores_and_several_captions(at_desk):
    lines = said("run", "pictures/0.png", "pictures/1.png", "--beam", 3, "--nbest", 2, "--longest", 5)
    assert [line.split("\t")[0] for line in lines] == ["pictures/0.png"] * 2 + ["pictures/1.png"] * 2
    best, second = (float(line.split("\t")[2]) for line in lines[:2])
    assert best >= second
    (found,) = load("run").captions(["pictures/0.png"], beam=3, nbest=2, longest=5)
    assert lines[0] == f"pictures/0.png\t{found[0].text}\t{found[0].score:.4f}"
    assert said("run", "pictures/0.png", "--scores", "--beam", 3, "--longest", 5) == [lines[0].split("\t", 1)[1]]


def test_json_has_everything(at_desk):
    (line,) = said("run", "pictures/0.png", "--json", "--beam", 2, "--nbest", 2, "--longest", 4)
    found = json.loads(line)
    assert found["picture"] == "pictures/0.png"
    assert len(found["captions"]) == 2
    assert found["captions"][0].keys() == {"text", "score", "log_prob", "tokens", "finished"}


def test_the_same_seed_draws_the_same(at_desk):
    drawn = said("run", "pictures", "--sample", "--seed", 3)
    assert drawn == said("run", "pictures", "--sample", "--seed", 3)
    assert drawn != said("run", "pictures", "--sample", "--seed", 4)
    assert drawn[0].split("\t")[1] == drawn[3].split("\t")[1]  # the same picture under another name


def test_what_is_no_picture_is_named_and_left_out(at_desk):
    shown = right("run", "broken", "pictures/1.png", "missing.png", "--longest", 4)
    assert [line.split("\t")[0] for line in shown.stdout.splitlines()] == ["pictures/1.png"]
    lines = shown.stderr.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("regard: broken/half.png: ")
    assert lines[1].startswith("regard: broken/text.jpg: not a picture")
    assert lines[2] == "regard: missing.png: no such file"
    assert lines[3] == "regard: 3 of 4 pictures cannot be read and are skipped"


def test_nothing_to_describe_is_a_mistake(at_desk):
    shown = typed("run", "broken")
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert shown.stderr.splitlines()[-1] == "regard: none of 2 pictures can be read"
    assert refused("run", "missing.png") == "missing.png: no such file"


def test_mistakes(at_desk):
    assert "its task is translate" in refused("text-run", "pictures/0.png")
    assert refused("run", "empty").startswith("empty: contains no pictures")
    assert refused("run", "pictures/0.png", "--nbest", 9) == "--nbest: 9 given, expected at most the beam, 5"
    assert "no config.toml" in refused("pictures", "pictures/0.png")
    assert "without --sample" in refused("run", "pictures/0.png", "--top-k", 3)
    assert "is an input file" in refused("run", "pictures/0.png", "--out", "pictures/0.png")
