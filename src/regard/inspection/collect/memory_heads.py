"""The heads of a Turing machine: views of their places in the memory, their steps in numbers, and ablation.

`watch` knows attentions; these heads are found as a layer of the model (`MemoryHeads`) and recorded by a hook.
"""

# b rows of a batch · d width of a controller · h heads of a kind, hh both · n steps · m slots · w width
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.inspection.collect.exhibit import Addressing, Stage, View
from regard.models import Machine, MemoryHeads, shift_weights

CLOSED = -1e4  # a sigmoid of it is 0
PLACES = "The head, and its places in the memory"  # a part of the way


class MemoryView(NamedTuple):
    """A view of the heads that read or write, while the machine reads its source or writes its output."""

    title: str
    rows: Literal["source", "written"]
    writes: bool


MEMORY_VIEWS = {
    "heads.source.write": MemoryView("reading the source: where it writes", "source", True),
    "heads.source.read": MemoryView("reading the source: where it reads", "source", False),
    "heads.target.write": MemoryView("writing: where it writes", "written", True),
    "heads.target.read": MemoryView("writing: where it reads", "written", False),
}


@dataclass(frozen=True, eq=False)
class HeadStep:
    """One step of the heads: their inputs, and their weights after it."""

    heads: MemoryHeads
    hidden: Float[Tensor, "b d"]
    before: Machine
    weights: Float[Tensor, "b hh m"]


def find_heads(model: nn.Module) -> dict[str, MemoryHeads]:
    """Find the layers of a model that are heads of a memory, by their names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MemoryHeads)}


def memory_views(steps: Sequence[HeadStep], source: int) -> Iterator[View]:
    """Yield views of where the heads stood in the memory, step by step; the first `source` steps read the source."""
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
    """Collect how all heads found their slots in one step, those that read before those that write."""
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
    """Collect how the heads of the view `name` found their slots, step by step; the view has `rows` steps."""
    view = MEMORY_VIEWS[name]
    addressed = [address(step) for step in (steps[:rows] if view.rows == "source" else steps[-rows:])]
    tables = ([getattr(each, field.name) for each in addressed] for field in fields(Addressing))
    return Addressing(*(torch.cat(table, 1).chunk(2)[view.writes].contiguous() for table in tables))


def memory_stages(step: HeadStep, name: str, head: int, slots: Sequence[str]) -> tuple[Stage, ...]:
    """Show how a head of the view `name` found its places in one step, and what it read there, or wrote."""
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
        after = heads(step.hidden, step.before)[0]  # reading comes after all heads have written
        stages.append(Stage("Σ w M", "what is read", (step.weights[:, [number]] @ after)[0].float().cpu(), ("r",)))
    return tuple(replace(stage, part=PLACES) for stage in stages)


def silence_memory_heads(
    model: nn.Module, name: str, rows: Sequence[tuple[int | slice, int]], source: int
) -> list[Any]:
    """Make hooks that silence heads of the view `name`, each a (row, head), while the machine reads or writes."""
    (heads,), view = find_heads(model).values(), MEMORY_VIEWS[name]
    calls = 0

    def in_phase() -> bool:
        return (calls < source) == (view.rows == "source")

    def write_nothing(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        """Replace a write by one that erases and adds nothing."""
        if not in_phase() or not view.writes:
            return output
        output = output.clone()
        erase, add = output[:, 2 * heads.heads * heads.place :].unflatten(-1, (2, heads.heads, heads.width)).unbind(1)
        for row, head in rows:
            erase[row, head], add[row, head] = CLOSED, 0
        return output

    def read_nothing(module: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> Any:
        """Replace what was read by zeros."""
        nonlocal calls
        memory, weights, reads = output
        if in_phase() and not view.writes:
            reads = reads.clone()
            for row, head in rows:
                reads[row, head] = 0
        calls += 1
        return memory, weights, reads

    return [heads.steer.register_forward_hook(write_nothing), heads.register_forward_hook(read_nothing)]
