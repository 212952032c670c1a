"""Tasks, one file each: their data, objective and metrics; the whole configuration; and starting a run.

The table: `TASKS`; each task's file: `translate`, `language_model`, `caption`, `classify`. Configuration: `Settings`,
and reading and completing it. Before the first step: checks of the data, a dry run, `start`. A run's task: `RunTask`,
the `TrainedRun` that it receives, engines, results; teacher-forced examples, their sides and trees. Afterwards:
`evaluation`, `baseline`, the summary of a folder.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.tasks import baseline, caption, classify, evaluation, language_model, translate
    from regard.tasks.forcing import Candidate, ForcedExample, Item, Side, Tree
    from regard.tasks.memory import check_sizes
    from regard.tasks.plan import labels_of, tokenizers_of
    from regard.tasks.run_start import Started, check_data, dry_run, missing_files, start, write_config
    from regard.tasks.settings import (
        Settings,
        base_table,
        check_extension,
        complete_run_table,
        read_settings,
        set_by_hand,
    )
    from regard.tasks.summary import CARD, ON_CARD, find_runs, record_command, require_run, summarise
    from regard.tasks.table import TASKS
    from regard.tasks.task import (
        Aligned,
        Classified,
        Engine,
        ModelEngine,
        RunTask,
        TrainedRun,
        Translation,
        build_model,
        prepare_data,
        to_translation,
        to_translations,
    )
    from regard.tasks.translate import PAIRS, translate_lines

__all__ = [
    "Aligned",
    "CARD",
    "Candidate",
    "Classified",
    "Engine",
    "ForcedExample",
    "Item",
    "ModelEngine",
    "ON_CARD",
    "PAIRS",
    "RunTask",
    "Settings",
    "Side",
    "Started",
    "TASKS",
    "TrainedRun",
    "Translation",
    "Tree",
    "base_table",
    "baseline",
    "build_model",
    "caption",
    "check_data",
    "check_extension",
    "check_sizes",
    "classify",
    "complete_run_table",
    "dry_run",
    "evaluation",
    "find_runs",
    "labels_of",
    "language_model",
    "missing_files",
    "prepare_data",
    "read_settings",
    "record_command",
    "require_run",
    "set_by_hand",
    "start",
    "summarise",
    "to_translation",
    "to_translations",
    "tokenizers_of",
    "translate",
    "translate_lines",
    "write_config",
]

__getattr__, __dir__ = door(__name__)
