"""The public surface is small, sorted, and said in one place."""

import ast
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard import errors

MODULES = ["regard", "regard.attention", "regard.errors"]


@pytest.mark.parametrize("name", MODULES)
def test_all_is_sorted_and_is_the_namespace(name):
    module = importlib.import_module(name)
    assert module.__all__ == sorted(set(module.__all__))
    for public in module.__all__:
        getattr(module, public)
    namespace = {key for key, value in vars(module).items() if key[0] != "_" and not inspect.ismodule(value)}
    assert namespace == {public for public in module.__all__ if public[0] != "_"}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_says_what_it_is(name):
    module = importlib.import_module(name)
    silent = [public for public in module.__all__ if public[0] != "_" and not getattr(module, public).__doc__]
    assert silent == []


def test_every_module_says_what_it_is():
    root = Path(regard.__file__).parent
    silent = [
        str(path.relative_to(root)) for path in root.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_dir_names_what_is_not_loaded_yet():
    assert dir(regard) == regard.__all__
    with pytest.raises(AttributeError, match="no attribute 'Attenton'"):
        regard.Attenton  # noqa: B018


def test_import_is_light():
    code = "import sys, regard, regard.errors; print(sorted({'torch', 'numpy', 'typer'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_shapes_are_checked_here():
    """A hook that came too late would check nothing, and no test would notice."""
    if os.environ.get("REGARD_NO_TYPECHECK") != "1":
        assert type(errors.__spec__.loader).__module__.startswith("jaxtyping")
