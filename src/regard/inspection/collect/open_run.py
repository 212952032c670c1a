"""What inspection asks of an opened run: `regard.run.Run` is one, and stands above this layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from regard.data.settings import DataSettings
from regard.data.tokenizer import Tokenizers
from regard.decoding.options import Options
from regard.models.contract import Model

if TYPE_CHECKING:
    from regard.inspection.collect.teacher_forcing import ForcedExample

__all__ = ["OpenRun", "OpenedSettings"]


class OpenedSettings(Protocol):
    """What a run was trained with, as far as it matters for what it looks at."""

    @property
    def task(self) -> str:
        """The name of the task."""

    @property
    def kind(self) -> str:
        """The name of the model's kind."""

    @property
    def data(self) -> DataSettings:
        """How items are read."""


@runtime_checkable
class OpenRun(Protocol):
    """A trained model with its settings, tokenizers and labels."""

    @property
    def folder(self) -> Path:
        """Where it was read from."""

    @property
    def settings(self) -> OpenedSettings:
        """What it was trained with."""

    @property
    def step(self) -> int:
        """Of the checkpoint."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Of a classifier."""

    @property
    def model(self) -> Model:
        """What decodes: a model, or an ensemble."""

    @property
    def aligning(self) -> Model:
        """What is looked at: of an ensemble the first."""

    @property
    def texts(self) -> Tokenizers | None:
        """The tokenizers of source and target; None where there are no texts."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""

    def force(self, item: Any, target: str | None, options: Options, tree: bool) -> "ForcedExample":
        """An input and an output for a teacher-forced pass: what the search says of the item, or `target`."""
