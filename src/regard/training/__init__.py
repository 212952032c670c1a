"""Training: a plain loop that knows only a Task, with checkpoints that survive interruptions.

The loop: `train`, `Trainer`, `Task`, `Loss`, `Prediction`, settings, time limits, processes. Checkpoints:
`Checkpoints`, weights, manifests, the run folder, adapters. Output: progress, metrics, samples, trackers.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.training import adapters, metrics, trainer_state
    from regard.training import checkpoint as checkpoint_files
    from regard.training import folder as run_folder
    from regard.training import weights as weight_files
    from regard.training.checkpoint import (
        BASE,
        Checkpoints,
        plain_weights_file,
        read_checkpoint,
        read_manifest,
    )
    from regard.training.display import Display, open_progress
    from regard.training.distributed import Group, describe_device, uses_bf16
    from regard.training.loop import Result, Timetable, Trainer, train
    from regard.training.metrics import TrackerRow, check_trackers
    from regard.training.progress import MISSING, Progress, Sample, bracketed, legible, nearest
    from regard.training.settings import FITTED, TrainingSettings
    from regard.training.task import Loss, Prediction, Task, inputs, next_token
    from regard.training.trainer_state import Counters

__all__ = [
    "BASE",
    "Checkpoints",
    "Counters",
    "Display",
    "FITTED",
    "Group",
    "Loss",
    "MISSING",
    "Prediction",
    "Progress",
    "Result",
    "Sample",
    "Task",
    "Timetable",
    "TrackerRow",
    "Trainer",
    "TrainingSettings",
    "adapters",
    "bracketed",
    "check_trackers",
    "checkpoint_files",
    "describe_device",
    "inputs",
    "legible",
    "metrics",
    "nearest",
    "next_token",
    "open_progress",
    "plain_weights_file",
    "read_checkpoint",
    "read_manifest",
    "run_folder",
    "train",
    "trainer_state",
    "uses_bf16",
    "weight_files",
]

__getattr__, __dir__ = door(__name__)
