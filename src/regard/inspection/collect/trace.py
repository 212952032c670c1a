"""A trace of one pass through a model: the parts that ran, in order, with their shapes and the outputs that they read.

Every call of a torch function passes through a `TorchFunctionMode`. The modules on Python's stack determine the part
that a call belongs to, in whichever method it occurs. The trace maps each tensor to the units that it stems from, so
that there is an edge if and only if numbers passed along it. A hook on every module prevents models from taking fast
paths that bypass their modules.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import Attention, Attentive, Prepared, ProjectionRows, Score, Span, Weighting, call_records
from regard.inspection.collect.attention_stages import stages_of
from regard.models import KINDS, Dropout, Kind, Layer

Phase = Literal["encoder", "decoder"]
UnitKind = Literal["input", "learned", "module", "operation", "stage"]
Shape = tuple[int, ...]
# fmt: off
# Functions that move numbers or query their layout, but compute none.
STRUCTURAL = {
    "__getitem__", "__setitem__", "__get__", "__len__", "__contains__", "__bool__", "__reversed__", "__iter__",
    "view", "view_as", "reshape", "reshape_as", "transpose", "swapaxes", "permute", "movedim", "unbind", "chunk",
    "split", "tensor_split", "stack", "expand", "expand_as", "contiguous", "to", "float", "double", "half",
    "bfloat16", "type", "type_as", "long", "int", "bool", "detach", "clone", "flatten", "unflatten", "squeeze",
    "unsqueeze", "index_select", "select", "narrow", "gather", "take_along_dim", "masked_fill", "masked_fill_",
    "masked_scatter", "masked_scatter_", "masked_select", "where", "pad", "roll", "flip", "copy_", "fill_", "zero_",
    "repeat", "repeat_interleave", "tile", "t", "mT", "T", "clamp", "clamp_", "clip", "nan_to_num", "dropout",
    "unfold", "index_copy", "index_copy_", "index_put_", "index_fill_", "scatter", "scatter_", "numel", "size",
    "dim", "item", "tolist", "cpu", "cuda", "requires_grad_", "set_", "resize_", "broadcast_to", "broadcast_tensors",
    "meshgrid", "hstack", "vstack", "as_strided", "diagonal", "tril", "triu", "numpy", "data_ptr",
}
CREATORS = {
    "new_zeros", "new_full", "new_ones", "new_empty", "new_tensor", "zeros_like", "ones_like", "empty_like",
    "full_like",
}  # they take only dtype, device or shape from their argument
ELEMENTWISE = {
    "add", "sub", "rsub", "mul", "div", "true_divide", "__add__", "__radd__", "__iadd__", "__sub__", "__rsub__",
    "__isub__", "__mul__", "__rmul__", "__imul__", "__truediv__", "__rtruediv__", "__itruediv__", "add_", "sub_",
    "mul_", "div_", "multiply",
}
# fmt: on
FIRST_ALONE = {"to", "type_as", "view_as", "expand_as", "reshape_as"}  # the second argument gives only dtype or shape
SKIPPED = (nn.Identity, nn.Dropout, Dropout)


class Parameter(NamedTuple):
    """A parameter as an origin of numbers."""

    module: str
    name: str


class Output(NamedTuple):
    """The output of a unit in one of its calls."""

    unit: str
    call: int


Origin = Output | Parameter


@dataclass
class Unit:
    """One box of a graph: a module, an operation, a stage of an attention, a parameter, or an input."""

    id: str
    kind: UnitKind
    module: str  # the module's dotted name; for an operation or a stage, of the module that it belongs to
    operation: str  # a torch function, a function's name, a stage or a class
    phase: Phase
    time: int  # time of its last run: in a loop, all units are then in the order of one step
    shape: Shape = ()
    modules: dict[str, None] = field(default_factory=dict)  # all modules whose parameters it uses, in order
    reads: list[set[Output]] = field(default_factory=list)  # the outputs that each call reads
    note: str = ""
    last_shape: Shape = ()  # in its last call
    pairs: bool = False  # its last axis counts keys
    times: list[int] = field(default_factory=list, repr=False)  # end time of each call
    layer: tuple[int, int] | None = None  # in a loop over layers: the layer's number, from 1, and the number of layers
    histories: set[str] = field(default_factory=set)  # units of which it reads the outputs of several calls at once
    # The outputs read at each place in the code, call by call.
    site_reads: dict[Any, list[set[Output]]] = field(default_factory=dict, repr=False)
    sites: set[Any] = field(default_factory=set, repr=False)
    frame: FrameType | None = field(default=None, repr=False)

    @property
    def calls(self) -> int:
        """Count how many times the unit ran."""
        return len(self.reads)

    @property
    def units_read(self) -> set[str]:
        """Return the units that any of its calls reads."""
        return {each.unit for reads in self.reads for each in reads}


def scalar_in(arguments: list[Any]) -> str | None:
    """Return the first number other than 0 and 1 among the positional arguments, as text; a root is written as √."""
    for value in arguments[0]:
        if isinstance(value, int | float) and not isinstance(value, bool) and value not in (0, 1):
            square = value * value
            if not float(value).is_integer() and math.isclose(square, round(square), rel_tol=1e-6):
                return f"√{round(square)}"
            return f"{value:.4g}"
    return None


def is_in_place(name: str, options: dict[str, Any]) -> bool:
    """Return whether a call of a torch function writes into an existing tensor."""
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in options


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def storage_of(tensor: Tensor) -> int:
    """Return the address of a tensor's storage, which views share."""
    return tensor.untyped_storage().data_ptr()


class Trace(TorchFunctionMode):
    """A mode that records the units of a pass while it is active."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.kind = model, kind_of(model)
        self.sizes: dict[str, int] = {}  # sizes in the pass, by letter
        self.units: dict[str, Unit] = {}
        self.phase: Phase = "encoder"
        self.modules = dict(model.named_modules())
        self.names = {id(module): name for name, module in self.modules.items()}
        self.owners: dict[int, list[Parameter]] = {}
        for name, module in self.modules.items():
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    self.owners.setdefault(id(parameter), []).append(Parameter(name, key))
        self.origins: dict[int, tuple[Tensor, frozenset[Origin]]] = {}  # by id of the tensor, which is kept alive
        self.writes: dict[int, set[Origin]] = {}  # by storage: origins of in-place writes
        self.parts: dict[int, tuple[int, list[frozenset[Origin]]]] = {}  # results of stack: dimension, origins of parts
        self.root: CodeType | None = None
        self.time = 0
        self.inside: list[set[Origin]] = []  # for each attention that is running: the origins that it reads
        self.outputs: dict[str, tuple[int, ...]] = {}  # shapes of outputs, from hooks

    # ---- where numbers come from

    def origin(self, tensor: Tensor) -> frozenset[Origin]:
        """Return the units and parameters that a tensor's numbers come from."""
        if id(tensor) not in self.origins and id(tensor) in self.owners:
            return frozenset(self.owners[id(tensor)][:1])
        origins: frozenset[Origin] = self.origins[id(tensor)][1] if id(tensor) in self.origins else frozenset()
        return origins | self.writes.get(storage_of(tensor), frozenset())

    def add_input(self, name: str, tensor: Tensor, words: str) -> None:
        """Register an input of the model as a unit."""
        unit = self.unit(f"input {name}", "input", "", words)
        unit.shape = tuple(tensor.shape)
        self.origins[id(tensor)] = (tensor, frozenset([Output(unit.id, 0)]))

    def unit(self, key: str, kind: UnitKind, module: str, operation: str) -> Unit:
        """Return the unit of a key in this phase; create it if necessary."""
        name = f"{self.phase}:{key}"
        if name not in self.units:
            self.time += 1
            self.units[name] = Unit(name, kind, module, operation, self.phase, self.time)
        return self.units[name]

    # ---- torch functions

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a torch function and record the call."""
        result = function(*args, **(kwargs or {}))
        # Skip this method's own frame.
        self.record(function, [args, kwargs or {}], result, sys._getframe(1))
        return result

    def record(self, function: Any, arguments: list[Any], result: Any, frame: FrameType) -> None:
        """Record a call: the unit that it belongs to, its inputs, and the origin of its results."""
        name = getattr(function, "__name__", str(function))
        outputs = list(tensors_in(result))
        if name == "__setitem__":
            outputs = list(tensors_in(arguments[0][:1]))
        inputs = list(tensors_in(arguments[0][:1] if name in FIRST_ALONE else arguments))
        if not outputs or not inputs or name in CREATORS:
            return
        merged: frozenset[Origin] = frozenset().union(*map(self.origin, inputs))
        if self.inside:
            self.inside[-1].update(merged)
        else:
            part = self.select_part(name, arguments)
            if part is None:
                part = self.attribute(name, arguments, inputs, merged, outputs, frame) or merged
            merged = part
        if not merged:
            return
        in_place = is_in_place(name, arguments[1])
        for output in outputs:
            if not in_place and any(output is each for each in inputs):
                continue  # the function returned its argument
            if in_place:
                self.writes.setdefault(storage_of(output), set()).update(merged)
            self.origins[id(output)] = (output, merged)
        if name == "stack" and not self.inside:
            dim = arguments[0][1] if len(arguments[0]) > 1 else arguments[1].get("dim", 0)
            self.parts[id(outputs[0])] = (dim % outputs[0].ndim, [self.origin(each) for each in arguments[0][0]])

    def select_part(self, name: str, arguments: list[Any]) -> frozenset[Origin] | None:
        """Return the origin of one of several stacked tensors if an index selects it; otherwise None."""
        if name != "__getitem__" or id(arguments[0][0]) not in self.parts:
            return None
        dim, origins = self.parts[id(arguments[0][0])]
        index = arguments[0][1] if isinstance(arguments[0][1], tuple) else (arguments[0][1],)
        if len(index) <= dim or type(index[dim]) is not int or not all(type(each) is slice for each in index[:dim]):
            return None
        return origins[index[dim]]

    def attribute(
        self, name: str, arguments: list[Any], inputs: list[Tensor], merged: frozenset[Origin], outputs: list[Tensor],
        frame: FrameType,
    ) -> frozenset[Origin] | None:  # fmt: skip
        """Return the unit that a call belongs to, as the origin of its results; None if it belongs to none."""
        stack, frames, site, function = self.read_stack(frame)
        called, place = (None, site) if function is None else function
        parameters = {each for each in merged if isinstance(each, Parameter)}
        box = self.find_box(stack, inputs)
        if box is not None:
            own = {each: owner for each in parameters if (owner := self.owner_within(each, box)) is not None}
            if name in STRUCTURAL or not outputs[0].is_floating_point():
                return None  # it only moves numbers that the module will use
            path = self.names[id(box)]
            unit = self.unit(path, "module", path, type(box).__name__)
            for owner in sorted(own.values()):
                unit.modules[owner] = None
            outermost = next((each for module, each in reversed(frames) if module is box), None)
            again = (name, site) in unit.sites and (outermost is None or outermost is not unit.frame)
            self.read(unit, (name, site), outermost, merged - own.keys(), again)
            if unit.calls == 1 and unit.id not in self.outputs:
                unit.shape = tuple(outputs[0].shape)
            return frozenset([Output(unit.id, unit.calls)])
        if not merged or not outputs[0].is_floating_point() or isinstance(stack[0], Score | Span | Weighting):
            return None
        if any(isinstance(each, Attention) for each in stack):
            return None  # it computes a Look, which is not part of the pass
        owner = self.names[id(stack[0])]
        key = f"{owner}/{place}"
        begun = self.units.get(f"{self.phase}:{key}")
        inside = begun is not None and called is not None and begun.frame is called  # the call continues a function
        if name in STRUCTURAL:
            if begun is not None and inside and begun.calls == 1 and merged == {Output(begun.id, 1)}:
                begun.shape = tuple(outputs[0].shape)  # the function may return its result in this shape
            return None
        if not inside and not self.computes(name, arguments, inputs, merged):
            return None
        unit = self.unit(key, "operation", owner, name if called is None else called.f_code.co_name)
        if called is None and name in ELEMENTWISE and (scalar := scalar_in(arguments)) is not None:
            unit.note = scalar
        again = (name, site) in unit.sites if called is None else called is not unit.frame
        self.read(unit, (name, site), called, merged, again)
        if unit.calls == 1:
            in_place = called is not None and is_in_place(name, arguments[1])
            # After a write into a view, use the shape of the view's base.
            whole = outputs[0]._base if in_place and outputs[0]._base is not None else outputs[0]
            unit.shape = tuple(whole.shape)
        return frozenset([Output(unit.id, unit.calls)])

    def read(self, unit: Unit, site: Any, frame: FrameType | None, origins: Iterable[Origin], again: bool) -> None:
        """Add inputs to a unit's current call; `again` begins a new call."""
        if not unit.reads or again:
            unit.reads.append(set())
            unit.times.append(0)
            unit.sites.clear()
        unit.frame = frame
        unit.sites.add(site)
        # An output of the unit in this same call is not an input.
        mine = (unit.id, unit.calls)
        reads = {self.output_of(origin) for origin in sorted(origins, key=str) if origin != mine}
        unit.reads[-1] |= reads
        unit.site_reads.setdefault(site, []).append(reads)
        self.time += 1
        unit.time = unit.times[-1] = self.time

    def output_of(self, origin: Origin) -> Output:
        """Return an origin as the output of a unit; a parameter that no surrounding module uses becomes a unit."""
        if isinstance(origin, Output):
            return origin
        path = f"{origin.module}.{origin.name}".removeprefix(".")
        for phase in ("encoder", "decoder"):
            if f"{phase}:{path}" in self.units:  # both sides may read the same parameter
                return Output(f"{phase}:{path}", 0)
        unit = self.unit(path, "learned", origin.module, origin.name)
        if not unit.shape:
            unit.shape = tuple(cast(Tensor, self.modules[origin.module]._parameters[origin.name]).shape)
            unit.modules[origin.module] = None
        return Output(unit.id, 0)

    # ---- whose call it is

    def read_stack(
        self, frame: FrameType | None
    ) -> tuple[list[nn.Module], list[tuple[nn.Module, FrameType]], Any, tuple[FrameType, Any] | None]:
        """Return the model's modules on Python's stack, innermost first, their frames, and the place in the code.

        The last item is the frame of the plain function that the innermost module calls and the place of that call, if
        there is one: all operations in such a function form one unit.
        """
        stack: list[nn.Module] = []
        frames: list[tuple[nn.Module, FrameType]] = []
        site: list[tuple[int, int]] = []
        named: FrameType | None = None
        outer = 0
        while frame is not None and frame.f_code is not self.root:
            this = frame.f_locals.get("self")
            if isinstance(this, nn.Module) and id(this) in self.names:
                if not stack:
                    outer = len(site)
                if not stack or stack[-1] is not this:
                    stack.append(this)
                frames.append((this, frame))
            elif not stack and not frame.f_code.co_name.startswith("<"):  # a lambda or the like
                package = frame.f_globals.get("__name__", "").partition(".")[0]
                named = named if package in ("torch", "jaxtyping", "contextlib") else frame
            site.append((id(frame.f_code), frame.f_lasti))
            frame = frame.f_back
        function = None if named is None or not stack else (named, tuple(site[outer:]))
        return stack or [self.model], frames, tuple(site), function

    def find_box(self, stack: list[nn.Module], inputs: list[Tensor]) -> nn.Module | None:
        """Find the outermost module on the stack that is drawn as one box, or the box whose parameters are used."""
        for module in reversed(stack):
            if is_box(module) or (isinstance(module, Score) and not self.is_part_of_attention(module)):
                return module
        inner = self.names[id(stack[0])]
        for tensor in inputs:
            origin = self.origin(tensor)
            owners = [each.module for each in origin if isinstance(each, Parameter)]
            if len(owners) == len(origin):  # the tensor stems from parameters only
                for owner in owners:
                    if owner != inner and is_within(owner, inner):
                        return self.box_around(owner)
        return None

    def is_part_of_attention(self, score: Score) -> bool:
        """Return whether a score belongs to an attention, which shows the score as a stage."""
        parts = self.names[id(score)].split(".")
        return any(isinstance(self.modules[".".join(parts[:count])], Attention) for count in range(len(parts)))

    def box_around(self, name: str) -> nn.Module | None:
        """Find the outermost module around a module that is drawn as one box."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            module = self.modules[".".join(parts[:count])]
            if is_box(module) and not isinstance(module, Score):
                return module
        return None

    def owner_within(self, parameter: Parameter, box: nn.Module) -> str | None:
        """Find the part of a box that owns a parameter, if any; a projection shared by q, k and v belongs to each."""
        owners = self.owners[id(self.modules[parameter.module]._parameters[parameter.name])]
        shared = box.heads[0].projection if isinstance(box, ProjectionRows) else None
        for each in owners:
            if is_within(each.module, self.names[id(box)]):
                return each.module
            if shared is not None and self.modules[each.module] is shared:
                return each.module
        return None

    def computes(self, name: str, arguments: list[Any], inputs: list[Tensor], merged: frozenset[Origin]) -> bool:
        """Return whether an operation gets a box: it computes, joins several sources, or applies a number."""
        if name in ("cat", "concat", "concatenate"):
            return len(arguments[0][0]) > 1
        if name not in ELEMENTWISE:
            return True
        if sum(bool(self.origin(each)) for each in inputs) > 1:
            return len({each.unit if isinstance(each, Output) else each for each in merged}) > 1
        read = all(isinstance(each, Output) and self.units[each.unit].kind == "input" for each in merged)
        return scalar_in(arguments) is not None and not read

    # ---- attentions

    def attend(self, attention: Attention, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Wrap an attention's `attend_projected` so that it also records its stages."""
        name = self.names[id(attention)]

        def attend_projected(
            projected_query: Tensor, prepared: Prepared, query: Tensor, span: Span | None, heads: bool = False
        ) -> Tensor:
            self.inside.append(set())
            try:
                context = original(projected_query, prepared, query, span, heads=heads)
                call = (projected_query, prepared, query, span, heads)
                with torch._C.DisableTorchFunction():
                    stages = stages_of(attention, *call, tuple(context.shape))
            finally:
                used = self.inside.pop()
            tensors = {"q": projected_query, "k": prepared.keys, "v": prepared.values, "x": query}
            origins = {key: self.origin(tensor) for key, tensor in tensors.items()}
            parameters = {each for each in used if isinstance(each, Parameter)}
            last: Output | None = None
            for stage in stages:
                unit = self.unit(f"{name}#{stage.name}", "stage", name, stage.name)
                unit.shape, unit.last_shape = unit.shape or stage.shape, stage.shape
                unit.note, unit.pairs = stage.note, stage.pairs
                reads: set[Origin] = {each for key in stage.reads for each in origins[key]}
                counts = Counter(each.unit for each in reads if isinstance(each, Output))
                unit.histories.update(name for name, count in counts.items() if count > 1)
                part = f"{name}.{stage.part}" if stage.part else None
                for parameter in sorted(parameters):
                    if part is not None and is_within(parameter.module, part):
                        unit.modules[parameter.module] = None
                if last is not None and stage.follows:
                    reads.add(last)
                self.read(unit, "call", None, reads, again=True)
                last = Output(unit.id, unit.calls)
            self.writes.pop(storage_of(context), None)
            assert last is not None
            self.origins[id(context)] = (context, frozenset([last]))
            return context

        return attend_projected


@contextmanager
def trace(model: nn.Module) -> Iterator[Trace]:
    """Record what a model computes inside the block; restore the model at its end."""
    recorder = Trace(model)
    recorder.root = sys._getframe(2).f_code  # the code that opened the block

    def note(name: str, module: nn.Module, args: Any, output: Any) -> None:
        first = next(tensors_in(output), None)
        if first is not None:
            shape = recorder.outputs.setdefault(f"{recorder.phase}:{name}", tuple(first.shape))
            if (unit := recorder.units.get(f"{recorder.phase}:{name}")) is not None:
                unit.shape = shape

    with ExitStack() as stack:
        for name, module in recorder.modules.items():
            stack.callback(module.register_forward_hook(partial(note, name)).remove)
            if isinstance(module, Attention):
                vars(module)["attend_projected"] = recorder.attend(module, module.attend_projected)
                stack.callback(vars(module).pop, "attend_projected")
        stack.enter_context(call_records.stay_eager())
        stack.enter_context(torch.no_grad())
        stack.enter_context(recorder)
        yield recorder
    for unit in recorder.units.values():
        unit.frame = None


def is_box(module: nn.Module) -> bool:
    """Return whether a module is drawn as one box: a recurrent layer, PyTorch's attention, or a leaf module."""
    if isinstance(module, Layer | nn.MultiheadAttention):
        return True
    if isinstance(module, (Attentive, Span, Weighting, *SKIPPED)):
        return False
    if isinstance(module, Score) and not module._parameters:
        return False
    return not module._modules


def is_within(name: str, module: str) -> bool:
    """Return whether a dotted name is that of a module or of a part of it."""
    return name == module or not module or name.startswith(module + ".")


def kind_of(model: nn.Module) -> Kind | None:
    """Find the row of a model's kind in `KINDS`; None if there is none."""
    config = getattr(model, "config", None)
    return next((kind for kind in KINDS.values() if type(config) is kind.config), None)
