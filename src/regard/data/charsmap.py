"""SentencePiece's table of characters: at every place the longest rule is applied, and the walk goes on behind it.

The table is a double array over UTF-8 (Aoe 1989, in the form of darts-clone), behind four bytes with its length and in
front of the texts that are put in. The `tokenizers` library reads the same table cluster by cluster, and drops a
combining mark or a joiner where a rule covers only a part of a cluster; SentencePiece knows no clusters.
"""

import array
import functools
import re
import sys
from collections.abc import Collection

from regard.errors import DataError

LEAF, LABEL = 1 << 8, 1 << 31 | 0xFF
CACHED = 20_000  # characters whose place in the table is kept
NEVER = re.compile("(?!)")
RUNS = re.compile(" |[^ ]+")

Place = tuple[int, str | None]  # where the rules go on, or -1; and what the character itself becomes


class Charsmap:
    """The rules of a table, and pieces that are left as they are wherever they stand."""

    def __init__(self, table: bytes, fixed: Collection[str] = ()):
        """Read a table (empty: no rules); `fixed` are texts that no rule touches."""
        length = int.from_bytes(table[:4], "little")
        if table and (length % 4 or not 4 <= length < len(table) - 3):
            raise DataError("its table of characters is damaged")
        self.units = array.array("I")
        self.units.frombytes(table[4 : 4 + length])
        if sys.byteorder == "big":
            self.units.byteswap()
        self.texts = table[4 + length :]
        self.places: dict[str, Place] = {}
        self.root = offset(self.units[0]) if self.units else -1
        self.space = self.step(self.root, " ")
        longest_first = sorted(fixed, key=len, reverse=True)
        self.fixed = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self.firsts = {text[0] for text in fixed}

    @functools.cached_property
    def plain(self) -> re.Pattern[str] | None:
        """A pattern of text that stays as it is: ASCII without rules, and nothing behind it that could join."""
        if self.root < 0 and not self.firsts:
            return None
        free, units, last = [], self.units, len(self.units)
        for character in map(chr, range(0x21, 0x7F)):
            node, text = self.step(self.root, character)
            after = (node ^ byte for byte in range(0x20, 0x7F)) if node >= 0 else ()
            if any(child < last and units[child] & LABEL == child ^ node for child in after):
                return NEVER
            if text is None and character not in self.firsts:
                free.append(re.escape(character))
        return re.compile(f"[{''.join(free)}]+(?![^ -~])") if free else NEVER

    def step(self, node: int, character: str) -> Place:
        """Follow a character from a node: where the rules go on, and what the text up to here becomes."""
        units, leaf, last = self.units, False, len(self.units)
        if node < 0:
            return -1, None
        for byte in character.encode():
            node ^= byte
            if node >= last or units[node] & LABEL != byte:
                return -1, None
            leaf = bool(units[node] & LEAF)
            node ^= offset(units[node])
        if not leaf:
            return node, None
        start = units[node] & 0x7FFFFFFF if node < last else 0
        end = self.texts.find(b"\0", start)
        return node, self.texts[start : end if end >= 0 else len(self.texts)].decode(errors="replace")

    def apply(self, text: str) -> tuple[list[str], bool]:
        """Return the parts that a text becomes, and whether a rule could go on behind it in a space."""
        if self.plain is None:
            return RUNS.findall(text), False
        parts: list[str] = []
        at, end, open_ended = 0, len(text), False
        places, plain, fixed = self.places, self.plain, self.fixed
        if len(places) > CACHED:
            places.clear()
        while at < end:
            match = plain.match(text, at) or (fixed.match(text, at) if fixed is not None else None)
            if match is not None:
                parts.append(match[0])
                at = match.end()
                continue
            character = text[at]
            place = places.get(character)
            if place is None:
                place = places[character] = self.step(self.root, character)
            node, new = place
            after = at = at + 1
            while node >= 0:
                if after == end:
                    open_ended = open_ended or self.step(node, " ") != (-1, None)
                    break
                node, longer = self.step(node, text[after])
                after += 1
                if longer is not None:
                    at, new = after, longer
            parts.append(character if new is None else new)
        return parts, open_ended

    def joins_space(self, word: str) -> bool:
        """Return whether a rule takes the space in front of a word together with its beginning, or may do so."""
        node, new = self.space
        if new is not None and new != " ":
            return True
        for character in word:
            if node < 0:
                return False
            node, new = self.step(node, character)
            if new is not None:
                return True
        return node >= 0


def offset(unit: int) -> int:
    """Return how far a unit's children are from it."""
    return unit >> 10 << ((unit & 1 << 9) >> 6)
