"""The table of tasks: what is known of each without torch, and where its class is.

A task's own file has the rest: its data, objective, metrics, what a trained run does, and how that is measured and
shown (`regard.tasks.task.RunTask`).
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
    """A row of the table."""

    name: str
    file: str  # module and class
    kinds: Mapping[str, str]  # what it reads (text, documents, pictures), and the usual kind of model for that
    metrics: tuple[str, ...]  # that may say which checkpoint is best (training.metric)
    command: str  # that uses a trained run
    measured_on: tuple[str, ...] = ("source", "reference")  # files that `Run.evaluate` takes
    searched: tuple[str, ...] = ()  # those of the metrics that compare what a search wrote
    picture: str = "What the model attended to."  # under the picture in a run's report; {output} is what was written
    has_source: bool = True  # otherwise it reads what it writes
    labels: bool = False  # it says one of a few labels, and writes no text
    linked: bool = False  # its pairs may have word links (data.alignment), by which a head is guided
    same_models_as: str = ""  # of a task of one's own: the task whose kinds of model serve it, where it is not obvious
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by table, for its data (plan.py)

    def served_as(self, tasks: Sequence[str]) -> str | None:
        """Find the task served by a kind of model that is, for the model, the same as this one; None if there is none.

        To a model tasks differ in what they read, whether there is a source, and whether text or a label comes out. So
        a task of one's own has every kind that serves one of Regard's own with the same inputs and outputs.
        """
        if self.name in tasks:
            return self.name
        if self.same_models_as:
            return self.same_models_as if self.same_models_as in tasks else None
        rows = (TASKS[name] for name in tasks if name in TASKS)
        alike = (row for row in rows if (self.has_source, self.labels) == (row.has_source, row.labels))
        return next((row.name for row in alike if {*self.reads} <= {*row.reads}), None)

    def all_metrics(self) -> tuple[str, ...]:
        """Return the metrics, including those of plugins where the task writes texts to compare."""
        return (*self.metrics, *(added("metric") if self.searched else ()))

    @property
    def surrounded(self) -> bool:
        """Return whether pieces may stand around its texts (tokenizer.before, after and first)."""
        return "text" in self.reads and self.has_source and not self.labels

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the kinds of data that the task reads."""
        return tuple(self.kinds)

    def usual_kind(self, reads: str) -> str:
        """Return the kind of model that is used where none is named."""
        return self.kinds.get(reads) or next(iter(self.kinds.values()))

    def load(self) -> "type[RunTask]":
        """Import the class of the task, and torch with it."""
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
    """Find the row of a name, or raise a ConfigError that suggests what may be meant."""
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError("task", no_such("task", name, TASKS))
    return TASKS[name]


def default_task(reads: str, data: DataSettings) -> str:
    """The task that data suggests where none is named."""
    if reads == "pictures":
        return "caption" if data.captions or data.builtin else "classify"
    return "classify" if reads == "documents" else "translate"
