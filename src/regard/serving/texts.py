"""Texts of any length as sentences that a model takes, and the outputs of these as texts again.

The lines of a text are kept. Each is split into its sentences, and a sentence that is too long into pieces, as
`regard translate --split` does; without `split` a line that is too long is cut, and the answer says so.
"""

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
        each = [
            join_outputs(line, parts, list(islice(outputs, len(parts))), count, ranked)
            for line, parts in zip(self.lines, self.parts, strict=True)
        ]
        starts, start = [], 0
        for line in self.lines:
            starts.append(Piece(start, start + len(line), line))
            start += len(line) + 1
        return join_outputs(self.text, starts, each, count, ranked, between="\n")


def split_texts(
    texts: Sequence[str], tokenizer: Tokenizer, longest: int, split: bool
) -> tuple[list[SplitText], list[list[int]]]:
    """Split texts into what a model of this length takes; and the tokens of all pieces, in order."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    whole, ids, again = [], tokenizer.encode_batch(list(texts)), list[str]()
    tokens: list[list[int] | None] = []
    for text, own in zip(texts, ids, strict=True):
        if len(own) <= longest and "\n" not in text and "\r" not in text and (not split or is_sentence(text)):
            whole.append(SplitText(text, (text,), ((Piece(0, len(text), text),),), False))
            tokens.append(own)
            continue
        lines, parts, shorter = tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")), [], False
        for line in lines:
            if split:
                parts.append(tuple(pieces(line, count, longest)) or (Piece(0, 0, ""),))
                continue
            fitting = line if count(line) <= longest else cut(line, count, longest)
            shorter |= len(fitting) < len(line)
            parts.append((Piece(0, len(fitting), fitting),))
        whole.append(SplitText("\n".join(lines), lines, tuple(parts), shorter))
        again += whole[-1].texts
        tokens += [None] * len(whole[-1].texts)
    rest = iter(tokenizer.encode_batch(again))
    return whole, [next(rest) if own is None else own for own in tokens]


def is_sentence(text: str) -> bool:
    """Return whether a line is one sentence, with nothing before or after it."""
    found = sentences(text)
    return not found or (len(found) == 1 and found[0].text == text)
