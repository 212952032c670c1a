"""Imports point downward only, and through doors. The tests read the source and import nothing.

A package's `__init__` is its door. Other packages, and those beside `regard`, import from doors; modules import each
other within a package. Tests of a package may import its modules; all others use doors.
"""

import ast
import functools
import graphlib
import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
BESIDE = ("regard_bench", "regard_corpora", "regard_studies")
LAYERS = [
    {"cli", "__main__"},
    {"inspection", "interop", "report", "serving", "studies"},  # studies: only forwards to `regard_studies`
    {"run"},
    {"tasks"},
    {"alignment", "decoding", "evaluation", "training"},
    {"data", "models"},
    {"attention"},
    {"kernels"},
    {"config", "machine", "plugins"},
    {"io"},
    {"door", "errors", "messages"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
NAMES = 500  # in all doors
EXCEPTIONS = 150  # imports of tests that bypass a door


class Imported(NamedTuple):
    """An import: its line, the module that it names, and the name that it takes from it."""

    line: int
    module: str
    name: str | None
    checked: bool  # only for type checkers


def imports(tree: ast.AST, package: list[str], checked: bool = False) -> Iterator[Imported]:
    """Yield every import in a module of `package`, in functions too, relative ones as full names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Imported(node.lineno, alias.name, None, checked) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            home = ".".join([*start, *filter(None, [node.module])])
            yield from (Imported(node.lineno, home, alias.name, checked) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(ast.Module(node.body, []), package, True)
            yield from imports(ast.Module(node.orelse, []), package, checked)
        elif not isinstance(node, ast.expr):
            yield from imports(node, package, checked)


class House:
    """The packages of a source folder, read from their files."""

    def __init__(self, source: Path):
        self.source = source
        self.paths = {name_of(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}
        self.imports = functools.cache(self.imports)
        self.tree = functools.cache(lambda name: ast.parse(self.paths[name].read_text(encoding="utf-8")))
        self.doors = {
            name: door_names(self.tree(name))
            for name, path in self.paths.items()
            if path.name == "__init__.py" and name == self.part(name)
        }

    def imports(self, name: str) -> list[Imported]:
        """Return a module's imports from this house."""
        parts = name.split(".")
        package = parts if self.paths[name].name == "__init__.py" else parts[:-1]
        tops = {each.split(".")[0] for each in self.paths}
        return [each for each in imports(self.tree(name), package) if each.module.split(".")[0] in tops]

    def where(self, name: str, line: int) -> str:
        """Name a file and a line."""
        return f"{self.paths[name].relative_to(self.source)}:{line}"

    def part(self, module: str) -> str:
        """Return a module's package, or the module itself if it is in none: regard.data, or regard.run."""
        top, *rest = module.split(".")
        return f"{top}.{rest[0]}" if top == "regard" and rest else top

    def target(self, each: Imported) -> str:
        """Return the module that an import reaches: the imported name may itself be a module."""
        inner = f"{each.module}.{each.name}"
        return inner if each.name is not None and inner in self.paths else each.module


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def door_names(tree: ast.Module) -> list[str]:
    """Return the names in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def checked_names(tree: ast.Module) -> dict[str, str]:
    """Return the names that a door imports for type checkers and loads, with the module that each comes from or is."""
    return {
        (alias.asname or alias.name): f"{node.module}.{alias.name}" if is_module else str(node.module)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        for is_module in [f"{node.module}.{alias.name}" in HOUSE.paths]
    }


HOUSE = House(SOURCE)


# ---- layers


def test_every_part_is_in_the_drawing():
    parts = {name.split(".")[1] for name in HOUSE.paths if name.startswith("regard.")}
    assert parts == set(LEVEL)


def layer_faults(house: House) -> list[str]:
    """Find imports that point upward or form a circle of packages."""
    wrong = []
    sideways: dict[str, set[str]] = {}
    for name in house.paths:
        part = house.part(name)
        if part in ("regard", *BESIDE):
            continue  # the public names, above everything, and the packages beside
        for each in house.imports(name):
            other = house.part(house.target(each))
            if other == "regard" and each.name is not None:  # a public name, which belongs to a part
                continue
            if other == part or other == "regard":
                continue
            own, theirs = part.removeprefix("regard."), other.removeprefix("regard.")
            said = f"{house.where(name, each.line)}: {own} imports {theirs}"
            if other in BESIDE:
                wrong.append(f"{said}, which stands beside it")
            elif own not in LEVEL or theirs not in LEVEL:
                wrong.append(f"{said}, which is not in the drawing")
            elif LEVEL[theirs] < LEVEL[own]:
                wrong.append(f"{said}, which is above it")
            elif LEVEL[theirs] == LEVEL[own]:
                sideways.setdefault(own, set()).add(theirs)
    try:
        graphlib.TopologicalSorter(sideways).prepare()
    except graphlib.CycleError as error:
        wrong.append(f"a circle: {' imports '.join(reversed(error.args[1]))}")
    return wrong


def test_imports_point_downward():
    assert layer_faults(HOUSE) == []


# ---- doors


def door_faults(house: House) -> list[str]:
    """Find imports that bypass a door, and modules that import from their own."""
    wrong = []
    for name in house.paths:
        part = house.part(name)
        for each in house.imports(name):
            other = house.part(house.target(each))
            said = f"{house.where(name, each.line)}: imports {each.module}" + (f".{each.name}" if each.name else "")
            if other == part:
                is_own_door = each.module == part and part in house.doors and name != part and "." in part
                if is_own_door and house.target(each) == part:
                    wrong.append(f"{said}, through its own door")
            elif other in house.doors and other != "regard" and name != "regard":
                if each.module != other and not (each.module == "regard" and f"regard.{each.name}" == other):
                    wrong.append(f"{said}, not through the door of {other}")
                elif each.module == other and each.name is not None and each.name not in house.doors[other]:
                    wrong.append(f"{said}, which is not in the door of {other}")
            elif other == "regard" and each.name not in (None, *house.doors.get("regard", ())):
                wrong.append(f"{said}, which is no public name")
    return wrong


def test_packages_are_imported_through_their_doors():
    assert door_faults(HOUSE) == []


@pytest.mark.parametrize("name", sorted(HOUSE.doors))
def test_a_door_lists_its_names_alike(name):
    """A door's list is sorted without duplicates, and equals the names by module, for type checkers and for loading."""
    tree, listed = HOUSE.tree(name), HOUSE.doors[name]
    assert listed == sorted(set(listed))
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)}
    own |= {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}
    door, checked = importlib.import_module(name), checked_names(tree)
    assert set(checked) | (own & set(listed)) == set(listed)
    for block in (node for node in tree.body if isinstance(node, ast.If)):
        imported: dict[str, object] = {}
        exec(compile(ast.Module(block.body, []), name, "exec"), imported)
        assert [each for each in checked if getattr(door, each) is not imported[each]] == []


@pytest.mark.parametrize("name", sorted(HOUSE.doors))
def test_no_module_has_the_name_of_what_is_in_its_door(name):
    """Importing `inspection/page.py` would replace the function `inspection.page` with the module."""
    for each in HOUSE.doors[name]:
        if f"{name}.{each}" in HOUSE.paths:
            assert checked_names(HOUSE.tree(name)).get(each) == f"{name}.{each}", each


def test_the_doors_are_not_many_names():
    assert sum(map(len, HOUSE.doors.values())) <= NAMES


# ---- tests


def own_package(path: Path) -> str | None:
    """Return the package that a test file belongs to."""
    parts = path.relative_to(TESTS).parts
    beside = f"regard_{parts[0]}"
    return None if len(parts) == 1 else beside if beside in BESIDE else f"regard.{parts[0]}"


def passed_by() -> list[str]:
    """List the imports of tests that reach into another package's modules."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        own = own_package(path)
        for each in imports(ast.parse(path.read_text(encoding="utf-8")), []):
            if each.module.split(".")[0] not in ("regard", *BESIDE):
                continue
            other = HOUSE.part(HOUSE.target(each))
            if other == own or other not in HOUSE.doors or each.module == "regard" or each.module == other == "regard":
                continue
            if each.module != other or (each.name is not None and each.name not in HOUSE.doors[other]):
                found.append(f"{path.relative_to(TESTS)}:{each.line}: {each.module}.{each.name}")
    return found


def test_tests_come_through_doors_too():
    found = passed_by()
    assert len(found) <= EXCEPTIONS, "\n".join(found)


# ---- the reader


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("attention/score.py", "import regard.models.luong", "attention imports models, which is above it"),
        ("attention/score.py", "from ..models import luong", "attention imports models, which is above it"),
        ("kernels/dot/triton.py", "from regard.attention import score", "kernels imports attention, which is above it"),
        (
            "kernels/dot.py",
            "def f():\n    from regard.attention import Heads",
            "dot.py:2: kernels imports attention",
        ),
        ("errors.py", "from . import config, cli", "errors imports cli, which is above it"),
        ("run.py", "import regard.utils", "run imports utils, which is not in the drawing"),
        (
            "run.py",
            "if TYPE_CHECKING:\n    from regard_studies import Page",
            "regard_studies, which stands beside",
        ),
        ("attention/score.py", "from .span import Span\nfrom regard import kernels, __version__", None),
    ],
)
def test_the_reader_sees_what_points_upward(tmp_path, path, line, said):
    write(tmp_path, f"regard/{path}", line)
    for other in ("models", "config", "cli", "utils", "kernels", "attention"):
        write(tmp_path, f"regard/{other}/__init__.py", "")
    write(tmp_path, "regard_studies/__init__.py", "")
    found = layer_faults(House(tmp_path))
    assert any(said in each for each in found) if said else found == []


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("regard/run.py", "from regard.data.batching import Batch", "not through the door of regard.data"),
        ("regard/run.py", "def f():\n    import regard.data.batching", "regard/run.py:2: imports regard.data.batching"),
        ("regard/run.py", "from .data import collate", "regard.data.collate, which is not in the door"),
        ("regard/data/cache.py", "from regard.data import Batch", "through its own door"),
        ("regard/data/cache.py", "from . import Batch", "through its own door"),
        ("regard_studies/claim.py", "from regard.data import batching", "which is not in the door of regard.data"),
        ("regard_bench/pairs.py", "from regard_studies.claim import run", "not through the door of regard_studies"),
        ("regard/run.py", "from regard.data import Batch\nfrom regard import data\nimport regard.data", None),
        ("regard/data/cache.py", "from regard.data import batching\nfrom regard.data.batching import Batch", None),
        ("regard_studies/claim.py", "from regard_studies import Page\nfrom regard_studies.page import Page", None),
    ],
)
def test_the_reader_sees_what_passes_a_door_by(tmp_path, path, line, said):
    write(tmp_path, "regard/__init__.py", '__all__ = ["load"]')
    write(tmp_path, "regard/data/__init__.py", '__all__ = ["Batch"]')
    write(tmp_path, "regard/data/batching.py", "")
    write(tmp_path, "regard_studies/__init__.py", '__all__ = ["Page"]')
    write(tmp_path, path, line)
    found = door_faults(House(tmp_path))
    assert any(said in each for each in found) if said else found == []


def test_the_reader_sees_a_circle(tmp_path):
    write(tmp_path, "regard/interop.py", "import regard.serving")
    write(tmp_path, "regard/serving.py", "import regard.interop")
    assert "circle" in layer_faults(House(tmp_path))[0]


def write(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text, encoding="utf-8")


# ---- inside a package


def neighbours(house: House, name: str) -> dict[str, int]:
    """Return the modules of its own package that a module imports, with the line of each."""
    found: dict[str, int] = {}
    for each in house.imports(name):
        other = house.target(each)
        if not each.checked and other in house.paths and other != name and house.part(other) == house.part(name):
            found.setdefault(other, each.line)
    return found


def circles(house: House) -> list[str]:
    """Return each circle of modules inside a package, with the lines that close it, except through lazy doors."""
    graph = {name: neighbours(house, name) for name in house.paths if name not in house.doors}
    found = []
    while True:
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            ring = list(reversed(error.args[1]))
            pairs = list(itertools.pairwise(ring))
            found.append(", ".join(f"{house.where(one, graph[one][other])} imports {other}" for one, other in pairs))
            for one, other in pairs:
                del graph[one][other]
        else:
            return found


def test_no_circle_inside_a_package():
    assert circles(HOUSE) == []


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
    write(tmp_path, "regard/data/a.py", one)
    write(tmp_path, "regard/data/b.py", other)
    found = circles(House(tmp_path))
    assert len(found) == closed
    if closed:
        assert "data/a.py:1 imports regard.data.b" in found[0]
        assert "data/b.py" in found[0]


def test_the_reader_sees_every_circle(tmp_path):
    for name, text in {
        "a": "import regard.data.b",
        "b": "from regard.data.a import A",
        "c": "import regard.data.d",
        "d": "import regard.data.e",
        "e": "import regard.data.c",
    }.items():
        write(tmp_path, f"regard/data/{name}.py", text)
    assert sorted(found.count("imports") for found in circles(House(tmp_path))) == [2, 3]
