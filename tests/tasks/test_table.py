"""The table of tasks: complete, light, and the only place that knows a task by name."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.errors import ConfigError
from regard.models.kinds import KINDS
from regard.tasks.table import TASKS, find_task
from regard.tasks.task import RunTask

SOURCE = Path(regard.__file__).parent


@pytest.mark.parametrize("row", TASKS.values(), ids=TASKS)
def test_a_row_says_what_its_class_and_its_kinds_need(row):
    task = row.load()
    assert issubclass(task, RunTask)
    assert set(row.searched) <= set(row.metrics)
    assert "loss" in row.metrics
    for reads, kind in row.kinds.items():
        assert row.job in KINDS[kind].tasks
        assert KINDS[kind].reads == reads
        assert row.usual_kind(reads) == kind
    for method in ("force", "evaluate"):
        assert getattr(task, method).__func__ is not getattr(RunTask, method).__func__
    assert row.picture.format(output="x")
    assert row.command.removeprefix("regard ") in task.actions


def test_the_table_imports_no_torch():
    code = "import sys, regard.tasks.settings; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_a_wrong_name_is_answered():
    with pytest.raises(ConfigError, match=r'task: "translat" given, no such task; did you mean \'translate\'?'):
        find_task("translat")
    with pytest.raises(ConfigError, match="task: 3 given, no such task"):
        find_task(3)


def compared(tree):
    """The texts that something is compared with, or looked up by `match`."""
    for node in ast.walk(tree):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += [node.value] if isinstance(node, ast.MatchValue) else []
        for part in parts:
            each = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
            yield from (one.value for one in each if isinstance(one, ast.Constant))


def test_no_other_file_asks_which_task_it_is():
    """But for models, whose option `job` is a task's name, and a study of one of them."""
    known = {*TASKS}
    asking = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in ("tasks", "models")
        if path.relative_to(SOURCE).parts[:2] != ("studies", "intra")
        if known & {value for value in compared(ast.parse(path.read_text())) if isinstance(value, str)}
    ]
    assert asking == []
