"""`regard train`: a model trained into a run folder."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.command import TYPED
from regard.cli.messages import print_message
from regard.cli.options import flag_option, out_option, text_option, with_options
from regard.cli.training import OPTIONS, print_data_check, print_dry_run, read_checked, read_table, tables_of
from regard.config import assign
from regard.errors import CommandError

ConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG", help="TOML configuration, yours or one that `regard configs` lists.", show_default=False
    ),
]
SetOption = Annotated[
    list[str] | None,
    text_option("Key of the configuration to set; may be repeated.", "--set", metavar="KEY=VALUE"),
]
FromOption = Annotated[
    Path | None, text_option("Run folder to start from: its weights and tokenizer.", "--from", metavar="RUN")
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


@with_options("given", {name: (annotation, None) for name, annotation in OPTIONS.items()})
def train(
    config: ConfigArgument = None,
    *,
    given: dict[str, Any],
    settings: SetOption = None,
    out: Annotated[Path | None, out_option("Run folder to write.", "RUN")] = None,
    base: FromOption = None,
    resume: Annotated[Path | None, text_option("Run folder to resume.", metavar="RUN")] = None,
    quiet: Annotated[bool, flag_option("--quiet", "Print only errors; log.txt has everything.")] = False,
    as_json: Annotated[bool, flag_option("--json", "Print one JSON object per record to standard output.")] = False,
    check: Annotated[
        bool, flag_option("--check", "Check the configuration, and the data where they are there, and exit.")
    ] = False,
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

    for name, part in tables.items():
        table[name] = {**table.get(name, {}), **part}
    if resume is not None:
        named = {each.partition("=")[0].strip().removeprefix("training.") for each in settings or []}
        table = set_by_hand(table, {*tables.get("training", {}), *named})
    checked = read_checked(assign(table, settings or []), flags, based=base is not None)
    if check:
        if resume is None:
            print_data_check(checked, base is not None, anyway)
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

    typed = shlex.join(["regard", *TYPED])
    how: dict[str, Any] = {"resume": resume is not None, "base": base, "choose": choose, "anyway": anyway}
    how["display"] = "json" if as_json else "quiet" if quiet else "usual"
    result = train_and_report(checked, folder, **how, command=typed)
    raise typer.Exit(exit_status(result))
