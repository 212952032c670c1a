"""Checks of a configuration's sizes before memory is allocated for a model, and the token budget of a batch.

Sizes are compared with the weights of a run, and with the least memory that training needs. If a file of weights
exists, building the model stops as soon as it registers more or larger parameters than the file can hold, before their
values are initialised: a configuration with a thousand million layers is refused after the first few. Names and shapes
are compared with the header of the weights' file. The budget is configured, or found by trying.
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
LARGE = 2**20  # an option above this must not exceed the number of elements in the weights' file
TIMES = 4  # a model may register this many times the file's parameters and elements: shared ones count repeatedly
MODULES = 20  # modules per parameter
SOME = 500  # further parameters and modules that a model may register

FEWEST = 5  # pieces of a vocabulary that is not known yet
TRAINED = 16  # bytes per weight in training: itself, its gradient, and Adam's two averages, in float32
FROZEN = 4  # bytes per frozen weight of a model with adapters
PLACES = {"cuda": "this GPU", "mps": "this machine", "cpu": "this machine"}
DEEP = ("size", "embedding", "hidden", "layers", "decoder_layers", "length", "maxout", "depth", "heads", "reach",
        "slots", "width", "channels", "stages", "blocks")  # fmt: skip
CPU_TOKENS = 4096
DOCUMENT_TOKENS = 8192
PICTURE_TOKENS = 65_536  # not a limit in practice: training.batch_rows limits batches of pictures
LEAST_TOKENS, MOST_TOKENS = 1024, 2**17  # of a batch, per side
EPOCH = {"cuda": 50, "cpu": 200}  # batches that an epoch should have: large batches give a small corpus few updates
SHARE = 0.7  # of the device's free memory: lengths other than those tried may need more


class TooManyError(Exception):
    """The error for a model under construction that has more or larger parts than the weights' file allows."""


@contextmanager
def limit_parts(weights: int, numbers: int) -> Iterator[None]:
    """Raise TooManyError inside the block when a model is too large for a file of `weights` tensors with `numbers`.

    The error is raised when a parameter is registered, before its values are initialised. Other threads may build
    models of any size.
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
    """Build a model with `build`, and refuse options that do not match the names and shapes of the given weights.

    Error messages name the files of the options and of the weights: `config_path` and `weights_path`.
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
    except RuntimeError as error:  # torch refuses the size of a tensor
        raise CheckpointError(
            f"{config_path}: its [model] cannot be built: {(str(error) or type(error).__name__).splitlines()[0]}"
        ) from None
    training.weight_files.check_shapes(training.weight_files.weights_of(model), shapes, weights_path)
    return model


def check_run_sizes(settings: Settings, prepared: Prepared, run: Path, checkpoint: Path, resumed: bool) -> None:
    """Refuse settings whose model differs from that of the run to resume or start from, reading only headers.

    A run that starts from another one may have its own adapters.
    """
    manifest = training.read_manifest(checkpoint)
    stored, own = manifest.get("task", {}).get("model"), settings.model_table()
    if not resumed and isinstance(stored, Mapping):
        stored, own = ({key: value for key, value in each.items() if key != "adapter"} for each in (stored, own))
        own |= {"adapter": 0} if hasattr(settings.model, "adapter") else {}  # the default, as in `stored`
    training.trainer_state.check_same("model", stored, own, checkpoint)
    path = training.plain_weights_file(checkpoint, manifest)
    shapes = training.weight_files.read_shapes(path)
    shapes = {name: shape for name, shape in shapes.items() if name.startswith("model.")}
    with torch.random.fork_rng(devices=[]):  # this check must not change later random numbers
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
    """Refuse a model that is too large for memory with vocabularies of these sizes; return its bytes in training."""
    given = settings.training
    count = count_weights(settings, source, target)
    each = FROZEN if settings.model.adapter_rank() else TRAINED + (0 if given.ema is None else 4)
    needed = count * each // (processes if given.shard else 1)
    keys = large_keys(settings.model) + (["tokenizer.size"] if max(source, target) > 100_000 else [])
    check_room(needed, device, f"the model's {count:,} weights would take {amount(needed)} in training", keys)
    return needed


def check_batches(settings: Settings, device: torch.device, prepared: Prepared, budget: int, model: int) -> None:
    """Refuse batches too large for memory next to a model of `model` bytes, by a low estimate of their size."""
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
        # Four vectors per layer, and the slots of a memory.
        numbers, what = 4 * size * (layers or 1) + slots * width, "tokens"
    needed = model + numbers * count * (2 if half else 4)
    asked = f"a batch of {count:,} {what} would take at least {amount(needed)}, with the model"
    check_room(needed, device, asked, [key, *large_keys(settings.model)])


def check_room(needed: int, device: torch.device, asked: str, keys: list[str]) -> None:
    """Raise a ConfigError if `needed` bytes exceed the device's memory; `keys` are the settings to reduce."""
    room = int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else memory()
    if room is not None and needed > room:
        has = f"{PLACES[device.type]} has {amount(room)}"
        raise ConfigError(keys[0], f"{asked}, but {has}; make {' or '.join(keys)} smaller")


def count_weights(settings: Settings, source: int, target: int) -> int:
    """Count the model's weights with vocabularies of these sizes, without a backbone from another library."""
    with torch.device("meta"):
        model = build(settings.kind, settings.model.self_contained(), source, target)
    return sum(parameter.numel() for parameter in model.parameters())


def whole_option(config: ModelConfig, name: str) -> int:
    """Return the value of an integer option, or 0 if the kind has no integer option of that name."""
    value = getattr(config, name, 0)
    return value if isinstance(value, int) else 0


def large_keys(config: ModelConfig) -> list[str]:
    """Name up to three keys that make a model large: those most above their defaults; if none is, the first ones."""
    own = {field.name: field.default for field in fields(config) if field.name in DEEP}
    usual = {name: default if isinstance(default, int) and default > 0 else 256 for name, default in own.items()}
    ratios = {name: whole_option(config, name) / default for name, default in usual.items()}
    above = sorted((name for name, ratio in ratios.items() if ratio > 1), key=lambda name: -ratios[name])
    return [f"model.{name}" for name in (above or list(own))[:3]] or ["model"]  # a plugin's kind may have none


def token_budget(settings: Settings, prepared: Prepared, group: training.Group) -> int:
    """Choose the tokens per side of a batch: the setting; at most 4,096 on a CPU; on a CUDA GPU as many as fit.

    Documents and pictures have their own budgets. For a small corpus a batch is at most a 50th of an epoch on a CUDA
    GPU, and a 200th elsewhere.
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
    """Find the largest power of two whose step fits into the share SHARE of the device's free memory."""
    objective = settings.row.load()(settings, prepared, LEAST_TOKENS).objective.to(device)
    # The optimiser's two averages and the weights' moving average are not allocated yet.
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
    """Return the largest budget, a power of two, with which an epoch has enough batches."""
    lengths = prepared.train.lengths[:, 0 if reads == "documents" else 1]
    share = int(lengths.sum(dtype="int64") + len(lengths)) // EPOCH["cuda" if device == "cuda" else "cpu"]
    return max(LEAST_TOKENS, min(MOST_TOKENS, 2 ** (max(1, share).bit_length() - 1)))


def fits(objective: torch.nn.Module, batch: Batch, room: float, settings: Settings) -> bool:
    """Return whether the peak memory of a forward and a backward pass is at most `room` bytes."""
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
