"""`regard train`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.commands.configs import find
from regard.config import assign, read
from regard.errors import CommandError


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help="A TOML configuration, yours or one that `regard configs` lists.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a key, such as training.steps=8000.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Text to read, one sentence a line.", show_default=False)] = None,
    target: Annotated[str | None, typer.Option(help="Its translation, line by line.", show_default=False)] = None,
    valid_source: Annotated[str | None, typer.Option(help="Text for validation.", show_default=False)] = None,
    valid_target: Annotated[str | None, typer.Option(help="Its translation.", show_default=False)] = None,
    documents: Annotated[
        str | None, typer.Option(help="Labelled documents: a TSV of label and text.", show_default=False)
    ] = None,
    valid_documents: Annotated[str | None, typer.Option(help="Documents for validation.", show_default=False)] = None,
    images: Annotated[str | None, typer.Option(help="A folder of pictures.", show_default=False)] = None,
    captions: Annotated[
        str | None, typer.Option(help="What the pictures show: a TSV of picture and caption.", show_default=False)
    ] = None,
    valid_captions: Annotated[
        str | None, typer.Option(help="Captions of the pictures for validation.", show_default=False)
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="What to call the pictures: a TSV of picture and label.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Kind of model: see `regard models`.", show_default=False)] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small, base or big.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to write.", show_default=False)] = None,
    base: Annotated[
        Path | None, typer.Option("--from", help="A run to begin with: its weights and tokenizer.", show_default=False)
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="A run folder to go on with.", show_default=False)] = None,
    check: Annotated[bool, typer.Option("--check", help="Read the configuration, and stop there.")] = False,
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
            raise CommandError("--resume: goes on with the run's own configuration; give only --set beside it")
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
    """The configuration of a run to go on with, in a folder in which nothing leads out of it."""
    from regard.training.folder import check_links

    check_links(run)
    return read(run_config(run))


def run_config(run: Path) -> Path:
    """The configuration of a run folder."""
    if not (run / "config.toml").is_file():
        raise CommandError(f"{run}: not a run folder, it has no config.toml")
    return run / "config.toml"
