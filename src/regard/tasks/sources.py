"""The files that a run was trained on: by their hashes, so that one which has changed is named when it is resumed, and
for rehearsal.

With rehearsal, fine-tuning sees a share of the earlier corpora again, so that it forgets less of them. Robins 1995,
"Catastrophic forgetting, rehearsal and pseudorehearsal"; in translation it is called mixed fine-tuning (Chu et al.
2017, arXiv:1701.03214).
"""

import json
from collections.abc import Iterator
from pathlib import Path

from regard.config import parse, read
from regard.data import DataSettings, cache
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.io import disk, reading
from regard.tasks.settings import Settings, complete_run_table

FILE = "sources.json"  # in a run folder
PATHS = [
    "source",
    "target",
    "alignment",
    "valid_source",
    "valid_target",
]  # keys of [data] that name a file, or a folder
PATHS += ["documents", "valid_documents", "images", "captions", "valid_captions", "labels", "train_list", "valid_list"]
LARGEST = 2**20  # bytes of the record that is read
REHEARSAL = "data.rehearsal"


def data_files(data: DataSettings) -> Iterator[Path]:
    """List the files of the data; pictures, of which there are many, are not among them."""
    names = [getattr(data, key) for key in PATHS if key not in ("alignment", "images")]
    names += [None if data.builtin else data.alignment]
    for corpus in (*data.corpora, *data.earlier, *data.valid):
        names += [*corpus.files, corpus.alignment]
    return (path for path in dict.fromkeys(Path(name) for name in names if name) if path.is_file())


def record_sources(run: Path, data: DataSettings) -> None:
    """Write the hash of every file of the data into a run folder."""
    path = run / FILE
    try:
        hashes = {str(each.absolute()): cache.digest(each) for each in data_files(data)}
        disk.write_whole(path, json.dumps(hashes, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise TrainingError(f"{path}: not written, {disk.reason(error)}") from error


def changed_files(run: Path, data: DataSettings, last: Path) -> list[str]:
    """List the files that have changed since a run was trained on them.

    A run of an earlier version has no hashes; there it is the files that are newer than its last checkpoint.
    """
    try:
        hashes = reading.parse_json(reading.read_bytes(run / FILE, LARGEST))
    except (OSError, reading.Unreadable):
        hashes = None
    changed = list[str]()
    for path in data_files(data):
        try:
            if isinstance(hashes, dict):
                before = hashes.get(str(path.absolute()))
                differs = isinstance(before, str) and before != cache.digest(path)
            else:
                differs = path.stat().st_mtime > (last / "manifest.json").stat().st_mtime
        except OSError:
            continue
        changed += [str(path)] * differs
    return changed


def check_unchanged(run: Path, data: DataSettings, stored: object, prepared: str, last: Path) -> None:
    """Refuse to resume a run on files that have changed, by their names; the hashes of all data are given."""
    if stored is None or stored == prepared:
        return
    if changed := changed_files(run, data, last):
        verb, old = ("has", "the old one") if len(changed) == 1 else ("have", "the old ones")
        raise CheckpointError(
            f"{', '.join(changed)}: {verb} changed since {run} was trained; put {old} back, or train another run on "
            "the new data, with --from and --out"
        )


def choose_earlier(settings: Settings, base: Path | None) -> Settings:
    """Return the settings with the corpora to rehearse: those that were given, or those of the base run."""
    data = settings.data
    if not data.rehearsal:
        return settings
    given = f"{data.rehearsal:g} given"
    if data.reads != "text":
        raise ConfigError(REHEARSAL, f"{given} with data that is {data.reads}, expected pairs of texts")
    if data.earlier:
        return settings
    if base is None:
        raise ConfigError(
            REHEARSAL, f"{given}, but nothing to rehearse; start from a run with --from, or set data.earlier"
        )
    theirs = parse(DataSettings, complete_run_table(read(base / "config.toml")).get("data", {}), "data")
    if theirs.builtin:
        raise ConfigError(
            REHEARSAL,
            f"{given}, but {base} was trained on the built-in corpus {theirs.builtin}; write it into files with "
            "regard data, and name them in data.earlier",
        )
    if not theirs.training:
        raise ConfigError(REHEARSAL, f"{given}, but {base} names no training pairs; set data.earlier")
    return settings.decide(data={"earlier": (*theirs.training, *theirs.rehearsed)})
