"""Shared cases of training tests: a progress that records, a trainer after some steps, scripted validations."""

from dataclasses import dataclass

import torch
from tiny import Line

from regard.training.distributed import Group
from regard.training.loop import Trainer
from regard.training.progress import Progress
from regard.training.weights import weights_of


class Said(Progress):
    def __init__(self):
        self.lines, self.steps = [], []

    def say(self, text):
        self.lines.append(text)

    def step(self, record):
        self.steps.append(dict(record))


@dataclass(frozen=True)
class Numbers:
    """A batch of rows."""

    x: torch.Tensor

    @property
    def shape(self):
        return tuple(self.x.shape)

    def to(self, device, non_blocking=False):
        return Numbers(self.x.to(device, non_blocking=non_blocking))


def stepped(settings, task, run, count, change=None):
    """Return a trainer after `count` updates without records, validations or checkpoints; `change` it before them."""
    trainer = Trainer(task, settings, run, Said(), Group(settings.device))
    trainer.prepare(False)
    trainer.objective.train()
    if change is not None:
        change(trainer)
    with trainer.shares() as shares:
        for _ in range(count):
            trainer.update(shares)
    return trainer


def same(one, other):
    """Check that two trainers have bit by bit the same weights, moments and sums."""
    assert (one.now.sums, one.now.step) == (other.now.sums, other.now.step)
    for mine, theirs in zip(one.updater.parameters, other.updater.parameters, strict=True):
        assert torch.equal(mine, theirs)
        for key, value in one.updater.optimiser.state[mine].items():
            assert torch.equal(value, other.updater.optimiser.state[theirs][key]), key


def contents(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.parent.name != "tensorboard"}


def weights(task):
    return {name: tensor.detach().clone() for name, tensor in weights_of(task.objective).items()}


class Scripted(Line):
    """A task with validations from the test."""

    metric = "bleu"

    def __init__(self, values):
        super().__init__()
        self.values = iter(values)

    def validate(self):
        value = next(self.values)
        return {} if value is None else {"bleu": value}
