"""One forward pass of a forced example, under `watch`: looks, memory, log-probabilities, and each module's numbers.

A pass may be recorded, each module's inputs and outputs, so that a walk shows the model's own numbers: forward hooks
see modules that are called, and the cells of a decoder are stepped by a method, which is recorded as well.
"""

# n pieces of the output, START or END among them · r rows: the same again, side by side
# v words or labels · g gates · p parts of a state · d width of a state
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import GridSelfAttention, Heads, ProjectionRows, Residual, SlicedProjection, call_records
from regard.config import parse
from regard.decoding import Options, check_finite
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import name_places
from regard.inspection.collect.memory_heads import HeadStep, find_heads
from regard.models import KINDS, Layer, Memory, MemoryHeads, Model, Pictures
from regard.tasks import ForcedExample, Item, Side, TrainedRun

# What a walk asks about. Maps of a backbone, [b c h w], are large, and are recorded of an attention over them alone.
RECORDED = (
    nn.Linear,
    nn.LayerNorm,
    nn.Identity,
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    Heads,
    ProjectionRows,
    SlicedProjection,
    GridSelfAttention,
    Residual,
    Layer,
    MemoryHeads,
)


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of a module: copies of its positional inputs and of its output."""

    inputs: tuple[Any, ...]
    output: Any


@dataclass(frozen=True, eq=False)
class CellStep:
    """One step of a recurrent cell."""

    projected: Float[Tensor, "r g"]  # W x + b
    before: Float[Tensor, "r p d"]  # the state that it began with; of an LSTMN what was read off both tapes
    after: Float[Tensor, "r p d"]
    added: Float[Tensor, "r d"] | None = None  # to c, in an LSTMN's deep fusion


@dataclass(eq=False)
class Recording:
    """The calls and the steps of a pass, by the dotted names of the modules, in order."""

    calls: dict[str, list[ModuleCall]] = field(default_factory=dict)
    steps: dict[str, list[CellStep]] = field(default_factory=dict)

    def output(self, name: str, row: int = 0) -> Float[Tensor, " d"]:
        """Return a module's output at one position, over all of its calls."""
        return pick_row([call.output for call in self.calls[name]], row)

    def input(self, name: str, row: int = 0) -> Float[Tensor, " d"]:
        """Return a module's input at one position, over all of its calls."""
        return pick_row([call.inputs[0] for call in self.calls[name]], row)


def pick_row(tensors: list[Tensor], row: int) -> Float[Tensor, " d"]:
    """Pick a row by its index from the tensors [*b d] of one example, which follow one another."""
    for tensor in tensors:
        rows = tensor.reshape(-1, tensor.shape[-1])
        if row < len(rows):
            return rows[row].float().cpu()
        row -= len(rows)
    raise AssertionError("a module was called for as many positions as there are")


@contextmanager
def record_modules(model: nn.Module, kinds: tuple[type[nn.Module], ...] = RECORDED) -> Iterator[Recording]:
    """Record the calls of the model's modules of some kinds inside the block, in this thread; of layers their steps."""
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
                recording.steps.setdefault(name, []).append(cell_step(output.clone(), *copy_tensors(args)))
            return output

        module.__dict__[method] = step  # before the class's own: a method has no hooks
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


def cell_step(after: Tensor, projected: Tensor, before: Tensor, added: Tensor | None = None) -> CellStep:
    """Make a step from a method's arguments and result; states that lie side by side, [h; c], become two rows."""
    before, after = (state if state.ndim == 3 else state.unflatten(-1, (2, -1)) for state in (before, after))
    return CellStep(projected, before, after, added)


def copy_tensors(value: Any) -> Any:
    """Copy a tensor, or those in a tuple, which may be overwritten later."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if not isinstance(value, tuple):
        return value
    copies = map(copy_tensors, value)
    return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)  # a named one keeps its names


@torch.no_grad()
def force(
    run: TrainedRun, item: Item, *, target: str | None = None, tree: bool = True, **options: Any
) -> ForcedExample:
    """Prepare a pass over an item and its output, which a search with `options` finds, or which is `target`.

    The item is a text, or, for a run that reads pictures, a file or its pixels; a target is a text, or a label. A
    language model writes nothing of its own here: the item is its output.
    """
    parsed = parse(Options, options)
    if KINDS[run.settings.kind].reads != "pictures" and not isinstance(item, str):
        raise ArgumentError(f"item: {type(item).__name__} given, expected a text: {run.folder} reads no pictures")
    run.model.eval()
    return run.force(item, target, parsed, tree)


@dataclass(eq=False)
class ForwardPass:
    """A record of one forward pass: every look, the memory, and the log-probability of each piece."""

    forced: ForcedExample
    model: Model
    looks: call_records.Looks
    memory: Memory
    logits: Float[Tensor, "n v"]
    log_probs: Float[Tensor, " n"]
    head_steps: list[HeadStep] = field(default_factory=list)  # of heads of a memory, those that read the source first
    recording: Recording = field(default_factory=Recording)  # of every module, where it was asked for

    @cached_property
    def sides(self) -> dict[str, Side]:
        """Return the sides of an exhibit, including those that only the model knows: its grid's places, its slots."""
        sides = dict(self.forced.sides)
        if self.head_steps:
            sides["memory"] = name_places([str(slot + 1) for slot in range(self.head_steps[0].weights.shape[-1])])
        grid = self.memory.grid
        for name in self.looks:
            if isinstance(self.looks.modules[name], GridSelfAttention):  # it may stand before the last stages
                height, width = self.looks[name].weights.shape[-2:]
                grid = height, width
        pooled = any(not isinstance(self.looks.modules[name], GridSelfAttention) for name in self.looks)
        if isinstance(self.forced.source, Pictures) and self.forced.label is not None and pooled:
            sides["label"] = Side((self.forced.output,), (0,), (self.forced.output,))
        if grid is not None:  # places have their row and column, from 1
            names = [f"{y + 1},{x + 1}" for y in range(grid[0]) for x in range(grid[1])]
            sides["places"] = name_places(names, (grid[0], grid[1]))
        return sides

    def names(self, side: str, count: int) -> tuple[str, ...]:
        """Return the names of a side's pieces; numbers from 1 for a side that only the model knows."""
        return self.sides[side].names if side in self.sides else tuple(map(str, range(1, count + 1)))


@torch.no_grad()
def watch_forward(model: Model, forced: ForcedExample, *, record: bool = False) -> ForwardPass:
    """Run the pass under `watch`; with `record`, keep what every module was given and made, as a walk needs it."""
    recorder = record_modules(model, RECORDED if record else (MemoryHeads,))
    with call_records.watch_call(model) as looks, recorder as recording:
        memory = forced.memory(model)
        logits = forced.logits(model, memory=memory)
        log_probs = forced.pick(logits)[0]
    check_finite(model, log_probs)
    heads = ((each, recording.calls.get(name, [])) for name, each in find_heads(model).items())
    head_steps = [
        HeadStep(each, call.inputs[0], call.inputs[1], call.output[1]) for each, calls in heads for call in calls
    ]
    return ForwardPass(forced, model, looks, memory, logits[0], log_probs, head_steps, recording)
