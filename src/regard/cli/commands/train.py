"""`regard train`: a model trained into a run folder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.commands.configs import find_config
from regard.cli.messages import print_message, print_table
from regard.cli.options import (
    field_option,
    file_option,
    flag_option,
    out_option,
    text_option,
    typed_command,
    with_options,
)
from regard.config import assign, read
from regard.data import DataSettings
from regard.errors import CommandError, ConfigError, RegardError
from regard.training import TrainingSettings

if TYPE_CHECKING:
    from regard.tasks import Settings

ConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG", help="TOML configuration, yours or one that `regard configs` lists.", show_default=False
    ),
]
SetOption = Annotated[
    list[str] | None, text_option("Key of the configuration to set; may be repeated.", "--set", metavar="KEY=VALUE")
]
FromOption = Annotated[
    Path | None, text_option("Run folder to start from: its weights and tokenizer.", "--from", metavar="RUN")
]
CheckOption = Annotated[
    bool, flag_option("--check", "Check the configuration, and the data where they are there, and exit.")
]
DryRunOption = Annotated[
    bool,
    flag_option("--dry-run", "Measure a few steps, print what would be trained, with its memory and time, and exit."),
]
AnywayOption = Annotated[
    bool, flag_option("--anyway", "Train on data that are refused: shifted, copied, or with labels that are none.")
]
EXAMPLES = (
    "regard train --source train.en --target train.de --out runs/en-de",
    "regard train --pairs pairs.tsv --preset small --minutes 30 --dry-run",
)
# Keys of [training] that have an option.
TRAINING = ("steps", "minutes", "batch_tokens", "rate", "seed", "device", "track")
NOTHING = (
    "what to train on? give --source FILE --target FILE, --pairs FILE.tsv, --documents FILE.tsv, or --images FOLDER "
    "with --captions FILE.tsv, and --out RUN; or a configuration, as in: regard train phrasebook --out RUN"
)


def key_options(settings: type, *names: str, metavar: str) -> dict[str, tuple[Any, Any]]:
    """Declare options for keys of a configuration, with the keys' own help texts; the default is None."""
    return {name: field_option(settings, name, metavar=metavar, default=None, show_default=False) for name in names}


# Options for the data, the model and the training; each sets keys of a configuration.
OPTIONS: dict[str, tuple[Any, Any]] = {
    **key_options(DataSettings, "source", "target", "valid_source", "valid_target", metavar="FILE"),
    "pairs": (Annotated[str | None, file_option("File with both sides: .tsv or .csv, .jsonl or .json.")], None),
    "valid_pairs": (Annotated[str | None, file_option("File with both sides for validation.")], None),
    **key_options(DataSettings, "documents", "valid_documents", metavar="FILE"),
    **key_options(DataSettings, "images", metavar="FOLDER"),
    **key_options(DataSettings, "captions", "valid_captions", "labels", metavar="FILE"),
    **key_options(DataSettings, "encoding", metavar="NAME"),
    "model": (Annotated[str | None, text_option("Kind of model; `regard models` lists them.", metavar="KIND")], None),
    "preset": (
        Annotated[str | None, text_option("Preset of the model's size: tiny, small, base or big.", metavar="NAME")],
        None,
    ),
    **key_options(TrainingSettings, *TRAINING, metavar="NAME"),
}


@with_options("given", OPTIONS)
def train(
    context: typer.Context,
    config: ConfigArgument = None,
    *,
    given: dict[str, Any],
    settings: SetOption = None,
    out: Annotated[Path | None, out_option("Run folder to write.", "RUN")] = None,
    base: FromOption = None,
    resume: Annotated[Path | None, text_option("Run folder to resume.", metavar="RUN")] = None,
    quiet: Annotated[bool, flag_option("--quiet", "Print only errors; log.txt has everything.")] = False,
    as_json: Annotated[bool, flag_option("--json", "Print one JSON object per record to standard output.")] = False,
    check: CheckOption = False,
    dry_run: DryRunOption = False,
    anyway: AnywayOption = False,
) -> None:
    """Train a model into a run folder.

    Two text files, or one of pairs, train a translator; labelled documents, a classifier; pictures with captions, a
    captioner. Without a configuration, whatever no option sets is chosen from the corpus. Ctrl-C, SIGTERM and SIGHUP
    save a checkpoint and end the command with 130, 143 or 129; under torchrun with 0.
    """
    tables, flags = tables_of(given)
    if resume is not None and (config or out or base or tables.keys() - {"training"}):
        raise CommandError("--resume: uses the run's own configuration; give only --set, or options such as --steps")
    if base is not None and "model" in tables:
        raise CommandError("--from: uses the run's model; leave out --model and --preset")
    table, cached = read_table(config, resume, base)
    from regard.tasks import set_by_hand

    table |= {name: {**table.get(name, {}), **part} for name, part in tables.items()}
    if resume is not None:
        named = {each.partition("=")[0].strip().removeprefix("training.") for each in settings or []}
        table = set_by_hand(table, {*tables.get("training", {}), *named})
    checked = read_checked(assign(table, settings or []), flags, based=base is not None)
    if check:
        from regard.tasks import check_data, missing_files

        if resume is None and not missing_files(checked.data):  # a configuration may be checked on another machine
            for line in check_data(checked, based=base is not None, anyway=anyway):
                print_message(line)
        print("the configuration is valid")
        return
    choose = config is None and resume is None
    if dry_run:
        print_dry_run(checked, resume, base, choose, anyway)
        return
    folder = resume or out
    if folder is None:
        raise CommandError("--out: missing, expected the run folder to write, such as runs/en-de")
    if cached and "cache" not in table.get("data", {}):
        print_message("data.cache of the run is ignored and the default cache is used; --set data.cache=… sets another")

    from regard.report import exit_status, train_and_report

    how: dict[str, Any] = {"resume": resume is not None, "base": base, "choose": choose, "anyway": anyway}
    how["display"] = "json" if as_json else "quiet" if quiet else "usual"
    raise typer.Exit(exit_status(train_and_report(checked, folder, **how, command=typed_command(context))))


def flag_of(name: str) -> str:
    """Return the option that sets a key of the configuration."""
    return "--pairs" if name == "corpora" else f"--{name.replace('_', '-')}"


def tables_of(values: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Sort the values of options into the tables of a configuration; also map each key to its option, for messages."""
    tables: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "training": {}}
    flags = dict[str, str]()
    for name, value in values.items():
        if value is None or value == []:
            continue
        table = "training" if name in TRAINING else "model" if name in ("model", "preset") else "data"
        key = {"model": "kind", "pairs": "corpora", "valid_pairs": "valid"}.get(name, name)
        tables[table][key] = [{"file": value}] if key in ("corpora", "valid") else value
        flags[f"{table}.{key}"] = flag_of(name)
    return {name: table for name, table in tables.items() if table}, flags


def read_checked(table: Mapping[str, Any], flags: Mapping[str, str], *, based: bool = False) -> "Settings":
    """Read and check the settings; errors name the option that set a key, not the key.

    `based` is true if the training starts from another run.
    """
    from regard.tasks import check_extension, read_settings
    from regard.training import check_trackers

    try:
        settings = read_settings(table)
        check_extension(settings, based=based)
        if not table.get("data"):
            raise CommandError(NOTHING)
        settings.data.require()
        check_trackers(settings.training.track)
    except ConfigError as error:
        missing = {"data.source": "--source", "data.target": "--target", "data.valid_source": "--valid-source"}
        missing |= {"data.valid_target": "--valid-target", "data.images": "--images", "data.captions": "--captions"}
        flag = flags.get(error.key.partition("[")[0]) or (missing.get(error.key) if flags else None)
        if flag is None:
            raise
        problem = re.sub(r"(?<=missing, as )\w+(?= is given)", lambda key: flag_of(key[0]), error.problem)
        problem = re.sub(
            r"given together with (\w+); give only one of.*",
            lambda key: f"given together with {flag_of(key[1])}; give one of them",
            problem,
        )
        raise CommandError(f"{flag}: {problem}") from None
    return settings


def print_dry_run(
    settings: "Settings", resumed: Path | None, base: Path | None, choose: bool, anyway: bool = False
) -> None:
    """Print the plan of a training, with its memory and time from a measurement of a few steps."""
    from regard.report import report
    from regard.tasks import dry_run
    from regard.training import metrics, open_progress

    with open_progress(None, terminal=False) as progress:
        found = dry_run(settings, progress, report, resumed=resumed, base=base, choose=choose, anyway=anyway)
    measured, training = found.measured, found.settings.training
    until = f", or until {training.patience} validations without improvement" if training.patience else ""
    steps = f"{found.steps:,}"
    if training.minutes:
        steps = f"about {found.steps:,}, as many as fit into {training.minutes:g} minutes"
        steps += f" and at most {training.steps:,}" * (not training.fit)
    memory = "unknown" if measured.memory is None else f"{measured.memory / 1e9:.2f} GB"
    validations = "the validation" if found.validations == 1 else f"each of {found.validations:,} validations"
    time = f"{'at most ' * bool(training.patience)}{metrics.format_duration(found.seconds)}: {measured.step:.3g} s per "
    time += f"step, and {measured.validation:.3g} s for {validations} (measured on {measured.steps:,} steps)"
    rows = [("steps", f"{steps}{until}; a validation every {found.every:,}"), ("memory", f"{memory} at most")]
    print_table(None, [*found.facts, *rows, ("time", time)], numbers_right=False)


def read_table(config: Path | None, resume: Path | None, base: Path | None) -> tuple[dict[str, Any], bool]:
    """Read the tables of a configuration or of a run; also tell whether a resumed run sets a cache, to ignore it."""
    from regard.tasks import base_table, complete_run_table, require_run

    table: dict[str, Any] = {}
    if resume is not None:
        path = resume / "config.toml"
        if not path.is_symlink():  # check_links reports it
            require_run(resume)  # first, because the next line imports torch

        from regard.training import run_folder

        run_folder.check_links(resume)  # no link may lead out of the folder
        own = read(path)
        return complete_run_table(own), "cache" in own.get("data", {})
    if config is not None:
        path = find_config(config)
        try:
            table = read(path)
        except RegardError as error:
            if path.suffix == ".toml" or "not valid TOML" not in str(error):
                raise
            how = "give a text file with --source or --target, pairs with --pairs, documents with --documents"
            raise CommandError(f"{path}: not a configuration in TOML; {how}") from None
    if base is not None:
        require_run(base)
        table = {**table, **base_table(read(base / "config.toml"), table, str(base))}
    return table, False
