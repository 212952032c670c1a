"""`regard study`: claims from the literature, tested."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard import plugins
from regard.cli.messages import print_table, print_text
from regard.cli.options import SEED, flag_option, folder_option, name_option, number_option, text_option
from regard.errors import CommandError

EXAMPLES = ("regard study --list", "regard study scaling --quick")


def study(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the study; --list shows them.", show_default=False)
    ] = None,
    out: Annotated[Path, name_option("Folder to write the pages to.", "--out", "-o", metavar="FOLDER")] = Path(
        "studies"
    ),
    seed: Annotated[int, number_option("Random seed.", least=0, most=SEED)] = 0,
    seeds: Annotated[
        str | None,
        text_option("Seeds to train with, such as 0,1,2; default: 0,1,2, and with --quick 0.", metavar="N,N,…"),
    ] = None,
    data: Annotated[Path | None, folder_option("Folder of real corpora; default: the built-in ones.")] = None,
    device: Annotated[
        str, name_option("Device to train on: cpu, cuda, mps (Apple), or auto.", "--device", metavar="DEVICE")
    ] = "auto",
    jobs: Annotated[int, number_option("Number of systems to train at the same time.", least=1, most=256)] = 1,
    untrained: Annotated[bool, flag_option("--untrained", "Measure only what needs no training.")] = False,
    quick: Annotated[
        bool, flag_option("--quick", "Take fewer samples, or train for a short time, for a first look.")
    ] = False,
    show: Annotated[bool, flag_option("--list", "List the studies and exit.")] = False,
) -> None:
    """Test a claim from the literature, and write a page about it."""
    studies = plugins.home("study")
    rows = plugins.table("study")
    if show:
        print_table(None, [(each, claim) for each, (claim, *_) in rows.items()])
        return
    if name is None:
        raise CommandError(f"which study? give one of {', '.join(rows)}; --list describes them")
    if data is not None and quick:
        raise CommandError("--data: --quick uses the built-in corpora; leave out one of them")
    if data is not None and not data.is_dir():
        raise CommandError(f"--data: {data} is not a folder")
    if untrained and name in rows and rows[name].trained:
        raise CommandError(f"--untrained: {name} measures nothing without training; leave it out")

    from regard.io import check_link

    check_link(out, "--out")
    seeds_to_train = parse_seeds(seeds, seed, quick)
    setting = studies.Setting(seeds_to_train, quick, device, out, lambda text: print(text, file=sys.stderr), data, jobs)
    page = studies.run(name, seed=seed, quick=quick, setting=None if untrained else setting)
    path = page.write(out)
    studies.write_index(out)
    for table in page.tables:
        print_text(table.caption)
        print_table(table.columns, table.text_rows(), right=table.numeric())
        print()
    for verdict in page.verdicts:
        print_text(f"{verdict.word:15} {verdict.claim}: {verdict.evidence}", 16)
    print()
    print_text(str(page.signature))
    print(f"page: {path}", file=sys.stderr)


def parse_seeds(text: str | None, seed: int, quick: bool) -> tuple[int, ...]:
    """Parse the seeds to train with: by default, three from `seed` on; with --quick, only `seed`."""
    if text is None:
        return (seed,) if quick else (seed, seed + 1, seed + 2)
    parts = text.split(",")
    if not all(re.fullmatch(r"\s*[0-9]{1,10}\s*", part) and int(part) <= SEED for part in parts):
        raise CommandError(f"--seeds: {text!r} given, expected numbers of at most {SEED}, such as 0,1,2")
    return tuple(int(part) for part in parts)
