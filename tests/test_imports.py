"""Imports point downward only, and inside a package in no circle. Read from the source: nothing need be imported."""

import ast
import graphlib
import itertools
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
    {"errors", "config", "plugins", "disk", "machine", "reading", "packs"},
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
    (tmp_path / "serving.py").write_text("import regard_bench")
    assert "circle" in complaints(tmp_path)[0]


# ---- inside a package


def modules(source: Path) -> dict[str, Path]:
    """The modules of the package at `source` by their dotted names."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(["regard", *(parts[:-1] if parts[-1] == "__init__" else parts)])] = path
    return found


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import, in functions too, but those for a type checker alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from statements(ast.Module(child.orelse, []))
        else:
            yield from statements(child)


def neighbours(name: str, path: Path, known: dict[str, Path]) -> dict[str, int]:
    """The modules of its own package that a module imports, and the line of each."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: dict[str, int] = {}
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            start = package[: len(package) + 1 - node.level] if node.level else []
            home = ".".join([*start, *filter(None, [node.module])])
            inner = [f"{home}.{alias.name}" for alias in node.names]
            names = [each if each in known else home for each in inner]
        for other in names:
            if other in known and other != name and other.split(".")[:2] == name.split(".")[:2]:
                found.setdefault(other, node.lineno)
    return found


def circles(source: Path) -> list[str]:
    """Each circle of modules inside a package, with the lines that close it."""
    known, found = modules(source), []
    inside = {name: path for name, path in known.items() if path.parent != source}  # the others are in no package
    graph = {name: neighbours(name, path, known) for name, path in inside.items()}
    while True:
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            ring = list(reversed(error.args[1]))
            pairs = list(itertools.pairwise(ring))
            steps = [f"{known[one].relative_to(source)}:{graph[one][other]} imports {other}" for one, other in pairs]
            found.append(", ".join(steps))
            for one, other in pairs:
                del graph[one][other]
        else:
            return found


def test_no_circle_inside_a_package():
    assert circles(SOURCE) == []


@pytest.mark.parametrize(
    ("one", "other", "closed"),
    [
        ("from regard.data.b import f", "import regard.data.a", True),
        ("from regard.data import b", "def f():\n    from regard.data.a import g", True),
        ("from .b import f", "class A:\n    def f(self):\n        from . import a", True),
        ("from regard.data.b import f", "if TYPE_CHECKING:\n    from regard.data.a import A", False),
        ("from regard.data.b import f", "if TYPE_CHECKING:\n    pass\nelse:\n    from regard.data import a", True),
        ("from regard.data import b", "import regard.training.a", False),
        ("from regard.data import b", "import torch", False),
    ],
)
def test_the_reader_sees_a_circle_of_modules(tmp_path, one, other, closed):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.py").write_text(one)
    (tmp_path / "data" / "b.py").write_text(other)
    found = circles(tmp_path)
    assert len(found) == closed
    if closed:
        assert "data/a.py:1 imports regard.data.b" in found[0]
        assert "data/b.py" in found[0]


def test_the_reader_sees_every_circle(tmp_path):
    (tmp_path / "data").mkdir()
    for name, text in {
        "__init__": "from regard.data.a import A",
        "a": "from regard.data import B",  # from the package, which imports this module
        "c": "import regard.data.d",
        "d": "import regard.data.e",
        "e": "import regard.data.c",
    }.items():
        (tmp_path / "data" / f"{name}.py").write_text(text)
    assert sorted(found.count("imports") for found in circles(tmp_path)) == [2, 3]
