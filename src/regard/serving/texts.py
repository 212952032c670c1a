"""Texts of any length as sentences that a model takes, and the outputs of these as texts again.

The lines of a text are kept. Each is split into its sentences, and a sentence that is too long into pieces, as
`regard translate --split` does; without `split` a line that is too long is cut, and the answer says so. A tag such as
<2de> at the beginning holds for all that follows: it is put before every piece.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from regard.data.sentence_split import Piece, cut, pieces, sentences
from regard.data.tokenizer import Tokenizer
from regard.decoding.translate_file import join_outputs
from regard.tasks.results import Translation

__all__ = ["SplitText", "split_texts"]


@dataclass(frozen=True)
class SplitText:
    """A text in lines, and each line in pieces."""

    text: str
    lines: tuple[str, ...]
    parts: tuple[tuple[Piece, ...], ...]  # of each line, at least one
    cut: bool  # the end of a line is missing

    @property
    def texts(self) -> list[str]:
        """The pieces of all lines, in order."""
        return [piece.text for line in self.parts for piece in line]

    def join(self, outputs: Iterator[list[Translation]], count: int, ranked: bool) -> list[Translation]:
        """The outputs for the text from those for its pieces, the `count` best where they are `ranked`."""
        if len(self.lines) == 1 and len(self.parts[0]) == 1 and self.parts[0][0].text == self.text:  # the most usual
            return list(next(outputs))
        each = []
        for line, parts in zip(self.lines, self.parts, strict=True):
            rows = [
                own if line[piece.start : piece.end] == piece.text else [forget_tag(output) for output in own]
                for piece, own in zip(parts, islice(outputs, len(parts)), strict=True)
            ]
            each.append(join_outputs(line, parts, rows, count, ranked))
        starts, start = [], 0
        for line in self.lines:
            starts.append(Piece(start, start + len(line), line))
            start += len(line) + 1
        return join_outputs(self.text, starts, each, count, ranked, between="\n")


def split_texts(
    texts: Sequence[str], tokenizer: Tokenizer, longest: int, split: bool, tags: Sequence[str] = ()
) -> tuple[list[SplitText], list[list[int]]]:
    """Split texts into what a model of this length takes; and the tokens of all pieces, in order."""
    whole, ids, again = [], tokenizer.encode_batch(list(texts)), list[str]()
    tokens: list[list[int] | None] = []
    for text, own in zip(texts, ids, strict=True):
        if len(own) <= longest and "\n" not in text and "\r" not in text and (not split or is_sentence(text)):
            whole.append(SplitText(text, (text,), ((Piece(0, len(text), text),),), False))
            tokens.append(own)
            continue
        whole.append(split_text(text, tokenizer, longest, split, tags))
        again += whole[-1].texts
        tokens += [None] * len(whole[-1].texts)
    rest = iter(tokenizer.encode_batch(again))
    return whole, [next(rest) if own is None else own for own in tokens]


def split_text(text: str, tokenizer: Tokenizer, longest: int, split: bool, tags: Sequence[str]) -> SplitText:
    """Split a text into lines, and each line into pieces that a model takes, with the tag that holds for each."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    lines, parts = tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")), []
    tag, shorter, room = None, False, longest
    for line in lines:
        if tag is None and (tag := leading_tag(line, tags)) is not None:
            room = max(1, longest - count(tag))  # of a piece that the tag is put before
        if split:
            found = pieces(line, count, room)
        else:
            fitting = line if count(line) <= room else cut(line, count, room)
            shorter |= len(fitting) < len(line)
            found = [Piece(0, len(fitting), fitting)]
        tagged = list[Piece]()
        for piece in found:
            own = leading_tag(piece.text, tags)
            tag = own or tag
            if piece.text.strip() == own:  # nothing but a tag
                continue
            tagged.append(piece if tag == own or not piece.text else piece._replace(text=f"{tag} {piece.text}"))
        parts.append(tuple(tagged) or (Piece(0, 0, ""),))
    return SplitText("\n".join(lines), lines, tuple(parts), shorter)


def leading_tag(text: str, tags: Sequence[str]) -> str | None:
    """Return the tag that a text begins with, if it is one of these."""
    first = text.split(maxsplit=1)[:1] if tags else []
    return first[0] if first and first[0] in tags else None


def forget_tag(output: Translation) -> Translation:
    """Count the words of a source without the tag that was put before it."""
    if output.alignment is None:
        return output
    links = tuple((source - 1, target) for source, target in output.alignment if source > 0)
    return dataclasses.replace(output, alignment=links)


def is_sentence(text: str) -> bool:
    """Return whether a line is one sentence, with nothing before or after it."""
    found = sentences(text)
    return not found or (len(found) == 1 and found[0].text == text)
