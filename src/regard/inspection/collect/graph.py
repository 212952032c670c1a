"""The computational graph of a model as plain data: boxes in order, edges between them, and identical layers folded.

`graph_of` of `from_model` makes it from a model, `draw/graph.py` draws it; nobody who draws asks the model anything.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

Side = Literal["encoder", "decoder"]
NodeKind = Literal["input", "learned", "module", "operation", "stage", "previous"]


@dataclass(frozen=True)
class GraphNode:
    """A box of the graph."""

    name: str  # of its own in the graph: a module's dotted name, or that of the module it belongs to and a word
    kind: NodeKind
    label: str  # what it is: "layer norm"
    symbol: str  # as the paper writes its result: "h_j"
    shape: tuple[int, ...]  # of its output, in its first call
    side: Side
    module: str  # that it is, or belongs to
    modules: tuple[str, ...] = ()  # with the parameters that it uses; one that came before is not named again
    note: str = ""
    calls: int = 1
    loops: bool = False  # it reads what it gave in the step before
    shares: str | None = None  # the node that has its parameters
    count: int = 1  # alike ones that are folded into it, itself among them
    folded: tuple[str, ...] = ()  # the modules of the others
    parameters: int = 0  # numbers in them, of those named in `modules`
    layer_symbol: str = ""  # its symbol with ℓ for the number of its layer
    pairs: bool = False  # its last axis counts keys, and is no width
    last_shape: tuple[int, ...] = ()  # in its last call, where that is another


@dataclass(frozen=True)
class GraphEdge:
    """An edge: numbers that go from one box to another."""

    source: str
    target: str


@dataclass(frozen=True)
class GraphGroup:
    """A group of boxes that belong together: a layer, an attention."""

    name: str
    label: str
    nodes: tuple[str, ...]
    parent: str | None = None
    count: int = 1  # layers like it that are folded into it
    members: tuple[str, ...] = ()  # their names, its own first


@dataclass(frozen=True)
class Graph:
    """The graph of a model as it ran: nodes in an order in which every edge goes forward."""

    kind: str  # of the model
    paper: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    groups: tuple[GraphGroup, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)  # letters of shapes

    def alone(self, node: GraphNode) -> int:
        """Count the identical nodes that a node stands for, apart from those that the frames around it count."""
        framed = 1
        for group in self.groups:
            framed *= group.count if node.name in group.nodes else 1
        return node.count // framed

    def node(self, name: str) -> GraphNode:
        """Find a node by its name."""
        return next(each for each in self.nodes if each.name == name)


# ---- layers that are alike

COMPARED = ("kind", "label", "layer_symbol", "shape", "note", "calls", "loops", "count", "parameters")


def fold_layers(graph: Graph, lists: Mapping[str, Sequence[str]]) -> Graph:
    """Fold each row of identical layers into one with a count; `lists` has the keys of each list of modules."""
    inner_first = sorted(lists, key=lambda name: -name.count("."))
    for name, side in product(inner_first, ("encoder", "decoder")):
        paths = {key: f"{name}.{key}".removeprefix(".") for key in lists[name]}
        members = {key: nodes for key, path in paths.items() if (nodes := within(graph, path, side))}
        runs: list[list[str]] = []
        for key in members:
            if runs and is_alike(graph, name, members, runs[-1][-1], key):
                runs[-1].append(key)
            else:
                runs.append([key])
        for run in runs:
            if len(run) > 1:
                graph = merge_run(graph, [members[key] for key in run], [paths[key] for key in run], side)
    return graph


def within(graph: Graph, module: str, side: str) -> list[GraphNode]:
    """List the nodes of a module and of everything inside it."""
    own = (node for node in graph.nodes if node.module == module or node.module.startswith(module + "."))
    return [node for node in own if node.side == side]


def is_alike(graph: Graph, name: str, members: dict[str, list[GraphNode]], one: str, other: str) -> bool:
    """Return whether two layers have the same boxes, shapes and edges, apart from the source of their input."""
    first, second = members[one], members[other]
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if any(getattr(a, key) != getattr(b, key) for key in COMPARED):
            return False
        if relative(a.name, f"{name}.{one}") != relative(b.name, f"{name}.{other}"):
            return False
    if read_by(graph, members, one) != read_by(graph, members, other):
        return False
    # One layer reads the one before it, or stands beside it and reads what all of them read.
    names = {node.name for node in second}
    outside = {edge.source for edge in graph.edges if edge.target in names} - names
    reads_first = any(node.name in outside for node in first)
    return reads_first or all(is_common(graph, members, source) for source in outside)


def is_common(graph: Graph, members: dict[str, list[GraphNode]], source: str) -> bool:
    """Return whether several of some layers read a node outside them."""
    if any(node.name == source for nodes in members.values() for node in nodes):
        return False
    readers = {edge.target for edge in graph.edges if edge.source == source}
    return sum(any(node.name in readers for node in nodes) for nodes in members.values()) > 1


def read_by(graph: Graph, members: dict[str, list[GraphNode]], key: str) -> list[tuple[int, tuple[str, ...]]]:
    """List what each box of a layer reads: the layer's own boxes by number, those outside it unnamed."""
    index = {node.name: number for number, node in enumerate(members[key])}
    reads: dict[int, list[str]] = {}
    for edge in graph.edges:
        if edge.target in index:
            if edge.source in index:
                origin = str(index[edge.source])
            else:
                origin = edge.source if is_common(graph, members, edge.source) else "before"
            reads.setdefault(index[edge.target], []).append(origin)
    return [(number, tuple(sorted(reads[number]))) for number in sorted(reads)]


def relative(name: str, module: str) -> str:
    """Strip a node's name of its layer's, and of the number that tells it from others in the graph."""
    return re.sub(r" \d+$", "", name.removeprefix(module.removeprefix(".")))


def merge_run(graph: Graph, parts: Sequence[list[GraphNode]], names: Sequence[str], side: str) -> Graph:
    """Keep the first of several identical layers; whatever read the last one now reads the first."""
    target = {node.name: first.name for part in parts[1:] for node, first in zip(part, parts[0], strict=True)}
    first_names = {node.name for node in parts[0]}
    order = {node.name: number for number, node in enumerate(graph.nodes)}
    edges = dict[GraphEdge, None]()
    for edge in graph.edges:
        source, to = target.get(edge.source, edge.source), target.get(edge.target, edge.target)
        if order[source] < order[to]:  # an edge from one layer to the next goes nowhere now
            edges[GraphEdge(source, to)] = None
    twins = {first.name: [part[number] for part in parts[1:]] for number, first in enumerate(parts[0])}
    nodes = []
    for node in graph.nodes:
        if node.name in first_names:
            others = tuple(name for twin in twins[node.name] for name in (*twin.modules, *twin.folded))
            symbol = node.layer_symbol.partition("‖")[0]  # it holds for all of them
            nodes.append(replace(node, symbol=symbol, count=node.count * len(parts), folded=(*node.folded, *others)))
        elif node.name not in target:
            nodes.append(node)
    dropped = {f"{side}:{name}" for name in names[1:]}
    groups = []
    for group in graph.groups:
        if any(group.name == each or group.name.startswith(each + ".") for each in dropped):
            continue
        inner = tuple(name for name in group.nodes if name not in target)
        if group.name == f"{side}:{names[0]}":
            group = replace(group, count=group.count * len(parts), members=tuple(names))
        groups.append(replace(group, nodes=inner))
    return replace(graph, nodes=tuple(nodes), edges=tuple(edges), groups=tuple(groups))
