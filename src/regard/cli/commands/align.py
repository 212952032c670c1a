"""`regard align`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from regard.inspection.alignments.extraction import Links
    from regard.inspection.alignments.selection import Reading
    from regard.inspection.alignments.settings import AlignmentSettings
    from regard.run import Run

    Triple = tuple[str, str, Links | None]  # source, target, and links where they are known already

EXAMPLES = 500  # of the phrasebook's test split, in which heads are looked for


def align(
    run: RunArgument,
    source: Annotated[str | None, text_option("Text file of sources, a sentence a line; - is standard input.")] = None,
    target: Annotated[
        str | None, text_option("Their translations; without it the sources are translated first.")
    ] = None,
    output: OutOption = None,
    translations: Annotated[Path | None, text_option("Without --target: keep the translations here.")] = None,
    reverse: Annotated[str | None, text_option("A run of the other direction, asked as well.")] = None,
    symmetrise: Annotated[
        str, typer.Option(help="With --reverse: intersection, union, grow-diag, grow-diag-final(-and).")
    ] = "grow-diag",
    alignment: Annotated[Path | None, text_option("Gold links of the pairs: the error rate is said, too.")] = None,
    choose: Annotated[
        Path | None, text_option("Gold links: the layer, head and offset are chosen by them, and kept with the run.")
    ] = None,
    agree: Annotated[
        bool, flag_option("--agree", "Choose by agreement with --reverse, for both runs, without gold.")
    ] = False,
    from_one: Annotated[bool, flag_option("--from-one", "Words of the gold links are counted from 1.")] = False,
    view: Annotated[str | None, text_option("The attention to read: its name, or its number from 0.")] = None,
    head: Annotated[str | None, text_option("The head, from 0, or mean.")] = None,
    offset: Annotated[int | None, number_option("1: rows are of the word read.", least=0, most=1)] = None,
    threshold: Annotated[
        float | None,
        number_option("Link all weights from here on; 0: the largest alone.", least=0, most=1, kind="fraction"),
    ] = None,
    join: Annotated[str | None, text_option("Link source words, too: intersection, union, grow-diag or none.")] = None,
    balance: Annotated[int | None, number_option("Rounds in which weights are balanced.", least=0, most=1000)] = None,
    dependencies: Annotated[
        bool, flag_option("--dependencies", "Show which heads look at the head of a word, on the phrasebook.")
    ] = False,
    beam: BeamOption = 5,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Write which words belong together, in Pharaoh's format: a line a pair, source-target, from 0.

    regard align runs/en-de --source test.en --target test.de; without --target for what is translated just now.
    """
    from regard.evaluation.alignment import read_links
    from regard.inspection.alignments.symmetry import METHODS
    from regard.io.formats import BREAKS
    from regard.io.output import check_out, open_output
    from regard.io.pharaoh import pharaoh

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
    check_out(output, source, target, flag="--output")
    check_out(translations, source, output, flag="--translations")
    gold = None if alignment is None else read_links(alignment, first=int(from_one), say=print_message)
    judges = None if choose is None else read_links(choose, first=int(from_one), say=print_message)

    from regard.decoding.processes import Processes
    from regard.io.output import progress_bar
    from regard.run import load

    place = Processes().device(device)
    opened = load(run, checkpoint=checkpoint, device=place)
    other = None if reverse is None else load(reverse, checkpoint=checkpoint, device=place)
    asked = chosen_of(opened, view, head, offset, threshold, join, balance)
    if dependencies:
        show_dependencies(opened)
        return
    assert source is not None
    if judges is not None or agree:
        choose_readings(opened, other, source, str(target), judges, choose)
        return
    found: list[tuple[str, str, Links]] = []
    done, (total, triples) = 0, given(opened, source, target, beam)
    with (
        open_output(output) as write,
        open_output(translations, translations is not None) as keep,
        progress_bar(total, output is not None) as advance,
    ):
        for chunk in triples:
            linked = links_of(opened, other, chunk, symmetrise)
            write("".join(f"{pharaoh(links)}\n" for links in linked))
            keep("".join(f"{BREAKS.sub(' ', each[1])}\n" for each in chunk))
            advance(len(chunk))
            done += len(chunk)
            if gold is not None:
                found += [(one, two, each) for (one, two, _), each in zip(chunk, linked, strict=True)]
    print_message(f"{done:,} pair{'s' * (done != 1)}, read from {asked}")
    if gold is not None:
        judge(alignment, gold, found)


def chosen_of(
    run: "Run",
    view: str | None,
    head: str | None,
    offset: int | None,
    threshold: float | None,
    join: str | None,
    balance: int | None,
) -> "AlignmentSettings":
    """What is read, with what a person wants otherwise."""
    from regard.inspection.alignments.settings import JOINS

    run.check_task("translate")
    names, changes = run.aligning.crossings, dict[str, Any]()
    if view is not None:
        named = names[int(view)] if view.isdecimal() and len(view) < 9 and int(view) < len(names) else view
        if named not in names:
            raise CommandError(f"--view: {view} given, expected one of {', '.join(names)}, or a number from 0")
        changes["view"] = named
    if head is not None:
        if head != "mean" and not (head.isdecimal() and len(head) < 9):
            raise CommandError(f"--head: {head} given, expected a number from 0, or mean")
        changes["head"] = None if head == "mean" else int(head)
    changes |= {name: value for name, value in (("offset", offset), ("balance", balance)) if value is not None}
    if threshold is not None:
        changes["threshold"] = threshold or None
    if join is not None:
        if join not in (*JOINS, "none"):
            raise CommandError(f"--join: {join} given, expected one of {', '.join(JOINS)} or none")
        changes["join"] = None if join == "none" else join
    run.chosen = replace(run.chosen, **changes)
    return run.chosen


def given(run: "Run", source: str, target: str | None, beam: int) -> "tuple[int | None, Iterator[list[Triple]]]":
    """How many pairs there are, where that is known, and chunk by chunk the pairs; translated first if need be."""
    import sys

    from regard.decoding.translate_file import Fit
    from regard.io.inputs import LinePairs, SourceLines, check_lengths
    from regard.io.lines import name_of

    most = run.model.limit
    if target is not None:
        pairs = LinePairs(source, target, print_message)

        def read() -> "Iterator[list[Triple]]":
            done, some = 0, list["Triple"]()
            for sources, targets in pairs.chunks():
                if most is not None:
                    check_lengths(source, run.tokenizers.source.encode_batch(sources or []), most, done)
                    check_lengths(target, run.tokenizers.target.encode_batch(targets), most - 1, done)
                done += len(targets)
                some += [(one, two, None) for one, two in zip(sources or [], targets, strict=True)]
                if len(some) >= 8192:
                    yield some
                    some = []
            yield some

        return pairs.total, read()
    lines = SourceLines(source, say=print_message)
    longest = min(run.settings.data.longest, most or sys.maxsize)
    fit = Fit(
        lambda texts: [len(ids) for ids in run.tokenizers.source.encode_batch(texts)], longest, warn=print_message
    )

    def translate() -> "Iterator[list[Triple]]":
        for block in lines.blocks():
            texts = [each[0].text for each in fit.parts(block.lines, name_of(source), block.first)]
            outputs = [each[0] for each in run.stream(texts, alignment=True, beam=beam)]
            yield [(one, two.text, list(two.alignment or ())) for one, two in zip(texts, outputs, strict=True)]

    return lines.total, translate()


def links_of(run: "Run", reverse: "Run | None", chunk: "Sequence[Triple]", method: str) -> "list[Links]":
    """The links of some pairs, of both directions where there are two runs."""
    from regard.inspection.alignments.symmetry import flip_links, symmetrise

    known = [each[2] for each in chunk if each[2] is not None]
    forward = known if len(known) == len(chunk) else list(run.links([each[:2] for each in chunk]))
    if reverse is None:
        return forward
    backward = reverse.links([(two, one) for one, two, _ in chunk])
    return [symmetrise(links, flip_links(back), method) for links, back in zip(forward, backward, strict=True)]


def judge(path: Path | None, gold: Any, found: "list[tuple[str, str, Links]]") -> None:
    """Say how the links fare."""
    from regard.evaluation.alignment import check_links, measure_links

    for slip in check_links(str(path), gold, [each[0] for each in found], [each[1] for each in found]):
        print_message(slip)
    scores = [each.score() for each in measure_links([each[2] for each in found], gold).values()]
    print_message(", ".join(f"{score.name} {score}" for score in scores))


def choose_readings(run: "Run", reverse: "Run | None", source: str, target: str, gold: Any, path: Path | None) -> None:
    """Choose what is read, by gold links or by agreement; show what was tried, and keep it with the run."""
    from regard.evaluation.alignment import check_links
    from regard.inspection.alignments.selection import choose_by_agreement, choose_by_gold

    triples = list(chain.from_iterable(given(run, source, target, 1)[1]))
    if gold is not None:
        for slip in check_links(str(path), gold, [each[0] for each in triples], [each[1] for each in triples]):
            print_message(slip)
    full = [number for number, (one, two, _) in enumerate(triples) if one.split() and two.split()]
    texts = [triples[number][:2] for number in full]
    forward = encoded(run, texts)
    if gold is not None:
        chosen, readings = choose_by_gold(run.aligning, run.tokenizers, forward, [gold[number] for number in full])
        results = [(run, chosen, readings)]
    else:
        assert reverse is not None
        reverse.check_task("translate")
        backward = encoded(reverse, [(two, one) for one, two in texts])
        both, tried = choose_by_agreement(
            (run.aligning, run.tokenizers, forward), (reverse.aligning, reverse.tokenizers, backward)
        )
        results = list(zip((run, reverse), both, tried, strict=True))
    for each, chosen, readings in results:
        show_readings(readings)
        print(f"\n{each.folder}: {chosen}: AER {chosen.aer:.2%}, by {chosen.by}")
        print_message(f"{chosen.write(each.folder)} written")


def encoded(run: "Run", texts: "Sequence[tuple[str, str]]") -> list[tuple[list[int], list[int]]]:
    """Pairs of texts as token numbers."""
    one = run.tokenizers.source.encode_batch([each[0] for each in texts])
    return list(zip(one, run.tokenizers.target.encode_batch([each[1] for each in texts]), strict=True))


def show_readings(readings: "Sequence[Reading]") -> None:
    """A table by layer and head."""

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


def show_dependencies(run: "Run") -> None:
    """A table of the share of words that look at their head, by layer and head."""
    from regard.data.builtin import generate
    from regard.inspection.alignments.dependencies import best_distance, measure_dependencies

    pair = run.settings.data.pair if run.settings.data.builtin == "phrasebook" else "en-de"
    examples = list(generate("phrasebook", EXAMPLES, split="test", pair=pair))
    found = measure_dependencies(run.aligning, run.tokenizers, examples)
    for side in dict.fromkeys(each.side for each in found):
        own = [each for each in found if each.side == side]
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
