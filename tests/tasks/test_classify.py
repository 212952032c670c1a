"""Classification as a task: its loss against the formula, its batches, its measures and its output."""

import itertools
import math

import pytest
import torch
from tiny import document_table, first, question_table

from regard.data import Position, document_texts
from regard.decoding import documents_of, source_of
from regard.errors import TrainingError
from regard.models import Documents, Pictures, Tokens, build, read_model_config
from regard.tasks.classify import Classification, Classify, LabelBatch
from regard.tasks.settings import read_settings
from regard.tasks.task import prepare_data

END = 2
ROWS = [[5, 6, END, 7, END], [8, END], [9, 9, 9, END, 4, END, 4, 5, END], [5, END]]
SOURCES = {
    "documents": documents_of(ROWS),
    "text": source_of(ROWS, "text"),
    "pictures": Pictures(torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)),
}
LABELS = torch.tensor([2, 0, 1, 2])


def small():
    table = {"kind": "han", "size": 3, "embedding": 4, "hidden": 5, "dropout": 0.0}
    return build("han", read_model_config(table), 12, 3).double()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.25]])
def test_the_loss(smoothing, weights):
    model, batch = small(), LabelBatch(SOURCES["documents"], LABELS)
    objective = Classification(model, smoothing, weights)
    logits = model.classify(model.encode(batch.source)).log_softmax(-1)
    total = nll = 0.0
    for row, label in enumerate(LABELS.tolist()):
        own = (1 - smoothing) * -logits[row, label] + smoothing * -sum(logits[row]) / 3
        total += (weights[label] if weights else 1.0) * own
        nll -= logits[row, label]
    loss = objective.train()(batch)
    torch.testing.assert_close(loss.total, total)
    torch.testing.assert_close(loss.parts["nll"], nll)
    assert not loss.parts["nll"].requires_grad
    torch.testing.assert_close(objective.eval()(batch).total, nll)  # unweighted in evaluation
    assert "weights" not in objective.state_dict()


@pytest.mark.parametrize("reads", SOURCES)
def test_a_batch_is_its_halves(reads):
    batch = LabelBatch(SOURCES[reads], LABELS)
    halves = batch.halves()
    assert [len(half) for half in halves] == [2, 2]
    assert torch.cat([half.labels for half in halves]).equal(LABELS)
    assert [half.source.lengths.tolist() for half in halves] == batch.source.lengths.view(2, 2).tolist()
    if reads == "pictures":
        assert torch.cat([half.source.pixels for half in halves]).equal(batch.source.pixels)
        return
    for half, rows in zip(halves, (ROWS[:2], ROWS[2:]), strict=True):
        expected = source_of(rows, reads)
        ids = [(each.words if reads == "documents" else each).ids.tolist() for each in (half.source, expected)]
        assert ids[0] == ids[1]
    moved = batch.to("cpu")
    assert type(moved.source) is type(batch.source)


def test_the_loss_of_halves_is_the_loss():
    objective = Classification(small(), 0.1, [1.0, 2.0, 3.0]).train()
    batch = LabelBatch(SOURCES["documents"], LABELS)
    parts = sum(objective(half).total for half in batch.halves())
    torch.testing.assert_close(objective(batch).total, parts)


@pytest.mark.parametrize(("kind", "expected"), [("han", Documents), ("encoder", Tokens), ("lstmn", Tokens)])
def test_documents(tmp_path, kind, expected):
    settings = read_settings(document_table(tmp_path, kind))
    prepared = prepare_data(settings)
    task = settings.row.load()(settings, prepared, 512)
    assert type(task) is Classify
    seen = []
    for position, plan in first(task.stream(Position()), 8):
        batch = task.batch(plan, position)
        assert type(batch.source) is expected
        assert task.count(plan) == len(batch) == len(plan)
        assert batch.labels.tolist() == [int(prepared.train.pair(int(i))[1][0]) for i in plan]
        seen += plan.tolist() if position.epoch == 0 else []
    assert len(set(seen)) == len(seen) > 20
    assert dict(task.facts()).keys() == {"model", "data", "labels", "vocabulary", "batch"}
    assert task.fingerprint()["labels"] == ["negative", "positive"]


def test_validation_is_over_everything(tmp_path):
    table = document_table(tmp_path)
    table["data"]["held_out"] = 0.4
    settings = read_settings(table)
    prepared = prepare_data(settings)
    task = settings.row.load()(settings, prepared, 200)
    task.objective.eval()
    found = task.validate()
    right, nll = [], 0.0
    for i in range(len(prepared.valid)):
        source, target = prepared.valid.pair(i)
        logits = task.model.classify(task.model.encode(documents_of([source]))).detach()[0].log_softmax(-1)
        nll -= float(logits[int(target[0])])
        right.append((int(logits.argmax()), int(target[0])))
    assert found["loss"] == pytest.approx(nll / len(prepared.valid), rel=1e-5)
    assert found["accuracy"] == sum(a == b for a, b in right) / len(right)
    assert 0 <= found["f1"] <= 1
    said = [prepared.labels[a] for a, _ in right]
    samples = task.samples()
    assert len(samples) == 3
    for sample in samples:
        place = next(i for i, (text, _) in enumerate(prepared.valid_pairs) if text.startswith(sample.source[:-2]))
        assert (sample.reference, sample.output) == (prepared.valid_pairs[place][1], said[place])
        assert len(sample.source) <= 242


def test_nothing_held_out_and_one_that_cannot_be_halved(tmp_path):
    table = document_table(tmp_path)
    table["data"]["held_out"] = 0.0
    settings = read_settings(table)
    task = settings.row.load()(settings, prepare_data(settings), 512)
    assert (task.validate(), task.samples()) == ({}, [])
    position, plan = next(task.stream(Position()))
    with pytest.raises(TrainingError, match="out of memory with one document: lower data.document_tokens or"):
        task.halves(task.batch(plan[:1], position))


def test_pictures(tmp_path):
    settings = read_settings(question_table(tmp_path))
    task = settings.row.load()(settings, prepare_data(settings), 4096)
    position, plan = max(itertools.islice(task.stream(Position()), 3), key=lambda each: len(each[1]))  # the full batch
    batch = task.batch(plan, position)
    assert isinstance(batch.source, Pictures)
    assert len(batch) == len(plan) == 8
    assert dict(task.facts())["batch"] == "up to 8 pictures"
    assert task.fingerprint()["tokenizer"] is None
    assert task.validate().keys() == {"loss", "accuracy", "f1"}
    with pytest.raises(TrainingError, match="out of memory with one picture: lower data.image_size or"):
        task.halves(batch.part(0, 1))


def test_balanced_weights(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"{label}\tWord {i} .\n" for i, label in enumerate("aaaaaabbc")))
    table = document_table(tmp_path)
    table["data"] |= {"documents": str(tmp_path / "a.tsv"), "held_out": 0.0}
    table["training"]["class_weights"] = "balanced"
    settings = read_settings(table)
    prepared = document_texts.prepare_documents(settings.data, settings.tokenizer)
    task = settings.row.load()(settings, prepared, 512)
    assert task.objective.weights.tolist() == [9 / (3 * 6), 9 / (3 * 2), 9 / (3 * 1)]
    batch = task.load(prepared.train, range(9), train=True)
    with torch.no_grad():
        task.model.readout.weight.zero_()
        task.model.readout.bias.zero_()
    assert task.objective.train()(batch).total.item() == pytest.approx(9 * math.log(3))  # weights of 1 on average


def test_pieces_are_cut_anew(tmp_path):
    """BPE dropout: new pieces every epoch, reproducible ones, and sentences at the same places."""
    table = document_table(tmp_path)
    table["tokenizer"] = {"kind": "bpe", "size": 400, "dropout": 0.3}
    settings = read_settings(table)
    prepared = prepare_data(settings)
    task = settings.row.load()(settings, prepared, 4096)
    plan = list(range(5))
    rows = [task.load(prepared.train, plan, train=True, epoch=epoch).source for epoch in (0, 0, 1)]
    plain = task.load(prepared.train, plan, train=False).source
    assert rows[0].words.ids.equal(rows[1].words.ids)
    assert rows[0].words.lengths.tolist() != rows[2].words.lengths.tolist()
    assert rows[0].sentences.equal(plain.sentences)
    decode = prepared.tokenizers.source.decode
    for one, other in zip(rows[2].words.ids, plain.words.ids, strict=True):
        assert decode(one.tolist()) == decode(other.tolist())
