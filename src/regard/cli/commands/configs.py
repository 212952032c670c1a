"""`regard configs`: the configurations that come with Regard, and how `regard train` finds one."""

import os
from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli.messages import print_message, print_table, print_text
from regard.errors import CommandError
from regard.messages import did_you_mean

EXAMPLES = ("regard configs", "regard configs files > mine.toml")


def configs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Name of the configuration to print, as a start for your own.", show_default=False
        ),
    ] = None,
) -> None:
    """List the configurations that come with Regard, or print one.

    `regard train NAME --out RUN` trains one of them from any folder.
    """
    paths = shipped_configs()
    if name is None:
        firsts = {each: path.read_text(encoding="utf-8").splitlines()[0] for each, path in paths.items()}
        print_table(None, [(each, comment.removeprefix("# ")) for each, comment in firsts.items()])
        print()
        print_text("regard configs NAME prints one; regard train NAME --out RUN trains it.")
        return
    file = paths.get(Path(name).stem if is_config_name(Path(name)) else "")
    if file is None:
        raise CommandError(f"{name}: no such configuration{suggest_config(name)}")
    print(file.read_text(encoding="utf-8"), end="")


def shipped_configs() -> dict[str, Path]:
    """Return the shipped files by name: inside an installed package, or beside `src` in a clone."""
    inside = Path(regard.__file__).with_name("configs")
    folder = inside if inside.is_dir() else Path(regard.__file__).parents[2] / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem)}


def find_config(path: Path) -> Path:
    """Find a configuration: a file, or else one that comes with Regard, by configs/NAME.toml or NAME alone."""
    if path.is_file():
        return path
    own = shipped_configs().get(path.stem) if is_config_name(path) else None
    if own is not None:
        if os.environ.get("RANK", "0") == "0":  # only in one of torchrun's processes
            missing = "no such file here; " if path.suffix else ""  # without a suffix, it is a name and not a file
            print_message(f"{path}: {missing}using the configuration that comes with Regard, {own}")
        return own
    if not path.exists():
        raise CommandError(f"{path}: no such file, expected a TOML configuration{suggest_config(path.stem)}")
    return path


def is_config_name(path: Path) -> bool:
    """Tell whether a path could be the name of a configuration that comes with Regard."""
    return path.parent in (Path(), Path("configs")) and path.suffix in ("", ".toml")


def suggest_config(name: str) -> str:
    """Suggest a name for a wrong one, as the end of an error message."""
    near = did_you_mean(Path(name).stem, shipped_configs(), quoted=False)
    return near or "; `regard configs` lists those that come with Regard"
