"""Translate a file or a pipe line by line, in one process or in several that torchrun started."""

import dataclasses
import heapq
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, Self, TypeVar

from regard.data import Tokenizer, sentence_split
from regard.errors import CommandError, RegardError
from regard.io import Block, SourceLines, display_name, formats
from regard.machine import MPS, auto_device

# ---- one process, or as many as torchrun started

DEVICES = ("cpu", "cuda", "mps")
B = TypeVar("B")
R = TypeVar("R")


class Processes:
    """The processes that torchrun started, or the only one; a context manager that opens and ends their group."""

    def __init__(self) -> None:
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.own = False

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes the output (rank 0)."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """Return the device of this process; "auto" prefers a GPU, and each process of a host has its own GPU."""
        import torch

        count = torch.cuda.device_count()
        if name == "auto":
            name = auto_device()
            if name == "mps" and self.first:
                print(f"regard: {MPS}", file=sys.stderr)
        kind, _, index = name.partition(":")
        if kind not in DEVICES or not re.fullmatch("[0-9]{0,4}", index) or (kind != "cuda" and index):
            raise CommandError(f"--device: {name!r} given, expected auto, cpu, mps, cuda, or cuda:1 and so on")
        if kind == "mps" and not torch.backends.mps.is_available():
            raise CommandError("--device: mps given, but torch finds no Apple GPU")
        if kind != "cuda":
            return name
        if not count:
            raise CommandError(f"--device: {name} given, but torch finds no CUDA device")
        if index and int(index) >= count:
            raise CommandError(f"--device: {name} given, but there are {count} CUDA devices, counted from 0")
        return name if index else f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % count}"

    def __enter__(self) -> Self:
        if self.world > 1:
            import torch.distributed as dist

            if not dist.is_initialized():
                try:  # gloo on every device, since the results are text; a long time-out, since a block may take long
                    dist.init_process_group("gloo", timeout=timedelta(days=1))
                except (ValueError, RuntimeError) as error:
                    why = str(error).splitlines()[0]
                    raise CommandError(
                        f"RANK and WORLD_SIZE: process {self.rank} of {self.world} given, but they cannot connect "
                        f"({why}); start them with torchrun"
                    ) from None
                self.own = True
        return self

    def __exit__(self, *error: object) -> None:
        if self.own:
            import torch.distributed as dist

            dist.destroy_process_group()
            self.own = False

    def share(self, blocks: Iterable[B], work: Callable[[B], R]) -> Iterator[R]:
        """Yield the results of `map(work, blocks)`, in order, in every process; each process computes its share.

        If one process fails, it raises its own error, and all others raise a CommandError that quotes it.
        """
        if self.world == 1:
            yield from map(work, blocks)
            return
        waiting = iter(blocks)
        while dealt := list(islice(waiting, self.world)):
            result, error = None, None
            if self.rank < len(dealt):
                try:
                    result = work(dealt[self.rank])
                except RegardError as failure:
                    error = failure
            answers = self.gather((result, None if error is None else str(error)))
            if error is not None:
                raise error
            for rank, (_, problem) in enumerate(answers):
                if problem is not None:
                    raise CommandError(f"stopped, because process {rank} failed: {problem}")
            yield from (each for each, _ in answers[: len(dealt)])

    def gather(self, thing: Any) -> list[Any]:
        """Gather one object from every process, by rank."""
        if self.world == 1:
            return [thing]
        import torch.distributed as dist

        answers: list[Any] = [None] * self.world
        try:
            dist.all_gather_object(answers, thing)
        except RuntimeError as error:  # another process closed its connection
            raise CommandError(f"stopped, because another process is gone: {str(error).splitlines()[0]}") from None
        return answers


# ---- a file, line by line

Translate = Callable[[list[str], list[str] | None], Iterator[Sequence[Any]]]


T = TypeVar("T")
NAMED = 10  # report so many long lines one by one, and then their number


class LineFitter:
    """Fits lines to the number of tokens that a run accepts (its data.longest and its model's `limit`).

    `source`, the run's tokenizer, counts the tokens. With `split` every line is split into sentences, and long
    sentences into pieces; each piece gets the one of `tags` that its line begins with. `split` None splits long lines
    only. Otherwise long lines are truncated, and `warn` gets a message for each. If `counter` is set, `end` warns of
    lines with several sentences.
    """

    def __init__(
        self,
        source: Tokenizer,
        longest: int,
        limit: int | None,
        *,
        split: bool | None = False,
        tags: Sequence[str] = (),
        warn: Callable[[str], None] = lambda text: None,
    ):
        self.source, self.limit = source, longest if limit is None else min(longest, limit)
        self.split, self.tags, self.warn = split, tags, warn
        self.cut = 0  # lines truncated so far
        self.counter: sentence_split.SentenceCounter | None = None

    def parts(self, lines: list[str], name: str, first: int = 1) -> list[list[sentence_split.Piece]]:
        """Split each line into pieces, at least one per line; `first` is the first line's number in the file `name`."""
        if self.counter is not None:
            self.counter.add(lines)
        if self.split:
            return [self.pieces(line) for line in lines]
        fitted = list[list[sentence_split.Piece]]()
        for number, (line, length) in enumerate(zip(lines, self.measure(lines), strict=True), first):
            if length > self.limit and self.split is None:
                fitted.append(self.pieces(line))
                continue
            text = line if length <= self.limit else sentence_split.cut(line, self.count, self.limit)
            fitted.append([sentence_split.Piece(0, len(text), text)])
            if length > self.limit:
                self.cut += 1
                if self.cut <= NAMED:
                    self.warn(
                        f"{name}, line {number:,}: {length:,} tokens, truncated to {self.count(text):,}, as the model "
                        f"takes at most {self.limit:,}; --split translates all of it"
                    )
        return fitted

    def pieces(self, line: str) -> list[sentence_split.Piece]:
        """Split a line into sentences, and long sentences into pieces that fit; return at least one piece."""
        return sentence_split.tagged_pieces(line, self.count, self.limit, self.tags)[0] or [
            sentence_split.Piece(0, 0, "")
        ]

    def count(self, text: str) -> int:
        """Count the tokens of one text."""
        return self.measure([text])[0]

    def measure(self, texts: list[str]) -> list[int]:
        """Count the tokens of each text."""
        return [len(ids) for ids in self.source.encode_batch(texts)]

    def end(self, processes: Processes) -> None:
        """Report how many more lines were truncated, and how many lines of all processes have several sentences."""
        if self.cut > NAMED:
            self.warn(f"{self.cut - NAMED:,} more lines were truncated to {self.limit:,} tokens")
        if self.counter is None:
            return
        total = sentence_split.SentenceCounter()
        for texts, several in processes.gather((self.counter.texts, self.counter.several)):
            total.texts, total.several = total.texts + texts, total.several + several
        if processes.first and total.several:
            self.warn(sentence_split.describe_several(total, "lines", "--split translates each"))


def join_outputs(
    line: str,
    parts: Sequence[sentence_split.Piece],
    outputs: Sequence[Sequence[T]],
    count: int,
    ranked: bool = True,
    between: str = " ",
) -> list[T]:
    """Join the outputs for a line's pieces: concatenate texts and tokens, and sum scores.

    Pieces are independent, so that the line's best `count` outputs are combinations of the pieces' best. Unranked
    outputs, such as samples, are joined in order. A tag that was added before a piece does not count as a word.
    """
    each = [
        own if piece.text == line[piece.start : piece.end] else [forget_tag(output) for output in own]
        for piece, own in zip(parts, outputs, strict=True)
    ]
    joined = list(each[0])
    for i, more in enumerate(each[1:], 1):
        # Count words in the whole line; a piece may begin within a word.
        words = len(line[: parts[i].start].split())
        words -= parts[i].start > 0 and not line[parts[i].start - 1].isspace()
        if ranked:
            both = heapq.nlargest(
                count,
                itertools.product(joined, more),
                key=lambda pair: pair[0].score + pair[1].score,
            )
        else:
            both = list(zip(joined, more, strict=False))
        joined = [join_two(first, second, words, between) for first, second in both]
    return joined


def forget_tag(output: Any) -> Any:
    """Shift an output's source words by one, to remove the tag that was added before the piece."""
    links, spans = output.alignment, output.untranslated
    if links is not None:
        links = tuple((source - 1, target) for source, target in links if source > 0)
    if spans is not None:
        spans = tuple((max(0, start - 1), end - 1) for start, end in spans)
    return dataclasses.replace(output, alignment=links, untranslated=spans)


def join_two(first: Any, second: Any, words: int, between: str = " ") -> Any:
    """Join two outputs; the second's source begins at word `words` of the line."""
    alignment = first.alignment
    if alignment is not None and second.alignment is not None:
        before = len(first.text.split())
        alignment += tuple((source + words, target + before) for source, target in second.alignment)
    spans = first.untranslated
    if spans is not None and second.untranslated is not None:
        spans += tuple((start + words, end + words) for start, end in second.untranslated)
    log_probs = first.token_log_probs
    if log_probs is not None and second.token_log_probs is not None:
        log_probs += second.token_log_probs
    return dataclasses.replace(
        first,
        text=between.join(filter(None, (first.text, second.text)) if between == " " else (first.text, second.text)),
        score=first.score + second.score,
        log_prob=first.log_prob + second.log_prob,
        tokens=first.tokens + second.tokens,
        finished=first.finished and second.finished,
        alignment=alignment,
        token_log_probs=log_probs,
        untranslated=spans,
    )


def translate_file(
    lines: SourceLines,
    translate: Translate,
    fit: LineFitter,
    form: formats.OutputFormat,
    processes: Processes,
    *,
    nbest: int = 1,
    ranked: bool = True,
    look: Callable[[int, str, Sequence[Any]], None] | None = None,
) -> Iterator[tuple[int, str]]:
    """Translate a file block by block; yield the number of lines of each block, and the text to write for them.

    `translate` takes texts and their prefixes, and yields the outputs of each text. `look` is called with every line's
    number, from 1, its text and its outputs.
    """
    import torch  # already loaded with the model

    def work(block: Block) -> tuple[int, str]:
        parts = fit.parts(block.lines, display_name(block.path), block.place)
        texts = [piece.text for each in parts for piece in each]
        prefixes = None if block.prefixes is None else first_prefixes(parts, block.prefixes)
        try:
            results = iter(list(translate(texts, prefixes)))
        except torch.OutOfMemoryError:
            last = block.place + len(block.lines) - 1
            place = f"{display_name(block.path)}, lines {block.place:,} to {last:,}"
            raise CommandError(f"{place}: out of memory; lower --batch-tokens or --beam") from None
        rows = []
        for i, (line, each) in enumerate(zip(block.lines, parts, strict=True), block.first - 1):
            outputs = join_outputs(line, each, list(islice(results, len(each))), nbest, ranked)
            if look is not None:
                look(i + 1, line, outputs)
            rows.append(form.lines(i, line, outputs))
        return len(block.lines), "".join(rows)

    yield from processes.share(lines.blocks(), work)
    fit.end(processes)


def first_prefixes(parts: Sequence[Sequence[sentence_split.Piece]], prefixes: Sequence[str]) -> list[str]:
    """Return a prefix for each piece: the line's prefix for its first piece, and "" for the others."""
    return [text for each, own in zip(parts, prefixes, strict=True) for text in (own, *[""] * (len(each) - 1))]
