"""A model's computational graph: boxes, edges and frames from the trace of one small pass.

    graph = graph_of(model)
    [node.label for node in graph.nodes], graph.edges, graph.groups

Nothing here depends on how a kind is built: boxes and edges come from the trace. An output that is read in the next
step gets a node of its own, so that every edge goes forward.

A line of code that runs once for every layer becomes one box per layer. Loops over steps and over layers are told
apart by their reads: a loop over steps reads the same modules each time, a loop over layers those of another layer.

`symbols.toml` contains the names of parts and the symbols of the papers.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import chain, product
from operator import attrgetter

import torch
from torch import nn

from regard.attention import Attention, Attentive, GridSelfAttention, Heads, Learned, ProjectionRows, SlicedProjection
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Graph, GraphEdge, GraphGroup, GraphNode
from regard.inspection.collect.trace import Output, Trace, Unit, is_within, kind_of, trace
from regard.models import Documents, Layer, MemoryHeads, Model, Notation, Pictures, Source, Tokens

LISTS = (nn.ModuleList, nn.Sequential)
PIXELS = 32  # width and height of the example picture: small, but enough for five halvings
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
HISTORY = ", all steps before"  # suffix of a unit's description if all its earlier outputs are read, as from a tape
TABLES = tomllib.loads(
    resources.files("regard.inspection.collect").joinpath("symbols.toml").read_text(encoding="utf-8")
)
COMPARED = (
    "kind",
    "label",
    "layer_symbol",
    "shape",
    "note",
    "calls",
    "loops",
    "count",
    "parameters",
)  # attributes of nodes that must agree in identical layers
GENERAL = tuple(TABLES["any"].items())  # patterns and their symbols
WORDS: dict[str, dict[str, str]] = TABLES["words"]


def graph_of(model: Model, source: Source | None = None, target: Tokens | None = None, *, fold: bool = True) -> Graph:
    """Build the graph of one pass over a source and a target, by default over a small random example."""
    contract = ("encode", "decode", "output")  # the methods used here
    if not isinstance(model, nn.Module) or not all(hasattr(model, name) for name in contract):
        raise ArgumentError(
            f"model: {type(model).__name__} given, expected a whole model, such as load(…).model; the graph of a part "
            "is not drawn yet"
        )
    recorder = run_tiny(model, source, target)
    split_layer_loops(recorder.units, recorder.modules)
    # Keep only the units that the last one depends on.
    ordered = sorted(recorder.units.values(), key=lambda unit: unit.time)
    alive, queue = {ordered[-1].id}, [ordered[-1].id]
    while queue:
        fresh = recorder.units[queue.pop()].units_read - alive
        alive |= fresh
        queue += fresh
    nodes, edges = connect([unit for unit in ordered if unit.id in alive], recorder)
    paper, name = ("", type(model).__name__) if recorder.kind is None else (recorder.kind.paper, recorder.kind.name)
    groups = group_nodes(nodes, edges, recorder)
    graph = Graph(name, paper, tuple(nodes), tuple(edges), tuple(groups), recorder.sizes)
    lists = {name: list(each._modules) for name, each in recorder.modules.items() if isinstance(each, LISTS)}
    return fold_layers(graph, lists) if fold else graph


def name_units(units: Sequence[Unit]) -> dict[str, str]:
    """Give every unit a unique, reproducible name: a module's own name, or a word and a number."""
    names: dict[str, str] = {}
    for unit in units:
        own = {"module": unit.module, "input": f"input {unit.operation}"}
        own["learned"] = f"{unit.module}.{unit.operation}".removeprefix(".")
        first = name = own.get(unit.kind, f"{unit.module}/{unit.operation}")
        number = 2
        while name in names.values():
            name, number = f"{first} {number}", number + 1
        names[unit.id] = name
    return names


def connect(units: Sequence[Unit], recorder: Trace) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Build nodes and edges; an output read from a later unit is that of the previous step and gets its own node."""
    names = name_units(units)
    by_id = {unit.id: unit for unit in units}
    nodes = list[GraphNode]()
    edges = dict[GraphEdge, None]()  # an ordered set
    owner: dict[str, str] = {}  # the node that owns each module's parameters
    beginnings = first_values(units)
    previous = dict[str, str]()  # the node of each unit's output in the previous step
    outer = {each for unit in units for each in unit.units_read if by_id[each].time > unit.time}

    def join(sources: Iterable[str], target: str) -> None:
        origins = set(sources)
        for each in set(origins):  # an initial value needs no edge beside the unit that it initialises
            origins -= beginnings.get(each, set())
        for each in sorted(origins, key=lambda one: by_id[one].time):
            edges[GraphEdge(names[each], target)] = None

    for unit in units:
        reads = unit.units_read
        before = {each for each in reads if by_id[each].time > unit.time or (each == unit.id and each in outer)}
        for each in sorted(before, key=lambda one: by_id[one].time):
            if each not in previous:
                previous[each] = f"{names[each]}, step before"
                history = any(each in one.histories and one.time < by_id[each].time for one in units)
                nodes.append(previous_node(previous[each], by_id[each], unit, recorder, history))
                join(beginnings.get(each, ()), previous[each])
            edges[GraphEdge(previous[each], names[unit.id])] = None
        initial = set[str]().union(*(beginnings.get(each, set()) for each in before))
        join(reads - before - initial - {unit.id}, names[unit.id])
        nodes.append(make_node(unit, names[unit.id], owner, recorder, loops=unit.id in reads - before))
    return nodes, list(edges)


def previous_node(name: str, unit: Unit, reader: Unit, recorder: Trace, history: bool) -> GraphNode:
    """Make the node of a unit's output in the previous step or, with `history`, in all previous steps."""
    if history:
        text = description(unit, recorder) + HISTORY
        found = (symbol for pattern, symbol in own_symbols(recorder) if re.search(f"{pattern}$", text))
        label, every = "all steps before", next(found, "")
        # The outputs are stacked on a new axis before the last one.
        shape, last = ((*unit.shape[:-1], count, unit.shape[-1]) for count in (1, unit.calls - 1))
    else:
        symbol = layer_symbol_of(unit, recorder).partition(" =")[0]
        before = re.sub(r"_([itn])(?![a-z])", r"_{\1−1}", symbol)
        label, every = "step before", before if before != symbol or not symbol else f"{symbol}, before"
        shape, last = unit.shape, ()
    symbol = number_layer(every, *layer_of(unit, recorder))
    return GraphNode(
        name, "previous", label, symbol, shape, reader.phase, unit.module, layer_symbol=every, last_shape=last
    )


def make_node(unit: Unit, name: str, owner: dict[str, str], recorder: Trace, loops: bool) -> GraphNode:
    """Make the node of a unit; it owns the modules of the unit that no earlier node owns."""
    modules = recorder.modules
    module = modules.get(unit.module)
    fresh = [each for each in unit.modules if each not in owner]
    owned = None if fresh or not unit.modules or unit.kind == "learned" else owner[next(iter(unit.modules))]
    owner.update(dict.fromkeys(fresh, name))
    symbol = layer_symbol_of(unit, recorder)
    if unit.kind == "learned":
        parameters = [modules[unit.module]._parameters[unit.operation]]
    else:  # submodules are counted separately
        parameters = [parameter for each in fresh for parameter in modules[each]._parameters.values()]
    # A recurrent layer that is called once loops inside.
    whole = isinstance(module, Layer) and unit.kind == "module" and unit.id in recorder.outputs
    return GraphNode(
        name,
        unit.kind,
        label_of(unit, module, modules),
        number_layer(symbol, *layer_of(unit, recorder)),
        unit.shape,
        unit.phase,
        unit.module,
        tuple(fresh),
        unit.note,
        max(1, unit.calls),
        loops or whole,
        None if isinstance(module, ProjectionRows) else owned,
        parameters=sum(parameter.numel() for parameter in parameters if parameter is not None),
        layer_symbol=symbol,
        pairs=unit.pairs,
        last_shape=unit.last_shape if unit.last_shape != unit.shape else (),
    )


def first_values(units: Sequence[Unit]) -> dict[str, set[str]]:
    """Find the initial values of units that are read a step later: what the same place in the code reads first."""
    time = {unit.id: unit.time for unit in units}
    firsts: dict[str, set[str]] = {}
    for unit in units:
        for turns in unit.site_reads.values():
            reads = [{each.unit for each in turn} for turn in turns]
            later = set().union(*reads[1:])
            before = [each for each in later if time[each] >= unit.time]
            if len(before) == 1:
                firsts.setdefault(before[0], set()).update(reads[0] - later - {before[0]})
    return firsts


# ---- groups


def group_nodes(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], recorder: Trace) -> list[GraphGroup]:
    """Make groups for attentions and for the layers of a stack, outermost first.

    A node of the previous step is in the groups that contain all of its readers.
    """
    groups = dict[tuple[str, str], list[str]]()
    for node in nodes:
        if node.kind == "previous":
            continue
        for name in enclosing(node.module, recorder):
            if name != node.module or node.kind in ("operation", "stage", "learned"):
                groups.setdefault((node.side, name), []).append(node.name)
    frames = dict[str, GraphGroup]()
    framed: set[tuple[str, ...]] = set()  # to avoid a second frame around the same boxes
    for (side, name), members in sorted(groups.items(), key=lambda item: item[0][1].count(".")):
        if len(members) > 1 and tuple(members) not in framed and is_convex(set(members), edges):
            framed.add(tuple(members))
            label = group_label(recorder.modules[name], name, recorder.modules)
            around = (f"{side}:{each}" for each in reversed(enclosing(name, recorder)))
            parent = next((each for each in around if each in frames), None)
            frames[f"{side}:{name}"] = GraphGroup(f"{side}:{name}", label, tuple(members), parent, members=(name,))
    for node in nodes:
        if node.kind == "previous":
            readers = {edge.target for edge in edges if edge.source == node.name}
            for name, group in frames.items():
                if readers <= set(group.nodes):
                    frames[name] = replace(group, nodes=(*group.nodes, node.name))
    return list(frames.values())


def is_convex(members: set[str], edges: Sequence[GraphEdge]) -> bool:
    """Return whether no path leaves some boxes and returns to them, so that a frame can enclose them."""
    outside, queue = set[str](), list(members)
    while queue:
        here = queue.pop()
        fresh = {edge.target for edge in edges if edge.source == here} - members - outside
        outside |= fresh
        queue += fresh
    return not any(edge.source in outside and edge.target in members for edge in edges)


def enclosing(name: str, recorder: Trace) -> list[str]:
    """List the modules that contain a module, or are it, and are drawn as frames, outermost first."""
    parts = name.split(".")
    paths: list[str] = []
    for count in range(1, len(parts) + 1 if name else 0):
        path = ".".join(parts[:count])
        module, parent = recorder.modules[path], recorder.modules[".".join(parts[: count - 1])]
        if not module._modules or isinstance(module, nn.ModuleList | Layer):
            continue
        inside = paths and isinstance(recorder.modules[paths[-1]], Attentive)
        whole = isinstance(module, Attentive | MemoryHeads)
        if (whole and not inside) or isinstance(parent, nn.ModuleList):
            paths.append(path)
        elif isinstance(parent, nn.Sequential) or isinstance(module, nn.Sequential):
            if isinstance(module, nn.Sequential) and any(each._modules for each in module._modules.values() if each):
                continue  # a sequence of layers, each of which has its own frame
            paths.append(path)
        elif not inside and not isinstance(module, Attention) and not type(module).__module__.startswith("regard."):
            paths.append(path)  # modules of other packages are always framed
    return paths


# ---- loops over layers


def split_layer_loops(units: dict[str, Unit], modules: Mapping[str, nn.Module]) -> None:
    """Replace each operation that runs once for every layer by one unit per layer.

    Such an operation reads modules of only one layer in each call, and of a different layer in every call.
    """

    def number_in_list(unit: Unit) -> str | None:
        around, _, key = unit.module.rpartition(".")
        return key if unit.kind == "module" and isinstance(modules.get(around), nn.ModuleList) else None

    for unit in list(units.values()):
        layers = [{number_in_list(units[each.unit]) for each in reads} for reads in unit.reads]
        numbers = set[str | None]().union(*layers)
        differ = all(len(layer) == 1 for layer in layers) and None not in numbers and len(numbers) == len(layers)
        if unit.kind != "operation" or unit.calls < 2 or not differ:
            continue
        del units[unit.id]
        names = {call: f"{unit.id} in layer {call}" for call in range(1, unit.calls + 1)}
        for call, name in names.items():
            one = Unit(name, unit.kind, unit.module, unit.operation, unit.phase, unit.times[call - 1], unit.shape)
            one.reads = [unit.reads[call - 1]]
            one.note, one.layer = unit.note, (call, unit.calls)
            units[one.id] = one
        for reader in units.values():
            for reads in (*reader.reads, *(turn for turns in reader.site_reads.values() for turn in turns)):
                mine = {each for each in reads if each.unit == unit.id}
                reads -= mine
                reads |= {Output(names[each.call], 1) for each in mine}


# ---- layers that are alike


def fold_layers(graph: Graph, lists: Mapping[str, Sequence[str]]) -> Graph:
    """Fold consecutive identical layers into one with a count; `lists` has the keys of each list of modules."""
    inner_first = sorted(lists, key=lambda name: -name.count("."))
    for name, side in product(inner_first, ("encoder", "decoder")):
        paths = {key: f"{name}.{key}".removeprefix(".") for key in lists[name]}
        inside = {
            key: [node for node in graph.nodes if node.side == side and is_within(node.module, path)]
            for key, path in paths.items()
        }
        members = {key: nodes for key, nodes in inside.items() if nodes}
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


def is_alike(graph: Graph, name: str, members: dict[str, list[GraphNode]], one: str, other: str) -> bool:
    """Return whether two layers have the same boxes, shapes and edges, apart from the source of their input."""
    first, second = members[one], members[other]
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if any(getattr(a, key) != getattr(b, key) for key in COMPARED):
            return False
        within = ((node.name, f"{name}.{key}".removeprefix(".")) for node, key in ((a, one), (b, other)))
        # Compare names without the layer's own name and without the number that makes them unique.
        if len({re.sub(r" \d+$", "", inner.removeprefix(layer)) for inner, layer in within}) > 1:
            return False
    if read_by(graph, members, one) != read_by(graph, members, other):
        return False
    # The second layer reads the first, or the layers are parallel and read the same nodes.
    names = {node.name for node in second}
    outside = {edge.source for edge in graph.edges if edge.target in names} - names
    reads_first = any(node.name in outside for node in first)
    return reads_first or all(is_common(graph, members, source) for source in outside)


def is_common(graph: Graph, members: dict[str, list[GraphNode]], source: str) -> bool:
    """Return whether a node is outside some layers and more than one of them reads it."""
    if any(node.name == source for nodes in members.values() for node in nodes):
        return False
    readers = {edge.target for edge in graph.edges if edge.source == source}
    return sum(any(node.name in readers for node in nodes) for nodes in members.values()) > 1


def read_by(graph: Graph, members: dict[str, list[GraphNode]], key: str) -> list[tuple[int, tuple[str, ...]]]:
    """List the boxes that each box of a layer reads: inner boxes by number, common ones by name, others unnamed."""
    index = {node.name: number for number, node in enumerate(members[key])}
    reads: dict[int, list[str]] = {}
    for edge in graph.edges:
        if edge.target in index:
            origin = edge.source if is_common(graph, members, edge.source) else "before"
            reads.setdefault(index[edge.target], []).append(str(index.get(edge.source, origin)))
    return [(number, tuple(sorted(reads[number]))) for number in sorted(reads)]


def merge_run(graph: Graph, parts: Sequence[list[GraphNode]], names: Sequence[str], side: str) -> Graph:
    """Keep only the first of several identical layers; boxes that read another one now read the first."""
    target = {node.name: first.name for part in parts[1:] for node, first in zip(part, parts[0], strict=True)}
    first_names = {node.name for node in parts[0]}
    order = {node.name: number for number, node in enumerate(graph.nodes)}
    edges = dict[GraphEdge, None]()
    for edge in graph.edges:
        source, to = target.get(edge.source, edge.source), target.get(edge.target, edge.target)
        if order[source] < order[to]:  # drop edges from one layer to the next, which would go backwards
            edges[GraphEdge(source, to)] = None
    twins = {first.name: [part[number] for part in parts[1:]] for number, first in enumerate(parts[0])}
    nodes = []
    for node in graph.nodes:
        if node.name in first_names:
            others = tuple(name for twin in twins[node.name] for name in (*twin.modules, *twin.folded))
            symbol = node.layer_symbol.partition("‖")[0]  # the symbol that holds for all layers
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


# ---- the pass


@torch.no_grad()
def run_tiny(model: Model, source: Source | None = None, target: Tokens | None = None) -> Trace:
    """Trace a pass over a source and a target, by default over small random ones of the type that the model reads.

    The sizes of the batch and the lengths occur in no parameter's shape, so that they identify an axis everywhere.
    """
    config = getattr(model, "config", None)
    used = {size for parameter in model.parameters() for size in parameter.shape}
    used |= {value for value in getattr(config, "__dict__", {}).values() if isinstance(value, int)}
    letters = chain((prime for prime in PRIMES if prime not in used and prime + 1 not in used), PRIMES)
    device = next(model.parameters()).device
    sizes: dict[str, int] = {}
    if source is None:
        source = make_source(model, letters, sizes)
    classifies = type(model).decode is Model.decode or not getattr(config, "writes", True)
    # A kind whose configuration has `writes` reads a source only if it classifies or has `reads_source` set.
    alone = hasattr(config, "writes") and not classifies and not getattr(config, "reads_source", False)
    if target is None and not classifies:
        rows = len(source.lengths)
        n = min(next(letters), model.limit or PRIMES[-1])
        target, sizes["n"] = make_tokens(model, rows, n), n
    was_training = model.training
    model.eval()
    try:
        with trace(model) as recorder:
            if not alone:
                words = source.words if isinstance(source, Documents) else source
                recorder.add_input("source", words.pixels if isinstance(words, Pictures) else words.ids, "source")
            memory = model.encode(source.to(device))
            if classifies:
                scores = model.classify(memory)
            else:
                assert target is not None
                recorder.phase = "decoder"
                recorder.add_input("target", target.ids, "target")
                scores = model.output(model.decode(memory, target)[0])
            if model.projects:
                torch.softmax(scores, -1)
    finally:
        model.train(was_training)
    recorder.sizes = sizes
    return recorder


def make_source(model: Model, letters: Iterator[int], sizes: dict[str, int]) -> Source:
    """Make a small random source of the type that the kind reads, with unequal lengths so that there is padding."""
    rows = sizes["b"] = next(letters)
    kind = kind_of(model)
    reads = "text" if kind is None else kind.reads
    if reads == "pictures":
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, (rows, 3, PIXELS, PIXELS), generator=generator, dtype=torch.uint8)
        return Pictures(pixels.to(next(model.parameters()).device))
    if reads == "documents":
        sizes["l"], sizes["w"] = next(letters), next(letters)
        counts = torch.full((rows,), sizes["l"])
        counts[-1] -= 1
        sizes["s"] = int(counts.sum())
        return Documents(make_tokens(model, sizes["s"], sizes["w"]), counts.to(next(model.parameters()).device))
    known = [length for each in model.modules() if isinstance(length := getattr(each, "length", None), int)]
    sizes["m"] = min(next(letters), model.limit or PRIMES[-1], *known)  # a location score has a fixed length
    return make_tokens(model, rows, sizes["m"])


def make_tokens(model: nn.Module, rows: int, length: int) -> Tokens:
    """Make rows of random tokens that are in every vocabulary of the model; the last row is one token shorter."""
    vocabulary = min((each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding)), default=4)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(min(4, vocabulary - 1), vocabulary, (rows, length), generator=generator)
    lengths = torch.full((rows,), length)
    lengths[-1] = max(1, length - 1)
    return Tokens.of(ids.to(device), lengths.to(device))


# ---- words and symbols


def layer_symbol_of(unit: Unit, recorder: Trace) -> str:
    """Return the paper's symbol for a unit's output, with ℓ for its layer; empty if there is none."""
    text = description(unit, recorder)
    return next((symbol for pattern, symbol in (*own_symbols(recorder), *GENERAL) if re.search(pattern, text)), "")


def own_symbols(recorder: Trace) -> Iterator[tuple[str, str]]:
    """Yield the patterns and symbols of the model's paper."""
    notation: Notation | None = getattr(recorder.model, "notation", None)
    return chain.from_iterable(table.items() for table in notation.boxes) if notation is not None else iter(())


def layer_of(unit: Unit, recorder: Trace) -> tuple[int, int]:
    """Return a unit's layer in its stack, from 1, and the number of layers; the top layer for a unit in no layer."""
    if unit.layer is not None:
        return unit.layer
    parts = unit.module.split(".")
    for index, part in enumerate(parts):
        around = recorder.modules.get(".".join(parts[:index]))
        if part.isdigit() and isinstance(around, nn.ModuleList):
            return int(part) + 1, len(around)
    layers = getattr(getattr(recorder.model, "config", None), "layers", 1)
    return layers, layers


def number_layer(symbol: str, layer: int, layers: int) -> str:
    """Replace ℓ in a symbol by its layer: nothing for the top layer, and x_t for the first layer's input."""
    below, _, top = symbol.partition("‖")
    symbol = top if top and layer == layers else below
    symbol = symbol.replace("h^{(ℓ−1)}_t", "x_t" if layer == 1 else f"h^{{({layer - 1})}}_t")
    number = "" if layer == layers else f"({layer})"
    return symbol.replace("^{(ℓ)}", f"^{{{number}}}" if number else "").replace("(ℓ)", number)


def description(unit: Unit, recorder: Trace) -> str:
    """Describe a unit for patterns: side, module, operation, and a number if the module has several such units."""
    if unit.kind == "input":
        return f"{unit.phase}:input {unit.operation}"
    if unit.kind == "learned":
        return f"{unit.phase}:{unit.module}.{unit.operation} learned"
    same = attrgetter("phase", "module", "operation", "kind", "layer")
    alike = [
        each.id for each in sorted(recorder.units.values(), key=lambda each: each.time) if same(each) == same(unit)
    ]
    number = alike.index(unit.id) + 1
    operation = (
        f"{unit.operation}()" if unit.kind == "operation" and unit.operation in WORDS["stages"] else unit.operation
    )
    return f"{unit.phase}:{unit.module} {operation}" + (f" {number}" if number > 1 else "")


def label_of(unit: Unit, module: nn.Module | None, modules: Mapping[str, nn.Module]) -> str:
    """Return the label of a unit's box."""
    if unit.kind == "input":
        return unit.operation
    if unit.kind == "learned":
        return "learned query" if isinstance(module, Learned) else unit.operation.replace("_", " ")
    if unit.kind == "stage":
        if unit.operation == "weights":
            return unit.note
        return f"÷ {unit.note}" if unit.operation == "scale" else WORDS["stages"][unit.operation]
    if unit.kind == "operation":
        label = WORDS["operations"].get(unit.operation, unit.operation.strip("_").replace("_", " "))
        if unit.note:
            label = {"multiply": f"× {unit.note}", "divide": f"÷ {unit.note}"}.get(label, label)
        return label
    assert module is not None
    if isinstance(module, Layer) and unit.shape and unit.shape[-1] != module.size:
        return "linear"  # only its input projection; the gates are computed later
    parent, _, key = unit.module.rpartition(".")
    projects = isinstance(module, ProjectionRows | SlicedProjection)
    if (projects or isinstance(modules.get(parent), Heads | GridSelfAttention)) and key in WORDS["projections"]:
        return WORDS["projections"][key]
    if isinstance(module, Layer):
        return WORDS["cells"][module.kind]
    if isinstance(module, nn.Conv2d):
        return f"{module.kernel_size[0]} × {module.kernel_size[1]} convolution"
    name = type(module).__name__
    if name in ("Sinusoidal", "Embedded"):
        return "add positions" if module.join == "add" else "append positions"
    return WORDS["classes"].get(name, name)


def group_label(module: nn.Module, name: str, modules: Mapping[str, nn.Module]) -> str:
    """Return the label of a frame around boxes."""
    key = name.rpartition(".")[2]
    if isinstance(module, Heads):
        which = {"attention": "self-attention", "cross": "cross-attention"}.get(key, key)
        return f"{which}, {module.heads} heads" if module.heads > 1 else which
    if isinstance(module, GridSelfAttention):
        return "self-attention over places"
    if isinstance(module, Attention):
        usual = {"attention": "attention", "cross": "attention", "intra": "attention to its own past"}
        return usual.get(key, f"attention over {key}" if key in ("words", "sentences") else f"attention: {key}")
    if isinstance(module, MemoryHeads):
        return "heads that write and read the memory"
    if isinstance(module, Attentive):
        return type(module).__name__
    if isinstance(module, nn.Sequential) and key == "feed":
        return "feed-forward"
    if key.isdigit():
        around = name.rpartition(".")[0]
        row = around.rpartition(".")[2]
        named = isinstance(modules[around], nn.ModuleList) and row not in ("", "blocks")
        if row == "scores":
            return "a head's own score"
        return row.removesuffix("s") if named else "layer" if row == "blocks" else "block"
    return key
