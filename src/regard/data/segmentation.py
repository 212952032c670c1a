"""SentencePiece's two ways to cut a text into pieces, with its own choice where several cuts are equally good.

Unigram: the cut with the largest sum of scores. SentencePiece adds them up in single precision from the beginning of
the text, so that two cuts of a word with equal sums ("aa" "a" and "a" "aa") may rank one way or the other by what
stands before. BPE: the neighbours that make the piece with the best score are joined, the leftmost of equal ones
first; user-defined symbols are never joined, and pieces that are marked as unused are taken apart again. The
`tokenizers` library adds in double precision, and so ranks cuts of equal sums in another way; its BPE gave the same
pieces wherever it was compared, but knows neither of those two sorts of pieces.
"""

import array
import heapq
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

UNKNOWN_PENALTY = 10.0  # below the worst score: what a character without a piece costs
SINGLE = (1,)
ROUNDING = 2.0**-22  # of a sum in single precision, for each of two sums that are compared, and twice over


class Cut(NamedTuple):
    """A text in pieces."""

    pieces: list[str]
    scores: list[float]  # what each piece adds; empty where nothing depends on it
    margin: float  # by how much the choice was better than any other, at its closest
    reach: float  # the largest of the sums that were compared, without its sign


class Unigram:
    """The best sum of scores, found by Viterbi's algorithm (Kudo 2018, arXiv:1804.10959)."""

    def __init__(self, normal: Mapping[str, float], fixed: Mapping[str, float]):
        """Take the scores of learned pieces, and the pieces that are preferred wherever they stand."""
        # Those have no score of their own, but what SentencePiece 0.2.3 gives them by their bytes; 0.1 gave them less.
        self.unknown = single(min(normal.values(), default=0.0) - UNKNOWN_PENALTY)
        self.scores = {**normal, **{piece: single(0.1 * (len(piece.encode()) - 1)) for piece in fixed}}
        by_first: dict[str, set[int]] = {}
        for piece in self.scores:
            by_first.setdefault(piece[0], {1}).add(len(piece))
        self.lengths = {first: tuple(sorted(own)) for first, own in by_first.items()}

    def cut(self, text: str, start: float = 0.0, *, exact: bool = False) -> Cut:
        """Cut a text whose sum begins at `start`; with `exact`, sums are rounded to single precision."""
        scores, lengths, size, unknown = self.scores, self.lengths, len(text), self.unknown
        sums, begins, seconds = [-math.inf] * (size + 1), [-1] * (size + 1), [-math.inf] * (size + 1)
        sums[0], cell = start, array.array("f", [0.0])
        for begin in range(size):
            here = sums[begin]
            for length in lengths.get(text[begin], SINGLE):
                end = begin + length
                if end > size:
                    break
                score = scores.get(text[begin:end])
                if score is None:
                    if length > 1:
                        continue
                    score = unknown
                total = here + score
                if exact:
                    cell[0] = total
                    total = cell[0]
                if total > sums[end]:
                    seconds[end], sums[end], begins[end] = sums[end], total, begin
                elif total > seconds[end]:
                    seconds[end] = total
        pieces, margin, end = list[str](), math.inf, size
        while end > 0:
            margin = min(margin, sums[end] - seconds[end])
            pieces.append(text[begins[end] : end])
            end = begins[end]
        pieces.reverse()
        reach = max(max(sums), -min(sums))
        return Cut(pieces, [scores.get(piece, unknown) for piece in pieces], margin, reach)

    def is_sure(self, cut: Cut, length: int, start: float) -> bool:
        """Return whether a cut of `length` characters is the same in single precision, after a sum of `start`."""
        return cut.margin > ROUNDING * (length + 1) * (abs(start) + cut.reach)

    def add(self, start: float, scores: Sequence[float]) -> float:
        """Add the scores of a word to a sum as SentencePiece does."""
        cell = array.array("f", [start])
        for score in scores:
            cell[0] += score
        return cell[0]


class Bpe:
    """Byte pair encoding with scores for ranks (Sennrich et al. 2016, arXiv:1508.07909)."""

    def __init__(self, normal: Mapping[str, float], fixed: Mapping[str, float], unused: Mapping[str, float]):
        """Take learned pieces, those that are never joined with others, and those that are taken apart again."""
        self.scores = {**normal, **fixed, **unused}
        self.unused = frozenset(unused)
        longest_first = sorted(fixed, key=len, reverse=True)
        pattern = "|".join([*map(re.escape, longest_first), "."])
        self.symbols = re.compile(pattern, re.DOTALL) if fixed else None
        self.fixed = frozenset(fixed)

    def cut(self, text: str) -> Cut:
        """Cut a text: join neighbours, best first, until nothing can be joined."""
        symbols = list(text) if self.symbols is None else self.symbols.findall(text)
        scores, fixed, unused = self.scores, self.fixed, self.unused
        before, after = list(range(-1, len(symbols) - 1)), [*range(1, len(symbols)), -1]
        parts: dict[str, tuple[str, str]] = {}
        agenda: list[tuple[float, int, int, str]] = []

        def offer(left: int, right: int) -> None:
            if left < 0 or right < 0 or symbols[left] in fixed or symbols[right] in fixed:
                return
            piece = symbols[left] + symbols[right]
            score = scores.get(piece)
            if score is not None:
                heapq.heappush(agenda, (-score, left, right, piece))
                if piece in unused:
                    parts[piece] = symbols[left], symbols[right]

        for right in range(1, len(symbols)):
            offer(right - 1, right)
        while agenda:
            _, left, right, piece = heapq.heappop(agenda)
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(piece):
                continue
            symbols[left], symbols[right] = piece, ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            offer(before[left], left)
            offer(left, after[left])
        pieces, waiting = list[str](), [symbol for symbol in reversed(symbols) if symbol]
        while waiting:
            piece = waiting.pop()
            if piece in parts:
                waiting += reversed(parts[piece])
            else:
                pieces.append(piece)
        return Cut(pieces, [], math.inf, 0.0)


def single(value: float) -> float:
    """Round to single precision."""
    return array.array("f", [value])[0]
