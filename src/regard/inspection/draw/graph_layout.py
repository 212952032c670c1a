"""Where the boxes of a graph stand: in rows from the bottom up, as the papers draw them, with frames around layers.

Each frame is laid out by itself (Sugiyama, Tagawa and Toda 1981): rows by the longest path, an order in each row with
few crossings, and places in that order as near as can be to what a box is joined with. In the frame around it, it is
then one box. Edges bend in the gaps between rows alone, and pass rows in lanes of their own: none crosses a box.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from regard.inspection.collect.graph import Graph, GraphGroup
from regard.inspection.draw.graph_rows import LANE, Item, Link, Rows, port

GAP = 19.0  # between rows
INSIDE = 14.0  # between a frame and what is in it
HEAD = 22.0  # of a frame, where its name stands
GUTTER = 30.0  # between the two sides
NEARLY = 16.0  # aside: such an edge can be drawn upright

Point = tuple[float, float]


@dataclass
class Box:
    """A box, or a point of an edge, by its upper left corner."""

    name: str
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0


@dataclass
class Frame:
    """A frame around boxes, and where its name stands."""

    group: GraphGroup
    x: float
    y: float
    width: float
    height: float
    label_x: float


@dataclass
class Curve:
    """An edge, or the part of one inside a frame: points that are joined by curves that leave and arrive upright."""

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
    boxes: list[Box] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    entries: dict[str, float] = field(default_factory=dict)  # from outside: where along the bottom
    exits: dict[str, float] = field(default_factory=dict)  # to the outside: where along the top
    sides: dict[str, float] = field(default_factory=dict)  # from the left: how far down

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
    """Place all boxes: the encoder at the left, the decoder at the right, what goes from one to the other between."""
    sides = [side for side in ("encoder", "decoder") if any(node.side == side for node in graph.nodes)]
    placed = []
    for side in sides:
        members = {node.name for node in graph.nodes if node.side == side}
        placed.append(Arrangement(graph, measure, label_width, None, members, beside=side == "decoder").arrange())
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


class Arrangement:
    """The boxes and frames of one frame, or of one side, in rows."""

    def __init__(
        self,
        graph: Graph,
        measure: Measure,
        label_width: LabelWidth,
        group: GraphGroup | None,
        members: set[str],
        beside: bool = False,
    ):
        self.graph, self.measure, self.label_width, self.group = graph, measure, label_width, group
        self.members, self.beside = members, beside
        self.side_of = {node.name: node.side for node in graph.nodes}
        self.side = self.side_of[next(iter(members))]
        self.place_of = dict[str, Item]()  # the item that a box stands in
        self.items: list[Item] = []
        self.inner: dict[str, Layout] = {}  # of frames
        self.lanes: dict[tuple[str, int], Item] = {}
        self.links: list[Link] = []
        self.ends: list[tuple[str, Item, str]] = []  # the source, the item, and the box that an edge ends at

    def arrange(self) -> Layout:
        """Place everything, and return the frame with it."""
        self.make_items()
        edges = self.local_edges()
        self.rank(edges)
        self.add_lanes(edges)
        rows = Rows(self.items, self.links, self.is_from_beside)
        rows.place()
        return self.finish(rows.rows)

    def make_items(self) -> None:
        """Boxes, and frames that are laid out first."""
        parent = None if self.group is None else self.group.name
        children = [each for each in self.graph.groups if each.parent == parent and set(each.nodes) <= self.members]
        for child in children:
            inside = set(child.nodes)
            inner = Arrangement(self.graph, self.measure, self.label_width, child, inside).arrange()
            item = Item(child.name, inner.width, inner.height, inner=inner)
            self.inner[child.name] = inner
            for name in inside:
                self.place_of[name] = item
        for node in reversed(self.graph.nodes):  # values, keys, queries from the left, as the papers have them
            if node.name in self.members:
                if node.name not in self.place_of:
                    self.place_of[node.name] = Item(node.name, *self.measure(node.name))
                if self.place_of[node.name] not in self.items:
                    self.items.append(self.place_of[node.name])

    def local_edges(self) -> list[tuple[str, Item | None, Item | None, str]]:
        """Edges between items: the source, its item (None: outside), the target's item (None: outside), the target."""
        links = []
        for edge in self.graph.edges:
            lower, upper = self.place_of.get(edge.source), self.place_of.get(edge.target)
            if (lower is None and upper is None) or lower is upper:
                continue
            links.append((edge.source, lower, upper, edge.target))
        return links

    def rank(self, edges: Sequence[tuple[str, Item | None, Item | None, str]]) -> None:
        """The row of each item: one above the highest that it reads; what reads nothing, below what reads it."""
        reads = [(lower, upper) for _, lower, upper, _ in edges if lower is not None and upper is not None]
        for item in self.items:
            item.rank = 1
        for _ in self.items:
            moved = False
            for lower, upper in reads:
                if upper.rank <= lower.rank:
                    upper.rank, moved = lower.rank + 1, True
            if not moved:
                break
        entered = {id(upper) for _, lower, upper, _ in edges if lower is None and upper is not None}
        for item in self.items:
            above = [upper.rank for lower, upper in reads if lower is item]
            if above and not any(upper is item for _, upper in reads) and id(item) not in entered:
                item.rank = max(item.rank, min(above) - 1)

    def add_lanes(self, edges: Sequence[tuple[str, Item | None, Item | None, str]]) -> None:
        """Lanes through the rows that edges pass, one for all edges of a source; doors where they come in or go out."""
        top = max(item.rank for item in self.items) + 1
        for source, lower, upper, target in edges:
            end = top if upper is None else upper.rank
            if lower is None:
                begin = 0
                if self.beside:
                    begin = (
                        min(each.rank for name, low, each, _ in edges if name == source and low is None and each) - 1
                    )
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
                self.ends.append((source, upper, target))

    def lane(self, source: str, rank: int) -> Item:
        """The place of a source's edges in a row."""
        if (source, rank) not in self.lanes:
            self.lanes[source, rank] = Item(f"{source}@{rank}", 0.0, 0.0, rank, lane=True)
            self.items.append(self.lanes[source, rank])
        return self.lanes[source, rank]

    def link(self, source: str, lower: Item, upper: Item) -> None:
        """Join items of neighbouring rows, once."""
        link = Link(source, lower, upper)
        if not any(each.source == source and each.lower is lower and each.upper is upper for each in self.links):
            self.links.append(link)

    def is_from_beside(self, item: Item) -> bool:
        """Return whether an edge from the other side passes here: those keep to the left, where they come from."""
        return item.lane and self.side_of[item.key.rpartition("@")[0]] != self.side

    def is_door(self, item: Item) -> bool:
        """Return whether an edge comes in from the left here."""
        return self.beside and item.lane and not any(link.upper is item for link in self.links)

    def finish(self, rows: list[list[Item]]) -> Layout:
        """The layout with its margins: rows from the bottom up, curves in the gaps between them."""
        lowest = min(item.x for item in self.items)
        widest = max(item.x + item.width for item in self.items) - lowest
        framed = self.group is not None
        label = 0.0 if self.group is None else self.label_width(self.group)
        margin = INSIDE if framed else LANE / 2
        width = max(widest + 2 * margin, label + 2 * margin)
        shift = (width - widest) / 2 - lowest
        exits = [item.x + shift for item in rows[-1] if item.lane]
        label_x = margin
        if label and exits:  # edges that leave do not cross the name: there is room for it at the left or at the right
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
        for rank, row in enumerate(rows):  # edges that come in side by side lie one above the other
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
            y = tops[item.rank] + (heights[item.rank] - item.height) / 2
            if item.inner is None:
                layout.boxes.append(Box(item.key, item.width, item.height, item.x, y))
            else:
                inner = self.inner[item.key].move(item.x, y)
                layout.boxes += inner.boxes
                layout.frames += inner.frames
                layout.curves += inner.curves
        self.draw_links(layout, tops, heights, head)
        if self.group is not None:
            layout.frames.insert(0, Frame(self.group, 0.0, 0.0, width, height, label_x))
        return layout

    def gap_above(self, rank: int, heights: Sequence[float]) -> float:
        """The height of the gap above a row; wider where an edge goes far aside."""
        far = [
            abs(
                link.lower.x
                + port(link.lower, link.lower.exit, link.source)
                - link.upper.x
                - port(link.upper, link.upper.entry, link.source)
            )
            for link in self.links
            if link.lower.rank == rank
        ]
        if not far and heights[rank] == 0:
            return INSIDE
        return GAP + min(22.0, max(far, default=0.0) * 0.06)

    def draw_links(self, layout: Layout, tops: Sequence[float], heights: Sequence[float], head: float) -> None:
        """Curves along the links, and where edges come in and go out."""
        real = {(source, id(item)) for source, item, _ in self.ends}
        for link in self.links:
            below, above = link.lower, link.upper
            x1, x2 = below.x + port(below, below.exit, link.source), above.x + port(above, above.entry, link.source)
            if abs(x1 - x2) < NEARLY:  # a box can be left and met beside its middle
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
            arrow = above.inner is None and (link.source, id(above)) in real
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
    """Where an edge that is nearly upright is drawn upright; at lanes and frames its place is fixed."""
    low, high = (item.inner is None and item.width > 2 * NEARLY for item in (below, above))
    if low and high:
        return (x1 + x2) / 2, (x1 + x2) / 2
    if low:
        return x2, x2
    return (x1, x1) if high else (x1, x2)
