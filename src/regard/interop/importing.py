"""Import: a run folder made from a folder of another toolkit. Nothing is downloaded.

    from regard import import_model
    import_model("opus-mt-en-de", "runs/en-de")

The run is like one that was trained here, at step 0: every command takes it, and `train --from` begins with it. The
manifest of its checkpoint names the format and the files that were read, with their hashes; imported.json says where
they are.
"""

from dataclasses import dataclass
from pathlib import Path

from regard.data import data_settings, language_pieces
from regard.interop.folders import check_model_folder, check_new, hash_file, whole_folder
from regard.interop.formats import find_format, recognise
from regard.interop.origin import read_values, write_place
from regard.tasks import build_model, read_settings, record_command, write_config
from regard.training import Checkpoints, Counters, Prediction, checkpoint_files, weight_files


@dataclass(frozen=True)
class ImportReport:
    """What was made: the run folder, and what is in it."""

    folder: Path
    format: str
    kind: str
    parameters: int
    pieces: int  # of the target vocabulary
    notes: tuple[str, ...]


def import_model(
    folder: str | Path,
    out: str | Path,
    *,
    format: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    command: str | None = None,
) -> ImportReport:
    """Make the run folder `out` from a folder of another toolkit; `format` names its row where it is not recognised.

    The languages are those that the run translates between, where the model knows several. `command` is what was typed,
    for the run's own record.
    """
    folder, out = Path(folder), Path(out)
    check_new(out)
    check_model_folder(folder)
    row = recognise(folder) if format is None else find_format(format, "--format")
    imported = row.read(folder)
    table = dict(imported.table)
    if source_language is not None or target_language is not None:
        around = {key: table["tokenizer"].get(key, ()) for key in data_settings.AROUND}
        tokenizers = imported.tokenizers.surround(**around)
        table["tokenizer"] = {
            **table["tokenizer"],
            **language_pieces.choose_languages(tokenizers, source_language, target_language),
        }
        pair = f"{source_language}-{target_language}"
        if source_language is not None and target_language is not None and data_settings.LANGUAGES.fullmatch(pair):
            table["data"] = {**table.get("data", {}), "languages": pair}
    settings = read_settings(table)
    model = build_model(settings, imported.tokenizers)
    weights = {f"model.{name}": tensor for name, tensor in imported.weights.items()}
    objective = Prediction(model)
    weight_files.load_weights(objective, weights, str(folder))
    facts = {"task": settings.task, "model": settings.table()["model"], "tokenizer": imported.tokenizers.hash}
    manifest = {"step": 0, "counters": Counters(0).table(), "task": facts}
    files = {path.relative_to(folder).as_posix(): hash_file(path) for path in imported.files}
    origin = {"format": row.name, "folder": folder.resolve().name, "files": files}
    manifest["imported"] = {**origin, **read_values(folder), **imported.values}
    with whole_folder(out) as temporary:
        write_config(temporary / "config.toml", settings)
        imported.tokenizers.save(temporary / "tokenizer.json")
        if command is not None:
            record_command(temporary, command)
        write_place(temporary, out, folder)
        Checkpoints(temporary).write(checkpoint_files.step_name(0), weight_files.weights_of(objective), {}, manifest)
    count = sum(parameter.numel() for parameter in model.parameters())
    return ImportReport(out, row.name, settings.kind, count, imported.tokenizers.target.size, imported.notes)
