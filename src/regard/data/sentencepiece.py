"""SentencePiece's models, read from tokenizer.json and run without the `sentencepiece` package: the same ids and texts.

Such a file has two parts that need not agree. `model` is the numbering: an id for every piece that can be written.
`regard.sentencepiece` is the segmentation: how a text is normalised and cut into pieces. Two models over one numbering
(as in Marian's folders) are two files with the same `model`. A piece that is chosen but has no number is unknown.
Characters that no piece of the segmentation spells are one piece for each run of them, as SentencePiece gives them out,
and are looked up by their text as any piece is: the numbering may know what this side's segmentation does not.

Where several cuts are equally good, the choice is SentencePiece's own. Unigram: the cut with the largest sum of scores.
SentencePiece adds them up in single precision from the beginning of the text, so that two cuts of a word with equal
sums ("aa" "a" and "a" "aa") may rank one way or the other by what stands before. BPE: the neighbours that make the
piece with the best score are joined, the leftmost of equal ones first; user-defined symbols are never joined, and
pieces that are marked as unused are taken apart again. The `tokenizers` library adds in double precision, and so ranks
cuts of equal sums in another way; its BPE gave the same pieces wherever it was compared, but knows neither of those two
sorts of pieces.

Words are cut one by one and remembered where nothing in them depends on their neighbours.
"""

import array
import base64
import codecs
import heapq
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.data.charsmap import Charsmap
from regard.data.pre_tokenizer import MARK, AddedWords

UNKNOWN = 3  # as in `regard.data.tokenizer`, which reads this
SHORT = 100  # characters of words that are remembered
USUAL = 1000  # characters of a text in which a sure word is always cut the same way
GROWTH = 4  # times longer that the word may become
BYTE = re.compile("<0x([0-9A-F]{2})>")
UNITS = re.compile(f"{MARK}*[^{MARK}]+|{MARK}+")
CODE = re.compile(">>.*?<<", re.DOTALL)
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


class Word(NamedTuple):
    """A word in pieces: its normalised text, its ids (`spell_unknown` where no piece fits), and how it was cut."""

    text: str
    ids: list[int]
    cut: Cut


class SentencePiece:
    """A segmentation and a numbering of its pieces."""

    def __init__(
        self,
        section: Mapping[str, Any],
        vocabulary: Mapping[str, int],
        tags: Mapping[str, int],
        words: Mapping[str, int] | None = None,
    ):
        """Take `regard.sentencepiece` of a tokenizer.json, and the ids of all pieces.

        `tags` stand alone, `words` were added, and are found where nothing but punctuation follows them.
        """
        normal, fixed, unused = (in_single_precision(section[key]) for key in ("pieces", "fixed", "unused"))
        self.kind: str = section["kind"]
        self.model = Unigram(normal, fixed) if self.kind == "unigram" else Bpe(normal, fixed, unused)
        self.charsmap = Charsmap(base64.b64decode(section["charsmap"]), fixed)
        self.prefix, self.suffix = section["prefix"], section["suffix"]
        self.squeeze: bool = section["squeeze"]
        self.mark = MARK if section["escape"] else " "
        choices = [*normal, *fixed]
        self.numbers = {piece: max(vocabulary.get(piece, UNKNOWN), UNKNOWN) for piece in choices}
        self.bytes = [vocabulary.get(f"<0x{byte:02X}>", UNKNOWN) for byte in range(256)] if section["bytes"] else None
        silent = {*section["control"], *unused, *tags, *(words or ())}
        self.others = {piece: i for piece, i in vocabulary.items() if i > UNKNOWN and piece not in silent}
        self.leading: bool = section["leading"]
        self.tag_ids = dict(tags)
        anywhere = [tag for tag in tags if not (self.leading and CODE.fullmatch(tag))]
        longest_first = "|".join(map(re.escape, sorted(anywhere, key=len, reverse=True)))
        self.tags = re.compile(f"({longest_first})") if anywhere else None
        # A piece begins a word or stands inside of one: words can be cut one by one.
        inside = re.compile(f"[^{MARK}]{MARK}")
        apart = self.mark == MARK and not self.suffix and not any(map(inside.search, [*choices, *unused]))
        self.apart = apart and (self.kind == "unigram" or not unused)
        spaced = any(" " in piece for piece in fixed)
        self.separable = self.apart and self.prefix and self.squeeze and not spaced and self.charsmap.space[1] is None
        self.sure: dict[str, list[int]] = {}
        self.words: dict[str, Word | None] = {}  # None: what stands around it matters
        self.units: dict[str, Word] = {}  # normalised, with marks
        self.surface = self.read_surfaces(section, vocabulary)
        self.added = AddedWords(words, self.cut_rest) if words else None
        self.added_ids: dict[str, list[int] | None] = {}  # of words as they stand in a text; None: without one of them

    # ---- text to ids

    def normalise(self, text: str) -> str:
        """Return the text that the ids of a text stand for, where nothing is unknown."""
        parts = [(tag, self.tidy(part)) for tag, part in self.split_tags(text)]
        if len(parts) == 1:
            return parts[0][1]
        return " ".join(filter(None, (part.strip(" ") if tag is None else tag for tag, part in parts)))

    def tidy(self, text: str) -> str:
        """Normalise a text without tags, as it is read back."""
        text = self.normalise_marked(text)
        text = text.lstrip(MARK) if self.squeeze else text.removeprefix(MARK) if self.prefix else text
        return text.replace(MARK, " ")

    def normalise_marked(self, text: str) -> str:
        """Normalise a text as SentencePiece cuts it, with marks for spaces."""
        return self.join(self.charsmap.apply(text)[0])

    def join(self, parts: Sequence[str]) -> str:
        """Join the parts of a normalised text: one space in a row, none at the ends, and a mark at the beginning."""
        squeeze, mark, first = self.squeeze, self.mark, 0
        while squeeze and first < len(parts) and parts[first] == " ":
            first += 1
        if first == len(parts):
            return ""
        text, after_space = list[str](), squeeze
        for part in parts[first:]:
            rest = part.lstrip(" ") if after_space else part
            if rest:
                text.append(rest)
                after_space = squeeze and rest.endswith(" ")
        whole = "".join([mark if self.prefix and not self.suffix else "", *text]).replace(" ", mark)
        if squeeze:
            whole = whole.rstrip(mark)
        return whole + mark if self.prefix and self.suffix else whole

    def split_tags(self, text: str) -> Iterator[tuple[str | None, str]]:
        """Yield the parts of a text between tags, and the tags: (None, part) or (tag, "")."""
        if self.leading and (code := CODE.match(text)) is not None:
            yield code[0], ""
            text = text[code.end() :]
        if self.tags is not None:
            for i, part in enumerate(self.tags.split(text)):
                yield (part, "") if i % 2 else (None, part)
        else:
            yield None, text

    def encode(self, text: str, remembered: int) -> list[int]:
        """Encode a text as ids; at most `remembered` words are kept."""
        if not self.leading and self.tags is None:
            return self.encode_part(text, remembered)
        ids: list[int] = []
        for tag, part in self.split_tags(text):
            ids += self.encode_part(part, remembered) if tag is None else [self.tag_ids.get(tag, UNKNOWN)]
        return ids

    def encode_part(self, text: str, remembered: int) -> list[int]:
        """Encode a text without tags: added words first, then what stands between them."""
        if self.added is None:
            return self.encode_plain(text, remembered)
        ids, between = list[int](), list[str]()
        for word in text.split(" "):
            own = self.find_added(word, remembered)
            if own is None:
                between.append(word)
            else:
                ids += [*self.encode_plain(" ".join(between), remembered), *own]
                between = []
        return ids + self.encode_plain(" ".join(between), remembered)

    def find_added(self, text: str, remembered: int) -> list[int] | None:
        """Encode a word that begins with an added one; None for others, and where what is around them matters."""
        if text in self.added_ids:
            return self.added_ids[text]
        assert self.added is not None
        parts, open_ended = self.charsmap.apply(text)
        dependent = open_ended or any(MARK in part or " " in part for part in parts) or self.charsmap.joins_space(text)
        ids = None if dependent else self.added.encode("".join(parts))
        if len(self.added_ids) >= remembered:  # another thread may still read the old ones
            self.added_ids = {}
        if len(text) <= SHORT:
            self.added_ids[text] = ids
        return ids

    def cut_rest(self, text: str) -> list[int]:
        """Cut what follows an added word: normalised, and without a mark."""
        return self.merge_unknown(self.cut_unit(text).ids)

    def encode_plain(self, text: str, remembered: int) -> list[int]:
        """Encode a text in which nothing was added."""
        if not self.separable:
            return self.merge_unknown(self.cut_units(text, remembered))
        split, sure = text.split(" "), self.sure
        if len(text) <= USUAL and all(word in sure for word in split):
            ids = [i for word in split for i in sure[word]]
        else:
            ids = self.cut_words(split, remembered)
        return self.merge_unknown(ids)

    def cut_words(self, split: Sequence[str], remembered: int) -> list[int]:
        """Cut words that are not all known, or not all surely cut in the same way wherever they stand."""
        words = self.words
        if len(words) + len(split) > remembered:  # another thread may still read the old ones
            words = self.words = {}
            self.sure = {}
        row: list[Word] = []
        for text in split:
            word = words[text] if text in words else self.look_up(text)
            if word is None:
                return self.cut_units(" ".join(split), remembered)
            row.append(word)
        return self.number_in_order(row)

    def look_up(self, text: str) -> Word | None:
        """Cut a word and remember it; None where its pieces depend on what is around it."""
        parts, open_ended = self.charsmap.apply(text)
        dependent = open_ended or any(MARK in part for part in parts) or self.charsmap.joins_space(text)
        word = None if dependent else self.cut_unit(self.join(parts))
        if len(text) > SHORT:
            return word
        self.words[text] = word
        if word is not None and len(word.text) <= GROWTH * len(text) + 1 and self.is_sure(word):
            self.sure[text] = word.ids
        return word

    def is_sure(self, word: Word) -> bool:
        """Return whether a word has the same pieces in every text of a usual length."""
        if isinstance(self.model, Bpe):
            return True
        lowest = USUAL * (GROWTH + 1) * abs(self.model.unknown)  # if nothing before it had a piece
        return self.model.is_sure(word.cut, len(word.text), lowest)

    def cut_units(self, text: str, remembered: int) -> list[int]:
        """Cut a text as a whole, or mark by mark where no piece reaches over one."""
        text, units = self.normalise_marked(text), self.units
        row: list[Word] = []
        for unit in UNITS.findall(text) if self.apart else [text]:
            word = units.get(unit)
            if word is None:
                word = self.cut_unit(unit)
                if len(unit) <= SHORT:
                    if len(units) >= remembered:
                        units = self.units = {}
                    units[unit] = word
            row.append(word)
        return self.number_in_order(row)

    def cut_unit(self, text: str) -> Word:
        """Cut a normalised text, regardless of what is around it."""
        cut = self.model.cut(text)
        return Word(text, self.number(cut.pieces), cut)

    def number_in_order(self, words: Sequence[Word]) -> list[int]:
        """Return the ids of words in a row; where a cut is close, the sum of scores up to it decides."""
        unigram = self.model
        if isinstance(unigram, Bpe):
            return [i for word in words for i in word.ids]
        ids, total, waiting, reach = list[int](), 0.0, list[float](), 0.0
        for word in words:
            cut = word.cut
            if unigram.is_sure(cut, len(word.text), reach):
                ids += word.ids
                waiting += cut.scores
            else:
                total = unigram.add(total, waiting)
                cut = unigram.cut(word.text, total, exact=True)
                ids += self.number(cut.pieces)
                waiting = list(cut.scores)
            reach += sum(map(abs, cut.scores))
        return ids

    def number(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of pieces: bytes for a character without one, or a negative number that spells it."""
        ids: list[int] = []
        for piece in pieces:
            i = self.numbers.get(piece)
            if i is not None:
                ids.append(i)
            elif self.bytes is not None:
                ids += [self.bytes[byte] for byte in piece.encode()]
            else:
                ids += map(spell_unknown, piece)
        return ids

    def merge_unknown(self, ids: Sequence[int]) -> list[int]:
        """Make every run of characters without a piece one piece: what the numbering calls by that text, or unknown."""
        if not ids or min(ids) >= 0:
            return [*ids]
        merged, run = list[int](), list[str]()
        for i in (*ids, UNKNOWN):
            if i < 0:
                run.append(chr(-1 - i))
                continue
            if run:
                merged.append(self.others.get("".join(run), UNKNOWN))
                run = []
            merged.append(i)
        return merged[:-1]

    # ---- ids to text

    def read_surfaces(self, section: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[int, str | int]:
        """Return what each id is written as: a text, or the value of a byte."""
        invisible = {*section["control"]}
        surface: dict[int, str | int] = {}
        for piece, i in vocabulary.items():
            byte = BYTE.fullmatch(piece) if self.bytes is not None else None
            surface[i] = "" if piece in invisible else piece if byte is None else int(byte[1], 16)
        surface[UNKNOWN] = section["unknown"]
        return surface

    def decode(self, ids: Sequence[int]) -> str:
        """Write ids as text: marks as spaces, bytes joined, without the mark that was put at the beginning."""
        text: list[str] = []
        pending = bytearray()
        beginning = self.prefix or self.squeeze
        for i in ids:
            piece = self.surface.get(i, "")
            if isinstance(piece, int):
                pending.append(piece)
                continue
            if pending:
                text.append(pending.decode(errors="regard.each_byte"))
                pending.clear()
                beginning = False
            if beginning and i != UNKNOWN and piece.startswith(MARK):
                piece = piece[len(MARK) :]
                beginning = self.squeeze  # then marks at the beginning never stand for spaces of the text
            if piece:
                beginning = False
                text.append(piece.replace(MARK, " "))
        text.append(pending.decode(errors="regard.each_byte"))
        return "".join(text)


def in_single_precision(scores: Mapping[str, float]) -> dict[str, float]:
    """Round scores as SentencePiece keeps them."""
    return dict(zip(scores, np.array([*scores.values()], np.float32).tolist(), strict=True))


def spell_unknown(character: str) -> int:
    """Return the negative number of a character that no piece spells."""
    return -1 - ord(character)


def replace_byte(error: UnicodeError) -> tuple[str, int]:
    """Replace one byte that is no text, and go on behind it."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + 1


codecs.register_error("regard.each_byte", replace_byte)
