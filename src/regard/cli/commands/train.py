"""`regard train`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.commands.configs import find
from regard.cli.options import flag_option, text_option
from regard.config import assign, read
from regard.errors import CommandError


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help="TOML configuration, yours or one that `regard configs` lists.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a key of the configuration, such as training.steps=8000; may be repeated.",
        ),
    ] = None,
    source: Annotated[str | None, text_option("Text file of sources, one sentence a line.")] = None,
    target: Annotated[str | None, text_option("Text file of their translations, line by line.")] = None,
    valid_source: Annotated[str | None, text_option("Text file of sources for validation.")] = None,
    valid_target: Annotated[str | None, text_option("Text file of their translations.")] = None,
    documents: Annotated[str | None, text_option("TSV file of labelled documents: label and text.")] = None,
    valid_documents: Annotated[str | None, text_option("TSV file of labelled documents for validation.")] = None,
    images: Annotated[str | None, text_option("Folder of pictures.")] = None,
    captions: Annotated[str | None, text_option("TSV file of captions: picture and caption.")] = None,
    valid_captions: Annotated[str | None, text_option("TSV file of captions for validation.")] = None,
    labels: Annotated[str | None, text_option("TSV file of labels: picture and label.")] = None,
    model: Annotated[str | None, text_option("Kind of model; `regard models` lists them.")] = None,
    preset: Annotated[str | None, text_option("Preset of the model's size: tiny, small, base or big.")] = None,
    out: Annotated[Path | None, text_option("Run folder to write.")] = None,
    base: Annotated[
        Path | None,
        text_option("Run folder to start from: its weights and tokenizer.", "--from"),
    ] = None,
    resume: Annotated[Path | None, text_option("Run folder to resume.")] = None,
    check: Annotated[bool, flag_option("--check", "Check the configuration and exit.")] = False,
) -> None:
    """Train a model into a run folder.

    `regard train --source train.en --target train.de --out runs/en-de` chooses the rest from the corpus.
    `--documents FILE.tsv` trains a classifier of documents, `--images DIR --captions FILE` one that describes pictures.
    """
    given = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    given |= {"documents": documents, "valid_documents": valid_documents, "images": images, "labels": labels}
    given |= {"captions": captions, "valid_captions": valid_captions}
    data = {key: value for key, value in given.items() if value is not None}
    table: dict[str, Any] = {}
    own: dict[str, Any] = {}
    if resume is not None:
        if config is not None or out is not None or base is not None or data or model or preset:
            raise CommandError("--resume: the run's own configuration is used; give only --set beside it")
        from regard.tasks.settings import without_cache

        own, out = read_to_resume(resume), resume
        table = without_cache(own)
    elif config is not None:
        table = read(find(config))
    if base is not None:
        from regard.tasks.settings import base_table

        if model or preset:
            raise CommandError("--from: the run's model is taken; --model and --preset cannot be given beside it")
        table = {**table, **base_table(read(run_config(base)), table, str(base))}
    for key, part in (("data", data), ("model", {"kind": model, "preset": preset})):
        part = {name: value for name, value in part.items() if value is not None}
        if part:
            table[key] = {**table.get(key, {}), **part}
    table = assign(table, settings or [])

    from regard.tasks.settings import read_settings

    checked = read_settings(table)
    checked.data.require()
    if out is None and not check:
        raise CommandError("--out: missing, expected the run folder to write, such as runs/en-de")
    if check:
        print("the configuration is right")
        return
    assert out is not None
    if "cache" in own.get("data", {}) and "cache" not in table.get("data", {}):
        print("data.cache of the run is not used, but the default cache; --set data.cache=… sets one", file=sys.stderr)

    from regard.report import train_and_report

    train_and_report(table, out, resume=resume is not None, base=base, choose=config is None and resume is None)


def read_to_resume(run: Path) -> dict[str, Any]:
    """The configuration of a run to resume, in a folder in which no link leads out of it."""
    from regard.training.folder import check_links

    check_links(run)
    return read(run_config(run))


def run_config(run: Path) -> Path:
    """The configuration of a run folder."""
    if not (run / "config.toml").is_file():
        raise CommandError(f"{run}: not a run folder, it has no config.toml")
    return run / "config.toml"
