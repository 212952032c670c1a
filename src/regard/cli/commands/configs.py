"""`regard configs`, and how `regard train` finds one that is not a file of a person's own."""

import difflib
import os
from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli.messages import print_message
from regard.errors import CommandError


def configs(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of the configuration to print, as a start for your own.", show_default=False),
    ] = None,
) -> None:
    """List the configurations that come with Regard, or print one.

    `regard train configs/phrasebook.toml --out runs/phrasebook` trains one of them from any folder, and
    `regard configs files > mine.toml` makes a copy to edit.
    """
    known = shipped()
    if name is None:
        for each, path in known.items():
            print(f"{each:<26}{path.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}")
        print("\nregard configs NAME prints one; regard train configs/NAME.toml --out RUN trains it.")
        return
    file = known.get(Path(name).stem if is_name(Path(name)) else "")
    if file is None:
        raise CommandError(f"{name}: no such configuration{meant(name)}")
    print(file.read_text(encoding="utf-8"), end="")


def shipped() -> dict[str, Path]:
    """The files by their names: from inside the package where it was installed, from beside `src` in a clone."""
    inside = Path(regard.__file__).with_name("configs")
    folder = inside if inside.is_dir() else Path(regard.__file__).parents[2] / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem)}


def find(path: Path) -> Path:
    """The file; where there is none, the configuration that comes with Regard as configs/NAME.toml, or NAME alone."""
    if path.is_file():
        return path
    own = shipped().get(path.stem) if is_name(path) else None
    if own is not None:
        if os.environ.get("RANK", "0") == "0":  # of torchrun's processes one is enough
            print_message(f"{path}: taken from those that come with Regard, {own}")
        return own
    if not path.exists():
        raise CommandError(f"{path}: no such file, expected a TOML configuration{meant(path.stem)}")
    return path


def is_name(path: Path) -> bool:
    """Whether a path could be the name of one of them."""
    return path.parent in (Path(), Path("configs")) and path.suffix in ("", ".toml")


def meant(name: str) -> str:
    """The likely meaning of a wrong name, to be put behind the sentence that says so."""
    close = difflib.get_close_matches(Path(name).stem, shipped(), n=1)
    return (
        f"; did you mean configs/{close[0]}.toml?" if close else "; `regard configs` lists those that come with Regard"
    )
