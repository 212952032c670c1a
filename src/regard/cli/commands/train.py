"""`regard train`: a model trained into a run folder."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.commands.configs import find_config
from regard.cli.options import flag_option, text_option
from regard.config import assign, read
from regard.errors import CommandError

ConfigArgument = Annotated[
    Path | None,
    typer.Argument(help="TOML configuration, yours or one that `regard configs` lists.", show_default=False),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the configuration, such as training.steps=8000; may be repeated.",
    ),
]


def train(
    config: ConfigArgument = None,
    settings: SetOption = None,
    source: Annotated[str | None, text_option("Text file of sources, one sentence a line.")] = None,
    target: Annotated[str | None, text_option("Text file of the sources' translations, line by line.")] = None,
    valid_source: Annotated[str | None, text_option("Text file of sources for validation.")] = None,
    valid_target: Annotated[str | None, text_option("Text file of translations for validation.")] = None,
    documents: Annotated[str | None, text_option("TSV file of labelled documents: label and text.")] = None,
    valid_documents: Annotated[str | None, text_option("TSV file of labelled documents for validation.")] = None,
    images: Annotated[str | None, text_option("Folder of pictures.")] = None,
    captions: Annotated[str | None, text_option("TSV file of captions: picture and caption.")] = None,
    valid_captions: Annotated[str | None, text_option("TSV file of captions for validation.")] = None,
    labels: Annotated[str | None, text_option("TSV file of labels: picture and label.")] = None,
    model: Annotated[str | None, text_option("Kind of model; `regard models` lists them.")] = None,
    preset: Annotated[str | None, text_option("Preset of the model's size: tiny, small, base or big.")] = None,
    out: Annotated[Path | None, text_option("Run folder to write.")] = None,
    base: Annotated[Path | None, text_option("Run folder to start from: its weights and tokenizer.", "--from")] = None,
    resume: Annotated[Path | None, text_option("Run folder to resume.")] = None,
    check: Annotated[bool, flag_option("--check", "Check the configuration and exit.")] = False,
) -> None:
    """Train a model into a run folder.

    `regard train --source train.en --target train.de --out runs/en-de` chooses the rest from the corpus.
    `--documents FILE.tsv` trains a classifier of documents, `--images DIR --captions FILE` one that describes pictures.
    """
    files = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    files |= {"documents": documents, "valid_documents": valid_documents, "images": images, "labels": labels}
    files |= {"captions": captions, "valid_captions": valid_captions}
    data = {key: value for key, value in files.items() if value is not None}
    if resume is not None and (config or out or base or data or model or preset):
        raise CommandError("--resume: the run's own configuration is used; give only --set beside it")
    if base is not None and (model or preset):
        raise CommandError("--from: the run's model is taken; --model and --preset cannot be given beside it")
    table, cached = read_table(config, resume, base)
    kind = {key: value for key, value in (("kind", model), ("preset", preset)) if value is not None}
    for key, part in (("data", data), ("model", kind)):
        if part:
            table[key] = {**table.get(key, {}), **part}
    table = assign(table, settings or [])

    from regard.tasks.settings import read_settings

    checked = read_settings(table)
    checked.data.require()
    if check:
        print("the configuration is right")
        return
    folder = resume or out
    if folder is None:
        raise CommandError("--out: missing, expected the run folder to write, such as runs/en-de")
    if cached and "cache" not in table.get("data", {}):
        print("data.cache of the run is not used, but the default cache; --set data.cache=… sets one", file=sys.stderr)

    from regard.report import train_and_report

    train_and_report(checked, folder, resume=resume is not None, base=base, choose=config is None and resume is None)


def read_table(config: Path | None, resume: Path | None, base: Path | None) -> tuple[dict[str, Any], bool]:
    """Read the tables of a configuration or of a run; and whether that run has its own cache, which is not used."""
    from regard.tasks.settings import base_table, complete_run_table

    table: dict[str, Any] = {}
    if resume is not None:
        from regard.training.folder import check_links

        check_links(resume)  # none may lead out of the folder
        own = read(find_run_config(resume))
        return complete_run_table(own), "cache" in own.get("data", {})
    if config is not None:
        table = read(find_config(config))
    if base is not None:
        table = {**table, **base_table(read(find_run_config(base)), table, str(base))}
    return table, False


def find_run_config(run: Path) -> Path:
    """Find the configuration of a run folder."""
    if not (run / "config.toml").is_file():
        raise CommandError(f"{run}: not a run folder, it has no config.toml")
    return run / "config.toml"
