"""The objectives of soft and hard attention against their formulas, and the task."""

import itertools
import math

import pytest
import torch
from models.pictured import captioner, pictures
from oracles import agree
from tiny import StopAt, caption_table, records, same_tensors

from regard import load
from regard.attention import weighting
from regard.data import END, PAD, START, PictureBatch, Position
from regard.errors import TrainingError
from regard.models import Pictures, Tokens
from regard.tasks.caption import Caption, Captioning, doubly_stochastic, update_baseline
from regard.tasks.run_start import start
from regard.tasks.settings import read_settings
from regard.tasks.task import prepare_data
from regard.training import Checkpoints, read_checkpoint, weight_files


def batch_of(captions: list[list[int]], which: list[int], **size) -> PictureBatch:
    """Return a batch of captions, with words from 4 on, each for the picture with that number."""
    lengths = torch.tensor([len(each) + 1 for each in captions])
    target = torch.full((len(captions), int(lengths.max()) + 1), PAD)
    for row, each in enumerate(captions):
        target[row, : len(each) + 2] = torch.tensor([START, *each, END])
    source = pictures(max(which) + 1, **size)
    none = torch.zeros(0, dtype=torch.long)
    return PictureBatch(source.pixels, torch.tensor(which), target, lengths, none, int(lengths.sum()))


def small_batch() -> PictureBatch:
    return batch_of([[4, 5, 6], [7], [8, 9], [4]], [0, 0, 1, 2])


def training(objective: Captioning) -> Captioning:
    """Set training mode, except for the backbone, whose norms would mix the pictures of a batch."""
    objective.train().model.backbone.eval()
    return objective


def log_probs(model, batch) -> list[torch.Tensor]:
    """Return log p of every token, computed for each caption alone with its picture."""
    found = []
    for row, length in enumerate(batch.target_lengths.tolist()):
        own = int(batch.picture[row])
        target = Tokens.of(batch.target[row : row + 1, :length], torch.tensor([length]))
        logits = model(Pictures(batch.pixels[own : own + 1]), target)[0].log_softmax(-1)
        found.append(logits[torch.arange(length), batch.target[row, 1 : length + 1]])
    return found


@pytest.mark.parametrize("name", ["soft", "hard", "straight-through", "none", "transformer"])
def test_measured_it_is_the_likelihood_of_all_captions(name):
    model, batch = captioner(name), small_batch()
    loss = Captioning(model, 0.1).eval()(batch)
    wanted = -torch.cat(log_probs(model, batch)).sum()
    agree(loss.total, wanted)
    agree(loss.parts["nll"], wanted)
    assert loss.parts["tokens"] == batch.tokens


def test_the_penalty_is_the_papers_sum():
    weights, real = torch.rand(2, 4, 3, dtype=torch.float64), torch.tensor([[True] * 4, [True, True, False, False]])
    for row, length in enumerate((4, 2)):
        wanted = sum((1 - sum(float(weights[row, t, i]) for t in range(length))) ** 2 for i in range(3))
        assert float(doubly_stochastic(weights, real)[row]) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["soft", "transformer"])
def test_soft_attention_pays_for_what_it_did_not_look_at(name):
    model, batch = captioner(name, penalty=0.7), small_batch()
    objective = Captioning(model, 0.0)
    measured, trained = objective.eval()(batch), training(objective)(batch)
    penalty = trained.total - measured.total
    assert penalty > 0
    agree(trained.parts["penalty"], penalty.detach())
    free = captioner(name, penalty=0.0)
    free.load_state_dict(model.state_dict())
    gained = torch.autograd.grad(penalty, model.decoder.parameters(), allow_unused=True)
    assert sum(each is not None and bool(each.any()) for each in gained) > 3
    agree(training(Captioning(free, 0.0))(batch).total, measured.total)


def test_a_batch_is_its_halves():
    model, batch = captioner(penalty=0.5), small_batch()
    objective = training(Captioning(model, 0.1))
    halves = batch.halves()
    assert [len(half) for half in halves] == [2, 1]
    agree(sum(objective(half).total for half in halves), objective(batch).total, model.parameters())


# ---- the learning rule of hard attention


def forced(monkeypatch, places):
    """Let every draw take the next of these places for all rows."""
    coming = iter(places)
    monkeypatch.setattr(weighting, "sample_key", lambda p: torch.full(p.shape[:-1], next(coming)))


def fixed(model, value: float) -> None:
    with torch.no_grad():
        model.decoder.baseline.fill_(value)


@pytest.mark.parametrize("baseline", [-3.0, 2.0])
def test_the_expected_estimate_is_the_gradient_of_the_bound(monkeypatch, baseline):
    """One caption of three tokens over two places: sum over all eight choices, weighted by probability."""
    model = captioner("hard", settle=0, sampled=1.0, entropy=0.0, reinforce=1.0)
    batch = batch_of([[4, 5]], [0], height=4, width=8)
    assert model.encode(Pictures(batch.pixels)).grid == (1, 2)
    objective, parameters = training(Captioning(model, 0.0)), list(model.parameters())
    estimate = [torch.zeros_like(each) for each in parameters]
    bound, mass = torch.zeros((), dtype=torch.float64), 0.0
    for places in itertools.product((0, 1), repeat=3):
        fixed(model, baseline)
        forced(monkeypatch, places)
        loss = objective(batch)
        forced(monkeypatch, places)
        target = Tokens.of(batch.target[:, :-1], batch.target_lengths)
        hidden, extra = model.decode(model.encode(Pictures(batch.pixels)), target)
        log_place = extra["log_prob"].sum()
        told = model.output(hidden).log_softmax(-1)[0, torch.arange(3), batch.target[0, 1:]].sum()
        bound = bound + log_place.exp() * told
        mass += log_place.exp().item()
        for total, each in zip(estimate, torch.autograd.grad(loss.total, parameters), strict=True):
            total -= log_place.exp().item() * each
    assert mass == pytest.approx(1.0)
    for got, wanted in zip(estimate, torch.autograd.grad(bound, parameters), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)


def test_many_draws_come_to_the_same(monkeypatch):
    """With real draws, the gradient in one direction agrees within four standard errors."""
    model = captioner("hard", settle=0, sampled=1.0, entropy=0.0, reinforce=1.0)
    count = 4000
    batch = batch_of([[4, 5]] * count, [0] * count, height=4, width=8)
    weight = model.decoder.cross.score.v
    direction = torch.randn_like(weight)
    each = []
    objective = training(Captioning(model, 0.0))
    fixed(model, -4.0)
    target = Tokens.of(batch.target[:, :-1], batch.target_lengths)
    exact = torch.zeros((), dtype=torch.float64)
    with monkeypatch.context() as patch:
        for places in itertools.product((0, 1), repeat=3):
            forced(patch, places)
            one = Tokens.of(target.ids[:1], target.lengths[:1])
            hidden, extra = model.decode(model.encode(Pictures(batch.pixels)), one)
            told = model.output(hidden).log_softmax(-1)[0, torch.arange(3), batch.target[0, 1:]].sum()
            exact = exact + extra["log_prob"].sum().exp() * told
    (wanted,) = torch.autograd.grad(exact, weight)
    for _ in range(8):
        fixed(model, -4.0)
        (found,) = torch.autograd.grad(-objective(batch).total / count, weight)
        each.append(float((found * direction).sum()))
    mean = sum(each) / len(each)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in each) / (len(each) - 1) / len(each))
    assert abs(mean - float((wanted * direction).sum())) < 5 * deviation + 1e-6


def test_entropy_is_rewarded():
    model, batch = captioner("hard", settle=0, sampled=1.0, entropy=0.0, reinforce=0.0), small_batch()
    richer = captioner("hard", settle=0, sampled=1.0, entropy=0.3, reinforce=0.0)
    richer.load_state_dict(model.state_dict())
    losses = []
    for each in (model, richer):
        torch.manual_seed(7)
        losses.append(Captioning(each, 0.0).train()(batch))
    agree(losses[1].total, losses[0].total - 0.3 * losses[0].parts["entropy"])
    assert losses[0].parts["entropy"] > 0
    agree(losses[0].total, losses[0].parts["nll"])


def test_the_baseline_is_a_moving_average_of_what_was_drawn():
    model, batch = captioner("hard", settle=0, sampled=1.0), small_batch()
    objective = Captioning(model, 0.0).train()
    assert model.decoder.baseline == 0
    wanted = None
    for _ in range(3):
        mean = -float(objective(batch).parts["nll"]) / 4
        wanted = mean if wanted is None else 0.9 * wanted + 0.1 * mean
        assert float(model.decoder.baseline) == pytest.approx(wanted)
    before = model.decoder.baseline.clone()
    objective.eval()(batch)
    assert torch.equal(model.decoder.baseline, before)


def test_only_what_was_drawn_counts_for_the_baseline():
    model = captioner("hard", settle=0, sampled=0.5)
    reward = torch.tensor([-1.0, -2.0, -30.0], dtype=torch.float64)
    assert float(update_baseline(model.decoder.baseline, reward, torch.tensor([True, True, False]))) == -1.5
    assert float(model.decoder.baseline) == -1.5
    assert float(update_baseline(model.decoder.baseline, reward, torch.tensor([False, False, False]))) == -1.5
    assert float(model.decoder.baseline) == -1.5


def test_the_baseline_goes_with_the_weights():
    one, other = (Captioning(captioner("hard", settle=0)) for _ in range(2))
    fixed(one.model, -2.5)
    weight_files.load_weights(other, weight_files.weights_of(one), "here")
    assert float(other.model.decoder.baseline) == -2.5
    assert "model.decoder.baseline" not in weight_files.weights_of(Captioning(captioner("soft")))


# ---- the task


def test_a_run_is_trained_measured_and_loaded(tmp_path):
    """The same loop and folder serve as for every other task."""
    threads = torch.get_num_threads()
    done = start(caption_table(tmp_path, penalty=0.5), tmp_path / "run")
    torch.set_num_threads(threads)
    task = done.task
    kept = records(tmp_path / "run")
    steps = [record for record in kept if record["kind"] == "step"]
    assert all(record["penalty"] > 0 and record["loss"] > record["nll"] for record in steps)
    valid = [record for record in kept if record["kind"] == "valid"]
    assert {"loss", "bleu", "cider", "rouge", "exact"} <= valid[-1].keys()
    assert [sample["source"] for sample in valid[0]["samples"]] == [sample["source"] for sample in valid[1]["samples"]]
    run = load(tmp_path / "run")
    assert run.caption([tmp_path / "captioned" / "pictures" / "0.png"]) == run.caption(
        task.load(task.prepared.train, [0], train=False).pixels, beam=5
    )
    assert ("batch", "up to 8 pictures") in done.facts


def test_a_plan_counts_the_tokens_of_its_batch(tmp_path):
    table = caption_table(tmp_path)
    settings = read_settings(table)
    task = Caption(settings, prepare_data(settings), 4096)
    for position, plan in itertools.islice(task.stream(Position(0, 0)), 5):
        batch = task.batch(plan, position)
        assert task.count(plan) == batch.tokens
        assert len(batch) <= 8
        assert float(task.objective(batch).parts["tokens"]) == batch.tokens


@pytest.mark.parametrize("attention", ["hard", "straight-through"])
def test_hard_attention_resumes_where_it_was(tmp_path, attention):
    """With draws, dropout and the baseline, the result equals a run without a stop bit by bit."""
    threads = torch.get_num_threads()
    table = caption_table(tmp_path, attention=attention, settle=1, dropout=0.2)
    whole = {**table, "training": {**table["training"], "steps": 6, "validate_every": 3}}
    start(whole, tmp_path / "whole")
    start(whole, tmp_path / "parts", progress=StopAt(2))
    assert Checkpoints(tmp_path / "parts").last().name == "step-000002"
    start(whole, tmp_path / "parts", resume=True)
    torch.set_num_threads(threads)
    one, other = (read_checkpoint(Checkpoints(tmp_path / name).last()) for name in ("whole", "parts"))
    assert one.step == other.step == 6
    assert same_tensors(one.model, other.model)
    assert same_tensors(one.trainer, other.trainer)
    if attention != "hard":
        assert "model.decoder.baseline" not in one.model
        return
    assert one.model["model.decoder.baseline"] < 0
    stopped = read_checkpoint(Checkpoints(tmp_path / "parts").steps()[0]).model["model.decoder.baseline"]
    assert stopped != one.model["model.decoder.baseline"]


def test_one_picture_that_does_not_fit_says_so(tmp_path):
    settings = read_settings(caption_table(tmp_path))
    task = Caption(settings, prepare_data(settings), 4096)
    with pytest.raises(TrainingError, match="one picture of 32 pixels"):
        task.halves(batch_of([[4]], [0]))
