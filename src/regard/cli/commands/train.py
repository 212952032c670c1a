"""`regard train`: a model trained into a run folder."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.command import TYPED
from regard.cli.messages import print_message
from regard.cli.options import file_option, flag_option, folder_option, out_option, text_option
from regard.cli.training import print_dry_run, read_checked, read_table, tables_of, training_option
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
FileOption = str | None
EXAMPLES = (
    "regard train --source train.en --target train.de --out runs/en-de",
    "regard train --pairs pairs.tsv --preset small --minutes 30 --dry-run",
)


def train(
    config: ConfigArgument = None,
    source: Annotated[FileOption, file_option("Text file of sources, one sentence per line.")] = None,
    target: Annotated[FileOption, file_option("Text file of the sources' translations, line by line.")] = None,
    valid_source: Annotated[FileOption, file_option("Text file of sources for validation.")] = None,
    valid_target: Annotated[FileOption, file_option("Text file of translations for validation.")] = None,
    pairs: Annotated[FileOption, file_option("File with both sides: .tsv (source, target), .jsonl or .json.")] = None,
    valid_pairs: Annotated[FileOption, file_option("File with both sides for validation.")] = None,
    documents: Annotated[FileOption, file_option("TSV file of labelled documents: label and text.")] = None,
    valid_documents: Annotated[FileOption, file_option("TSV file of labelled documents for validation.")] = None,
    images: Annotated[str | None, folder_option("Folder of pictures.")] = None,
    captions: Annotated[FileOption, file_option("TSV file of captions: picture and caption.")] = None,
    valid_captions: Annotated[FileOption, file_option("TSV file of captions for validation.")] = None,
    labels: Annotated[FileOption, file_option("TSV file of labels: picture and label.")] = None,
    model: Annotated[str | None, text_option("Kind of model; `regard models` lists them.", metavar="KIND")] = None,
    preset: Annotated[
        str | None, text_option("Preset of the model's size: tiny, small, base or big.", metavar="NAME")
    ] = None,
    steps: Annotated[int | None, training_option("steps", "Number of training steps.")] = None,
    minutes: Annotated[float | None, training_option("minutes", "Minutes after which to stop.")] = None,
    batch_tokens: Annotated[int | None, training_option("batch_tokens", "Number of tokens in a batch.")] = None,
    rate: Annotated[float | None, training_option("rate", "Highest learning rate.")] = None,
    seed: Annotated[
        int | None, training_option("seed", "Random seed for weights, dropout and the order of batches.")
    ] = None,
    device: Annotated[
        str | None, text_option("Device to train on: cpu, cuda, mps (Apple), or auto.", metavar="DEVICE")
    ] = None,
    track: Annotated[
        list[str] | None,
        text_option("Service to send the curves to: wandb or mlflow; may be repeated.", metavar="NAME"),
    ] = None,
    settings: SetOption = None,
    out: Annotated[Path | None, out_option("Run folder to write.", "RUN")] = None,
    base: Annotated[
        Path | None, text_option("Run folder to start from: its weights and tokenizer.", "--from", metavar="RUN")
    ] = None,
    resume: Annotated[Path | None, text_option("Run folder to resume.", metavar="RUN")] = None,
    quiet: Annotated[bool, flag_option("--quiet", "Print only errors; log.txt has everything.")] = False,
    as_json: Annotated[bool, flag_option("--json", "Print one JSON object per record to standard output.")] = False,
    check: Annotated[bool, flag_option("--check", "Check the configuration and exit.")] = False,
    dry_run: Annotated[
        bool,
        flag_option(
            "--dry-run", "Measure a few steps, print what would be trained, with its memory and time, and exit."
        ),
    ] = False,
) -> None:
    """Train a model into a run folder.

    Two text files, or one of pairs, train a translator; labelled documents, a classifier; pictures with captions, a
    captioner. Whatever no option or configuration sets is chosen from the corpus.
    """
    values: dict[str, Any] = {"source": source, "target": target, "valid_source": valid_source}
    values |= {"valid_target": valid_target, "pairs": pairs, "valid_pairs": valid_pairs, "documents": documents}
    values |= {"valid_documents": valid_documents, "images": images, "captions": captions, "labels": labels}
    values |= {"valid_captions": valid_captions, "model": model, "preset": preset, "steps": steps, "minutes": minutes}
    values |= {"batch_tokens": batch_tokens, "rate": rate, "seed": seed, "device": device, "track": track or None}
    tables, flags = tables_of(values)
    if resume is not None and (config or out or base or tables.keys() - {"training"}):
        raise CommandError("--resume: uses the run's own configuration; give only --set, or options such as --steps")
    if base is not None and "model" in tables:
        raise CommandError("--from: uses the run's model; leave out --model and --preset")
    table, cached = read_table(config, resume, base)
    for name, part in tables.items():
        table[name] = {**table.get(name, {}), **part}
    checked = read_checked(assign(table, settings or []), flags)
    if check:
        print("the configuration is valid")
        return
    choose = config is None and resume is None
    if dry_run:
        print_dry_run(checked, resume, base, choose)
        return
    folder = resume or out
    if folder is None:
        raise CommandError("--out: missing, expected the run folder to write, such as runs/en-de")
    if cached and "cache" not in table.get("data", {}):
        print_message("data.cache of the run is ignored and the default cache is used; --set data.cache=… sets another")

    from regard.report import train_and_report

    typed = shlex.join(["regard", *TYPED])
    how: dict[str, Any] = {"resume": resume is not None, "base": base, "choose": choose, "command": typed}
    train_and_report(checked, folder, **how, display="json" if as_json else "quiet" if quiet else "usual")
