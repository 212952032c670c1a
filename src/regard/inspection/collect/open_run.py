"""The part of an opened run that inspection needs: `regard.run.Run` is one, and stands above this layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from regard.data import DataSettings, Tokenizers
from regard.decoding import Options
from regard.models import Model

if TYPE_CHECKING:
    from regard.inspection.collect.teacher_forcing import ForcedExample


class OpenedSettings(Protocol):
    """The settings that a run was trained with, as far as inspection needs them."""

    @property
    def task(self) -> str:
        """The name of the task."""

    @property
    def kind(self) -> str:
        """The name of the model's kind."""

    @property
    def data(self) -> DataSettings:
        """The settings by which items are read."""


@runtime_checkable
class OpenRun(Protocol):
    """A trained model with its settings, tokenizers and labels."""

    @property
    def folder(self) -> Path:
        """The folder that it was read from."""

    @property
    def settings(self) -> OpenedSettings:
        """The settings that it was trained with."""

    @property
    def step(self) -> int:
        """The step of the checkpoint."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of a classifier."""

    @property
    def model(self) -> Model:
        """The model, or the ensemble, that decodes."""

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target; an error where there are no texts."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""

    def can(self, action: str) -> bool:
        """Return whether the run's task has an action, such as translate."""

    def force(self, item: Any, target: str | None, options: Options, tree: bool) -> "ForcedExample":
        """Return an input and an output for a teacher-forced pass: what the search finds for the item, or `target`."""
