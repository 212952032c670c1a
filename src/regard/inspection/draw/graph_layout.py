"""Layout of a graph's boxes: in rows from the bottom up, as in the papers, with frames around layers.

The algorithm (Sugiyama, Tagawa and Toda 1981) lays out each frame separately: it assigns boxes to rows by the longest
path, orders each row to reduce crossings, and then moves boxes as close as possible to their neighbours. In the frame
around it, a frame counts as one box. Edges bend only in the gaps between rows and pass rows in lanes, so that no edge
crosses a box.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from regard.inspection.collect.exhibit import Graph, GraphGroup

NEAR = 20.0  # distance between boxes of a row
LANE = 14.0  # distance between an edge that passes a row and its neighbours
SWEEPS = 12
GAP = 19.0  # distance between rows
INSIDE = 14.0  # margin inside a frame
HEAD = 22.0  # height of a frame's heading
GUTTER = 30.0  # distance between encoder and decoder
NEARLY = 16.0  # an edge whose ends are less far apart horizontally can be drawn vertically

Point = tuple[float, float]


@dataclass(eq=False)
class Item:
    """An item of a row, positioned by its upper left corner: a box, a frame, or a lane that an edge passes through."""

    key: str
    width: float
    height: float
    rank: int = 0
    x: float = 0.0
    y: float = 0.0
    inner: "Layout | None" = None  # the layout inside a frame
    lane: bool = False

    def entry(self, source: str) -> float:
        """Return the horizontal offset from the item's left side at which an edge from `source` arrives."""
        return self.width / 2 if self.inner is None else self.inner.entries[source]

    def exit(self, source: str) -> float:
        """Return the horizontal offset from the item's left side at which an edge from `source` leaves."""
        return self.width / 2 if self.inner is None else self.inner.exits[source]


@dataclass(frozen=True)
class Link:
    """An edge between items of neighbouring rows."""

    source: str  # the box at which the edge begins
    lower: Item
    upper: Item


class Rows:
    """Items arranged in rows from the bottom up; items for which `keeps_left` is true come first in their row."""

    def __init__(self, items: Sequence[Item], links: Sequence[Link], keeps_left: Callable[[Item], bool]):
        self.links, self.keeps_left = links, keeps_left
        self.weights: dict[Link, float] = {}  # how important it is that a link is vertical
        rows: list[list[Item]] = [[] for _ in range(max(item.rank for item in items) + 1)]
        for item in items:
            rows[item.rank].append(item)
        for row in rows:
            row.sort(key=lambda item: not keeps_left(item))
        self.rows = self.order(rows)

    def order(self, rows: list[list[Item]]) -> list[list[Item]]:
        """Order each row by repeated sweeps; return the order with the fewest crossings."""
        top = len(rows) - 1
        best, fewest = [list(row) for row in rows], self.crossings(rows)
        for sweep in range(SWEEPS):
            upward = sweep % 2 == 0
            for rank in range(1, top + 1) if upward else range(top - 1, -1, -1):
                self.sort_row(rows, rank, upward)
            count = self.crossings(rows)
            if count < fewest:
                best, fewest = [list(row) for row in rows], count
        return best

    def sort_row(self, rows: list[list[Item]], rank: int, upward: bool) -> None:
        """Sort a row by the mean position of each item's neighbours in the row below (`upward`) or above."""
        place = positions(rows[rank - 1 if upward else rank + 1])

        def wish(item: Item) -> float:
            near = []
            for link in self.links:
                mine, other = (link.upper, link.lower) if upward else (link.lower, link.upper)
                if mine is item:
                    along = (other.exit if upward else other.entry)(link.source)
                    near.append(place[other.key] + share(other, along))
            return sum(near) / len(near) if near else positions(rows[rank])[item.key]

        wishes = {item.key: wish(item) for item in rows[rank]}
        for item in rows[rank]:
            if self.keeps_left(item):
                wishes[item.key] = -1.0
        rows[rank].sort(key=lambda item: wishes[item.key])

    def crossings(self, rows: list[list[Item]]) -> int:
        """Count the crossings of edges, with a penalty for items that are out of place at the left."""
        place = {key: number for row in rows for key, number in positions(row).items()}
        count = 0
        by_rank: dict[int, list[tuple[float, float]]] = {}
        for link in self.links:
            low = place[link.lower.key] + share(link.lower, link.lower.exit(link.source))
            high = place[link.upper.key] + share(link.upper, link.upper.entry(link.source))
            by_rank.setdefault(link.lower.rank, []).append((low, high))
        for pairs in by_rank.values():
            for number, (low, high) in enumerate(pairs):
                count += sum((low - a) * (high - b) < 0 for a, b in pairs[:number])
        # An edge that enters from the left would cross items to the left of its lane.
        lanes = [[number for number, item in enumerate(row) if self.keeps_left(item)] for row in rows]
        return count + sum(100 * (sum(each) - sum(range(len(each)))) for each in lanes)

    def place(self) -> None:
        """Move the items of each row close to their neighbours, in order and without overlap."""
        rows = self.rows
        for row in rows:
            x = 0.0
            for item in row:
                item.x = x
                x += item.width + NEAR
        below, above = Counter(each.upper for each in self.links), Counter(each.lower for each in self.links)
        for link in self.links:
            alone = below[link.upper] == 1 and above[link.lower] == 1  # chains should be vertical
            lanes = link.lower.lane + link.upper.lane
            self.weights[link] = 8.0 if lanes == 2 or (alone and not lanes) else 1.0
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
        """List for each edge of an item the x coordinate that makes the edge vertical, with the edge's weight."""
        near = []
        for link in self.links:
            weight = self.weights[link]
            if link.upper is item and (upward or both):
                at = link.lower.x + link.lower.exit(link.source)
                near.append((at - item.entry(link.source), weight))
            if link.lower is item and (not upward or both):
                at = link.upper.x + link.upper.entry(link.source)
                near.append((at - item.exit(link.source), weight))
        return near


def share(item: Item, along: float) -> float:
    """Return an offset along an item as a share of its width; 0.5 for a lane, which has no width."""
    return along / item.width if item.width else 0.5


def positions(row: Sequence[Item]) -> dict[str, float]:
    """Map the items of a row to their numbers, by key."""
    return {item.key: float(number) for number, item in enumerate(row)}


def spread(row: Sequence[Item], wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Place items in order without overlap, close to their wishes: weighted least squares by pooling violators."""
    offsets, total = [], 0.0
    for number, item in enumerate(row):
        offsets.append(total)
        following = row[number + 1] if number + 1 < len(row) else None
        total += item.width + (LANE if item.lane or (following is not None and following.lane) else NEAR)
    pools: list[tuple[float, float, int]] = []  # mean, weight and number of items
    for wish, offset, weight in zip(wishes, offsets, weights, strict=True):
        pools.append((wish - offset, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, heavy, count), (last, light, more) = pools[-2:]
            pools[-2:] = [((mean * heavy + last * light) / (heavy + light), heavy + light, count + more)]
    means: Iterable[float] = (mean for mean, _, count in pools for _ in range(count))
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


@dataclass
class Frame:
    """A frame around boxes, with the position of its name."""

    group: GraphGroup
    x: float
    y: float
    width: float
    height: float
    label_x: float


@dataclass
class Curve:
    """An edge or a part of one inside a frame: points, joined by curves that begin and end vertically."""

    source: str
    target: str
    points: list[Point]
    arrow: bool
    corners: bool = False  # joined by straight lines with rounded corners


@dataclass
class Layout:
    """A layout of boxes, frames and curves, placed relative to its upper left corner."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[Item] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    entries: dict[str, float] = field(default_factory=dict)  # x at the bottom of edges from outside, by source
    exits: dict[str, float] = field(default_factory=dict)  # x at the top of edges to the outside, by source
    sides: dict[str, float] = field(default_factory=dict)  # y at the left of edges from the other side, by source

    def move(self, x: float, y: float) -> "Layout":
        """Shift all boxes, frames and curves."""
        for box in self.boxes:
            box.x, box.y = box.x + x, box.y + y
        for frame in self.frames:
            frame.x, frame.y, frame.label_x = frame.x + x, frame.y + y, frame.label_x + x
        for curve in self.curves:
            curve.points = [(px + x, py + y) for px, py in curve.points]
        return self


Measure = Callable[[str], tuple[float, float]]
LabelWidth = Callable[[GraphGroup], float]


def lay_out(graph: Graph, measure: Measure, label_width: LabelWidth) -> Layout:
    """Lay out a graph: the encoder on the left, the decoder on the right, edges from one to the other in between."""
    sides = [side for side in ("encoder", "decoder") if any(node.side == side for node in graph.nodes)]
    placed = []
    for side in sides:
        members = {node.name for node in graph.nodes if node.side == side}
        others = {node.name for node in graph.nodes} - members
        placed.append(Arrangement(graph, measure, label_width, None, members, others, side == "decoder").arrange())
    if len(placed) == 1:
        return placed[0]
    left, right = placed
    lanes = list(right.sides)
    gutter = GUTTER + LANE * max(0, len(lanes) - 1)
    above = LANE * len(lanes)
    height = max(left.height + above, right.height)
    whole = Layout(left.width + gutter + right.width, height)
    left.move(0.0, height - left.height)
    right.move(left.width + gutter, height - right.height)
    order = sorted(lanes, key=lambda source: left.exits.get(source, 0.0))
    for number, source in enumerate(order):
        start, top = left.exits[source], height - left.height - LANE * (len(order) - number)
        lane = left.width + GUTTER / 2 + LANE * (len(order) - 1 - number)
        end = height - right.height + right.sides[source]
        points = [(start, height - left.height), (start, top), (lane, top), (lane, end), (left.width + gutter, end)]
        whole.curves.append(Curve(source, "", points, arrow=False, corners=True))
    for part in placed:
        whole.boxes += part.boxes
        whole.frames += part.frames
        whole.curves += part.curves
    return whole


@dataclass
class Arrangement:
    """The arrangement in rows of the boxes and frames inside one frame or on one side."""

    graph: Graph
    measure: Measure
    label_width: LabelWidth
    group: GraphGroup | None
    members: set[str]
    others: set[str]  # the boxes of the other side
    beside: bool = False
    place_of: dict[str, Item] = field(default_factory=dict)  # the item of each box: itself or the frame around it
    items: list[Item] = field(default_factory=list)
    lanes: dict[tuple[str, int], Item] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    ends: set[tuple[str, Item]] = field(default_factory=set)  # source of each edge and the item that it ends at

    def arrange(self) -> Layout:
        """Arrange all items and return their layout."""
        self.make_items()
        place = self.place_of.get  # None for a box outside
        pairs = ((edge.source, place(edge.source), place(edge.target)) for edge in self.graph.edges)
        edges = [edge for edge in pairs if edge[1] is not edge[2]]
        self.rank(edges)
        self.add_lanes(edges)
        rows = Rows(self.items, self.links, self.is_from_beside)
        rows.place()
        return self.finish(rows.rows)

    def make_items(self) -> None:
        """Make items for boxes and for frames; the inside of each frame is laid out first."""
        parent = None if self.group is None else self.group.name
        children = [each for each in self.graph.groups if each.parent == parent and set(each.nodes) <= self.members]
        for child in children:
            inside = set(child.nodes)
            inner = Arrangement(self.graph, self.measure, self.label_width, child, inside, self.others).arrange()
            item = Item(child.name, inner.width, inner.height, inner=inner)
            for name in inside:
                self.place_of[name] = item
        for node in reversed(self.graph.nodes):  # values, keys, queries from left to right, as in the papers
            if node.name in self.members:
                if node.name not in self.place_of:
                    self.place_of[node.name] = Item(node.name, *self.measure(node.name))
                if self.place_of[node.name] not in self.items:
                    self.items.append(self.place_of[node.name])

    def rank(self, edges: Sequence[tuple[str, Item | None, Item | None]]) -> None:
        """Put each item one row above the highest that it reads; an item without inputs just below its readers."""
        reads = [(lower, upper) for _, lower, upper in edges if lower is not None and upper is not None]
        for item in self.items:
            item.rank = 1
        for _ in self.items:
            moved = False
            for lower, upper in reads:
                if upper.rank <= lower.rank:
                    upper.rank, moved = lower.rank + 1, True
            if not moved:
                break
        entered = {upper for _, lower, upper in edges if lower is None and upper is not None}
        for item in self.items:
            above = [upper.rank for lower, upper in reads if lower is item]
            if above and not any(upper is item for _, upper in reads) and item not in entered:
                item.rank = max(item.rank, min(above) - 1)

    def add_lanes(self, edges: Sequence[tuple[str, Item | None, Item | None]]) -> None:
        """Add lanes where edges pass rows, enter or leave; edges of one source share a lane."""
        top = max(item.rank for item in self.items) + 1
        for source, lower, upper in edges:
            end = top if upper is None else upper.rank
            if lower is None:
                begin = 0
                if self.beside:
                    begin = min(each.rank for name, low, each in edges if name == source and low is None and each) - 1
                below = self.lane(source, begin)
            else:
                begin, below = lower.rank, lower
            for rank in range(begin + 1, end):
                lane = self.lane(source, rank)
                self.link(source, below, lane)
                below = lane
            if upper is None:
                self.link(source, below, self.lane(source, top))
            else:
                self.link(source, below, upper)
                self.ends.add((source, upper))

    def lane(self, source: str, rank: int) -> Item:
        """Find or make the lane of a source's edges in a row."""
        if (source, rank) not in self.lanes:
            self.lanes[source, rank] = Item(f"{source}@{rank}", 0.0, 0.0, rank, lane=True)
            self.items.append(self.lanes[source, rank])
        return self.lanes[source, rank]

    def link(self, source: str, lower: Item, upper: Item) -> None:
        """Link two items of neighbouring rows, unless they are linked already."""
        link = Link(source, lower, upper)
        if link not in self.links:
            self.links.append(link)

    def is_from_beside(self, item: Item) -> bool:
        """Return whether an item is the lane of an edge from the other side; such lanes stay at the left."""
        return item.lane and item.key.rpartition("@")[0] in self.others

    def is_door(self, item: Item) -> bool:
        """Return whether an edge enters from the left at this item."""
        return self.beside and item.lane and not any(link.upper is item for link in self.links)

    def finish(self, rows: list[list[Item]]) -> Layout:
        """Build the layout with margins: rows from the bottom up, with curves in the gaps between them."""
        lowest = min(item.x for item in self.items)
        widest = max(item.x + item.width for item in self.items) - lowest
        framed = self.group is not None
        label = 0.0 if self.group is None else self.label_width(self.group)
        margin = INSIDE if framed else LANE / 2
        width = max(widest + 2 * margin, label + 2 * margin)
        shift = (width - widest) / 2 - lowest
        exits = [item.x + shift for item in rows[-1] if item.lane]
        label_x = margin
        if label and exits:  # widen the frame so that edges that leave it do not cross its name
            left = max(0.0, margin + label + 8 - min(exits))
            right = max(0.0, max(exits) - (width - margin - label - 8))
            if left <= right:
                width, shift = width + left, shift + left
            else:
                width += right
                label_x = width - margin - label
        for item in self.items:
            item.x += shift
        heights = [max((item.height for item in row), default=0.0) for row in rows]
        for rank, row in enumerate(rows):  # edges that enter from the left are stacked vertically
            heights[rank] = max(heights[rank], LANE * (sum(map(self.is_door, row)) - 0.5))
        gaps = [self.gap_above(rank, heights) for rank in range(len(rows) - 1)]
        head = HEAD if framed else 0.0
        height = sum(heights) + sum(gaps) + head
        tops, bottom = [], height
        for rank, size in enumerate(heights):
            tops.append(bottom - size)
            bottom -= size + (gaps[rank] if rank < len(gaps) else 0.0)
        layout = Layout(width, height)
        for item in self.items:
            if item.lane:
                continue
            item.y = tops[item.rank] + (heights[item.rank] - item.height) / 2
            if item.inner is None:
                layout.boxes.append(item)
            else:
                inner = item.inner.move(item.x, item.y)
                layout.boxes += inner.boxes
                layout.frames += inner.frames
                layout.curves += inner.curves
        self.draw_links(layout, tops, heights, head)
        if self.group is not None:
            layout.frames.insert(0, Frame(self.group, 0.0, 0.0, width, height, label_x))
        return layout

    def gap_above(self, rank: int, heights: Sequence[float]) -> float:
        """Return the height of the gap above a row; it grows with the largest horizontal shift of an edge."""
        far = [
            abs(link.lower.x + link.lower.exit(link.source) - link.upper.x - link.upper.entry(link.source))
            for link in self.links
            if link.lower.rank == rank
        ]
        if not far and heights[rank] == 0:
            return INSIDE
        return GAP + min(22.0, max(far, default=0.0) * 0.06)

    def draw_links(self, layout: Layout, tops: Sequence[float], heights: Sequence[float], head: float) -> None:
        """Add curves for the links, and record the positions at which edges enter and leave."""
        for link in self.links:
            below, above = link.lower, link.upper
            x1, x2 = below.x + below.exit(link.source), above.x + above.entry(link.source)
            if abs(x1 - x2) < NEARLY:  # an edge may touch a box off its centre
                x1, x2 = meet(x1, x2, below, above)
            y1, y2 = tops[below.rank], tops[above.rank] + heights[above.rank]
            points = [(x1, y1), (x2, y2)]
            if below.lane:
                if not self.is_door(below):
                    points.insert(0, (x1, y1 + heights[below.rank]))
            else:
                points.insert(0, (x1, y1 + (heights[below.rank] - below.height) / 2))
            if not above.lane:
                points.append((x2, y2 - (heights[above.rank] - above.height) / 2))
            if above.lane and above.rank == len(tops) - 1:
                points.append((x2, tops[above.rank] - head))
            arrow = above.inner is None and (link.source, above) in self.ends
            layout.curves.append(Curve(link.source, above.key, points, arrow))
        for (source, rank), lane in self.lanes.items():
            if rank == len(tops) - 1:
                layout.exits[source] = lane.x
            elif self.is_door(lane):
                doors = sorted(
                    (each for each in self.items if each.rank == rank and self.is_door(each)), key=lambda each: each.x
                )
                y = tops[rank] + heights[rank] * (doors.index(lane) + 1) / (len(doors) + 1)
                layout.sides[source] = y
                layout.curves.append(
                    Curve(source, lane.key, [(0.0, y), (lane.x, y), (lane.x, tops[rank])], False, corners=True)
                )
            elif rank == 0:
                layout.entries[source] = lane.x


def meet(x1: float, x2: float, below: Item, above: Item) -> Point:
    """Return the x coordinates of a nearly vertical edge, equal if an end may move: not at lanes and frames."""
    low, high = (item.inner is None and item.width > 2 * NEARLY for item in (below, above))
    if low and high:
        return (x1 + x2) / 2, (x1 + x2) / 2
    if low:
        return x2, x2
    return (x1, x1) if high else (x1, x2)
