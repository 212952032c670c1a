"""Teacher forcing: an input with a known output, which a search found or the user gave, for one pass.

Of an opened run inspection needs a part, `OpenRun`: `regard.run.Run` is one, and stands above this layer. A pass may be
recorded, each module's inputs and outputs, so that a walk shows the model's own numbers: forward hooks see modules that
are called, and the cells of a decoder are stepped by a method, which is recorded as well.
"""

# n pieces of the output, START or END among them · r rows: the same again, side by side
# v words or labels · y x height and width · g gates · p parts of a state · d width of a state
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.attention import GridSelfAttention, Heads, ProjectionRows, Residual, SlicedProjection, Span, call_records
from regard.config import parse
from regard.data import END, START, DataSettings, Tokenizer, Tokenizers, picture_batches
from regard.decoding import Ensemble, Options, SearchResult, check_finite, outputs, tokens_of
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Candidate, Side, Tree
from regard.inspection.collect.memory_heads import HeadStep, record_steps
from regard.inspection.collect.sides import grid_side, slots_side, text_side
from regard.models import KINDS, Documents, Layer, Memory, Model, Pictures, Source, Tokens

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
)
MOST = 1024  # pieces per side: weights of all heads are held, and they grow with the square
Item = str | Path | np.ndarray | Tensor  # a text; of a model that reads pictures, a file or its pixels [3 y x]


class OpenedSettings(Protocol):
    """The settings that a run was trained with, as far as inspection needs them."""

    @property
    def task(self) -> str:
        """The name of the task."""

    @property
    def kind(self) -> str:
        """The name of the model's kind."""

    @property
    def data(self) -> DataSettings:
        """The settings by which items are read."""


@runtime_checkable
class OpenRun(Protocol):
    """A trained model with its settings, tokenizers and labels."""

    @property
    def folder(self) -> Path:
        """The folder that it was read from."""

    @property
    def settings(self) -> OpenedSettings:
        """The settings that it was trained with."""

    @property
    def step(self) -> int:
        """The step of the checkpoint."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of a classifier."""

    @property
    def model(self) -> Model:
        """The model, or the ensemble, that decodes."""

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target; an error where there are no texts."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""

    def can(self, action: str) -> bool:
        """Return whether the run's task has an action, such as translate."""

    def force(self, item: Any, target: str | None, options: Options, tree: bool) -> "ForcedExample":
        """Return an input and an output for a teacher-forced pass: what the search finds for the item, or `target`."""


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
def record_modules(model: nn.Module) -> Iterator[Recording]:
    """Record the calls of the model's modules and the steps of its cells inside the block, in this thread."""
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
        if isinstance(module, RECORDED) or (maps and isinstance(module, nn.Conv2d)):
            hook(name, module, maps)
        method = getattr(module, "step_method", None)
        if method is not None:
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
    return tuple(map(copy_tensors, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, eq=False)
class ForcedExample:
    """Everything that a pass needs, and what is known of it without the model."""

    source: Source  # of one row
    sides: dict[str, Side]
    title: str
    output: str = ""
    target: tuple[int, ...] | None = None  # the output's tokens, without START and END; None of a classifier
    label: int | None = None  # of a classifier
    labels: dict[str, float] = field(default_factory=dict)
    picture: UInt8[Tensor, "3 y x"] | None = None
    tree: Tree | None = None

    @property
    def reads(self) -> Literal["source", "picture"] | None:
        """The input that the output is written from; a language model writes from nothing."""
        return "picture" if isinstance(self.source, Pictures) else "source" if "source" in self.sides else None

    def memory(self, model: Model, rows: int = 1) -> Memory:
        """Return the encoder's memory, `rows` times."""
        if isinstance(self.source, Pictures) and self.target is not None:  # nothing attends within a captioner's grid
            device = self.source.pixels.device
            return model.encode(self.source).rows(torch.zeros(rows, dtype=torch.long, device=device))
        return model.encode(repeat_source(self.source, rows))

    def logits(self, model: Model, rows: int = 1, memory: Memory | None = None) -> Float[Tensor, "r n v"]:
        """Compute the scores of every word at every piece of the output, or of every label, in one pass."""
        memory = self.memory(model, rows) if memory is None else memory
        if self.target is None:
            return to_float32(model.classify(memory))[:, None]
        read = tokens_of([[START, *self.target]] * rows, next(model.parameters()).device)
        return to_float32(model.output(model.decode(memory, read)[0]))

    def log_probs(self, model: Model, rows: int = 1, memory: Memory | None = None) -> Float[Tensor, "r n"]:
        """Compute the log-probability of every piece of the output, END's last, or of the label, in one pass."""
        return self.pick(self.logits(model, rows, memory))

    def pick(self, logits: Float[Tensor, "r n v"]) -> Float[Tensor, "r n"]:
        """Pick the output's log-probabilities from the scores of every word."""
        if self.target is None:
            assert self.label is not None
            return logits.log_softmax(-1)[..., self.label]
        tokens = torch.tensor([[*self.target, END]] * len(logits), device=logits.device)
        return -F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")

    def log_prob(self, model: Model) -> float:
        """Compute the log-probability of the whole output; an ensemble's from the mean probability of every piece."""
        if isinstance(model, Ensemble):
            each = torch.stack([self.log_probs(one) for one in model.each]).cpu().double()
            return float((each.logsumexp(0) - np.log(len(each))).sum())
        return float(self.log_probs(model).cpu().double().sum())


@torch.no_grad()
def force(run: OpenRun, item: Item, *, target: str | None = None, tree: bool = True, **options: Any) -> ForcedExample:
    """Prepare a pass over an item and its output, which a search with `options` finds, or which is `target`.

    The item is a text, or, for a run that reads pictures, a file or its pixels; a target is a text, or a label. A
    language model writes nothing of its own here: the item is its output.
    """
    parsed = parse(Options, options)
    if KINDS[run.settings.kind].reads != "pictures" and not isinstance(item, str):
        raise ArgumentError(f"item: {type(item).__name__} given, expected a text: {run.folder} reads no pictures")
    run.model.eval()
    return run.force(item, target, parsed, tree)


def output_sides(tokenizer: Tokenizer, output: list[int], text: str | None) -> dict[str, Side]:
    """Return the side that is written, END at its end, and the one that is read, START at its beginning."""
    return {
        "written": text_side(tokenizer, output, text, end=True),
        "read": text_side(tokenizer, output, text, start=True),
    }


def search_tree(result: SearchResult, tokenizer: Tokenizer, options: Options) -> Tree | None:
    """Build the tree of a search that recorded its steps."""
    if result.steps is None:
        return None
    rows = options.nbest if options.sample else options.beam
    return tree_of(result.steps, result.outputs[0].tokens, tokenizer, rows)


def tree_of(
    steps: Sequence[Sequence[outputs.Candidate]], output: Sequence[int], tokenizer: Tokenizer, beam: int
) -> Tree:
    """Build a tree from a search's recorded steps, in pieces; those that lead to `output` are marked."""
    way, totals, tree_steps = find_path(steps, output), {0: 0.0}, []
    for number, step in enumerate(steps):
        pieces = tokenizer.pieces([each.token for each in step])
        tree_steps.append(
            tuple(
                Candidate(
                    each.parent,
                    piece,
                    each.log_prob - totals[each.parent],
                    each.log_prob,
                    each.fate,
                    each.row,
                    way.get(number) == place,
                )
                for place, (each, piece) in enumerate(zip(step, pieces, strict=True))
            )
        )
        totals = {each.row: each.log_prob for each in step if each.row is not None}
    return Tree(beam, tuple(tree_steps))


def find_path(steps: Sequence[Sequence[outputs.Candidate]], output: Sequence[int]) -> dict[int, int]:
    """Find the index of the candidate that leads to the output, step by step; None where there is none."""
    if len(output) >= len(steps):
        return {}
    rows = [{each.row: place for place, each in enumerate(step) if each.row is not None} for step in steps]
    for place, last in enumerate(steps[len(output)]):
        if last.token != END or last.fate != "finished":
            continue
        way, parent = {len(output): place}, last.parent
        for number in range(len(output) - 1, -1, -1):
            at = rows[number][parent]
            if steps[number][at].token != output[number]:
                break
            way[number], parent = at, steps[number][at].parent
        else:
            return way
    return {}


def encode_text(tokenizer: Tokenizer, text: str, name: str, limit: int | None = None) -> list[int]:
    """Encode a text, or refuse one that cannot be shown."""
    ids = tokenizer.encode(text)
    check_length(ids, name)
    if limit is not None and len(ids) >= limit:
        raise ArgumentError(f"{name}: {len(ids):,} tokens given, expected fewer than {limit:,}, the model's length")
    return ids


def check_length(ids: list[int], name: str) -> None:
    """Refuse an empty text, and one too long to show."""
    if not ids:
        raise ArgumentError(f"{name}: nothing in it, expected words to look at")
    if len(ids) > MOST:
        raise ArgumentError(f"{name}: {len(ids):,} tokens given, expected at most {MOST:,} to look at")


def read_pixels(run: OpenRun, item: Item) -> UInt8[Tensor, "3 y x"]:
    """Read a picture as the model sees it."""
    read = picture_batches.read_for(run.settings.data, item) if isinstance(item, str | Path) else item
    pixels = torch.as_tensor(read)
    if pixels.ndim != 3 or len(pixels) != 3 or pixels.dtype != torch.uint8:
        raise ArgumentError(f"item: {pixels.dtype} of {list(pixels.shape)} given, expected bytes [3 height width]")
    return pixels.cpu()


def name_item(item: Item) -> str:
    """Name a picture by its file, where it has one."""
    return Path(item).name if isinstance(item, str | Path) else "picture"


def repeat_source(source: Source, rows: int) -> Source:
    """Repeat the one row of a source `rows` times."""
    if isinstance(source, Pictures):
        return Pictures(source.pixels.expand(rows, -1, -1, -1))
    if isinstance(source, Documents):
        words = Tokens.of(source.words.ids.repeat(rows, 1), source.words.lengths.repeat(rows))
        return Documents(words, source.sentences.repeat(rows))
    return Tokens.of(source.ids.repeat(rows, 1), source.lengths.repeat(rows))


def to_float32(logits: Tensor) -> Tensor:
    """Convert logits to float32 at least."""
    return logits if logits.dtype == torch.float64 else logits.float()


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
    recording: Recording | None = None  # of every module, where it was asked for

    def module(self, name: str) -> nn.Module:
        """Find an attention by its name."""
        return self.looks.modules[name]

    def calls(self, name: str) -> list[call_records.CallRecord]:
        """Return the calls of an attention, in order."""
        return self.looks.calls[name]

    @cached_property
    def sides(self) -> dict[str, Side]:
        """Return the sides of an exhibit, including those that only the model knows: its grid's places, its slots."""
        sides = dict(self.forced.sides)
        if self.head_steps:
            sides["memory"] = slots_side(self.head_steps[0].weights.shape[-1])
        grid = self.memory.grid
        for name in self.looks:
            if isinstance(self.module(name), GridSelfAttention):  # it may stand before the last stages
                height, width = self.looks[name].weights.shape[-2:]
                grid = height, width
        pooled = any(not isinstance(self.module(name), GridSelfAttention) for name in self.looks)
        if isinstance(self.forced.source, Pictures) and self.forced.label is not None and pooled:
            sides["label"] = Side((self.forced.output,), (0,), (self.forced.output,))
        return sides if grid is None else {**sides, "places": grid_side(grid)}

    def names(self, side: str, count: int) -> tuple[str, ...]:
        """Return the names of a side's pieces; numbers from 1 for a side that only the model knows."""
        return self.sides[side].names if side in self.sides else tuple(map(str, range(1, count + 1)))


@torch.no_grad()
def watch_forward(model: Model, forced: ForcedExample, *, record: bool = False) -> ForwardPass:
    """Run the pass under `watch`; with `record`, keep what every module was given and made, as a walk needs it."""
    recorder = record_modules(model) if record else nullcontext()
    with call_records.watch_call(model) as looks, record_steps(model) as head_steps, recorder as recording:
        memory = forced.memory(model)
        logits = forced.logits(model, memory=memory)
        log_probs = forced.pick(logits)[0]
    check_finite(model, log_probs)
    return ForwardPass(forced, model, looks, memory, logits[0], log_probs, head_steps, recording)


def span_of(record: call_records.CallRecord) -> Span | None:
    """Return the span that a call was given."""
    return next((value for value in (*record.args, *record.kwargs.values()) if isinstance(value, Span)), None)
