"""Word alignment of a corpus by a run, in one direction or in both, of given pairs or of translations.

It implements `regard align`: `read_pairs` and `align_pairs` produce links, `choose_settings` selects the best head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from regard.alignment import AlignmentSettings, extraction, flip_links, selection, symmetrise
from regard.data import TableTexts, Tokenizers, read_tables
from regard.decoding import file_translation, first_model
from regard.errors import CommandError
from regard.evaluation import Gold, alignment_scores, measure_links
from regard.io import LinePairs, Say, SourceLines, check_lengths, display_name
from regard.tasks import TrainedRun

CHUNK = 8192  # minimum number of pairs aligned together


class AlignedPair(NamedTuple):
    """A source, its translation, and the links between their words, if known."""

    source: str
    target: str
    links: extraction.Links | None = None


R = TypeVar("R", bound=TrainedRun)


def change_settings(
    settings: AlignmentSettings,
    crossings: Sequence[str],
    *,
    view: str | None = None,
    head: str | None = None,
    offset: int | None = None,
    threshold: float | None = None,
    join: str | None = None,
    balance: int | None = None,
) -> AlignmentSettings:
    """Change settings by command-line options: a view by its layer, from 1, or its name; a head by its number, from 1,
    or "mean".
    """
    changes = dict[str, Any]()
    if view is not None:
        numbered = view.isdecimal() and len(view) < 9 and 1 <= int(view) <= len(crossings)
        name = crossings[int(view) - 1] if numbered else view
        if name not in crossings:
            layers = "1, the only layer" if len(crossings) == 1 else f"a layer, 1 to {len(crossings)}"
            raise CommandError(f"--view: {view} given, expected {layers}")
        changes["view"] = name
    if head is not None:
        if head != "mean" and not (head.isdecimal() and len(head) < 9 and int(head) >= 1):
            raise CommandError(f"--head: {head} given, expected a number from 1, or mean")
        changes["head"] = None if head == "mean" else int(head) - 1
    changes |= {name: value for name, value in (("offset", offset), ("balance", balance)) if value is not None}
    if threshold is not None:
        changes["threshold"] = threshold or None
    if join is not None:
        if join not in (*extraction.JOINS, "none"):
            raise CommandError(f"--join: {join} given, expected one of {', '.join(extraction.JOINS)} or none")
        changes["join"] = None if join == "none" else join
    return replace(settings, **changes)


def read_pairs(
    run: TrainedRun, source: str, target: str | None, say: Say, *, beam: int = 5
) -> tuple[int | None, Iterator[list[AlignedPair]]]:
    """Return the number of pairs, if known, and the pairs chunk by chunk; without a target, translate the source."""
    if target is not None:
        pairs = LinePairs(source, target, say)
        read_tables(pairs, run.settings.data, say)
        return pairs.total, read_translations(run, pairs, source, target)
    lines = SourceLines(source, say=say)
    lines.texts = [TableTexts.of(source, run.settings.data, say) or list]
    return lines.total, translate_lines(run, lines, source, beam, say)


def read_translations(run: TrainedRun, pairs: LinePairs, source: str, target: str) -> Iterator[list[AlignedPair]]:
    """Read the pairs of two files chunk by chunk, and check that no text exceeds the model's length limit."""
    limit, count, chunk = run.model.limit, 0, list[AlignedPair]()
    for sources, targets in pairs.chunks():
        if limit is not None:
            check_lengths(source, run.tokenizers.source.encode_batch(sources or []), limit, count)
            check_lengths(target, run.tokenizers.target.encode_batch(targets), limit - 1, count)
        count += len(targets)
        chunk += map(AlignedPair, sources or [], targets)
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []
    yield chunk


def translate_lines(
    run: TrainedRun, lines: SourceLines, source: str, beam: int, say: Say
) -> Iterator[list[AlignedPair]]:
    """Translate the lines of a file, with links; lines longer than the run's limit are cut."""
    fit = file_translation.LineFitter(run.tokenizers.source, run.settings.data.longest, run.model.limit, warn=say)
    for block in lines.blocks():
        texts = [each[0].text for each in fit.parts(block.lines, display_name(source), block.first)]
        outputs = [each[0] for each in run.stream(texts, split=False, alignment=True, beam=beam)]
        yield [
            AlignedPair(text, output.text, list(output.alignment or ()))
            for text, output in zip(texts, outputs, strict=True)
        ]


def align_pairs(
    run: TrainedRun, reverse: TrainedRun | None, pairs: Sequence[AlignedPair], method: str
) -> list[AlignedPair]:
    """Link the words of each pair; with a reverse run, `method` symmetrises the links of both directions."""
    gold = [pair.links for pair in pairs if pair.links is not None]
    texts = [(pair.source, pair.target) for pair in pairs]
    links = gold if len(gold) == len(pairs) else list(run.links(texts))
    if reverse is not None:
        backward = reverse.links([(target, source) for source, target in texts])
        links = [symmetrise(each, flip_links(back), method) for each, back in zip(links, backward, strict=True)]
    return [pair._replace(links=each) for pair, each in zip(pairs, links, strict=True)]


def describe_score(path: Path | None, gold: Sequence[Gold], pairs: Sequence[AlignedPair], say: Say) -> str:
    """Return a line with the scores of the pairs' links against gold links; `say` reports impossible gold links."""
    say_slips(path, gold, pairs, say)
    scores = [each.score() for each in measure_links([pair.links or [] for pair in pairs], gold).values()]
    return ", ".join(f"{score.name} {score}" for score in scores)


def choose_settings(
    run: R, reverse: R | None, source: str, target: str, gold: Sequence[Gold] | None, path: Path | None, say: Say
) -> list[tuple[R, AlignmentSettings, list[selection.Reading]]]:
    """Choose each run's best alignment settings on the pairs of two files: by gold links, or by agreement of the two
    runs.
    """
    pairs = list(chain.from_iterable(read_pairs(run, source, target, say)[1]))
    if gold is not None:
        say_slips(path, gold, pairs, say)
    full = [number for number, pair in enumerate(pairs) if pair.source.split() and pair.target.split()]
    texts = [(pairs[number].source, pairs[number].target) for number in full]
    forward = encode_pairs(run.tokenizers, texts)
    if gold is not None:
        settings, readings = selection.choose_by_gold(
            first_model(run.model), run.tokenizers, forward, [gold[number] for number in full]
        )
        return [(run, settings, readings)]
    assert reverse is not None
    backward = encode_pairs(reverse.tokenizers, [(target, source) for source, target in texts])
    both, tried = selection.choose_by_agreement(
        (first_model(run.model), run.tokenizers, forward), (first_model(reverse.model), reverse.tokenizers, backward)
    )
    return list(zip((run, reverse), both, tried, strict=True))


def say_slips(path: Path | None, gold: Sequence[Gold], pairs: Sequence[AlignedPair], say: Say) -> None:
    """Report gold links to words that their pair does not have."""
    for slip in alignment_scores.check_links(
        str(path), gold, [pair.source for pair in pairs], [pair.target for pair in pairs]
    ):
        say(slip)


def encode_pairs(tokenizers: Tokenizers, texts: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    """Encode pairs of texts as token numbers."""
    sources = tokenizers.source.encode_batch([source for source, _ in texts])
    return list(zip(sources, tokenizers.target.encode_batch([target for _, target in texts]), strict=True))
