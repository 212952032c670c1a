"""Training: a plain loop that knows only a Task, with checkpoints that survive interruptions."""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.training import adapters, metrics
    from regard.training import folder as run_folder
    from regard.training import sample as validation_samples
    from regard.training.checkpoint import Checkpoints, best_json, digest, read_base, read_checkpoint, step_name
    from regard.training.display import Display, open_progress
    from regard.training.distributed import Group, describe_device, uses_bf16
    from regard.training.freeze import freeze_parts
    from regard.training.loop import Result, Trainer, train
    from regard.training.manifest import BASE, NAME, plain_weights_file, read_manifest
    from regard.training.memory import is_out_of_memory
    from regard.training.objective import Prediction, inputs, next_token
    from regard.training.progress import Progress
    from regard.training.row_extension import extend_rows
    from regard.training.settings import FITTED, TrainingSettings
    from regard.training.task import Loss, Task
    from regard.training.timetable import Timetable
    from regard.training.trackers import check_trackers
    from regard.training.trainer_state import Counters, check_fits, check_same, filled_from
    from regard.training.weights import check_shapes, load_weights, read_shapes, weights_of

__all__ = [
    "BASE",
    "Checkpoints",
    "Counters",
    "Display",
    "FITTED",
    "Group",
    "Loss",
    "NAME",
    "Prediction",
    "Progress",
    "Result",
    "Task",
    "Timetable",
    "Trainer",
    "TrainingSettings",
    "adapters",
    "best_json",
    "check_fits",
    "check_same",
    "check_shapes",
    "check_trackers",
    "describe_device",
    "digest",
    "extend_rows",
    "filled_from",
    "freeze_parts",
    "inputs",
    "is_out_of_memory",
    "load_weights",
    "metrics",
    "next_token",
    "open_progress",
    "plain_weights_file",
    "read_base",
    "read_checkpoint",
    "read_manifest",
    "read_shapes",
    "run_folder",
    "step_name",
    "train",
    "uses_bf16",
    "validation_samples",
    "weights_of",
]

__getattr__, __dir__ = door(
    __name__,
    {
        "adapters": "=adapters",
        "checkpoint": "Checkpoints best_json digest read_base read_checkpoint step_name",
        "display": "Display open_progress",
        "distributed": "Group describe_device uses_bf16",
        "folder": "=run_folder",
        "freeze": "freeze_parts",
        "loop": "Result Trainer train",
        "manifest": "BASE NAME plain_weights_file read_manifest",
        "memory": "is_out_of_memory",
        "metrics": "=metrics",
        "objective": "Prediction inputs next_token",
        "progress": "Progress",
        "row_extension": "extend_rows",
        "sample": "=validation_samples",
        "settings": "FITTED TrainingSettings",
        "task": "Loss Task",
        "timetable": "Timetable",
        "trackers": "check_trackers",
        "trainer_state": "Counters check_fits check_same filled_from",
        "weights": "check_shapes load_weights read_shapes weights_of",
    },
)
