"""What several files test training with: a progress that remembers, a trainer stepped, scripted validations."""

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


def stepped(settings, task, run, count):
    """A trainer after so many updates, without records, validations and checkpoints."""
    trainer = Trainer(task, settings, run, Progress(), Group("cpu"))
    trainer.prepare(False)
    trainer.objective.train()
    with trainer.shares() as shares:
        for _ in range(count):
            trainer.update(shares)
    return trainer


def contents(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.parent.name != "tensorboard"}


def weights(task):
    return {name: tensor.detach().clone() for name, tensor in weights_of(task.objective).items()}


class Scripted(Line):
    """Its validations give what the test says."""

    metric = "bleu"

    def __init__(self, values):
        super().__init__()
        self.values = iter(values)

    def validate(self):
        value = next(self.values)
        return {} if value is None else {"bleu": value}
