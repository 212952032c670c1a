"""`regard align`: word alignments of a parallel text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli import options
from regard.cli.messages import print_message, print_table
from regard.cli.options import (
    file_option,
    flag_option,
    name_option,
    number_option,
    text_option,
    with_languages,
    with_search,
)
from regard.cli.runs import check_folders, open_beside, open_run, print_unknown_words
from regard.errors import CommandError
from regard.io import check_output, encode_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from regard.alignment import AlignmentSettings
    from regard.evaluation import Gold
    from regard.inspection import corpus_alignment
    from regard.run import Run

SourceOption = Annotated[str | None, file_option("Text file of sources, one per line; - reads standard input.")]
TargetOption = Annotated[
    str | None, file_option("Text file of translations, one per line; without it, the sources are translated first.")
]
ReverseOption = Annotated[
    str | None, text_option("Run folder for the opposite direction; its links are joined with these.", metavar="RUN")
]
SymmetriseOption = Annotated[
    str,
    name_option(
        "Method to join links with --reverse: intersection, union, grow-diag, grow-diag-final or grow-diag-final-and."
    ),
]
GoldOption = Annotated[Path | None, file_option("File of gold links for the pairs; prints the alignment error rate.")]
ChooseOption = Annotated[
    Path | None,
    file_option("File of gold links from which to choose layer, head and offset; the choice is saved with the run."),
]
AgreeOption = Annotated[
    bool, flag_option("--agree", "Choose for both runs by agreement with --reverse, without gold links.")
]
ViewOption = Annotated[str | None, text_option("Layer whose attention to the source to read, from 1.", metavar="N")]
HeadOption = Annotated[str | None, text_option("Head to read: its number, from 1, or mean.", metavar="N")]
OffsetOption = Annotated[
    int | None,
    number_option(
        "Target word to which a step's weights belong: 0, the word it writes; 1, the word it reads.", least=0, most=1
    ),
]
ThresholdOption = Annotated[
    float | None,
    number_option("Minimum weight of a link; 0: link only the largest weight.", least=0, most=1, kind="fraction"),
]
JoinOption = Annotated[
    str | None,
    text_option(
        "Method to join the links of target words with those of source words: intersection, union, grow-diag or none.",
        metavar="NAME",
    ),
]
BalanceOption = Annotated[
    int | None, number_option("Number of Sinkhorn rounds that balance the weights; 0: none.", least=0, most=1000)
]
DependenciesOption = Annotated[
    bool,
    flag_option("--dependencies", "Print how often each head attends to a word's syntactic head, on the phrasebook."),
]


EXAMPLES = (
    "regard align runs/en-de --source test.en --target test.de -o test.align",
    "regard align runs/en-de --source dev.en --target dev.de --choose dev.gold",
)


@with_languages
@with_search("beam")
def align(
    run: options.RunArgument,
    *,
    source: SourceOption = None,
    target: TargetOption = None,
    encoding: options.EncodingOption = None,
    out: options.OutOption = None,
    translations: Annotated[Path | None, file_option("File to write translations to, without --target.")] = None,
    reverse: ReverseOption = None,
    symmetrise: SymmetriseOption = "grow-diag",
    gold: GoldOption = None,
    choose: ChooseOption = None,
    agree: AgreeOption = False,
    from_one: options.FromOneOption = False,
    view: ViewOption = None,
    head: HeadOption = None,
    offset: OffsetOption = None,
    threshold: ThresholdOption = None,
    join: JoinOption = None,
    balance: BalanceOption = None,
    dependencies: DependenciesOption = False,
    languages: dict[str, str | None],
    search: dict[str, Any],
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Write word alignments of a parallel text in Pharaoh's format.

    It writes one line per sentence pair, with a source-target link for each two words that correspond. Words count
    from 0, as in Pharaoh's format; layers and heads from 1. Without --target, the sources are translated first.
    """
    check_options(source, target, translations, reverse, symmetrise, choose, agree, dependencies)
    check_folders(run)
    from regard.decoding import first_model
    from regard.inspection import corpus_alignment

    source, target = encode_inputs(encoding, source, target)
    check_output(out, source, target)
    check_output(translations, source, out, flag="--translations")
    gold_links, judges = (read_gold(each, from_one) for each in (gold, choose))
    opened = open_run(run, checkpoint=checkpoint, device=device, languages=languages)
    other = open_beside(opened, reverse, checkpoint=checkpoint)
    for each in filter(None, (opened, other)):
        each.require("align")
    changes = dict[str, Any](view=view, head=head, offset=offset, threshold=threshold, join=join, balance=balance)
    opened.alignment_settings = corpus_alignment.change_settings(
        opened.alignment_settings, first_model(opened.model).cross_attentions, **changes
    )
    if dependencies:
        print_dependencies(opened)
    elif judges is not None or agree:
        choose_and_print(opened, other, source, target, judges, choose)
    else:
        total, chunks = corpus_alignment.read_pairs(opened, source, target, print_message, **search)
        aligned = (corpus_alignment.align_pairs(opened, other, chunk, symmetrise) for chunk in chunks)
        write_links(opened.alignment_settings, aligned, total, out, translations, gold_links, gold)
        print_unknown_words(opened)


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
    """Raise an error for options that exclude one another, and for missing ones."""
    from regard.alignment import METHODS

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
    """Write the links of each pair, and its translation if `translations` is set; score the links by gold links."""
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
    """Read a file of gold links, or return None without one; print notes about malformed links."""
    from regard.evaluation import read_links

    return None if path is None else read_links(path, first=int(from_one), say=print_message)


def choose_and_print(
    run: "Run", reverse: "Run | None", source: str, target: str, gold: "list[Gold] | None", path: Path | None
) -> None:
    """Choose the best alignment settings, print the score of each head, and save the choice in the run folder."""
    from regard.alignment import selection
    from regard.inspection import corpus_alignment

    for each, settings, readings in corpus_alignment.choose_settings(
        run, reverse, source, target, gold, path, print_message
    ):
        print_table(*selection.readings_table(readings))
        print(f"\n{each.folder}: {settings}: AER {settings.aer:.2%}, by {settings.by}")
        print_message(f"{settings.write(each.folder)} written")


def print_dependencies(run: "Run") -> None:
    """Print the share of phrasebook words that attend most to their syntactic head, by layer and head."""
    from regard.alignment import dependencies
    from regard.decoding import first_model

    tables = dependencies.dependency_tables(first_model(run.model), run.tokenizers, run.settings.data)
    for title, columns, rows, fixed in tables:
        print(title)
        print_table(columns, rows)
        print(f"{fixed}\n")
