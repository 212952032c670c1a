"""The table of tasks: the properties of each task that do not need torch, and the name of its class.

Each task's own file has the rest: its data, objective, metrics, and the actions, evaluation and inspection of a trained
run (`regard.tasks.task.RunTask`).
"""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.data import DataSettings
from regard.errors import ConfigError
from regard.messages import no_such
from regard.plugins import added, register, renamed_fields, resolve, table

if TYPE_CHECKING:
    from regard.tasks.task import RunTask

__all__ = ["TASKS", "TaskRow", "default_task", "find_task"]


@renamed_fields(alone="not has_source", like="same_models_as")
@dataclass(frozen=True)
class TaskRow:
    """A row of the table of tasks."""

    name: str
    file: str  # module and class
    kinds: Mapping[str, str]  # the data that it reads (text, documents, pictures), each with its default kind of model
    metrics: tuple[str, ...]  # metrics that may select the best checkpoint (training.metric)
    command: str  # the command that uses a trained run
    measured_on: tuple[str, ...] = ("source", "reference")  # files that `Run.evaluate` takes
    searched: tuple[str, ...] = ()  # metrics that compare the outputs of a search
    picture: str = "What the model attended to."  # caption of the figure in a run's report; {output} is the output
    has_source: bool = True  # if not, the model reads only its own output
    labels: bool = False  # whether the output is one of a few labels instead of text
    linked: bool = False  # whether its pairs may have word links (data.alignment) for guided alignment
    same_models_as: str = ""  # for a plugin's task: the task whose kinds of model serve it, unless `served_as` finds it
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by table of the configuration (plan.py)

    def served_as(self, tasks: Sequence[str]) -> str | None:
        """Find one of the `tasks` that a kind of model serves which is equivalent to this one for the model, or None.

        Tasks are equivalent for a model if they read the same data, both have a source or both have none, and both
        output text or both output labels. A plugin's task can therefore use every kind that serves an equivalent task.
        """
        if self.name in tasks:
            return self.name
        if self.same_models_as:
            return self.same_models_as if self.same_models_as in tasks else None
        rows = (TASKS[name] for name in tasks if name in TASKS)
        alike = (row for row in rows if (self.has_source, self.labels) == (row.has_source, row.labels))
        return next((row.name for row in alike if {*self.reads} <= {*row.reads}), None)

    def all_metrics(self) -> tuple[str, ...]:
        """Return the metrics, including those of plugins if the task writes texts to compare."""
        return (*self.metrics, *(added("metric") if self.searched else ()))

    @property
    def surrounded(self) -> bool:
        """Return whether the tokenizer may put pieces around its texts (tokenizer.before, after and first)."""
        return "text" in self.reads and self.has_source and not self.labels

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the kinds of data that the task reads."""
        return tuple(self.kinds)

    def usual_kind(self, reads: str) -> str:
        """Return the default kind of model for data of this kind."""
        return self.kinds.get(reads) or next(iter(self.kinds.values()))

    def load(self) -> "type[RunTask]":
        """Import the task's class, which imports torch."""
        task: type[RunTask] = resolve(self.file)
        return task


TASKS: MutableMapping[str, TaskRow] = table("task")
for each in [
    TaskRow(
        "translate",
        "regard.tasks.translate.Translate",
        {"text": "transformer"},
        ("bleu", "chrf", "exact", "loss"),
        "regard translate",
        searched=("bleu", "chrf", "exact"),
        picture="Each row is a word of the translation: the stronger a cell's colour, the more the word attended "
        "to the source word above it.",
        linked=True,
        defaults={"tokenizer": {"joint": "auto"}},
    ),
    TaskRow(
        "language-model",
        "regard.tasks.language_model.LanguageModel",
        {"text": "encoder"},
        ("loss",),
        "regard sample",
        has_source=False,
    ),
    TaskRow(
        "caption",
        "regard.tasks.caption.Caption",
        {"pictures": "captioner"},
        ("cider", "bleu", "rouge", "chrf", "exact", "loss"),
        "regard caption",
        ("images", "captions", "names"),
        searched=("cider", "bleu", "rouge", "chrf", "exact"),
        picture="What each word attended to stays bright. Caption: {output}",
        defaults={"model": {"dropout": 0.5}},
    ),
    TaskRow(
        "classify",
        "regard.tasks.classify.Classify",
        {"documents": "han", "pictures": "convnet"},
        ("accuracy", "f1", "loss"),
        "regard classify",
        ("documents", "images", "labels"),
        picture="The stronger a colour, the more the label depends on the word and the sentence. Label: {output}",
        labels=True,
    ),
]:
    register(task=each)


def find_task(name: object) -> TaskRow:
    """Find the row of a task by name, or raise a ConfigError that suggests similar names."""
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError("task", no_such("task", name, TASKS))
    return TASKS[name]


def default_task(reads: str, data: DataSettings) -> str:
    """Return the default task for the data."""
    if reads == "pictures":
        return "caption" if data.captions or data.builtin else "classify"
    return "classify" if reads == "documents" else "translate"
