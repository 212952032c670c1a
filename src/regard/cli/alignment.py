"""The parts of `regard align`: options checked, links written, settings chosen, tables printed."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.messages import print_message, print_table
from regard.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from regard.evaluation import Gold
    from regard.inspection import AlignmentSettings, corpus_alignment
    from regard.run import Run


def check_options(
    source: str | None,
    target: str | None,
    translations: Path | None,
    reverse: str | None,
    symmetrise: str,
    choose: Path | None,
    agree: bool,
    dependencies: bool,
) -> None:
    """Refuse options that do not go together."""
    from regard.inspection import METHODS

    if source is None and not dependencies:
        raise CommandError("--source: missing, expected a text file of sources")
    if symmetrise not in METHODS:
        raise CommandError(f"--symmetrise: {symmetrise} given, expected one of {', '.join(METHODS)}")
    if target is None and (choose or agree):
        raise CommandError("--target: missing, expected the translations of the development set")
    if target is not None and translations is not None:
        raise CommandError("--translations: nothing is translated with --target; leave out one of them")
    if agree and (reverse is None or choose):
        raise CommandError("--agree: add --reverse, and leave out --choose")


def write_links(
    settings: "AlignmentSettings",
    aligned: "Iterable[list[corpus_alignment.AlignedPair]]",
    total: int | None,
    out: Path | None,
    translations: Path | None,
    gold: "list[Gold] | None",
    gold_path: Path | None,
) -> None:
    """Write the links of each pair, and its translation where that is wanted; print how good they are by gold links."""
    from regard.inspection import corpus_alignment
    from regard.io import format_pharaoh, formats, open_output, progress_bar

    scored, count = list[corpus_alignment.AlignedPair](), 0
    with (
        open_output(out) as write,
        open_output(translations, translations is not None) as write_translations,
        progress_bar(total, out is not None) as advance,
    ):
        for pairs in aligned:
            write("".join(f"{format_pharaoh(pair.links or [])}\n" for pair in pairs))
            write_translations("".join(f"{formats.BREAKS.sub(' ', pair.target)}\n" for pair in pairs))
            advance(len(pairs))
            count += len(pairs)
            scored += pairs if gold is not None else []
    print_message(f"{count:,} pair{'s' * (count != 1)}, read from {settings}")
    if gold is not None:
        print_message(corpus_alignment.describe_score(gold_path, gold, scored, print_message))


def read_gold(path: Path | None, from_one: bool) -> "list[Gold] | None":
    """Read a file of gold links, where one is given; what is odd in it is printed."""
    from regard.evaluation import read_links

    return None if path is None else read_links(path, first=int(from_one), say=print_message)


def choose_and_print(
    run: "Run", reverse: "Run | None", source: str, target: str, gold: "list[Gold] | None", path: Path | None
) -> None:
    """Choose what reads best as an alignment, print how each head fares, and keep the choice with the run."""
    from regard.inspection import corpus_alignment, selection

    for each, settings, readings in corpus_alignment.choose_settings(
        run, reverse, source, target, gold, path, print_message
    ):
        print_table(*selection.readings_table(readings))
        print(f"\n{each.folder}: {settings}: AER {settings.aer:.2%}, by {settings.by}")
        print_message(f"{settings.write(each.folder)} written")


def print_dependencies(run: "Run") -> None:
    """Print the share of words that look at their head, by layer and head, on the phrasebook."""
    from regard.decoding import first_model
    from regard.inspection import dependency_links

    for table in dependency_links.dependency_tables(first_model(run.model), run.tokenizers, run.settings.data):
        print(table.title)
        print_table(table.columns, table.rows)
        print(f"{table.fixed}\n")
