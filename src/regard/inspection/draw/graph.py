"""A model's computational graph as SVG with a light and a dark theme; a notebook displays it.
from regard import inspection, load
inspection.model_graph(load("runs/demo").model).save("graph.svg")
"""

import re
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Graph, GraphGroup, GraphNode
from regard.inspection.draw.graph_layout import Curve, Item, lay_out
from regard.io import disk

if TYPE_CHECKING:
    from regard.models import Model, Source, Tokens

STATIC = resources.files("regard.inspection.draw") / "static"
GRAPH_STYLE = "\n" + (STATIC / "graph.css").read_text(encoding="utf-8")
LETTERS = {
    "b": "in the batch",
    "m": "source positions",
    "n": "target positions",
    "s": "sentences of all documents",
    "l": "sentences of a document",
    "w": "words of a sentence",
    "t": "steps so far, this one too",
}
NOTED = ("mask", "add bias", "gate", "score", "weighted sum", "concatenate")  # labels of stages whose note is shown
LINE, SMALL_LINE, PAD = 15.0, 16.0, 9.0
MARGIN, HEADING, LEGEND = 22.0, 44.0, 34.0
RADIUS = 8.0  # radius of an edge's rounded corners
WIDE = set("mwMWQGOΣ∘≤∞—…→←↻")
NARROW = set("ijltf.,:;|!'()[]{}· I₁/")
COMBINING = range(0x300, 0x370)


@dataclass(frozen=True, repr=False)
class ModelGraph:
    """A model's graph and its SVG picture, with a `save` method; a notebook displays it."""

    graph: Graph
    svg: str

    def save(self, path: str | Path) -> Path:
        """Write the picture as SVG, atomically: an interrupted write leaves the previous file unchanged."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ArgumentError(f"path: a graph is saved as .svg, got {path.name!r}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return disk.write_whole(path, '<?xml version="1.0" encoding="UTF-8"?>\n' + self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        boxes, edges = len(self.graph.nodes), len(self.graph.edges)
        return (
            f"ModelGraph({self.graph.kind}, {boxes} boxes, {edges} edges; .save(path) writes it, a notebook shows it)"
        )


def model_graph(
    model: "Model", source: "Source | None" = None, target: "Tokens | None" = None, *, fold: bool = True
) -> ModelGraph:
    """Draw the computational graph of a model from one pass over a source and a target, by default small random ones.

    Boxes, order, shapes and edges are those of the pass. Identical layers are drawn once, with their number;
    `fold=False` draws all of them.
    """
    from regard.inspection.collect.graph import graph_of  # drawing an existing graph does not need this import

    graph = graph_of(model, source, target, fold=fold)
    return ModelGraph(graph, draw_graph(graph))


def draw_graph(graph: Graph, prefix: str = "graph") -> str:
    """Return a graph as the text of one <svg> element; its ids begin with `prefix`, which must be unique in a page."""
    nodes = {node.name: node for node in graph.nodes}
    layout = lay_out(graph, lambda name: box_size(nodes[name], graph), frame_label_width)
    legend = legend_of(graph)
    heading = " · ".join(filter(None, [graph.kind, graph.paper]))
    width = max(layout.width, text_width(legend, 11), text_width(heading, 16)) + 2 * MARGIN
    sides = len({node.side for node in graph.nodes}) > 1
    height = HEADING + layout.height + (LINE + 6 if sides else 0.0) + LEGEND + MARGIN
    layout.move((width - layout.width) / 2, HEADING)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" class="regard-graph" role="img" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'aria-labelledby="{prefix}-title {prefix}-description">',
        f'<title id="{prefix}-title">Computational graph: {escape(heading)}</title>',
        f'<desc id="{prefix}-description">{escape(describe(graph))}</desc>',
        f"<style>{GRAPH_STYLE}</style>",
        f'<defs><marker id="{prefix}-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path class="graph-arrow" d="M0 0.5 L8 4 L0 7.5 Z"/></marker></defs>',
        f'<rect class="graph-ground" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="graph-heading" x="{MARGIN:.0f}" y="{MARGIN + 4:.0f}">{escape(heading)}</text>',
    ]
    for side in ("encoder", "decoder") if sides else ():
        spans = [(box.x, box.x + box.width) for box in layout.boxes if nodes[box.key].side == side]
        middle = (min(left for left, _ in spans) + max(right for _, right in spans)) / 2
        below = HEADING + layout.height + 18
        parts.append(f'<text class="graph-name" x="{middle:.1f}" y="{below:.1f}" text-anchor="middle">{side}</text>')
    for frame in layout.frames:
        inner = " graph-inner" if frame.group.parent is not None else ""
        times = f'<tspan class="graph-times" dx="8">× {frame.group.count}</tspan>' if frame.group.count > 1 else ""
        parts.append(
            f'<rect class="graph-frame{inner}" x="{frame.x:.1f}" y="{frame.y:.1f}" width="{frame.width:.1f}" '
            f'height="{frame.height:.1f}" rx="10"/>'
            f'<text class="graph-name" x="{frame.label_x:.1f}" y="{frame.y + 16:.1f}">'
            f"{escape(frame_label(frame.group))}{times}</text>"
        )
    parts += [draw_curve(curve, prefix) for curve in layout.curves]
    parts += [draw_box(box, nodes[box.key], graph) for box in layout.boxes]
    parts.append(f'<text class="graph-legend" x="{MARGIN:.0f}" y="{height - MARGIN + 6:.0f}">{escape(legend)}</text>')
    return "\n".join([*parts, "</svg>"])


# ---- in words


def describe(graph: Graph) -> str:
    """Describe the graph for people who cannot see it: the labels of each side's boxes, in order."""
    sentences = []
    for side in ("encoder", "decoder"):
        labels = [plain_text(node.label) for node in graph.nodes if node.side == side and node.kind != "previous"]
        if labels:
            sentences.append(f"{side.capitalize()}: {', '.join(labels)}.")
    repeated = [
        f"{group.members[0]} stands for {group.count} alike layers" for group in graph.groups if group.count > 1
    ]
    return " ".join([*sentences, *(f"{each}." for each in repeated)])


def legend_of(graph: Graph) -> str:
    """Return the legend, which explains the letters of shapes and the signs."""
    used = {letter for node in graph.nodes for size in shape_letters(node, graph.sizes) for letter in size}
    parts = [f"{letter} {words}" for letter, words in LETTERS.items() if letter in used]
    pictures = [node.shape for node in graph.nodes if node.kind == "input" and len(node.shape) == 4]
    parts += [f"pictures of {height} × {width} pixels" for *_, height, width in pictures]
    parts += ["(ℓ) a layer, of which the top one has no number"] * any("ℓ" in node.symbol for node in graph.nodes)
    parts += ["↻ reads what it gave last"] * any(node.loops for node in graph.nodes)
    return "shapes: " + ", ".join(parts) if parts else ""


def shape_letters(node: GraphNode, sizes: dict[str, int]) -> list[str]:
    """Return a shape with letters for the sizes of the pass; a width, the last axis of most nodes, stays a number."""
    letters = {size: letter for letter, size in sizes.items()}
    if "m" in sizes:
        letters.setdefault(sizes["m"] + 1, "m + 1")
    if "l" in sizes:
        letters.setdefault(sizes["l"] * sizes["w"], "l · w")
    counted = len(node.shape) if node.kind == "input" or node.pairs else len(node.shape) - 1
    if node.kind == "learned":
        counted = 0
    labels = [letters.get(size, str(size)) if axis < counted else str(size) for axis, size in enumerate(node.shape)]
    for axis, (first, last) in enumerate(zip(node.shape, node.last_shape, strict=False)):
        if first != last:  # this axis grows from step to step
            labels[axis] = "t" if last in letters else "t − 1" if last + 1 in letters else f"{first} … {last}"
    return labels


def small_line(node: GraphNode, graph: Graph) -> str:
    """Return the second line of a box: its shape, a note, and whether its parameters are shared."""
    parts = []
    if node.shape:
        parts.append("[" + ", ".join(shape_letters(node, graph.sizes)) + "]")
    if node.kind == "stage" and node.label in NOTED and not (node.label == "score" and node.symbol != "e_{ij}"):
        parts.append(node.note)  # a score with the paper's own formula needs no note
    if node.shares is not None:
        parts.append("shared")
    return "   ".join(filter(None, parts))


def first_line(node: GraphNode, graph: Graph) -> str:
    """Return the label of a box, with ↻ if it reads its own last output, and the number of boxes it stands for."""
    count = graph.alone(node)
    return node.label + (" ↻" if node.loops else "") + (f" × {count}" if count > 1 else "")


# ---- text


def box_size(node: GraphNode, graph: Graph) -> tuple[float, float]:
    """Return the width and height of a box that holds its text."""
    first = text_width(plain_text(first_line(node, graph)), 14.2)
    if node.symbol:
        first += 10 + text_width(plain_text(node.symbol), 13.4)
    small = small_line(node, graph)
    width = max(first, text_width(plain_text(small), 11.2)) + 2 * PAD
    return width, (LINE + (SMALL_LINE if small else 0.0)) + 9


def frame_label_width(group: GraphGroup) -> float:
    """Return the width of a frame's name."""
    return text_width(frame_label(group), 12.2) + (text_width(f"× {group.count}", 14) + 10 if group.count > 1 else 0.0)


def frame_label(group: GraphGroup) -> str:
    """Return a frame's label, for an outer frame with the dotted name of its module."""
    alone = group.parent is not None or group.members[0] in group.label
    return group.label if alone else f"{group.label} · {group.members[0]}"


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text, rather too large than too small."""
    total = 0.0
    for letter in text:
        if ord(letter) in COMBINING:
            continue
        total += 0.88 if letter in WIDE else 0.36 if letter in NARROW else 0.7 if letter.isupper() else 0.6
    return total * size


def plain_text(markup: str) -> str:
    """Remove the markup of indices (_, ^ and braces) from a symbol."""
    return re.sub(r"[_^](?:\{([^}]*)\}|(.))", r"\1\2", markup)


def marked_up(markup: str) -> str:
    """Return a symbol as <tspan> elements, with indices in small type, lowered or raised."""
    tspans, moved = [], 0.0
    for mark, braced, single, plain in re.findall(r"([_^])(?:\{([^}]*)\}|(.[\u0300-\u036f]?))|([^_^]+)", markup):
        text = plain or braced or single
        want = {"_": 3.5, "^": -4.5}.get(mark, 0.0)
        shift = f' dy="{want - moved:g}"' if want != moved else ""
        size = ' font-size="9.5"' if mark else ""
        tspans.append(f"<tspan{shift}{size}>{escape(text)}</tspan>" if shift or size else escape(text))
        moved = want
    if moved:
        tspans.append(f'<tspan dy="{-moved:g}">\u200b</tspan>')
    return "".join(tspans)


# ---- shapes


def draw_box(box: Item, node: GraphNode, graph: Graph) -> str:
    """Draw a box with its text; its tooltip shows the node's name, output shape, parameters and calls."""
    held = [node.name, f"output {list(node.shape)}" if node.shape else ""]
    held += [f"{node.parameters:,} parameters"] * (node.parameters > 0)
    held += [f"with the parameters of {node.shares}"] * (node.shares is not None)
    held += [f"{node.calls} calls"] * (node.calls > 1) + [f"{node.count} of them"] * (node.count > 1)
    hint = " · ".join(filter(None, held))
    middle = box.x + box.width / 2
    small = small_line(node, graph)
    first = box.y + box.height / 2 + (4.5 if not small else -4.0)
    symbol = f'<tspan class="graph-symbol" dx="8">{marked_up(node.symbol)}</tspan>' if node.symbol else ""
    parts = [
        f'<g class="graph-{node.kind}"><title>{escape(hint)}</title>',
        f'<rect class="graph-box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="6"/>',
        f'<text x="{middle:.1f}" y="{first:.1f}" text-anchor="middle">'
        f'<tspan class="graph-label">{marked_up(first_line(node, graph))}</tspan>{symbol}</text>',
    ]
    if small:
        parts.append(
            f'<text class="graph-small" x="{middle:.1f}" y="{first + SMALL_LINE + 1:.1f}" text-anchor="middle">'
            f"{marked_up(small)}</text>"
        )
    return "".join([*parts, "</g>"])


def draw_curve(curve: Curve, prefix: str) -> str:
    """Draw an edge: vertical lines through rows and curves between them, or lines with rounded corners."""
    points = curve.points
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    if curve.corners:
        for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
            ax, ay = toward((x1, y1), (x0, y0), min(RADIUS, (abs(x1 - x0) + abs(y1 - y0)) / 2))
            bx, by = toward((x1, y1), (x2, y2), min(RADIUS, (abs(x2 - x1) + abs(y2 - y1)) / 2))
            path += f"L{ax:.1f} {ay:.1f}Q{x1:.1f} {y1:.1f} {bx:.1f} {by:.1f}"
        path += f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"
    else:
        for (x1, y1), (x2, y2) in pairwise(points):
            if abs(x1 - x2) < 0.5:
                path += f"L{x2:.1f} {y2:.1f}" if abs(y1 - y2) > 0.1 else ""
            else:
                middle = (y1 + y2) / 2
                path += f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    arrow = f' marker-end="url(#{prefix}-arrow)"' if curve.arrow else ""
    return f'<path class="graph-edge" d="{path}"{arrow}/>'


def toward(start: tuple[float, float], end: tuple[float, float], by: float) -> tuple[float, float]:
    """Return the point at distance `by` from `start` in the direction of `end`."""
    x, y = end[0] - start[0], end[1] - start[1]
    length = max(1e-9, (x * x + y * y) ** 0.5)
    return start[0] + x / length * by, start[1] + y / length * by
