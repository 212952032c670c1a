"""One teacher-forced pass under `watch`: looks, memory, log-probabilities, and the inputs and outputs of modules.

A pass can record the modules' inputs and outputs, so that a walk shows the model's own numbers. Forward hooks record
modules that are called; a decoder's cells run through a step method, which is wrapped to record them.

`watch` records attentions only. The heads of a Neural Turing Machine (`MemoryHeads`) are recorded by a forward hook:
their weights over the memory become views, their steps can be shown in numbers, and each head can be silenced.
"""

# n pieces of the output, including START or END · r rows, copies of the example
# v words or labels · g gates · p parts of a state · d width of a state or a controller · b rows of a batch
# h heads of a kind, hh both · m slots
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import GridSelfAttention, Heads, ProjectionRows, Residual, SlicedProjection, call_records
from regard.config import parse
from regard.decoding import Options, check_finite
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Addressing, Stage, View, name_places
from regard.models import KINDS, Documents, Layer, Machine, Memory, MemoryHeads, Model, Pictures, shift_weights
from regard.tasks import ForcedExample, Item, Side, TrainedRun

CLOSED = -1e4  # its sigmoid is 0
PLACES = "The head, and its places in the memory"  # heading of stages
# Modules that a walk needs. Feature maps [b c h w] are large and are recorded only in attention over a grid.
RECORDED = (
    nn.Linear, nn.LayerNorm, nn.Identity, nn.ReLU, nn.GELU, nn.SiLU, Heads, ProjectionRows, SlicedProjection,
    GridSelfAttention, Residual, Layer, MemoryHeads,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of a module: copies of its positional inputs and of its output."""

    inputs: tuple[Any, ...]
    output: Any


@dataclass(frozen=True, eq=False)
class CellStep:
    """One step of a recurrent cell."""

    projected: Float[Tensor, "r g"]  # W x + b
    before: Float[Tensor, "r p d"]  # the initial state; in an LSTMN, the vectors read from both tapes
    after: Float[Tensor, "r p d"]
    added: Float[Tensor, "r d"] | None = None  # added to c in an LSTMN's deep fusion


@dataclass(frozen=True, eq=False)
class HeadStep:
    """One step of memory heads: their inputs, and their weights after the step."""

    heads: MemoryHeads
    hidden: Float[Tensor, "b d"]
    before: Machine
    weights: Float[Tensor, "b hh m"]


@dataclass(eq=False)
class Recording:
    """The module calls and cell steps of a pass, in order, by the modules' dotted names."""

    calls: dict[str, list[ModuleCall]] = field(default_factory=dict)
    steps: dict[str, list[CellStep]] = field(default_factory=dict)

    def output(self, name: str, row: int = 0) -> Float[Tensor, " d"]:
        """Return a module's output at one position, over all of its calls."""
        return pick_row([call.output for call in self.calls[name]], row)

    def input(self, name: str, row: int = 0) -> Float[Tensor, " d"]:
        """Return a module's input at one position, over all of its calls."""
        return pick_row([call.inputs[0] for call in self.calls[name]], row)


def pick_row(tensors: list[Tensor], row: int) -> Float[Tensor, " d"]:
    """Return row `row` of the concatenation of tensors [*b d] that belong to one example."""
    for tensor in tensors:
        rows = tensor.reshape(-1, tensor.shape[-1])
        if row < len(rows):
            return rows[row].float().cpu()
        row -= len(rows)
    raise AssertionError("a module was called for as many positions as there are")


@contextmanager
def record_modules(model: nn.Module, kinds: tuple[type[nn.Module], ...] = RECORDED) -> Iterator[Recording]:
    """Record calls of modules of some `kinds`, and steps of recurrent layers, inside the block and in this thread."""
    recording, mine = Recording(), threading.get_ident()
    hooks, stepped = list[Any](), list[tuple[nn.Module, str]]()

    def hook(name: str, module: nn.Module, maps: bool) -> None:
        pending: list[tuple[Any, ...]] = []

        def is_recorded(args: tuple[Any, ...]) -> bool:
            large = len(args) > 0 and isinstance(args[0], Tensor) and args[0].ndim > 3
            return threading.get_ident() == mine and (maps or not large)

        def before(_: nn.Module, args: tuple[Any, ...]) -> None:
            if is_recorded(args):
                pending.append(copy_tensors(args))

        def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if is_recorded(args):
                recording.calls.setdefault(name, []).append(ModuleCall(pending.pop(), copy_tensors(output)))

        hooks.extend((module.register_forward_pre_hook(before), module.register_forward_hook(after)))

    def replace_step(name: str, module: nn.Module, method: str) -> None:
        original: Callable[..., Tensor] = getattr(module, method)

        def step(*args: Any) -> Tensor:
            output = original(*args)
            if threading.get_ident() == mine:
                projected, before, *added = copy_tensors(args)
                # Concatenated states [h; c] become two rows.
                before, after = (
                    state if state.ndim == 3 else state.unflatten(-1, (2, -1)) for state in (before, output.clone())
                )
                recording.steps.setdefault(name, []).append(CellStep(projected, before, after, *added))
            return output

        module.__dict__[method] = step  # shadows the class's method, as methods have no hooks
        stepped.append((module, method))

    grids = {name for name, module in model.named_modules() if isinstance(module, GridSelfAttention)}
    for name, module in model.named_modules():
        maps = name in grids or name.rpartition(".")[0] in grids
        if isinstance(module, kinds) or (maps and Layer in kinds and isinstance(module, nn.Conv2d)):
            hook(name, module, maps)
        method = getattr(module, "step_method", None)
        if method is not None and Layer in kinds:
            replace_step(name, module, method)
    try:
        yield recording
    finally:
        for each in hooks:
            each.remove()
        for module, method in stepped:
            del module.__dict__[method]


def copy_tensors(value: Any) -> Any:
    """Copy a tensor, or the tensors in a tuple, because the model may overwrite them later."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if not isinstance(value, tuple):
        return value
    copies = map(copy_tensors, value)
    return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)  # named tuples keep their type


@torch.no_grad()
def force(
    run: TrainedRun, item: Item, *, target: str | None = None, tree: bool = True, **options: Any
) -> ForcedExample:
    """Prepare a teacher-forced pass over an item and its output: `target`, or the result of a search with `options`.

    The item is a text or, for a run that reads pictures, a file or its pixels; a target is a text or a label. For a
    language model the item itself is the output.
    """
    parsed = parse(Options, options)
    if KINDS[run.settings.kind].reads != "pictures" and not isinstance(item, str):
        raise ArgumentError(f"item: {type(item).__name__} given, expected a text: {run.folder} reads no pictures")
    run.model.eval()
    return run.force(item, target, parsed, tree)


@dataclass(eq=False)
class ForwardPass:
    """A record of one forward pass: every `Look`, the memory, and the log-probability of each piece."""

    forced: ForcedExample
    model: Model
    looks: call_records.Looks
    memory: Memory
    logits: Float[Tensor, "n v"]
    log_probs: Float[Tensor, " n"]
    head_steps: list[HeadStep] = field(default_factory=list)  # steps of memory heads; those over the source come first
    recording: Recording = field(default_factory=Recording)  # calls of all modules that a walk needs, if requested

    @cached_property
    def sides(self) -> dict[str, Side]:
        """Return the exhibit's sides, including those that only the model defines: places of a grid, memory slots."""
        sides = dict(self.forced.sides)
        if self.head_steps:
            sides["memory"] = name_places([str(slot + 1) for slot in range(self.head_steps[0].weights.shape[-1])])
        grid, grids = self.memory.grid, 0
        for name in self.looks:
            if isinstance(self.looks.modules[name], GridSelfAttention):  # its grid may differ from the last stage's
                height, width = self.looks[name].weights.shape[-2:]
                grid, grids = (height, width), grids + 1
        if isinstance(self.forced.source, Pictures) and self.forced.label is not None and len(self.looks) > grids:
            sides["label"] = Side((self.forced.output,), (0,), (self.forced.output,))
        if grid is not None:  # a place is named by its row and column, from 1
            names = [f"{y + 1},{x + 1}" for y in range(grid[0]) for x in range(grid[1])]
            sides["places"] = name_places(names, (grid[0], grid[1]))
        return sides

    def by_sentence(self, name: str) -> bool:
        """Return whether an attention handles each sentence of a document separately, as a batch row of its own."""
        several = len(self.looks[name].weights) > 1
        return isinstance(self.forced.source, Documents) and (several or name == "words")

    def names(self, side: str, count: int) -> tuple[str, ...]:
        """Return the names of a side's pieces; numbers from 1 if the side is unknown."""
        return self.sides[side].names if side in self.sides else tuple(map(str, range(1, count + 1)))


@torch.no_grad()
def watch_forward(model: Model, forced: ForcedExample, *, record: bool = False) -> ForwardPass:
    """Run the pass under `watch`; with `record`, also keep the inputs and outputs of modules, as a walk needs them."""
    recorder = record_modules(model, RECORDED if record else (MemoryHeads,))
    with call_records.watch_call(model) as looks, recorder as recording:
        memory = forced.memory(model)
        logits = forced.logits(model, memory=memory)
        log_probs = forced.pick(logits)[0]
    check_finite(model, log_probs)
    head_steps = [
        HeadStep(module, call.inputs[0], call.inputs[1], call.output[1])
        for name, module in model.named_modules()
        if isinstance(module, MemoryHeads)
        for call in recording.calls.get(name, ())
    ]
    return ForwardPass(forced, model, looks, memory, logits[0], log_probs, head_steps, recording)


# ---- heads of a memory


class MemoryView(NamedTuple):
    """A view of the read heads or the write heads, while the machine reads its source or writes its output."""

    title: str
    rows: Literal["source", "written"]
    writes: bool


MEMORY_VIEWS = {
    "heads.source.write": MemoryView("reading the source: where it writes", "source", True),
    "heads.source.read": MemoryView("reading the source: where it reads", "source", False),
    "heads.target.write": MemoryView("writing: where it writes", "written", True),
    "heads.target.read": MemoryView("writing: where it reads", "written", False),
}


def memory_views(steps: Sequence[HeadStep], source: int) -> Iterator[View]:
    """Yield views of the heads' weights over the memory at each step; the first `source` steps read the source."""
    if not steps:
        return
    weights = torch.stack([step.weights[0] for step in steps], 1).float().cpu()  # [hh n m]
    for layer, (name, view) in enumerate(MEMORY_VIEWS.items()):
        heads = weights.chunk(2)[view.writes]
        part = heads[:, :source] if view.rows == "source" else heads[:, source:]
        entropy = -torch.xlogy(part, part.clamp(min=torch.finfo(part.dtype).tiny)).sum(-1)
        how = "content β cos(k, M) · gate · shift · sharpen"
        yield View(name, view.title, "memory", layer, view.rows, "memory", part, entropy, how=how)


def address(step: HeadStep) -> Addressing:
    """Compute the addressing stages of all heads in one step, read heads before write heads."""
    heads = step.heads
    where = heads.steer(step.hidden)[0, : 2 * heads.heads * heads.place].unflatten(-1, (2 * heads.heads, heads.place))
    key, gate, shifts, power = where.split([heads.width + 1, 1, heads.shifts, 1], -1)  # as `MemoryHeads.address` does
    strength, gate, shifts, power = F.softplus(key[:, -1:]), gate.sigmoid(), shifts.softmax(-1), 1 + F.softplus(power)
    scores = heads.content(key[None], heads.content.project_keys(step.before.memory[:1]))[0]
    content = scores.softmax(-1)
    gated = torch.lerp(step.before.weights[0], content, gate)
    shifted = shift_weights(gated[None], shifts[None])[0]
    cosine = scores / strength.clamp(min=torch.finfo(strength.dtype).tiny)
    stages = key[:, :-1], strength, cosine, content, gate, gated, shifts, shifted, power, step.weights[0]
    return Addressing(*(stage[:, None].float().cpu() for stage in stages))


def memory_numbers(steps: Sequence[HeadStep], name: str, rows: int) -> Addressing:
    """Compute the addressing stages of the heads of the view `name` at each of its `rows` steps."""
    view = MEMORY_VIEWS[name]
    addressed = [address(step) for step in (steps[:rows] if view.rows == "source" else steps[-rows:])]
    tables = ([getattr(each, field.name) for each in addressed] for field in fields(Addressing))
    return Addressing(*(torch.cat(table, 1).chunk(2)[view.writes].contiguous() for table in tables))


def memory_stages(step: HeadStep, name: str, head: int, slots: Sequence[str]) -> tuple[Stage, ...]:
    """List the stages by which a head of the view `name` found its slots in one step, and what it read or wrote."""
    heads, named, writes = step.heads, tuple(slots), MEMORY_VIEWS[name].writes
    found, number = address(step), head + writes * heads.heads
    beta, gate, gamma = (float(part[number]) for part in (found.strength, found.gate, found.power))

    def column(values: Tensor) -> Tensor:
        return values[number, 0, :, None]

    stages = [
        Stage("k", "what this head looks for", found.key[number], ("k",)),
        Stage("M", "the memory as the last step left it", step.before.memory[0].float().cpu(), named),
        Stage("β cos(k, M)", f"how alike each slot is, sharpness β = {beta:.3f}", column(beta * found.cosine), named),
        Stage("w^c", "found by content: softmax", column(found.content), named),
        Stage("w^g", f"gate g = {gate:.3f}: found, or where it was", column(found.gated), named),
        Stage("w̃", "moved along", column(found.shifted), named),
        Stage("w", f"sharpened, γ = {gamma:.3f}", column(found.weights), named),
    ]
    if writes:
        what = heads.steer(step.hidden)[:, 2 * heads.heads * heads.place :]
        erase, add = what.unflatten(-1, (2, heads.heads, heads.width)).unbind(1)
        stages.append(Stage("e", "erased there", torch.sigmoid(erase[:, head]).float().cpu(), ("e",)))
        stages.append(Stage("a", "added there", add[:, head].float().cpu(), ("a",)))
    else:
        after = heads(step.hidden, step.before)[0]  # heads read after all heads have written
        stages.append(Stage("Σ w M", "what is read", (step.weights[:, [number]] @ after)[0].float().cpu(), ("r",)))
    return tuple(replace(stage, part=PLACES) for stage in stages)


def silence_memory_heads(
    model: nn.Module, name: str, rows: Sequence[tuple[int | slice, int]], source: int
) -> list[Any]:
    """Register hooks that silence heads of the view `name`, given as (row, head), in the view's phase."""
    (heads,), view = (each for each in model.modules() if isinstance(each, MemoryHeads)), MEMORY_VIEWS[name]
    calls = 0

    def in_phase() -> bool:
        return (calls < source) == (view.rows == "source")

    def write_nothing(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        """Replace a write by one that neither erases nor adds."""
        if not in_phase() or not view.writes:
            return output
        output = output.clone()
        erase, add = output[:, 2 * heads.heads * heads.place :].unflatten(-1, (2, heads.heads, heads.width)).unbind(1)
        for row, head in rows:
            erase[row, head], add[row, head] = CLOSED, 0
        return output

    def read_nothing(module: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> Any:
        """Replace the vectors read by zeros."""
        nonlocal calls
        memory, weights, reads = output
        if in_phase() and not view.writes:
            reads = reads.clone()
            for row, head in rows:
                reads[row, head] = 0
        calls += 1
        return memory, weights, reads

    return [heads.steer.register_forward_hook(write_nothing), heads.register_forward_hook(read_nothing)]
