"""Runs on pictures or documents: trained, opened, used, resumed and continued."""

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import caption_table, document_table, question_table, records

from regard.errors import ArgumentError, CheckpointError, DataError
from regard.models.convnet import ResNet
from regard.run import load
from regard.tasks import start


@pytest.fixture(scope="module")
def home(furnish):
    return furnish(captions="captioner", questions="convnet", han="han", encoder="encoder", lstmn="lstmn")


def files(home, name="captioned"):
    return sorted((home / "data" / name / "pictures").glob("*.png"))


def test_captions_of_files_and_of_their_pixels(home):
    run = load(home / "captions")
    paths = files(home)[:5]
    said = run.caption(paths, beam=2, longest=8)
    pixels = [np.asarray(Image.open(path)).transpose(2, 0, 1) for path in paths]
    assert run.caption([torch.tensor(each) for each in pixels], beam=2, longest=8) == said
    assert [run.caption([path], beam=2, longest=8)[0] for path in paths] == said
    several = list(run.captions(map(str, paths), beam=3, nbest=2, longest=8))
    assert [len(each) for each in several] == [2] * 5
    for each in several:
        assert each[0].score >= each[1].score
    assert run.caption([]) == []
    with pytest.raises(ArgumentError, match="pictures: one path given, expected a list"):
        run.caption(str(paths[0]))
    with pytest.raises(DataError, match="gone.png: no such file"):
        run.caption([home / "gone.png"])


def test_labels_of_pictures(home):
    run = load(home / "questions")
    assert run.labels == ("large", "small")
    paths = files(home, "questions")[:7]
    found = run.classify(paths)
    for path, each in zip(paths, found, strict=True):
        assert each.label == max(each.probabilities, key=each.probabilities.get)
        assert sum(each.probabilities.values()) == pytest.approx(1)
        alone = run.classify([path])[0]
        assert alone.probabilities == pytest.approx(each.probabilities, abs=1e-5)
    with pytest.raises(ArgumentError, match="has no tokenizer"):
        _ = run.tokenizers


@pytest.mark.parametrize("kind", ["han", "encoder", "lstmn"])
def test_labels_of_documents(home, kind):
    run = load(home / kind)
    texts = ["The food was good. The service was not.", "", "Bad!", "  \n"]
    found = run.classify(texts)
    assert [each is None for each in found] == [False, True, False, True]
    assert found[0].label in run.labels == ("negative", "positive")
    assert run.classify(iter(texts[:1]))[0].probabilities == pytest.approx(found[0].probabilities, abs=1e-5)
    with pytest.raises(ArgumentError, match="items: one text given"):
        run.classify("Bad!")


def test_a_splitter_of_ones_own(home):
    run, seen = load(home / "han"), []

    def halves(text):
        seen.append(text)
        return text.split(" | ")

    one, other = run.classify(["good food | bad service"], splitter=halves)[0], run.classify(["good food. Bad service"])
    assert seen == ["good food | bad service"]
    assert one is not None
    assert other[0] is not None


@pytest.mark.parametrize(
    ("name", "call", "said"),
    [
        ("captions", lambda run: run.translate(["a"]), "its task is caption, expected translate; use regard caption"),
        ("han", lambda run: run.translate(["a"]), "its task is classify, expected translate; use regard classify"),
        ("han", lambda run: run.caption(["a"]), "its task is classify, expected caption; use regard classify"),
        ("captions", lambda run: run.classify(["a"]), "its task is caption, expected classify; use regard caption"),
        ("questions", lambda run: run.align("a", "b"), "its task is classify, expected translate; use regard classify"),
    ],
)
def test_what_a_run_of_another_task_is_asked(home, name, call, said):
    with pytest.raises(ArgumentError, match=said):
        call(load(home / name))


def test_classifiers_make_no_ensemble(home):
    with pytest.raises(CheckpointError, match="only runs that write text make an ensemble"):
        load(home / "han", home / "han")


@pytest.mark.parametrize("made", [caption_table, question_table, document_table])
def test_stopped_and_resumed_is_the_run_that_was_not(tmp_path, made):
    table = made(tmp_path)
    table["data"] |= {"flip": True, "crop": 0.1} if "images" in table["data"] else {}
    table["model"]["dropout"] = 0.2
    start(table, tmp_path / "whole")
    table["training"]["steps"] = 2
    start(table, tmp_path / "cut")
    table["training"]["steps"] = 4
    start(table, tmp_path / "cut", resume=True)
    for name, tensor in load(tmp_path / "whole", checkpoint="last").model.state_dict().items():
        assert torch.equal(load(tmp_path / "cut", checkpoint="last").model.state_dict()[name], tensor), name
    steps = [[record for record in records(tmp_path / run) if record["kind"] == "valid"] for run in ("whole", "cut")]
    assert steps[0] == steps[1]


def test_weights_of_a_backbone_are_read_once(tmp_path):
    """A new run starts from them; afterwards it has its own, even if the file is gone."""
    path = tmp_path / "backbone.pt"
    weights = ResNet(4, 2, 1).state_dict()
    torch.save(weights, path)
    table = caption_table(tmp_path, weights=str(path), frozen=True)
    table["training"]["steps"] = 2
    start(table, tmp_path / "run")
    path.unlink()
    found = load(tmp_path / "run").model.backbone.state_dict()
    for name, tensor in weights.items():
        if "running" not in name and "tracked" not in name:
            assert torch.equal(found[name], tensor), name
    table["training"]["steps"] = 4
    start(table, tmp_path / "run", resume=True)
    with pytest.raises(CheckpointError, match="backbone.pt: No such file"):
        start(table, tmp_path / "other")


def test_gone_on_with_other_documents(home, tmp_path):
    """Labels keep their indices; the run leaves out a label that it does not know."""
    lines = (home / "data" / "documents" / "reviews.tsv").read_text().splitlines(keepends=True)[:10]
    (tmp_path / "more.tsv").write_text("".join(lines) + "mixed\tNeither good nor bad.\n")
    table = document_table(home)
    table["data"] |= {"documents": str(tmp_path / "more.tsv"), "held_out": 0.3}
    start(table, tmp_path / "more", base=home / "han")
    assert load(tmp_path / "more").labels == ("negative", "positive")
