"""Place tags in a translation: word links map the words inside a tag in the source to words of the translation.

An element gets one run of target words: the run with the most words linked to the element's own and the fewest linked
to others, inside its parent's run and apart from its siblings. An element around all words of its parent stays around
all of them. Without links the run is at the same relative position. A point (a picture, a comment, code that is not
translated) stays next to the same word.
"""

import html
import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

Link = tuple[int, int]
WORD = re.compile(r"\S+")
LEADING, TRAILING = re.compile(r"\A\W+"), re.compile(r"\W+\Z")
UNLINKED = -0.1  # score of a word without links: it can bridge a gap, but not lengthen a run


@dataclass(frozen=True)
class Element:
    """A start tag, its end tag, and what they contain: characters `first` to `last` of the source text."""

    start: str
    end: str
    first: int
    last: int
    children: "tuple[Node, ...]" = ()


@dataclass(frozen=True)
class Point:
    """Markup without words of its own, at a position in the source text, with the spaces before and after it."""

    raw: str
    at: int
    before: bool = False
    after: bool = False


Node = Element | Point


class Range(NamedTuple):
    """A span of characters in a text."""

    first: int
    last: int


def place_tags(source: str, target: str, links: Iterable[Link], nodes: Sequence[Node]) -> str:
    """Return a translation as markup, with the tags of its source; a link joins a source word and a target word."""
    return Placement(source, target, links).render(nodes, Range(0, len(source)), Range(0, len(target)))


class Words:
    """The words of a text, by their character spans."""

    def __init__(self, text: str):
        self.ranges = [Range(*word.span()) for word in WORD.finditer(text)]
        self.firsts, self.lasts = [word.first for word in self.ranges], [word.last for word in self.ranges]

    def __len__(self) -> int:
        return len(self.ranges)

    def of(self, characters: Range) -> range:
        """Return the words that overlap a span of characters."""
        if characters.first >= characters.last:
            return range(0)
        return range(bisect_right(self.lasts, characters.first), bisect_left(self.firsts, characters.last))


class Placement:
    """A text and its translation, split into words, with links between the words."""

    def __init__(self, source: str, target: str, links: Iterable[Link]):
        self.source, self.target = source, target
        self.source_words, self.target_words = Words(source), Words(target)
        self.sources: dict[int, set[int]] = defaultdict(set)  # of each target word
        self.targets: dict[int, set[int]] = defaultdict(set)  # of each source word
        for one, two in links:
            if 0 <= one < len(self.source_words) and 0 <= two < len(self.target_words):
                self.sources[two].add(one)
                self.targets[one].add(two)
        values = (-1.0 if number in self.sources else UNLINKED for number in range(len(self.target_words)))
        self.losses = [0.0, *accumulate(values)]  # cumulative scores of words that are not linked to an element

    # ---- rendering

    def render(self, nodes: Sequence[Node], own: Range, place: Range) -> str:
        """Return the characters `place` of the translation with these nodes; their parent spans `own` in the source."""
        siblings = Siblings(self, own, place)
        ranges = siblings.place([node for node in nodes if isinstance(node, Element)])
        rows = []
        for order, node in enumerate(nodes):
            if isinstance(node, Element):
                found = ranges[id(node)]
            else:
                at = siblings.leave(self.place_point(node, own, place))
                found = Range(at, at)
            rows.append((found, order, node))
        rows.sort(key=lambda row: (row[0].first, row[0].last > row[0].first, row[1]))
        parts, cursor = list[str](), place.first
        for (first, last), _, node in rows:
            if first > cursor:
                parts.append(html.escape(self.target[cursor:first]))
                cursor = first
            if isinstance(node, Element):
                part = Range(cursor, max(cursor, last))
                inner = self.render(node.children, Range(node.first, node.last), part)
                parts.append(node.start + inner + node.end)
                cursor = part.last
            else:
                # add the spaces around it in the source that the translation lacks here
                before = node.before and cursor > 0 and not self.target[cursor - 1].isspace()
                after = node.after and cursor < len(self.target) and not self.target[cursor].isspace()
                parts.append(f"{' ' * before}{node.raw}{' ' * after}")
        return "".join([*parts, html.escape(self.target[cursor : place.last])])

    def place_point(self, point: Point, own: Range, place: Range) -> int:
        """Return the position of a point in the translation."""
        if not self.source_words.of(Range(own.first, point.at)):
            return place.first
        if not self.source_words.of(Range(point.at, own.last)):
            return place.last
        word = bisect_left(self.source_words.firsts, point.at) - 1
        rest = self.source[point.at : self.source_words.lasts[word]]
        if point.before and not point.after and not rest and self.targets.get(word + 1):  # it belongs to the next word
            return clamp(self.target_words.firsts[min(self.targets[word + 1])], place)
        linked = self.targets.get(word)
        if not linked:
            return self.in_proportion(word + 1, place)
        first, last = self.target_words.ranges[max(linked)]
        if rest and not any(map(str.isalnum, rest)):  # before punctuation
            last = first + len(TRAILING.sub("", self.target[first:last]))
        return clamp(last, place)

    def in_proportion(self, word: int, place: Range) -> int:
        """Return the end of the target word at the same relative position as the first `word` source words."""
        number = round(word * len(self.target_words) / max(1, len(self.source_words)))
        return clamp(self.target_words.lasts[number - 1] if number > 0 else 0, place)


class Siblings:
    """The elements inside one parent, which share its target words."""

    def __init__(self, placement: Placement, own: Range, place: Range):
        self.placement, self.range = placement, place
        self.whole = placement.source_words.of(own)
        self.free = list(placement.target_words.of(place))  # target words
        self.taken: list[Range] = []

    def place(self, elements: Sequence[Element]) -> dict[int, Range]:
        """Find a span for each element, by its identity; those with the best-matching words come first."""
        own = {id(each): self.placement.source_words.of(Range(each.first, each.last)) for each in elements}
        scores = {key: self.best_run(words)[0] for key, words in own.items()}
        found = {}
        for element in sorted(elements, key=lambda each: -scores[id(each)]):
            found[id(element)] = self.place_one(element, own[id(element)])
            if found[id(element)].first < found[id(element)].last:
                insort(self.taken, found[id(element)])
        return found

    def place_one(self, element: Element, own: range) -> Range:
        """Find the span of an element, apart from its siblings."""
        part = self.part_of_word(element, own)
        if part is not None:
            return part
        run = self.best_run(own)[1]
        if not run:
            at = self.leave(self.placement.in_proportion(own.start, self.range))
            return Range(at, at)
        del self.free[bisect_left(self.free, run.start) : bisect_left(self.free, run.stop)]
        words = self.placement.target_words
        return self.trim(element, Range(words.firsts[run.start], words.lasts[run.stop - 1]))

    def best_run(self, own: range) -> tuple[float, range]:
        """Find the best run of free target words for some source words, and its score; empty without free words."""
        free, placement = self.free, self.placement
        if not free:
            return 0.0, range(0)
        if own == self.whole and free[-1] - free[0] + 1 == len(free):
            return float(len(free)), range(free[0], free[-1] + 1)
        best, run = 0.0, range(0)
        total, start, last = 0.0, 0, -1
        for word in sorted({each for one in own for each in placement.targets.get(one, ())}):
            at = bisect_left(free, word)
            if at == len(free) or free[at] != word:
                continue
            linked = placement.sources[word]
            gain = 2 * sum(each in own for each in linked) / len(linked) - 1
            between = placement.losses[word] - placement.losses[last + 1]
            joined = last >= 0 and at - bisect_left(free, last) == word - last and total + between > 0
            total, start = (total + between + gain, start) if joined else (gain, word)
            last = word
            if total > best or not run:
                best, run = total, range(start, word + 1)
        return (best, run) if run else (0.0, self.run_in_proportion(own))

    def run_in_proportion(self, own: range) -> range:
        """Return free words near the same relative position: a proportional number of them, at least one."""
        placement, free = self.placement, self.free
        share = len(placement.target_words) / max(1, len(placement.source_words))
        wanted, count = round(own.start * share), max(1, round(len(own) * share))
        at = bisect_left(free, wanted)
        if at == len(free) or (at > 0 and wanted - free[at - 1] < free[at] - wanted):
            at -= 1
        end = at + 1
        while end < len(free) and end - at < count and free[end] == free[end - 1] + 1:
            end += 1
        return range(free[at], free[end - 1] + 1)

    def trim(self, element: Element, found: Range) -> Range:
        """Exclude punctuation at the ends of a span if the element does not begin or end with any."""
        first, last = max(found.first, self.range.first), min(found.last, self.range.last)
        text, own = self.placement.target[first:last], self.placement.source[element.first : element.last]
        if not any(map(str.isalnum, text)):
            return Range(first, last)
        if own[:1].isalnum():
            first = last - len(LEADING.sub("", text))
        if own[-1:].isalnum():
            last -= len(text) - len(TRAILING.sub("", text))
        return Range(first, last)

    def part_of_word(self, element: Element, own: range) -> Range | None:
        """Find the same part of the same word, for an element around part of a word, as in H<sub>2</sub>O."""
        if len(own) != 1:
            return None
        placement = self.placement
        source, target = placement.source, placement.target
        first, last = placement.source_words.ranges[own.start]
        around = source[first : element.first] + source[element.last : last]
        if not any(map(str.isalnum, around)):
            return None
        for number in sorted(placement.targets.get(own.start, ())):
            there = placement.target_words.ranges[number]
            start = there.first + element.first - first
            part = Range(start, start + element.last - element.first)
            same = target[there.first : there.last] == source[first:last]
            at = bisect_left(self.taken, part)
            near = self.taken[max(0, at - 1) : at + 1]  # those that may overlap it
            apart = all(max(each.first, part.first) >= min(each.last, part.last) for each in near)
            if same and apart and self.range.first <= part.first and part.last <= self.range.last:
                if (at := bisect_left(self.free, number)) < len(self.free) and self.free[at] == number:
                    del self.free[at]
                return part
        return None

    def leave(self, at: int) -> int:
        """Move a position that is inside a sibling's span to the nearer end of that span."""
        number = bisect_left(self.taken, Range(at, at)) - 1
        if number >= 0 and self.taken[number].first < at < self.taken[number].last:
            first, last = self.taken[number]
            return first if at - first < last - at else last
        return at


def clamp(at: int, place: Range) -> int:
    """Clamp a position to a span."""
    return min(max(at, place.first), place.last)
