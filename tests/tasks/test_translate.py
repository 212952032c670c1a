"""Translation as a task; guided alignment: loss and gradients by the formula, for every model that has it."""

import math

import pytest
import torch
from oracles import agree
from tiny import records, same_tensors, table

from regard.attention import watch
from regard.data import Links, collate, prepare
from regard.errors import ConfigError
from regard.models import build, read_model_config
from regard.tasks.run_start import start
from regard.tasks.settings import read_settings
from regard.tasks.translate import Guided, guided_at, guided_loss
from regard.training import Checkpoints, Prediction, TrainingSettings, inputs, metrics, read_checkpoint

SMALL = {"size": 8, "embedding": 6, "dropout": 0.0}
MODELS = {
    "transformer": {"kind": "transformer", "size": 8, "heads": 2, "layers": 4, "hidden": 8, "dropout": 0.0},
    "rnnsearch": {"kind": "rnnsearch", "hidden": 7, "maxout": 8, **SMALL},
    "rnnsearch-lstm": {"kind": "rnnsearch", "hidden": 7, "maxout": 8, "cell": "lstm", **SMALL},
    "luong": {"kind": "luong", "layers": 2, **SMALL},
    "luong-unfed": {"kind": "luong", "input_feeding": False, "score": "concat", **SMALL},
    "lstmn": {"kind": "lstmn", "hidden": 7, **SMALL},
    "lstmn-deep": {"kind": "lstmn", "hidden": 7, "fusion": "deep", **SMALL},
}
PAIRS = [([4, 5], [6, 7, 8]), ([9, 10, 4], [10]), ([4, 4, 4, 6, 7], [5, 5])]
# (row, target piece, linked source pieces); other pieces have no links.
LINKED = [(0, 0, [1]), (0, 2, [0, 1]), (1, 0, [2]), (2, 1, [0, 2, 4])]


@pytest.fixture
def task(tmp_path):
    settings = read_settings(table(tmp_path))
    return settings.row.load()(settings, prepare(settings.data, settings.tokenizer), 64)


def test_the_validation_loss_is_the_mean_over_all_tokens(task):
    task.objective.eval()
    with torch.no_grad():
        found = task.validate()
        total = count = 0.0
        from regard.data import batching

        for i in range(len(task.prepared.valid)):
            batch = batching.load(task.prepared.valid, [i])
            total += float(task.objective(batch).total)
            count += batch.tokens
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found.keys() == {"loss", "bleu", "chrf", "exact"}
    assert len(task.samples()) == 3
    assert all(sample.source and sample.reference for sample in task.samples())
    assert task.samples() == task.samples()


# ---- guided alignment


def linked(batch, rows=LINKED):
    places = [(row, target, source, 1 / len(sources)) for row, target, sources in rows for source in sources]
    row, target, source, weight = zip(*places, strict=True)
    links = Links(*map(torch.tensor, (row, target, source)), torch.tensor(weight, dtype=torch.float64))
    return type(batch)(*[getattr(batch, name) for name in vars(batch) if name != "links"], links)


def made(name):
    model = build(MODELS[name]["kind"], read_model_config(MODELS[name]), 11, 11).double()
    return model, linked(collate(PAIRS))


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradient_are_those_of_the_formula(name):
    """Sum the recorded weights of all attentions link by link; compare the gradients of every parameter."""
    model, batch = made(name)
    view, head = guided_at(model, TrainingSettings(guided=0.3, guided_head=1 if name == "transformer" else 0))
    assert view == ("decoder.blocks.2.cross" if name == "transformer" else "attention")
    loss = Guided(model, 0.1, 0.3, view, head).train()(batch)
    plain = Prediction(model, 0.1).train()(batch)
    with watch(model) as looks:
        model(*inputs(batch))
    weights = looks[view].weights
    weights = weights[:, head] if weights.ndim == 4 else weights
    assert weights.shape[1] == batch.target.shape[1] - 1  # a row for each written piece and END
    expected = torch.zeros((), dtype=torch.float64)
    for row, target, sources in LINKED:
        for source in sources:
            expected = expected - weights[row, target, source].log() / len(sources)
    agree(loss.parts["guided"], expected)
    agree(loss.parts["guided_count"], torch.tensor(4.0).double())
    agree(loss.total, plain.total + 0.3 * expected, model.parameters())


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "luong"])
def test_padding_and_halves_change_nothing(name):
    model, batch = made(name)
    objective = Guided(model, 0.1, 0.7, *guided_at(model, TrainingSettings(guided=0.7))).train()
    whole = objective(batch)
    halves = [objective(half) for half in batch.halves()]
    agree(whole.total, halves[0].total + halves[1].total)
    for part in ("guided", "guided_count", "nll"):
        agree(whole.parts[part], halves[0].parts[part] + halves[1].parts[part])


def test_without_links_it_is_the_next_token_alone():
    model, batch = made("transformer")
    view, head = guided_at(model, TrainingSettings(guided=1.0))
    objective, plain = Guided(model, 0.1, 1.0, view, head).train(), Prediction(model, 0.1).train()
    assert objective(collate(PAIRS)).total.equal(plain(collate(PAIRS)).total)
    empty = linked(collate(PAIRS)).links.part(3, 4)
    assert len(empty) == 0
    loss = objective(type(batch)(**{**vars(batch), "links": empty}))
    assert loss.total.equal(plain(batch).total)
    assert loss.parts["guided"] == loss.parts["guided_count"] == 0  # every process sums the same parts
    assert objective.eval()(batch).total.equal(plain.eval()(batch).total)  # evaluation does not guide


def test_a_weight_of_nothing_is_no_infinite_loss():
    weights = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    found = guided_loss(weights, Links(*torch.zeros(3, 1, dtype=torch.long), torch.ones(1)))
    found.backward()
    assert 80 < found.item() < math.inf
    assert torch.isfinite(weights.grad).all()


def test_means_are_over_what_each_was_summed_over():
    sums = {"loss": 30.0, "nll": 20.0, "guided": 6.0, "guided_count": 4.0, "tokens": 10.0, "count": 9, "since": 1.0}
    assert metrics.mean_losses(sums, 10.0) == {"loss": 3.0, "nll": 2.0, "guided": 1.5}
    assert metrics.mean_losses({"guided": 0.0, "guided_count": 0.0}, 10.0) == {"guided": 0.0}


# ---- from a configuration


def guided(folder, kind="transformer", **changes):
    """Return a configuration of reversed digits with their links."""
    given = table(folder, kind, **changes)
    with open(given["data"]["source"]) as file:
        lengths = [len(line.split()) for line in file]
    path = folder / "pairs" / "links.txt"
    path.write_text("".join(" ".join(f"{n - 1 - i}-{i}" for i in range(n)) + "\n" for n in lengths))
    given["data"]["alignment"] = str(path)
    given["training"].setdefault("guided", 0.5)
    return given


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch"])
def test_resume_is_exact(tmp_path, kind):
    more = {"tokenizer": {"kind": "bpe", "size": 300, "dropout": 0.2}, "training__validate_every": 3}
    whole = guided(tmp_path, kind, training__steps=6, training__schedule="constant", **more)
    start(whole, tmp_path / "one")
    start({**whole, "training": {**whole["training"], "steps": 3}}, tmp_path / "other")
    start(whole, tmp_path / "other", resume=True)
    one, other = (read_checkpoint(Checkpoints(tmp_path / name).last()) for name in ("one", "other"))
    assert same_tensors(one.model, other.model)
    assert same_tensors(one.trainer, other.trainer)
    said = [[each for each in records(tmp_path / name) if each["step"] > 3] for name in ("one", "other")]
    assert "guided" in said[0][0]
    assert said[0] == said[1]


def test_a_head_learns_where_to_look(tmp_path):
    """The target copies the digits, and each is linked to itself."""
    more = {"training__steps": 60, "training__rate": 0.02, "training__schedule": "constant"}
    given = guided(tmp_path, "luong", training__guided=1.0, training__validate_every=60, **more)
    links = tmp_path / "pairs" / "links.txt"
    counts = [len(line.split()) for line in links.read_text().splitlines()]
    links.write_text("".join(" ".join(f"{i}-{i}" for i in range(count)) + "\n" for count in counts))
    given["data"]["target"] = given["data"]["source"]
    given["training"] |= {"batch_tokens": 256, "log_every": 10}
    start(given, tmp_path / "run", anyway=True)  # each target equals its source
    losses = [each["guided"] for each in records(tmp_path / "run") if "guided" in each]
    assert losses[0] > 1.0  # about the logarithm of the number of words
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("transformer", {"data__alignment": None}, "training.guided: 0.5 given without links; give them with data.al"),
        ("luong", {"model__span": "local-p"}, 'training.guided: 0.5 given with model.span = "local-p", expected "glo'),
        ("transformer", {"training__compile": True}, "training.compile: true given with training.guided, expected f"),
        ("transformer", {"training__shard": True}, "training.shard: true given with training.guided, expected false"),
        ("transformer", {"training__guided": -1.0}, "training.guided: -1.0 given, expected at least 0"),
        ("rnn", {}, "training.guided: 0.5 given, but the model has no attention to its source; expected 0"),
        (
            "transformer",
            {"training__guided_layer": 1},
            "training.guided_layer: 1 given, expected less than 1, the number of la",
        ),
        (
            "transformer",
            {"training__guided_head": 2},
            "training.guided_head: 2 given, expected less than 2, the number of heads",
        ),
        (
            "rnnsearch",
            {"training__guided_head": 1},
            "training.guided_head: 1 given, expected less than 1, the number of heads",
        ),
    ],
)
def test_what_cannot_be_guided_is_refused(tmp_path, kind, changes, said):
    given = guided(tmp_path, kind)
    for key, value in changes.items():
        part, _, name = key.partition("__")
        given[part][name] = value
        if value is None:
            del given[part][name]
    with pytest.raises(ConfigError) as caught:
        start(given, tmp_path / "run")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_no_links_at_all_are_refused(tmp_path):
    given = guided(tmp_path)
    path = tmp_path / "pairs" / "links.txt"
    path.write_text("\n" * len(path.read_text().splitlines()))
    with pytest.raises(ConfigError, match="training.guided: 0.5 given, but no pair has word links"):
        start(given, tmp_path / "run")


def test_a_pointer_and_a_language_model_are_refused(tmp_path):
    model = build("pointer", read_model_config({"kind": "pointer", **SMALL}), 11, 11)
    with pytest.raises(ConfigError, match="the model has an attention that is its output; expected 0"):
        guided_at(model, TrainingSettings(guided=1.0))
    given = {**guided(tmp_path), "task": "language-model", "model": {"kind": "encoder"}}
    with pytest.raises(ConfigError, match='training.guided: 0.5 given with task = "language-model", expected 0'):
        read_settings(given)
