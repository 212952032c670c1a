"""Plugins: other packages that add kinds of model, tasks, corpora, metrics, studies and more to Regard's tables.

    import regard
    regard.register(kind=Kind("mine", …))                      # in my_package/module.py, or in my.py

    regard train … --plugin my_package.module                  # a module; a file, my.py; or the short name of an
                                                               # entry point in the group `regard.plugins`

A plugin is a module that Regard imports only if the user names it: a run or a configuration says which plugins it
needs, but does not load them. Child processes import the same plugins (`REGARD_PLUGINS`).
"""

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import shlex
import sys
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import ArgumentError, CommandError, MissingExtraError

__all__ = [
    "Table",
    "added",
    "check_loaded",
    "home",
    "import_extra",
    "is_own",
    "load",
    "load_environment",
    "providers",
    "register",
    "renamed_fields",
    "resolve",
    "table",
]

Row = TypeVar("Row")
GROUP = "regard.plugins"  # of entry points
VARIABLE = "REGARD_PLUGINS"  # environment variable for child processes: a JSON list of the plugins' names
BESIDE = {"corpus": "regard_corpora", "study": "regard_studies", "bench": "regard_bench"}  # packages with tables' rows


class Table(UserDict[str, Any]):
    """Rows by name; a table with a `home` imports this package on first access, to register its rows."""

    def __init__(self, home: str | None = None):
        self.home = home  # the package, or None once it is imported
        self.own: dict[str, Any] = {}

    @property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the rows, including those of the package."""
        if self.home is not None:
            home, self.home = self.home, None
            importlib.import_module(home)
        return self.own


TABLES = {
    what: Table(BESIDE.get(what))
    for what in ("kind", "task", "corpus", "metric", "study", "tracker", "format", "bench")
}
PROVIDERS: dict[tuple[str, str], str] = {}  # the plugin of a row, by table and name
LOADED: dict[str, str] = {}  # a plugin's name in runs, by the name or path that loaded it
LOADING: list[str] = []  # plugins that are being imported


def table(what: str) -> Table:
    """Return the table of kinds, tasks, corpora, metrics, studies, trackers, formats or benches."""
    return TABLES[what]


def home(what: str) -> Any:
    """Import the package that fills a table: of corpora, studies or benches."""
    return importlib.import_module(BESIDE[what])


def resolve(value: Any) -> Any:
    """Import the object of a dotted name, "package.module.name"; return anything but a string unchanged."""
    if not isinstance(value, str):
        return value
    module, _, name = value.rpartition(".")
    return getattr(importlib.import_module(module), name)


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an optional package, or raise an error that names the extra to install."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is installed, but one of its own dependencies is missing
            raise
        raise MissingExtraError(package, extra) from None


def renamed_fields(**names: str) -> Callable[[type[Row]], type[Row]]:
    """Accept a row's fields under their old names too, as arguments and attributes, with one DeprecationWarning each.

    @renamed_fields(like="same_models_as", alone="not has_source")
    @dataclass(frozen=True)
    class TaskRow: …
    """
    warned: set[str] = set()

    def warn(cls: type, old: str) -> None:
        if old not in warned:
            warned.add(old)
            warnings.warn(f"{cls.__name__}.{old} is now called {names[old]}", DeprecationWarning, stacklevel=3)

    def translate(old: str, value: Any) -> Any:
        return not value if names[old].startswith("not ") else value

    def decorate(cls: type[Row]) -> type[Row]:
        made: Callable[..., None] = cls.__init__

        @functools.wraps(made)
        def init(self: Row, *values: Any, **fields: Any) -> None:
            for old in names.keys() & fields.keys():
                warn(cls, old)
                fields[names[old].removeprefix("not ")] = translate(old, fields.pop(old))
            made(self, *values, **fields)

        def read(old: str) -> property:
            def value(self: Row) -> Any:
                warn(cls, old)
                return translate(old, getattr(self, names[old].removeprefix("not ")))

            return property(value)

        cls.__init__ = init  # type: ignore[assignment, method-assign]
        for old in names:
            setattr(cls, old, read(old))
        return cls

    return decorate


def is_own(module: str) -> bool:
    """Return whether a module belongs to Regard or to one of the packages that fill its tables."""
    return module.partition(".")[0] in ("regard", *BESIDE.values())


def register(
    name: str | None = None,
    *,
    kind: Any = None,
    task: Any = None,
    corpus: Any = None,
    metric: Any = None,
    study: Any = None,
    tracker: Any = None,
    format: Any = None,
    bench: Any = None,
) -> None:
    """Add a row to a table: a `Kind`, `TaskRow`, `BuiltIn` corpus, `Metric`, `Study`, `TrackerRow`, `Format` or bench.

    A row without a name of its own, unlike a `Kind`, needs `name`. A name that is taken is refused, unless the same
    plugin registers it again.
    """
    arguments = {"kind": kind, "task": task, "corpus": corpus, "metric": metric, "study": study}
    arguments |= {"tracker": tracker, "format": format, "bench": bench}
    rows = {what: row for what, row in arguments.items() if row is not None}
    if len(rows) != 1:
        raise ArgumentError(f"register: {len(rows)} rows given, expected one of {', '.join(arguments)}")
    ((what, row),) = rows.items()
    called = name or getattr(row, "name", None)
    if not isinstance(called, str) or not called:
        raise ArgumentError(f"register: a {what} without a name given, expected name=…")
    plugin = provider_of(sys._getframe(1).f_globals)
    if called in TABLES[what] and PROVIDERS.get((what, called)) != plugin:
        owner = PROVIDERS.get((what, called), "Regard itself")
        raise ArgumentError(f"register: the {what} {called!r} already exists, from {owner}; choose another name")
    TABLES[what][called] = row
    if plugin is not None:
        PROVIDERS[what, called] = plugin
        LOADED.setdefault(plugin, plugin)


def provider_of(caller: Mapping[str, Any]) -> str | None:
    """Return the name of the plugin whose module has these globals, or None for Regard's own modules."""
    module = str(caller.get("__name__", ""))
    if is_own(module):
        return None
    if LOADING:
        return LOADING[-1]
    return Path(str(caller.get("__file__", module))).name if module == "__main__" else module


def added(what: str) -> tuple[str, ...]:
    """Return the names of the rows that plugins have added to a table."""
    return tuple(name for table, name in PROVIDERS if table == what)


def providers(**rows: str | None) -> tuple[str, ...]:
    """Return the plugins that registered rows such as kind="mine", without Regard itself."""
    owners = (PROVIDERS.get((what, name)) for what, name in rows.items() if name is not None)
    return tuple(dict.fromkeys(plugin for plugin in owners if plugin is not None))


def load(*names: str) -> None:
    """Import plugins by name: a module, a file that ends in .py, or the short name of an entry point."""
    for name in names:
        import_plugin(name)
    listing = json.dumps([str(Path(name).resolve()) if is_file(name) else name for name in LOADED])
    if names:
        os.environ[VARIABLE] = listing


def load_environment() -> None:
    """Import the plugins that the parent process has loaded."""
    if not os.environ.get(VARIABLE):
        return
    try:
        names = json.loads(os.environ[VARIABLE])
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CommandError(f"{VARIABLE}: {os.environ[VARIABLE]!r} given, expected a JSON list of names of plugins")
    for name in names:
        import_plugin(name)


def is_file(name: str) -> bool:
    """Return whether a plugin's name is a file."""
    return name.endswith(".py")


def import_plugin(name: str) -> None:
    """Import a plugin, unless it is imported already."""
    called = Path(name).name if is_file(name) else name
    if called in LOADED.values() or called in LOADING:
        return
    with loading(called):
        try:
            if is_file(name):
                import_file(Path(name))
            else:
                importlib.import_module(entry_points().get(name, name))
        except ModuleNotFoundError as error:
            if is_file(name) or (error.name or "") not in entry_points().get(name, name):
                raise
            short = ", ".join(entry_points())
            hint = f"; short names that are installed: {short}" if short else ""
            raise CommandError(f"--plugin: there is no module or plugin {name!r}{hint}") from None
    LOADED[name] = called


@contextlib.contextmanager
def loading(name: str) -> Iterator[None]:
    """Attribute the rows registered inside the block to the plugin of this name."""
    LOADING.append(name)
    try:
        yield
    finally:
        LOADING.remove(name)


def import_file(path: Path) -> None:
    """Import a file as the module of its name, so that pickles can refer to the module's contents."""
    if not path.is_file():
        raise CommandError(f"--plugin: {path}: no such file")
    name = path.stem
    if not name.isidentifier():
        raise CommandError(f"--plugin: {path}: not a valid module name; rename the file")
    there = sys.modules.get(name)
    if there is not None and Path(getattr(there, "__file__", None) or "").resolve() != path.resolve():
        raise CommandError(f"--plugin: {path}: another module is already called {name!r}; rename the file")
    if there is not None:
        return
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def entry_points() -> Mapping[str, str]:
    """Return the modules of the installed plugins by their short names, without importing them."""
    import importlib.metadata  # imported here: it takes longer than the rest of this module

    return {each.name: each.module for each in importlib.metadata.entry_points(group=GROUP)}


def check_loaded(names: object, where: str) -> None:
    """Raise a CommandError if the run or file `where` needs plugins that are not loaded."""
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise CommandError(f"{where}: expected a list of names of plugins")
    known = {name.removesuffix(".py") for name in LOADED.values()}
    missing = [name for name in names if name.removesuffix(".py") not in known]
    if missing:  # an installed plugin may go by its short name or its module's name
        modules = entry_points()
        known |= {modules[name] for name in LOADED.values() if name in modules}
        missing = [name for name in missing if modules.get(name, name).removesuffix(".py") not in known]
    if missing:
        flags = " ".join(f"--plugin {shlex.quote(name)}" for name in missing)
        what = f"the plugin{'s' * (len(missing) > 1)} {' and '.join(missing)}"
        raise CommandError(f"{where}: it needs {what}; give {flags}, or import it in Python")
