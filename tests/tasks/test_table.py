"""The table of tasks: complete, light, and the only file that knows a task by name."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import regard
from regard.errors import ConfigError
from regard.models import KINDS
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
        assert row.served_as(KINDS[kind].tasks) == row.name
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


def test_a_task_of_ones_own_is_served_by_kinds_of_tasks_with_the_same_inputs_and_outputs():
    mine = replace(TASKS["classify"], name="mine", kinds={"documents": "han"})
    assert mine.served_as(("language-model", "classify")) == "classify"
    assert mine.served_as(("translate", "caption")) is None
    assert mine.served_as(("classify", "mine")) == "mine"
    assert replace(mine, same_models_as="translate").served_as(("classify", "translate")) == "translate"
    assert replace(mine, same_models_as="translate").served_as(("classify",)) is None
    assert replace(mine, kinds={"text": "rnn"}).served_as(("classify",)) is None
    assert replace(TASKS["translate"], name="mine").served_as(("language-model", "translate")) == "translate"
    assert replace(TASKS["translate"], name="mine", has_source=False).served_as(("translate",)) is None


def test_a_row_is_made_with_older_names_too():
    new = replace(TASKS["translate"], name="mine", has_source=False, same_models_as="caption")
    with pytest.warns(DeprecationWarning, match="has_source"), pytest.warns(DeprecationWarning, match="same_models_as"):
        assert replace(TASKS["translate"], name="mine", alone=True, like="caption") == new


def compared(tree):
    """Yield the strings in comparisons and `match` patterns."""
    for node in ast.walk(tree):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += [node.value] if isinstance(node, ast.MatchValue) else []
        for part in parts:
            each = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
            yield from (one.value for one in each if isinstance(one, ast.Constant))


def test_no_other_file_asks_which_task_it_is():
    """Exceptions: `job` of models holds a task's name, and one study is about a task."""
    known = {*TASKS}
    asking = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "tasks"
        if (path.relative_to(SOURCE).parts[0], path.name) != ("models", "config.py")
        if path.relative_to(SOURCE).parts[:2] != ("studies", "intra")
        if path.name != "markup.py"  # `translate` is an attribute of HTML, too
        if known & {value for value in compared(ast.parse(path.read_text())) if isinstance(value, str)}
    ]
    assert asking == []
