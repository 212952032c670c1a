"""`regard align`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.messages import print_message, print_table
from regard.cli.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    OutOption,
    RunArgument,
    flag_option,
    number_option,
    text_option,
)
from regard.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.inspection.alignments.selection import Reading
    from regard.run import Run


def align(
    run: RunArgument,
    source: Annotated[str | None, text_option("Text file of sources, one a line; - is standard input.")] = None,
    target: Annotated[
        str | None, text_option("Text file of translations, one a line; without it the sources are translated first.")
    ] = None,
    output: OutOption = None,
    translations: Annotated[Path | None, text_option("File to write translations to, without --target.")] = None,
    reverse: Annotated[str | None, text_option("Run folder of the other direction, to join its links.")] = None,
    symmetrise: Annotated[
        str,
        typer.Option(
            help="Method to join links with --reverse: intersection, union, grow-diag, grow-diag-final or "
            "grow-diag-final-and."
        ),
    ] = "grow-diag",
    alignment: Annotated[
        Path | None, text_option("File of gold links of the pairs: prints the alignment error rate.")
    ] = None,
    choose: Annotated[
        Path | None,
        text_option("File of gold links to choose the layer, head and offset by; the choice is kept with the run."),
    ] = None,
    agree: Annotated[
        bool, flag_option("--agree", "Choose for both runs by agreement with --reverse, without gold links.")
    ] = False,
    from_one: Annotated[bool, flag_option("--from-one", "Count words of the gold links from 1.")] = False,
    view: Annotated[str | None, text_option("Attention to read: its name, or its number from 0.")] = None,
    head: Annotated[str | None, text_option("Head to read: its number from 0, or mean.")] = None,
    offset: Annotated[
        int | None,
        number_option(
            "Word that a row belongs to: 0, the one that is written; 1, the one that is read.", least=0, most=1
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        number_option("Smallest weight that is a link; 0: only the largest is.", least=0, most=1, kind="fraction"),
    ] = None,
    join: Annotated[
        str | None, text_option("Method to join links of source words: intersection, union, grow-diag or none.")
    ] = None,
    balance: Annotated[int | None, number_option("Number of rounds to balance weights in.", least=0, most=1000)] = None,
    dependencies: Annotated[
        bool, flag_option("--dependencies", "Show which heads look at the head of a word, on the phrasebook.")
    ] = False,
    beam: BeamOption = 5,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Write word alignments in Pharaoh's format: a line a pair, links source-target, words counted from 0.

    regard align runs/en-de --source test.en --target test.de; without --target the sources are translated first.
    """
    from regard.evaluation.alignment import read_links
    from regard.inspection.alignments.symmetry import METHODS
    from regard.io.formats import BREAKS
    from regard.io.output import check_output, open_output
    from regard.io.pharaoh import format_pharaoh

    if source is None and not dependencies:
        raise CommandError("--source: missing, expected a text file of sources")
    if symmetrise not in METHODS:
        raise CommandError(f"--symmetrise: {symmetrise} given, expected one of {', '.join(METHODS)}")
    if target is None and (choose or agree):
        raise CommandError("--target: missing, expected the translations of the development set")
    if target is not None and translations is not None:
        raise CommandError("--translations: given with --target, and nothing is translated")
    if agree and (reverse is None or choose):
        raise CommandError("--agree: expected --reverse beside it, and no --choose")
    check_output(output, source, target, flag="--output")
    check_output(translations, source, output, flag="--translations")
    gold = None if alignment is None else read_links(alignment, first=int(from_one), say=print_message)
    judges = None if choose is None else read_links(choose, first=int(from_one), say=print_message)

    from regard.decoding.processes import Processes
    from regard.inspection.alignments.corpus import (
        AlignedPair,
        align_pairs,
        change_settings,
        choose_settings,
        describe_score,
        read_pairs,
    )
    from regard.io.output import progress_bar
    from regard.run import load

    place = Processes().device(device)
    opened = load(run, checkpoint=checkpoint, device=place)
    other = None if reverse is None else load(reverse, checkpoint=checkpoint, device=place)
    for each in (opened, other):
        if each is not None:
            each.check_task("translate")
    opened.chosen = change_settings(
        opened.chosen,
        opened.aligning.cross_attentions,
        view=view,
        head=head,
        offset=offset,
        threshold=threshold,
        join=join,
        balance=balance,
    )
    if dependencies:
        print_dependencies(opened)
        return
    assert source is not None
    if judges is not None or agree:
        for each, settings, readings in choose_settings(
            opened, other, source, str(target), judges, choose, print_message
        ):
            print_readings(readings)
            print(f"\n{each.folder}: {settings}: AER {settings.aer:.2%}, by {settings.by}")
            print_message(f"{settings.write(each.folder)} written")
        return
    scored, done = list[AlignedPair](), 0
    total, chunks = read_pairs(opened, source, target, print_message, beam=beam)
    with (
        open_output(output) as write,
        open_output(translations, translations is not None) as keep,
        progress_bar(total, output is not None) as advance,
    ):
        for chunk in chunks:
            pairs = align_pairs(opened, other, chunk, symmetrise)
            write("".join(f"{format_pharaoh(pair.links or [])}\n" for pair in pairs))
            keep("".join(f"{BREAKS.sub(' ', pair.target)}\n" for pair in pairs))
            advance(len(pairs))
            done += len(pairs)
            scored += pairs if gold is not None else []
    print_message(f"{done:,} pair{'s' * (done != 1)}, read from {opened.chosen}")
    if gold is not None:
        print_message(describe_score(alignment, gold, scored, print_message))


def print_readings(readings: "Sequence[Reading]") -> None:
    """Print how each head fares, by layer and head."""

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.2%}"

    first = {(each.view, each.head): each for each in readings if each.offset == 0}
    second = {(each.view, each.head): each for each in readings if each.offset == 1}
    print_table(
        ("attention", "head", "AER", "precision", "recall", "AER of the word read"),
        [
            (
                view,
                "mean" if head is None else str(head),
                *map(share, (each.aer, each.precision, each.recall, second[view, head].aer)),
            )
            for (view, head), each in first.items()
        ],
    )


def print_dependencies(run: "Run") -> None:
    """Print the share of words that look at their head, by layer and head, on the phrasebook."""
    from regard.inspection.alignments.dependencies import best_distance, measure_dependencies, phrasebook_examples

    examples = phrasebook_examples(run.settings.data)
    shares_by_head = measure_dependencies(run.aligning, run.tokenizers, examples)
    for side in dict.fromkeys(each.side for each in shares_by_head):
        own = [each for each in shares_by_head if each.side == side]
        views, heads = list(dict.fromkeys(each.view for each in own)), max(each.head for each in own) + 1
        shares = {(each.view, each.head): f"{each.share:.1%}" for each in own}
        fixed = best_distance(side, examples)
        where = "before" if fixed.distance < 0 else "after"
        print(f"{side}: words that look at their head most, of {own[0].words:,}")
        print_table(
            ("attention", *(f"head {head}" for head in range(heads))),
            [(view, *(shares.get((view, head), "–") for head in range(heads))) for view in views],
        )
        print(f"always the word {abs(fixed.distance)} {where}: {fixed.share:.1%}\n")
