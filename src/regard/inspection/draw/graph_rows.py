"""Items in rows, joined by links from one row to the next: their order, with few crossings, and their places.

Sugiyama, Tagawa and Toda 1981, "Methods for visual understanding of hierarchical system structures".
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

NEAR = 20.0  # between boxes of a row
LANE = 14.0  # around an edge that passes a row
SWEEPS = 12


class Ports(Protocol):
    """The places where edges enter a frame along its bottom and leave it along its top, by their source."""

    entries: dict[str, float]
    exits: dict[str, float]


@dataclass
class Item:
    """An item of a row: a box, a frame, or a place where an edge passes."""

    key: str
    width: float
    height: float
    rank: int = 0
    x: float = 0.0  # of its left side
    inner: Ports | None = None  # of a frame
    lane: bool = False

    def entry(self, source: str) -> float:
        """Where an edge from a source arrives, from the left side."""
        return self.width / 2 if self.inner is None else self.inner.entries[source]

    def exit(self, source: str) -> float:
        """Where an edge from a source leaves."""
        return self.width / 2 if self.inner is None else self.inner.exits[source]


@dataclass(frozen=True)
class Link:
    """An edge between items of neighbouring rows."""

    source: str  # the box that the numbers come from
    lower: Item
    upper: Item


class Rows:
    """Items in their rows, from the bottom up; those that `keeps_left` names stand before the others."""

    def __init__(self, items: Sequence[Item], links: Sequence[Link], keeps_left: Callable[[Item], bool]):
        self.links, self.keeps_left = links, keeps_left
        self.weights: dict[int, float] = {}  # of links: how much each wants to be upright
        rows: list[list[Item]] = [[] for _ in range(max(item.rank for item in items) + 1)]
        for item in items:
            rows[item.rank].append(item)
        for row in rows:
            row.sort(key=lambda item: not keeps_left(item))
        self.rows = self.order(rows)

    def order(self, rows: list[list[Item]]) -> list[list[Item]]:
        """Order each row: of those tried, the order with the fewest crossings."""
        top = len(rows) - 1
        best, fewest = [list(row) for row in rows], self.crossings(rows)
        for sweep in range(SWEEPS):
            upward = sweep % 2 == 0
            for rank in range(1, top + 1) if upward else range(top - 1, -1, -1):
                self.sort_row(rows, rank, upward)
            count = self.crossings(rows)
            if count < fewest:
                best, fewest = [list(row) for row in rows], count
        return self.swap_neighbours(best, fewest)

    def swap_neighbours(self, rows: list[list[Item]], fewest: int) -> list[list[Item]]:
        """Swap neighbours for as long as that takes crossings away."""
        better = fewest > 0
        while better:
            better = False
            for row in rows:
                for number in range(len(row) - 1):
                    row[number], row[number + 1] = row[number + 1], row[number]
                    count = self.crossings(rows)
                    if count < fewest:
                        fewest, better = count, True
                    else:
                        row[number], row[number + 1] = row[number + 1], row[number]
        return rows

    def sort_row(self, rows: list[list[Item]], rank: int, upward: bool) -> None:
        """Put each item of a row where the mean of its neighbours is, in the row below or above."""
        place = positions(rows[rank - 1 if upward else rank + 1])

        def wish(item: Item) -> float:
            near = []
            for link in self.links:
                mine, other = (link.upper, link.lower) if upward else (link.lower, link.upper)
                if mine is item:
                    port = (other.exit if upward else other.entry)(link.source) if not other.lane else 0.0
                    near.append(place[other.key] + (port / other.width if other.width else 0.5))
            return sum(near) / len(near) if near else place_in(rows[rank], item)

        wishes = {item.key: wish(item) for item in rows[rank]}
        for item in rows[rank]:
            if self.keeps_left(item):
                wishes[item.key] = -1.0
        rows[rank].sort(key=lambda item: wishes[item.key])

    def crossings(self, rows: list[list[Item]]) -> int:
        """How often edges cross."""
        place = {key: number for row in rows for key, number in positions(row).items()}
        count = 0
        by_rank: dict[int, list[tuple[float, float]]] = {}
        for link in self.links:
            low = place[link.lower.key] + share(link.lower, link.lower.exit, link.source)
            high = place[link.upper.key] + share(link.upper, link.upper.entry, link.source)
            by_rank.setdefault(link.lower.rank, []).append((low, high))
        for pairs in by_rank.values():
            for number, (low, high) in enumerate(pairs):
                count += sum((low - a) * (high - b) < 0 for a, b in pairs[:number])
        # An edge that comes in from the left would pass what stands there.
        lanes = [[number for number, item in enumerate(row) if self.keeps_left(item)] for row in rows]
        return count + sum(100 * (sum(each) - sum(range(len(each)))) for each in lanes)

    def place(self) -> None:
        """Place the items of each row near to those that they are joined with, in their order, without touching."""
        rows = self.rows
        for row in rows:
            x = 0.0
            for item in row:
                item.x = x
                x += item.width + NEAR
        below, above = Counter(id(each.upper) for each in self.links), Counter(id(each.lower) for each in self.links)
        for link in self.links:
            alone = below[id(link.upper)] == 1 and above[id(link.lower)] == 1  # a chain stands upright
            lanes = link.lower.lane + link.upper.lane
            self.weights[id(link)] = 8.0 if lanes == 2 or (alone and not lanes) else 1.0
        for sweep in range(4 * SWEEPS):
            upward = sweep % 2 == 0
            for rank in range(len(rows)) if upward else range(len(rows) - 1, -1, -1):
                wishes, weights = [], []
                for item in rows[rank]:
                    near = self.wishes(item, upward, both=sweep >= 2 * SWEEPS)
                    total = sum(weight for _, weight in near)
                    wishes.append(sum(x * weight for x, weight in near) / total if total else item.x)
                    weights.append(max(total, 0.1))
                for item, x in zip(rows[rank], spread(rows[rank], wishes, weights), strict=True):
                    item.x = x

    def wishes(self, item: Item, upward: bool, both: bool) -> list[tuple[float, float]]:
        """Where an item would stand for each of its edges to be upright, and how much that counts."""
        near = []
        for link in self.links:
            weight = self.weights[id(link)]
            if link.upper is item and (upward or both):
                at = link.lower.x + port(link.lower, link.lower.exit, link.source)
                near.append((at - port(item, item.entry, link.source), weight))
            if link.lower is item and (not upward or both):
                at = link.upper.x + port(link.upper, link.upper.entry, link.source)
                near.append((at - port(item, item.exit, link.source), weight))
        return near


def port(item: Item, side: Callable[[str], float], source: str) -> float:
    """Where an edge meets an item, from its left side."""
    return 0.0 if item.lane else side(source)


def share(item: Item, side: Callable[[str], float], source: str) -> float:
    """Where an edge meets an item, as a share of the item's width."""
    return 0.5 if item.lane or not item.width else side(source) / item.width


def positions(row: Sequence[Item]) -> dict[str, float]:
    """Each item's number in its row."""
    return {item.key: float(number) for number, item in enumerate(row)}


def place_in(row: Sequence[Item], item: Item) -> float:
    """The number of an item in its row."""
    return float(next(number for number, each in enumerate(row) if each is item))


def spread(row: Sequence[Item], wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The places nearest to what is wished, in order and apart: least squares, by pooling neighbours that collide."""
    offsets, total = [], 0.0
    for number, item in enumerate(row):
        offsets.append(total)
        following = row[number + 1] if number + 1 < len(row) else None
        total += item.width + (LANE if item.lane or (following is not None and following.lane) else NEAR)
    pools: list[tuple[float, float, int]] = []  # the mean, the weight, how many
    for wish, offset, weight in zip(wishes, offsets, weights, strict=True):
        pools.append((wish - offset, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, heavy, count), (last, light, more) = pools[-2:]
            pools[-2:] = [((mean * heavy + last * light) / (heavy + light), heavy + light, count + more)]
    means: Iterable[float] = (mean for mean, _, count in pools for _ in range(count))
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
