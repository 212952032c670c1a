"""The training loop, with a task that has nothing to do with translation."""

import math

import pytest
import torch
from tiny import Line, first, records, same_tensors, training
from torch import nn
from training.cases import Said, contents, stepped, weights

from regard.errors import TrainingError
from regard.training import loop
from regard.training.checkpoint import Checkpoints, read_checkpoint
from regard.training.loop import mix_seeds, train
from regard.training.task import Loss, Position, Task
from regard.training.trainer_state import optimiser_tensors


class Doubling(Task):
    """The complete example of the module's own docstring."""

    def __init__(self):
        self.objective = Mean(nn.Linear(1, 1))

    def epoch(self, number):
        return [(x, 2 * x) for x in torch.randn(10, 16, 1, generator=torch.Generator().manual_seed(number))]

    def count(self, plan):
        return len(plan[0])


class Mean(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, batch):
        return Loss((self.net(batch[0]) - batch[1]).square().sum())


def test_ten_lines_are_a_task(tmp_path):
    task = Doubling()
    result = train(task, training(steps=300, rate=0.05, validate_every=300), tmp_path)
    assert (result.step, result.stop_reason, result.best) == (300, "finished", None)
    assert task.objective.net.weight.item() == pytest.approx(2, abs=0.01)
    assert Checkpoints(tmp_path).last().name == "step-000300"


def test_the_loop_is_adamw_over_the_mean_of_a_batch(tmp_path):
    """Compare with a plain PyTorch loop."""
    task = Line(dtype=torch.float64)
    mine, plans = Line(dtype=torch.float64), Line(dtype=torch.float64).stream(Position())
    settings = training(clip=0.0, weight_decay=0.1, betas=(0.8, 0.95))
    optimiser = torch.optim.AdamW(mine.objective.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-9, weight_decay=0.1)
    for _ in range(7):
        _, plan = next(plans)
        optimiser.zero_grad()
        (mine.objective(plan).total / len(plan[0])).backward()
        optimiser.step()
    stepped(settings, task, tmp_path, 7)
    for name, tensor in weights(mine).items():
        torch.testing.assert_close(weights(task)[name], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [0.01, 0.5, 1e6])
def test_clipping_is_clip_grad_norm(tmp_path, clip):
    task, mine = Line(), Line()
    optimiser = torch.optim.AdamW(mine.objective.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    plans = mine.stream(Position())
    for _ in range(5):
        _, plan = next(plans)
        optimiser.zero_grad()
        (mine.objective(plan).total / len(plan[0])).backward()
        torch.nn.utils.clip_grad_norm_(mine.objective.parameters(), clip)
        optimiser.step()
    trainer = stepped(training(clip=clip), task, tmp_path, 5)
    for name, parameter in mine.objective.named_parameters():
        torch.testing.assert_close(weights(task)[name], parameter.detach(), rtol=1e-4, atol=1e-6)
        state = trainer.updater.optimiser.state[dict(task.objective.named_parameters())[name]]
        # Adam hardly depends on a gradient's scale, but its first moments do.
        torch.testing.assert_close(state["exp_avg"], optimiser.state[parameter]["exp_avg"], rtol=1e-4, atol=1e-8)


def test_accumulating_is_a_larger_batch(tmp_path):
    """Batches of 8 and 3 rows equal one of 11: the divisor is their common count."""

    class Uneven(Line):
        def epoch(self, number):
            for x, y in super().epoch(number):
                yield x[:8], y[:8]
                yield x[8:], y[8:]

    small, large = Uneven(rows=11, dtype=torch.float64), Line(rows=11, dtype=torch.float64)
    stepped(training(accumulate=2), small, tmp_path / "a", 6)
    stepped(training(), large, tmp_path / "b", 6)
    for name, tensor in weights(large).items():
        torch.testing.assert_close(weights(small)[name], tensor, rtol=0, atol=1e-12)


def test_records_are_means_since_the_last_one(tmp_path):
    train(Line(), training(rate=1e-30), tmp_path)
    losses = [float(Line().objective(plan).total.detach()) / 8 for _, plan in first(Line().stream(Position()), 8)]
    found = [record for record in records(tmp_path) if record["kind"] == "step"]
    assert [record["step"] for record in found] == [2, 4, 6, 8]
    for i, record in enumerate(found):
        assert record["loss"] == pytest.approx((losses[2 * i] + losses[2 * i + 1]) / 2, rel=1e-6)
        assert record["epoch"] == (2 * i + 1) // 5


# ---- numbers that are not finite


class Poisoned(Line):
    """A task whose gradient is not finite in some steps, though the loss may be."""

    def __init__(self, steps, value=math.nan):
        super().__init__()
        self.poison, self.value = set(steps), value

    def batch(self, plan, position):
        number = position.epoch * self.batches + position.batch + 1
        return (plan[0] * self.value, plan[1]) if number in self.poison else plan


def kept_by(trainer):
    return optimiser_tensors(trainer.updater)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_left_out_and_counted(tmp_path, value):
    task, clean = Poisoned({3}, value), Line()
    trainer = stepped(training(), task, tmp_path / "a", 2)
    before, state = weights(task), {key: tensor.clone() for key, tensor in kept_by(trainer).items()}
    with trainer.shares() as shares:
        trainer.update(shares)
    assert same_tensors(weights(task), before)
    assert same_tensors(kept_by(trainer), state)  # including Adam's moments and its count of steps
    assert int(trainer.updater.skipped) == 1
    trainer.updater.read_sums(trainer.now)
    assert trainer.now.skipped == 1
    stepped(training(), clean, tmp_path / "b", 2)
    assert same_tensors(weights(clean), before)


def test_skipped_steps_are_told_and_kept_over_a_resume(tmp_path):
    said = Said()
    task = Poisoned({2, 3})
    train(task, training(steps=4), tmp_path, progress=said)
    steps = [record for record in records(tmp_path) if record["kind"] == "step"]
    assert [record["skipped"] for record in steps] == [1, 2]
    assert sum("not finite" in line for line in said.lines) == 2
    train(Line(), training(steps=6), tmp_path, resume=True)
    assert records(tmp_path)[-2]["skipped"] == 2


def test_nothing_finite_for_long_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "MAX_BAD_STEPS", 6)
    task = Poisoned(range(5, 1000))
    with pytest.raises(TrainingError, match="no finite gradient in the last 6 steps.*step-000008") as caught:
        train(task, training(steps=1000, validate_every=4), tmp_path)
    assert str(caught.value).startswith("step 10: ")
    # The checkpoints in between have the weights of the last finite step.
    assert same_tensors(
        read_checkpoint(tmp_path / "checkpoints/step-000008").model,
        read_checkpoint(tmp_path / "checkpoints/step-000004").model,
    )


def test_a_smaller_loss_is_better(tmp_path):
    result = train(Line(), training(steps=40, rate=0.05), tmp_path)
    values = [record["loss"] for record in records(tmp_path) if record["kind"] == "valid"]
    assert result.best == min(values)


def test_a_finished_run_resumed_does_nothing_more(tmp_path):
    train(Line(), training(), tmp_path)
    before = contents(tmp_path)
    result = train(Line(), training(), tmp_path, resume=True)
    assert (result.step, result.stop_reason) == (8, "finished")
    assert contents(tmp_path) == before


def test_an_epoch_without_batches_is_named(tmp_path):
    task = Line(batches=0)
    with pytest.raises(TrainingError, match="no batches to train on"):
        train(task, training(), tmp_path)


# ---- randomness


def test_neighbouring_seeds_have_nothing_in_common():
    seen = {mix_seeds(seed, step, rank) for seed in range(10) for step in range(50) for rank in range(4)}
    assert len(seen) == 2000
    assert all(0 <= number < 2**64 for number in seen)
    bits = [bin(mix_seeds(1, step, 0) ^ mix_seeds(1, step + 1, 0)).count("1") for step in range(200)]
    assert 28 < sum(bits) / len(bits) < 36


def test_the_random_numbers_of_a_step_hang_on_the_step_alone(tmp_path):
    class Noise(Line):
        def __init__(self):
            super().__init__()
            self.drawn = []

        def batch(self, plan, position):
            self.drawn.append(float(torch.rand(())))
            return plan

        def validate(self):
            torch.rand(7)
            return super().validate()

    one, other = Noise(), Noise()
    train(one, training(), tmp_path / "a")
    train(other, training(validate_every=1, log_every=1), tmp_path / "b")
    assert one.drawn == other.drawn
    assert len(set(one.drawn)) == 8
