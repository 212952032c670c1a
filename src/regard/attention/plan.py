"""Plans of a model: who computes each attention of a call, and why nobody faster does.

A call of one attention has a plan of its own (`attention.plan(…)`, `heads.plan(…)`). Here every stack and every
attention that is called is asked for its plan on the way, so that a slow path has a name and a reason.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from regard.attention import fused_stack
from regard.attention.block import Stack
from regard.attention.blocks import Decoder
from regard.attention.call_records import find_outermost, stay_eager
from regard.attention.look import Attentive
from regard.attention.span import Causal, join
from regard.kernels import Plan, table


class ModelPlan(Mapping[str, Plan]):
    """The plan of each attention of a model, by its dotted name, and of each stack: printed, a line for each."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.stacks: dict[str, Plan] = {}

    def __getitem__(self, name: str) -> Plan:
        return self.plans[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __str__(self) -> str:
        lines = [line for name, plan in self.stacks.items() for line in f"{name}: {plan}".splitlines()]
        for name, plan in self.plans.items():
            inside = any(name.startswith(f"{stack}.") for stack, whole in self.stacks.items() if whole.name == "fused")
            first, *rest = str(plan).splitlines()
            lines += [f"{name}: in the fused stack"] if inside else [f"{name}: {first}", *rest]
        return "\n".join(lines)


@contextmanager
def plan_calls(model: nn.Module) -> Iterator[ModelPlan]:
    """Note the plan of every stack and every attention that is called inside the block; the last call's counts."""
    found = ModelPlan()
    stacks = {name: module for name, module in model.named_modules() if isinstance(module, Stack)}

    def note_stack(name: str):  # type: ignore[no-untyped-def]
        def note(stack: Stack, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = inspect.signature(stack.forward).bind(*args, **kwargs).arguments
            span = given.get("span")
            if isinstance(stack, Decoder):
                span = join(Causal(), span)
            request = fused_stack.describe(stack, given["x"], span, given.get("memory"), given.get("memory_span"))
            needs = tuple(each for each in request.features if each != table.HOOKS)  # this one's own
            found.stacks[name] = fused_stack.STACK.plan(request._replace(features=needs))

        return note

    def note_attention(name: str):  # type: ignore[no-untyped-def]
        def note(module: Attentive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found.plans[name] = module.plan(*args, **kwargs)  # type: ignore[operator]

        return note

    handles = [module.register_forward_pre_hook(note_stack(name), with_kwargs=True) for name, module in stacks.items()]
    handles += [
        module.register_forward_pre_hook(note_attention(name), with_kwargs=True)
        for name, module in find_outermost(model).items()
        if hasattr(module, "plan")
    ]
    try:
        with stay_eager():  # what is compiled would not call hooks
            yield found
    finally:
        for handle in handles:
            handle.remove()


def stack_features(model: nn.Module) -> tuple[str, ...]:
    """What the stacks of a model need, whatever they are called with, that keeps them from being fused."""
    blocks = [block for module in model.modules() if isinstance(module, Stack) for block in module.blocks]
    return tuple(dict.fromkeys(feature for block in blocks for feature in fused_stack.block_features(block)))
