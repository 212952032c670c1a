"""Export: a folder that another toolkit opens, made from a run, and checked before it gets its name.

from regard import export_model
export_model("runs/en-de", "exported", to="marian")
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.interop.folders import check_new, whole_folder
from regard.interop.formats import find_format
from regard.run import Run, load

__all__ = ["ExportReport", "export_model"]


@dataclass(frozen=True)
class ExportReport:
    """What was made: the folder, its files, and what its verification found, where the format has one."""

    folder: Path
    format: str
    files: tuple[str, ...]
    bytes: int
    verification: Any = None


def export_model(
    run: str | Path | Run, out: str | Path, *, to: str, checkpoint: str = "best", **options: Any
) -> ExportReport:
    """Write a run as a folder `out` of the format `to`; `options` are those of that format's writer."""
    out, row = Path(out), find_format(to, "--to")
    check_new(out)
    opened = run if isinstance(run, Run) else load(run, checkpoint=checkpoint)
    opened.require("translate")
    with whole_folder(out) as temporary:
        row.write(opened, temporary, **options)
        verification = row.verify(opened, temporary)
        paths = sorted(path for path in temporary.rglob("*") if path.is_file())
        names = tuple(path.relative_to(temporary).as_posix() for path in paths)
        size = sum(path.stat().st_size for path in paths)
    return ExportReport(out, row.name, names, size, verification)
