"""The public surface is small, sorted, and defined in one place."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard import errors

PACKAGES = ["regard_bench", "regard_corpora", "regard_studies"]
PACKAGES += [
    f"regard.{path.parent.name}"
    for path in sorted(Path(regard.__file__).parent.glob("*/__init__.py"))
    if "__all__" in path.read_text(encoding="utf-8")
]
LIGHT = ["regard", "regard.errors", *(f"regard.{each}" for each in ("cli", "data", "io", "kernels", "models", "tasks"))]


@pytest.mark.parametrize("name", ["regard", "regard.errors", *PACKAGES])
def test_all_is_sorted_and_is_what_can_be_had(name):
    module = importlib.import_module(name)
    assert module.__all__ == sorted(set(module.__all__))
    for public in module.__all__:
        getattr(module, public)
    assert set(dir(module)) >= set(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Attenton'"):
        module.Attenton  # noqa: B018


@pytest.mark.parametrize("name", ["regard", "regard.errors", *PACKAGES])
def test_every_public_name_says_what_it_is(name):
    module = importlib.import_module(name)
    values = {public: getattr(module, public) for public in module.__all__ if public[0] != "_"}
    named = {public: value for public, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert named
    assert [public for public, value in named.items() if not value.__doc__] == []


@pytest.mark.parametrize("name", sorted({*LIGHT, *PACKAGES}))
def test_a_door_loads_nothing_until_something_is_used(name):
    """A door loads no torch, no Triton, no drawing library; it loads packages beside `regard` only when named."""
    heavy = "{'torch', 'triton', 'numpy', 'matplotlib', 'tokenizers', 'fastapi', 'typer'}"
    beside = "{'regard_bench', 'regard_corpora', 'regard_studies'}"
    code = f"import sys, {name}; top = {{each.split('.')[0] for each in sys.modules}}; "
    code += f"print(sorted(top & {heavy}), sorted(top & {beside}))"
    mine = [name] if name in PACKAGES[:3] else []
    found = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert found.strip() == f"[] {mine}"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"]])
def test_a_command_loads_nothing_of_what_stands_beside(words):
    code = "import sys; from regard.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print(sorted(each for each in sys.modules if each.startswith('regard_') or each in ('torch', 'triton')))"
    found = subprocess.check_output([sys.executable, "-c", code, *words], text=True)
    assert found.splitlines()[-1] == "[]"


def test_every_module_says_what_it_is():
    root = Path(regard.__file__).parents[1]
    said = re.compile(r'r?"""(?!""").')
    silent = [path for path in root.rglob("*.py") if not said.match(path.read_text(encoding="utf-8"))]
    assert silent == []


def test_dir_names_what_is_not_loaded_yet():
    assert dir(regard) == regard.__all__
    with pytest.raises(AttributeError, match="no attribute 'Attenton'"):
        regard.Attenton  # noqa: B018


def test_shapes_are_checked_here():
    """A hook installed too late would check nothing, and no test would notice."""
    if os.environ.get("REGARD_NO_TYPECHECK") != "1":
        assert type(errors.__spec__.loader).__module__.startswith("jaxtyping")
