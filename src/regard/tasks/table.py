"""The task that the settings name, and the data that it needs. What one task needs is loaded for no other."""

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from regard.data.prepare import Prepared, prepare
from regard.data.tokenizer import Tokenizers
from regard.tasks.settings import Settings

if TYPE_CHECKING:
    from regard.tasks.classify import Classify
    from regard.tasks.translate import Translate

__all__ = ["prepare_for", "task_of"]

TASKS = {
    "translate": "translate.Translate",
    "language-model": "translate.LanguageModel",
    "caption": "caption.Caption",
    "classify": "classify.Classify",
}


def task_of(settings: Settings, prepared: Prepared, budget: int) -> "Translate | Classify":
    """The task that the settings name."""
    module, name = TASKS[settings.task].split(".")
    task: Translate | Classify = getattr(importlib.import_module(f"regard.tasks.{module}"), name)(
        settings, prepared, budget
    )
    return task


def prepare_for(
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda line: None,
    tokenizers: Tokenizers | None = None,
    labels: Sequence[str] = (),
) -> Prepared:
    """The encoded data of the task; `tokenizers` and `labels` are those of a run that is gone on with."""
    data, given = settings.data, {"say": say, "tokenizers": tokenizers}
    known: dict[str, Any] = {**given, "labels": tuple(labels) or None}
    if data.reads == "pictures":
        from regard.data.images.prepare import prepare_images

        return prepare_images(data, settings.tokenizer, settings.task, **known)
    if data.reads == "documents":
        from regard.data.documents import prepare_documents

        return prepare_documents(data, settings.tokenizer, **known)
    return prepare(data, settings.tokenizer, **given)  # type: ignore[arg-type]
