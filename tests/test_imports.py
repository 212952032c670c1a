"""Imports point downward only. Read from the source, so that nothing need be imported."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

SOURCE = Path(regard.__file__).parent
LAYERS = [
    {"cli", "__main__"},
    {"report", "demo", "studies", "serving", "interop", "bench"},
    {"run"},
    {"tasks"},
    {"inspection"},
    {"training", "decoding", "evaluation"},
    {"models", "data"},
    {"attention", "io"},
    {"kernels"},
    {"errors", "config", "plugins", "disk", "machine", "reading"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def imported(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Every (line, part) that a module of `package` imports, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            home = ".".join([*start, *filter(None, [node.module])])
            names = [f"{home}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, *rest = name.split(".")
            if top == "regard" and rest and rest[0] != "__version__":
                part = rest[0]
                public = part in regard.__all__
                homes = {"RegardError": "errors", "Run": "run", "load": "run", "register": "plugins", "train": "report"}
                yield node.lineno, homes.get(part, "attention") if public else part


def complaints(source: Path) -> list[str]:
    """What in the package at `source` imports upward, in a circle, or from a part that is not in the drawing."""
    wrong, sideways = [], {}
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).with_suffix("").parts
        if inside == ("__init__",):
            continue  # the public names, above everything
        part = inside[0]
        for line, other in imported(ast.parse(path.read_text()), ["regard", *inside[:-1]]):
            where = f"{path.relative_to(source)}:{line}: {part} imports {other}"
            if part not in LEVEL or other not in LEVEL:
                wrong.append(f"{where}, which is not in the drawing")
            elif LEVEL[other] < LEVEL[part]:
                wrong.append(f"{where}, which is above it")
            elif LEVEL[other] == LEVEL[part] and other != part:
                sideways.setdefault(part, set()).add(other)
    try:
        graphlib.TopologicalSorter(sideways).prepare()
    except graphlib.CycleError as error:
        wrong.append(f"a circle: {' imports '.join(reversed(error.args[1]))}")
    return wrong


def test_imports_point_downward():
    assert complaints(SOURCE) == []


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("attention/score.py", "import regard.models.luong", "attention imports models, which is above it"),
        ("attention/score.py", "from ..models import luong", "attention imports models, which is above it"),
        ("kernels/dot/triton.py", "from regard.attention import score", "kernels imports attention, which is above it"),
        ("kernels/dot/triton.py", "def f():\n    from regard import Heads", "kernels imports attention"),
        ("errors.py", "from . import config, cli", "errors imports cli, which is above it"),
        ("run.py", "import regard.utils", "run imports utils, which is not in the drawing"),
        ("attention/score.py", "from .span import Span\nfrom regard import kernels, __version__", None),
        ("cli/commands/look.py", "from regard import Heads, RegardError\nimport regard.inspection.draw.page", None),
        ("studies/scaling/claim.py", "import torch\nfrom regard.inspection import picture", None),
    ],
)
def test_the_reader_sees_each_kind(tmp_path, path, line, said):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(line)
    found = complaints(tmp_path)
    assert said in found[0] if said else found == []


def test_the_reader_sees_a_circle(tmp_path):
    (tmp_path / "bench.py").write_text("import regard.serving")
    (tmp_path / "serving.py").write_text("import regard.bench")
    assert "circle" in complaints(tmp_path)[0]
