"""Watch: what every attention of a model looked at, without the model knowing.

Forward hooks note the inputs of each call; a look is computed when it is asked for, so that watching costs a reference
a call and training and decoding stay on the fast path. No module remembers its last input.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.cache import Prepared
from regard.attention.look import Attentive, Look, concatenate
from regard.attention.span import Span
from regard.errors import WatchError

__all__ = ["Looks", "watch"]


@dataclass
class Seen:
    """One call: its inputs, and everything that the same call needs to come out the same."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[tuple[Tensor, int]]
    training: bool
    autocast: tuple[str, torch.dtype] | None
    random: tuple[Tensor, Tensor | None] | None


class Looks(Mapping[str, Look]):
    """Looks by dotted name, each computed when it is first asked for; repeated calls are joined along the queries."""

    def __init__(self, modules: dict[str, Attentive]):
        self.modules = modules
        self.seen: dict[str, list[Seen]] = {}
        self.done: dict[str, Look] = {}

    def __getitem__(self, name: str) -> Look:
        if name not in self.seen:
            known = ", ".join(self.modules) or "none: the model has no attention"
            why = "was not called while watched" if name in self.modules else "is not an attention of this model"
            raise WatchError(f"looks[{name!r}]: {name!r} {why}; its attentions are {known}")
        if name not in self.done:
            looks = [again(name, self.modules[name], seen) for seen in self.seen[name]]
            try:
                self.done[name] = concatenate(looks)
            except RuntimeError as error:
                shapes = sorted({str(list(look.weights.shape)) for look in looks})
                raise WatchError(
                    f"looks[{name!r}]: {len(looks)} calls with weights of {' and '.join(shapes)} cannot be joined "
                    "along the queries; watch them one at a time"
                ) from error
        return self.done[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The look, or the default where there is none of that name."""
        return self[name] if name in self.seen else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)

    def __contains__(self, name: object) -> bool:
        return name in self.seen


@contextmanager
def watch(model: nn.Module) -> Iterator[Looks]:
    """See what every attention of the model looks at inside the block.

    >>> with watch(model) as looks:
    ...     model(source, target)
    >>> looks["decoder.blocks.3.cross"].weights

    Compiled models run eagerly meanwhile, and names are those of the plain model. Only the outermost attention is
    reported: `Heads`, not the attention inside it.
    """
    modules = outermost(model)
    looks = Looks(modules)
    handles = []
    for name, module in modules.items():
        handles.append(module.register_forward_pre_hook(noter(name, looks), with_kwargs=True))
    try:
        # A hook added after a compiled call would not fire.
        with torch.compiler.set_stance("force_eager"):
            yield looks
    finally:
        for handle in handles:
            handle.remove()


def outermost(model: nn.Module) -> dict[str, Attentive]:
    """Every attention that is not part of another, by the name it has in the plain model."""
    found: dict[str, Attentive] = {}
    inner: set[nn.Module] = set()
    for path, module in model.named_modules():
        if isinstance(module, Attentive) and module not in inner:
            name = ".".join(part for part in path.split(".") if part != "_orig_mod")
            found[name] = module
            inner.update(module.modules())
    return found


def noter(name: str, looks: Looks):  # type: ignore[no-untyped-def]
    """A hook that notes a call before it happens."""

    def note(module: Attentive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise WatchError(
                f"{name}: a step is being captured as a graph, whose replays cannot be watched; decode eagerly"
            )
        args, kwargs = tuple(frozen(value) for value in args), {key: frozen(value) for key, value in kwargs.items()}
        tensors = [*tensors_in([*args, *kwargs.values()]), *module.parameters()]
        kind = tensors[0].device.type if tensors else "cpu"
        looks.seen.setdefault(name, []).append(
            Seen(
                args,
                kwargs,
                [(tensor, tensor._version) for tensor in tensors],
                module.training,
                (kind, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None,
                random_state(kind) if module.draws else None,
            )
        )
        looks.done.pop(name, None)

    return note


def frozen(value: Any) -> Any:
    """A cache goes on filling after the call: what it held then is kept as a copy of its length."""
    if isinstance(value, Prepared) and value.length is not None:
        most = max(1, int(value.length.max()))
        return Prepared(
            value.keys[..., :most, :].clone(), value.values[..., :most, :].clone(), value.owner, value.length.clone()
        )
    return value


def again(name: str, module: Attentive, seen: Seen) -> Look:
    """The look of a noted call."""
    for tensor, version in seen.versions:
        if tensor._version != version:
            raise WatchError(
                f"{name}: an input or a parameter of shape {list(tensor.shape)} was overwritten since the call; "
                "ask for the look before it is changed in place, or change a clone"
            )
    training = module.training
    autocast = nullcontext() if seen.autocast is None else torch.autocast(seen.autocast[0], dtype=seen.autocast[1])
    devices = [torch.cuda.current_device()] if seen.random is not None and seen.random[1] is not None else []
    with autocast, torch.random.fork_rng(devices=devices, enabled=seen.random is not None):
        if seen.random is not None:
            torch.set_rng_state(seen.random[0])
            if seen.random[1] is not None:
                torch.cuda.set_rng_state(seen.random[1])
        set_training(module, seen.training)
        try:
            return module.look(*seen.args, **seen.kwargs)
        finally:
            set_training(module, training)


def set_training(module: nn.Module, training: bool) -> None:
    """Back to the mode of the call, where it has changed."""
    if module.training != training:
        module.train(training)


def random_state(kind: str) -> tuple[Tensor, Tensor | None]:
    """The generators' state, so that a draw can be repeated."""
    return torch.get_rng_state(), torch.cuda.get_rng_state() if kind == "cuda" else None


def tensors_in(values: list[Any]) -> Iterator[Tensor]:
    """The tensors of a call's arguments, those of spans and prepared keys too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Prepared):
            yield from (tensor for tensor in (value.keys, value.values, value.length) if tensor is not None)
        elif isinstance(value, Span):
            for part in value.parts:
                yield from (item for item in vars(part).values() if isinstance(item, Tensor))
