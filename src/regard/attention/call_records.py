"""Watch: a record of what every attention of a model attends to.

`watch` does not change the model. Forward hooks record the inputs of each call. A look is computed on first access, so
that watching costs one reference per call, and training and decoding stay on the fast path. No module stores its last
input.
"""

# b batch · n queries · m keys
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.parallel import DistributedDataParallel

from regard.attention.cache import Prepared
from regard.attention.look import Attentive, Look, concatenate
from regard.attention.span import Causal, Span, parts_of
from regard.errors import WatchError


@dataclass
class CallRecord:
    """One call: its inputs, and everything needed to repeat it exactly."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[tuple[Tensor, int]]
    training: list[bool]  # of the module and its submodules
    autocast: tuple[str, torch.dtype, bool]
    rng_state: tuple[Tensor, Tensor | None] | None


class Looks(Mapping[str, Look]):
    """Looks by dotted name, each computed on first access; repeated calls are joined along the queries."""

    def __init__(self, modules: dict[str, Attentive]):
        self.modules = modules
        self.calls: dict[str, list[CallRecord]] = {}
        self.computed: dict[str, Look] = {}

    def __getitem__(self, name: str) -> Look:
        if name not in self.calls:
            names = ", ".join(self.modules) or "none: the model has no attention"
            why = "was not called while watched" if name in self.modules else "is not an attention of this model"
            raise WatchError(f"looks[{name!r}]: {name!r} {why}; its attentions are {names}")
        if name not in self.computed:
            looks = [replay_look(name, self.modules[name], record) for record in self.calls[name]]
            try:
                self.computed[name] = concatenate(looks)
            except RuntimeError as error:
                shapes = sorted({str(list(look.weights.shape)) for look in looks})
                raise WatchError(
                    f"looks[{name!r}]: {len(looks)} calls with weights of {' and '.join(shapes)} cannot be joined "
                    "along the queries; watch them one at a time"
                ) from error
        return self.computed[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the look of that name, or the default."""
        return self[name] if name in self.calls else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def __contains__(self, name: object) -> bool:
        return name in self.calls


@contextmanager
def watch(model: nn.Module, *, only: Collection[str] | None = None) -> Iterator[Looks]:
    """Record what every attention of the model attends to inside the `with` block.

    >>> with watch(model) as looks:
    ...     model(source, target)
    >>> looks["decoder.blocks.3.cross"].weights

    Compiled models run eagerly inside the block, and names are those of the uncompiled model. Only the outermost
    attention is recorded: `Heads`, not the attention inside it. With `only`, just these are watched; the others keep
    their fast path, if the model has one for attentions that are not watched.
    """
    # A hook that is added after a compiled call would not run.
    with torch.compiler.set_stance("force_eager"), record(model, only) as looks:
        yield looks


@contextmanager
def watch_call(model: nn.Module, *, only: Collection[str] | None = None) -> Iterator[Looks]:
    """Record like `watch`, around calls that compile nothing; avoid importing torch's compiler, which is slow."""
    with stay_eager(), record(model, only) as looks:
        yield looks


def stay_eager() -> AbstractContextManager[None]:
    """Run compiled code eagerly inside the block; do nothing if torch's compiler is not loaded."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


@contextmanager
def record(model: nn.Module, only: Collection[str] | None) -> Iterator[Looks]:
    """Record the calls of the model's attentions, or of `only` these, inside the block."""
    modules = find_outermost(model.module if isinstance(model, nn.DataParallel | DistributedDataParallel) else model)
    if only is not None:
        for name in only:
            if name not in modules:
                names = ", ".join(modules) or "none: the model has no attention"
                raise WatchError(f"only: {name!r} is not an attention of this model; its attentions are {names}")
        modules = {name: module for name, module in modules.items() if name in only}
    looks = Looks(modules)
    handles = []
    for name, module in modules.items():
        note, keep = make_hooks(name, looks)
        handles.append(module.register_forward_pre_hook(note, with_kwargs=True))
        handles.append(module.register_forward_hook(keep))
    try:
        yield looks
    finally:
        for handle in handles:
            handle.remove()


def find_outermost(model: nn.Module) -> dict[str, Attentive]:
    """Return every attention that is not inside another, by its name in the uncompiled model."""
    outermost: dict[str, Attentive] = {}
    inner: set[nn.Module] = set()
    for path, module in model.named_modules():
        if isinstance(module, Attentive) and module not in inner:
            name = ".".join(part for part in path.split(".") if part != "_orig_mod")
            outermost[name] = module
            inner.update(module.modules())
    return outermost


def make_hooks(name: str, looks: Looks):  # type: ignore[no-untyped-def]
    """Return two hooks: the first records a call before it runs, the second keeps the record if the call succeeds."""
    pending: list[CallRecord] = []

    def note(module: Attentive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise WatchError(
                f"{name}: a step is being captured as a graph, whose replays cannot be watched; decode eagerly"
            )
        # Keep all keys of a cache if a span other than Causal counts them; otherwise keep only the filled ones.
        spans = [value for value in (*args, *kwargs.values()) if isinstance(value, Span)]
        whole = any(not isinstance(part, Causal) for span in spans for part in parts_of(span))
        args = tuple(freeze_cache(value, whole) for value in args)
        kwargs = {key: freeze_cache(value, whole) for key, value in kwargs.items()}
        tensors = [*tensors_in([*args, *kwargs.values(), getattr(module, "span", None)]), *module.parameters()]
        device_type = tensors[0].device.type if tensors else "cpu"
        rng_state = None
        if module.draws:  # so that the draw can be repeated
            if device_type not in ("cpu", "cuda"):
                raise WatchError(
                    f"a random draw on {device_type} cannot be repeated, so its look would differ; watch it on a CPU"
                )
            rng_state = torch.get_rng_state(), torch.cuda.get_rng_state() if device_type == "cuda" else None
        pending.append(
            CallRecord(
                args,
                kwargs,
                # An inference tensor has no version: an overwrite cannot be detected.
                [(tensor, tensor._version) for tensor in tensors if not tensor.is_inference()],
                [part.training for part in module.modules()],
                (device_type, torch.get_autocast_dtype(device_type), torch.is_autocast_enabled(device_type)),
                rng_state,
            )
        )

    def keep(module: Attentive, args: tuple[Any, ...], output: Any) -> None:
        looks.calls.setdefault(name, []).append(pending.pop())
        looks.computed.pop(name, None)

    return note, keep


def freeze_cache(value: Any, whole: bool) -> Any:
    """Copy the current contents of a cache, because it continues to fill after the call."""
    if isinstance(value, Prepared) and value.length is not None:
        most = value.keys.shape[-2] if whole else max(1, int(value.length.max()))
        return Prepared(
            value.keys[..., :most, :].clone(), value.values[..., :most, :].clone(), value.owner, value.length.clone()
        )
    return value


def replay_look(name: str, module: Attentive, record: CallRecord) -> Look:
    """Repeat a recorded call and return its look."""
    for tensor, version in record.versions:
        if tensor._version != version:
            raise WatchError(
                f"{name}: an input or a parameter of shape {list(tensor.shape)} was overwritten since the call; "
                "ask for the look before it is changed in place, or change a clone"
            )
    device_type, dtype, enabled = record.autocast
    devices = [torch.cuda.current_device()] if record.rng_state is not None and record.rng_state[1] is not None else []
    parts = list(module.modules())
    before = [part.training for part in parts]
    with (
        torch.autocast(device_type, dtype=dtype, enabled=enabled),
        torch.random.fork_rng(devices=devices, enabled=record.rng_state is not None),
    ):
        if record.rng_state is not None:
            torch.set_rng_state(record.rng_state[0])
            if record.rng_state[1] is not None:
                torch.cuda.set_rng_state(record.rng_state[1])
        try:  # set each submodule to its mode at the call, and restore it afterwards
            for part, mode in zip(parts, record.training, strict=True):
                part.training = mode
            return module.look(*record.args, **record.kwargs)
        finally:
            for part, mode in zip(parts, before, strict=True):
                part.training = mode


def tensors_in(values: list[Any]) -> Iterator[Tensor]:
    """Yield the tensors in a call's arguments, including those in spans and prepared keys."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Prepared):
            yield from (tensor for tensor in (value.keys, value.values, value.length) if tensor is not None)
        elif isinstance(value, Span):
            for part in dict.fromkeys((value, *value.parts)):
                yield from (item for item in vars(part).values() if isinstance(item, Tensor))
                if isinstance(part, nn.Module):
                    yield from part.parameters()


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module or a submodule has hooks, which a fast path would bypass."""
    return _has_any_global_hook() or any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        for part in module.modules()
    )
