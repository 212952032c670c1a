"""Folders that were written for Transformers, opened again: what verification decodes and scores with, beside the run.

Transformers is no part of Regard, so Regard's own importer reads the folder, which the tests hold against Transformers.
Texts are cut by the run: pieces keep the numbers that they have there, and the folder's vocabulary says which row of it
is a piece's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regard import __version__
from regard.config import show_value
from regard.decoding import GREEDY, batches
from regard.errors import DataError
from regard.interop import m2m100, marian
from regard.interop.formats import Imported, model_type
from regard.interop.numbering import written_rows
from regard.run import Run
from regard.tasks import ModelEngine, build_model, read_settings
from regard.training import Prediction, weight_files

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True, eq=False)
class Reopened:
    """What verification asks of an exported folder (`regard.interop.export.Opened`)."""

    engine: ModelEngine
    exact: bool = True  # such folders are float32

    @property
    def versions(self) -> dict[str, str]:
        """Name what decodes it."""
        return {"regard": __version__, "torch": torch.__version__}

    def decode(self, sources: list[list[int]], prefixes: list[list[int]] | None) -> list[list[int]]:
        """Search greedily; outputs begin with the prefixes."""
        return [result.outputs[0].tokens for result in self.engine.search(sources, GREEDY, prefixes=prefixes)]

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""
        return self.engine.score(sources, targets)


def open_marian(folder: Path, run: Run) -> Reopened:
    """Open a folder of Marian's that was written from a run."""
    check_type(folder, "marian")
    return reopen(folder, marian.read_rows(folder, run.tokenizers), run)


def open_m2m100(folder: Path, run: Run) -> Reopened:
    """Open a folder of M2M-100 that was written from a run."""
    check_type(folder, "m2m_100")
    return reopen(folder, m2m100.read_rows(folder, run.tokenizers, written_rows(folder)), run)


def check_type(folder: Path, expected: str) -> None:
    """Refuse a folder that Transformers would open as another model: the order of its sines is the family's."""
    if (name := model_type(folder)) != expected:
        raise DataError(f"{folder / 'config.json'}: model_type is {show_value(name)}, expected {show_value(expected)}")


def reopen(folder: Path, imported: Imported, run: Run) -> Reopened:
    """Build the model of a folder, on the run's device."""
    model = build_model(read_settings(imported.table), imported.tokenizers)
    weight_files.load_weights(
        Prediction(model), {f"model.{name}": tensor for name, tensor in imported.weights.items()}, str(folder)
    )
    return Reopened(ModelEngine(model.to(run.device).eval(), run.tokenizers, run.device))
