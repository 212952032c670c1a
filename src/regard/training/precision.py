"""How exactly a run computes, and on what."""

import contextlib
from collections.abc import Iterator

import torch

from regard.errors import ConfigError
from regard.training.settings import TrainingSettings

__all__ = ["allow_tf32", "describe_device", "uses_bf16"]


def uses_bf16(settings: TrainingSettings, device: torch.device) -> bool:
    """Whether matrix products are computed in bfloat16."""
    if settings.precision == "bf16" and device.type == "mps":
        raise ConfigError("training.precision", '"bf16" given with an Apple GPU (mps), expected "fp32" or "auto"')
    return settings.precision == "bf16" or (settings.precision == "auto" and device.type == "cuda")


@contextlib.contextmanager
def allow_tf32(wanted: bool) -> Iterator[None]:
    """Inside, products of what stays in float32 beside bfloat16 are in TF32: still finer, and on tensor cores."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if wanted else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def describe_device(device: torch.device, world: int, bf16: bool) -> str:
    """The device in words."""
    threads = torch.get_num_threads()
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else "Apple GPU (mps)"
        if device.type == "mps"
        else f"CPU, {threads} thread{'' if threads == 1 else 's'}"
    )
    processes = f", {world} processes" if world > 1 else ""
    return f"{name}{processes}, {'bf16' if bf16 else 'fp32'}"
