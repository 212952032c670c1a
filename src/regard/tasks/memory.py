"""What a configuration's sizes come to, before memory is taken for a model, and the token budget of a batch.

Sizes are compared with the weights of a run, and with the memory that training needs at least. Where there are weights,
a model is built with no more parts than so many can be of: as soon as one is registered that is too many or too large,
and before it gets its first numbers, the configuration is refused. One that asks for a thousand million layers is
refused after the first few. Names and shapes are compared with the heading of the weights' file. The budget is as it is
set, or found by trying.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from regard import training
from regard.data import UNKNOWN, Batch, Prepared, collate
from regard.errors import CheckpointError, ConfigError
from regard.machine import amount, is_out_of_memory, memory
from regard.models import ModelConfig, build
from regard.tasks.settings import Settings
from regard.tasks.task import PICTURES, build_model

M = TypeVar("M", bound=nn.Module)
LARGE = 2**20  # from here on an option must be borne out by the weights
TIMES = 4  # as many weights, and numbers in them, as a file has may be registered: some stand in two places
MODULES = 20  # per weight
SOME = 500  # weights and modules that there may be beside

FEWEST = 5  # pieces of a vocabulary, before it is known
TRAINED = 16  # bytes of a weight in training: itself, its gradient, and Adam's two averages, in float32
FROZEN = 4  # bytes of a weight beside which an adapter is trained: itself alone
PLACES = {"cuda": "this GPU", "mps": "this machine", "cpu": "this machine"}
DEEP = ("size", "embedding", "hidden", "layers", "decoder_layers", "length", "maxout", "depth", "heads", "reach",
        "slots", "width", "channels", "stages", "blocks")  # fmt: skip
CPU_TOKENS = 4096
DOCUMENT_TOKENS = 8192
PICTURE_TOKENS = 65_536  # of which there are so many rows (training.batch_rows)
LEAST_TOKENS, MOST_TOKENS = 1024, 2**17  # of a batch, per side
EPOCH = {"cuda": 50, "cpu": 200}  # batches that an epoch should have: a small corpus learns little from large steps
SHARE = 0.7  # of the device's memory: other lengths than those tried need other amounts


class TooManyError(Exception):
    """A model under construction has more parts than there are weights, or larger ones."""


@contextmanager
def limit_parts(weights: int, numbers: int) -> Iterator[None]:
    """Stop what is built inside the block, in this thread, where so few weights with so many numbers cannot be its own.

    A weight is stopped at when it is registered, before numbers are drawn for it.
    """
    thread, left = threading.get_ident(), {"weights": TIMES * weights + SOME, "modules": MODULES * weights + SOME}
    left["numbers"] = TIMES * numbers + LARGE

    def add_module(parent: nn.Module, name: str, module: nn.Module | None) -> None:
        if threading.get_ident() == thread:
            left["modules"] -= 1
            if left["modules"] < 0:
                raise TooManyError("modules")

    def add_weight(module: nn.Module, name: str, weight: nn.Parameter | None) -> None:
        if weight is not None and threading.get_ident() == thread:
            left["weights"] -= 1
            left["numbers"] -= weight.numel()
            if min(left["weights"], left["numbers"]) < 0:
                raise TooManyError("weights" if left["weights"] < 0 else "numbers")

    handles = (
        register_module_module_registration_hook(add_module),
        register_module_parameter_registration_hook(add_weight),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def check_sizes(
    build: Callable[[], M],
    config: ModelConfig,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    config_path: str,
    weights_path: str,
) -> M:
    """Build a model; refuse options of one whose weights have other names or shapes than these.

    `build` makes it; the paths are of the files that options and weights stand in.
    """
    numbers = sum(math.prod(shape) for shape in shapes.values())
    for field in fields(config):
        value = getattr(config, field.name)
        if type(value) is int and value > max(LARGE, numbers):
            raise CheckpointError(
                f"{config_path}: model.{field.name} is {value:,}, but its checkpoint has only {numbers:,} numbers"
            )
    try:
        with limit_parts(len(shapes), numbers):
            model = build()
    except TooManyError as error:
        parts, count = ("numbers", f"{numbers:,}") if str(error) == "numbers" else ("parts", f"{len(shapes):,} weights")
        raise CheckpointError(
            f"{config_path}: its [model] has more {parts} than the {count} of its checkpoint"
        ) from None
    except RuntimeError as error:  # a size that no tensor can have
        raise CheckpointError(
            f"{config_path}: its [model] cannot be built: {(str(error) or type(error).__name__).splitlines()[0]}"
        ) from None
    training.weight_files.check_shapes(training.weight_files.weights_of(model), shapes, weights_path)
    return model


def check_run_sizes(settings: Settings, prepared: Prepared, run: Path, checkpoint: Path, resumed: bool) -> None:
    """Refuse settings of another model than that of the run to resume or begin with; only headers are read.

    A run that begins with another one may have adapters of its own.
    """
    manifest = training.read_manifest(checkpoint)
    stored, own = manifest.get("task", {}).get("model"), settings.model_table()
    if not resumed and isinstance(stored, Mapping):
        stored, own = ({key: value for key, value in each.items() if key != "adapter"} for each in (stored, own))
        own |= {"adapter": 0} if hasattr(settings.model, "adapter") else {}  # as what is left out is filled in
    training.trainer_state.check_same("model", stored, own, checkpoint)
    path = training.plain_weights_file(checkpoint, manifest)
    shapes = training.weight_files.read_shapes(path)
    shapes = {name: shape for name, shape in shapes.items() if name.startswith("model.")}
    with torch.random.fork_rng(devices=[]):  # what is drawn afterwards is what would be drawn without it
        check_sizes(
            lambda: training.Prediction(build_model(settings, prepared.tokenizers, prepared.labels)),
            settings.model,
            shapes,
            config_path=str(run / "config.toml"),
            weights_path=str(path),
        )


# ---- memory, and the budget


def check_weights(
    settings: Settings, device: torch.device, source: int = FEWEST, target: int = FEWEST, processes: int = 1
) -> int:
    """Refuse a model too large for memory with vocabularies of these sizes; return its bytes in training."""
    given = settings.training
    count = count_weights(settings, source, target)
    each = FROZEN if settings.model.adapter_rank() else TRAINED + (0 if given.ema is None else 4)
    needed = count * each // (processes if given.shard else 1)
    keys = large_keys(settings.model) + (["tokenizer.size"] if max(source, target) > 100_000 else [])
    check_room(needed, device, f"the model's {count:,} weights would take {amount(needed)} in training", keys)
    return needed


def check_batches(settings: Settings, device: torch.device, prepared: Prepared, budget: int, model: int) -> None:
    """Refuse batches too large for memory beside a model of so many bytes, by a low estimate of their size."""
    given = settings.training
    half = device.type == "cuda" and given.precision != "fp32"
    if prepared.pictures is not None:
        key, count = "training.batch_rows", min(given.batch_rows or PICTURES, len(prepared.train))
        numbers, what = settings.model.picture_numbers(settings.data.image_size), "pictures"
    else:
        side = int(prepared.train.lengths.sum(axis=0, dtype="int64").max())
        key, count = "training.batch_tokens", min(budget, side)
        size, layers, slots, width = (
            whole_option(settings.model, name) for name in ("size", "layers", "slots", "width")
        )
        # Four vectors per layer, and a memory's places.
        numbers, what = 4 * size * (layers or 1) + slots * width, "tokens"
    needed = model + numbers * count * (2 if half else 4)
    asked = f"a batch of {count:,} {what} would take at least {amount(needed)}, with the model"
    check_room(needed, device, asked, [key, *large_keys(settings.model)])


def check_room(needed: int, device: torch.device, asked: str, keys: list[str]) -> None:
    """Refuse what needs more bytes than a device has; `keys` are of what makes it large."""
    room = int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else memory()
    if room is not None and needed > room:
        has = f"{PLACES[device.type]} has {amount(room)}"
        raise ConfigError(keys[0], f"{asked}, but {has}; make {' or '.join(keys)} smaller")


def count_weights(settings: Settings, source: int, target: int) -> int:
    """Count the model's weights with vocabularies of these sizes; a backbone of another library is not counted."""
    with torch.device("meta"):
        model = build(settings.kind, settings.model.self_contained(), source, target)
    return sum(parameter.numel() for parameter in model.parameters())


def whole_option(config: ModelConfig, name: str) -> int:
    """Return an option that is a whole number; 0 where a kind has none of that name, or it is of another type."""
    value = getattr(config, name, 0)
    return value if isinstance(value, int) else 0


def large_keys(config: ModelConfig) -> list[str]:
    """Name the keys that make a model large: those set above their defaults, the furthest first; else its first."""
    own = {field.name: field.default for field in fields(config) if field.name in DEEP}
    usual = {name: default if isinstance(default, int) and default > 0 else 256 for name, default in own.items()}
    ratios = {name: whole_option(config, name) / default for name, default in usual.items()}
    above = sorted((name for name, ratio in ratios.items() if ratio > 1), key=lambda name: -ratios[name])
    return [f"model.{name}" for name in (above or list(own))[:3]] or ["model"]  # a kind of one's own may have none


def token_budget(settings: Settings, prepared: Prepared, group: training.Group) -> int:
    """Choose the tokens per side of a batch: the setting; 4,096 on a CPU; on a CUDA GPU the most that fit a step.

    Documents and pictures have budgets of their own. Of a small corpus a batch is a fiftieth, on a CPU a 200th.
    """
    batch_tokens, reads = settings.training.batch_tokens, settings.data.reads
    if batch_tokens != "auto":
        return batch_tokens
    if reads == "pictures":
        return PICTURE_TOKENS
    if reads == "documents" or group.device.type != "cuda":
        return min(
            DOCUMENT_TOKENS if reads == "documents" else CPU_TOKENS, largest_budget(prepared, reads, group.device.type)
        )
    budget: int = group.same(find_budget(settings, prepared, group.device) if group.first else None)
    return budget


def find_budget(settings: Settings, prepared: Prepared, device: torch.device) -> int:
    """Find the largest power of two whose step fits into its share of the device's memory."""
    objective = settings.row.load()(settings, prepared, LEAST_TOKENS).objective.to(device)
    # The optimiser's two tensors and the averages are not there yet.
    later = 3 * sum(parameter.numel() * parameter.element_size() for parameter in objective.parameters())
    room = SHARE * torch.cuda.mem_get_info(device)[0] - later
    longest = int(prepared.train.lengths.max()) + 1
    budget, most = LEAST_TOKENS, largest_budget(prepared, settings.data.reads, device.type)
    while 2 * budget <= most and fits(objective, make_worst_batch(2 * budget, longest).to(device), room, settings):
        budget *= 2
    del objective
    torch.cuda.empty_cache()
    return budget


def largest_budget(prepared: Prepared, reads: str | None, device: str) -> int:
    """Choose the largest budget, a power of two, with which an epoch still has enough batches."""
    lengths = prepared.train.lengths[:, 0 if reads == "documents" else 1]
    share = int(lengths.sum(dtype="int64") + len(lengths)) // EPOCH["cuda" if device == "cuda" else "cpu"]
    return max(LEAST_TOKENS, min(MOST_TOKENS, 2 ** (max(1, share).bit_length() - 1)))


def fits(objective: torch.nn.Module, batch: Batch, room: float, settings: Settings) -> bool:
    """Return whether a forward and a backward pass stay within the room."""
    torch.cuda.reset_peak_memory_stats()
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=settings.training.precision != "fp32"):
            loss = objective(batch)
        loss.total.backward()
        objective.zero_grad(set_to_none=True)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    return torch.cuda.max_memory_allocated() <= room


def make_worst_batch(budget: int, longest: int) -> Batch:
    """Build a full batch of the longest sentences."""
    rows = max(1, budget // longest)
    return collate([([UNKNOWN] * longest, [UNKNOWN] * (longest - 1))] * rows)
