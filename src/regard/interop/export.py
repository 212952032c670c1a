"""Export: a folder that another toolkit opens, made from a run, and verified before it gets its name.

from regard import export_model
export_model("runs/en-de", "exported", to="ctranslate2", quantize="int8")

Its manifest names the run's checkpoint by its hash, how the folder was verified, and the hash of every file.
"""

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, CommandError, ConfigError, DataError, VerificationError
from regard.interop.folders import check_new, whole_folder
from regard.interop.formats import Format, find_format
from regard.interop.manifest import describe_run, hash_file, read_manifest, write_manifest
from regard.interop.origin import compare_with_origin
from regard.interop.verify import Verification, verify
from regard.io import packs
from regard.run import Run, load
from regard.tasks import require_run
from regard.training import Checkpoints


@dataclass(frozen=True)
class ExportReport:
    """What was made: the folder, its files, and what its verification found, where the format has one."""

    folder: Path
    format: str
    files: tuple[str, ...]
    bytes: int
    verification: Verification | None = None


def export_model(
    run: str | Path | Run,
    out: str | Path,
    *,
    to: str,
    checkpoint: str = "best",
    check: str | Path | None = None,
    **options: Any,
) -> ExportReport:
    """Write a run as a folder `out` of the format `to`; `options` are those of that format's writer.

    `check` is a text file whose first sentences are decoded by both, to see that they do the same; where it is not
    given, validation pairs in the cache, or pieces that are drawn.
    """
    out, row = Path(out), find_format(to, "--to")
    check_new(out)
    home = run.folder if isinstance(run, Run) else Path(run)
    require_run(home)
    path = Checkpoints(home).find(checkpoint)
    opened = run if isinstance(run, Run) else load(run, checkpoint=path.name)
    opened.require("translate")
    with whole_folder(out) as temporary:
        facts = row.write(opened, temporary, **options)
        about: dict[str, Any] = {"format": row.name, "facts": facts}
        origin = describe_run(opened.folder, path, opened.step, out)
        about["run"] = {**origin, "sentences": asdict(opened.sentence_share)}
        write_manifest(temporary, **about, verification=None)
        verification, other = None, open_written(row, temporary, opened, out)
        if other is not None:
            verification = replace(verify(opened, other, check), origin=compare(opened, temporary, row, out))
            write_manifest(temporary, **about, verification=asdict(verification))
        elif check is not None:
            raise CommandError(f"--check: {check} given, but {row.name} is not verified")
        paths = sorted(path for path in temporary.rglob("*") if path.is_file())
        names = tuple(path.relative_to(temporary).as_posix() for path in paths)
        size = sum(path.stat().st_size for path in paths)
    return ExportReport(out, row.name, names, size, verification)


def verify_export(folder: str | Path, run: str | Path | None = None, check: str | Path | None = None) -> Verification:
    """Verify an exported folder once more: against `run`, or the one that it was made from, where that still is.

    That one is found by the way there in the manifest, from beside the folder; the checkpoint's hash must be the same.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    row, origin = find_format(manifest["format"], "--verify"), manifest["run"]
    if row.opener is None:
        raise CommandError(f"--verify: {folder} is of format {row.name}, which is not verified")
    place = Path(run) if run is not None else folder.absolute().parent / str(origin.get("folder"))
    name = str(origin.get("checkpoint"))
    path = Checkpoints(place).folder / name
    if not packs.is_file(path / "manifest.json"):
        raise CheckpointError(
            f"{place}: no checkpoint {name}, which {folder} was exported from; give its run, as in: "
            f"regard export RUN --verify {shlex.quote(str(folder))}"
        )
    if hash_file(path / "manifest.json")["sha256"] != origin.get("sha256"):
        raise CheckpointError(f"{path}: another checkpoint than {folder} was exported from")
    opened = load(place, checkpoint=name)
    verification = verify(opened, open_written(row, folder, opened, folder), check)
    return replace(verification, origin=compare(opened, folder, row, folder))


def compare(run: Run, folder: Path, row: Format, out: Path) -> str | None:
    """Compare what was written with the folder that the run was imported from; an error calls it `out`."""
    try:
        return compare_with_origin(run, folder, row.name)
    except VerificationError as error:
        raise VerificationError(f"{run.folder}: not verified: {str(error).replace(str(folder), str(out))}") from error


def open_written(row: Format, folder: Path, run: Run, out: Path) -> Any:
    """Open a folder that was written; one that is not what was to be written is a VerificationError."""
    try:
        return row.open_folder(folder, run)
    except (CheckpointError, ConfigError, DataError) as error:
        problem = str(error).replace(str(folder), str(out))
        raise VerificationError(f"{run.folder}: not verified: the folder cannot be opened again: {problem}") from error
