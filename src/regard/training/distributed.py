"""Training in several processes: the group, and sharded weights.

Under `torchrun` every process takes its share of each update's batches. The processes sum their gradients only after
each has finished its whole share: a process that runs out of memory can then redo its batch in halves while the others
wait, and no all-reduce is left incomplete. With `shard`, FSDP2 shards weights, gradients and the optimiser's state over
the processes.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.attention import Residual
from regard.errors import ConfigError, RegardError, TrainingError
from regard.machine import auto_device
from regard.training.settings import TrainingSettings

if TYPE_CHECKING:  # importing these takes half a second, and only sharding needs them
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

T = TypeVar("T")
BUCKET_BYTES = 64 * 2**20  # bytes of gradients per all-reduce


class Group:
    """The processes of a run: one, or as many as torchrun started."""

    def __init__(self, device: str = "auto", shard: bool = False):
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if device == "cuda" and not torch.cuda.is_available():
            raise TrainingError("training.device: cuda given, but torch finds no CUDA device")
        if device == "mps" and not torch.backends.mps.is_available():
            raise TrainingError("training.device: mps given, but torch finds no Apple GPU")
        self.automatic = device == "auto"  # the user did not choose the device
        if device == "auto":
            device = auto_device()
        if device == "mps" and self.world > 1:
            raise TrainingError(
                f"torchrun: {self.world} processes given, but Apple's GPU serves only one; set training.device to cpu"
            )
        self.device = torch.device(f"cuda:{local}" if device == "cuda" else device)
        if self.device.type == "cuda":
            if local >= torch.cuda.device_count():
                raise TrainingError(f"torchrun: process {local} given, but there are {torch.cuda.device_count()} GPUs")
            torch.cuda.set_device(self.device)
        self.own = False
        if self.world > 1 and not dist.is_initialized():
            # One process may encode a corpus or translate for hours while the others wait.
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo", timeout=timedelta(days=1))
            self.own = True
        self.shard = shard and self.world > 1

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes files and messages."""
        return self.rank == 0

    def wrap(self, objective: nn.Module) -> None:
        """Shard the weights over the processes (FSDP2), or broadcast the first process's weights to all."""
        if self.shard:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(self.device.type, (self.world,))
            for module in [*(module for module in objective.modules() if isinstance(module, Residual)), objective]:
                fully_shard(module, mesh=mesh, reshard_after_forward=module is not objective)
            for part in sharded_modules(objective):
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)  # gloo supports no other reduction
        elif self.world > 1:
            with torch.no_grad():
                for tensor in objective.state_dict().values():
                    dist.broadcast(tensor, 0)

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Sum the gradients over all processes; with FSDP2 do nothing, as it has summed them already."""
        if self.shard:
            return
        for parameter in parameters:
            if parameter.grad is None:  # this process's share did not use the parameter
                parameter.grad = torch.zeros_like(parameter)
        for gradients in gradient_buckets([parameter.grad for parameter in parameters]):  # type: ignore[misc]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over the processes."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true on any process."""
        if self.world == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def same(self, thing: Any) -> Any:
        """Return the first process's object on every process; plain data only."""
        if self.world == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box, 0)
        return box[0]

    def in_first(self, work: Callable[[], T]) -> T | None:
        """Call `work` in the first process and return its result, or None in the others; raise its error in all."""
        problem: str | None = None
        result = None
        if self.first:
            try:
                result = work()
            except RegardError as error:
                if self.world == 1:
                    raise
                problem = str(error)
        if (problem := self.same(problem)) is not None:
            raise TrainingError(problem)
        return result

    def wait(self) -> None:
        """Wait until all processes have reached this call."""
        if self.world > 1:
            dist.barrier()

    @contextlib.contextmanager
    def whole(self, objective: nn.Module) -> Iterator[None]:
        """Gather sharded weights inside the block, so that the model's own methods can be called."""
        if not self.shard:
            yield
            return
        for part in sharded_modules(objective):
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        try:
            yield
        finally:
            for part in sharded_modules(objective):
                part.reshard()
                part.set_reshard_after_forward(cast(nn.Module, part) is not objective, recurse=False)

    def leave(self) -> None:
        """Destroy the process group, if this object created it."""
        if self.own and dist.is_initialized():
            dist.destroy_process_group()


def gradient_buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Group consecutive tensors of one dtype into buckets, so that one all-reduce sends many small tensors."""
    batch: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if batch and (size >= BUCKET_BYTES or tensor.dtype != batch[0].dtype):
            yield batch
            batch, size = [], 0
        batch.append(tensor)
        size += tensor.numel() * tensor.element_size()
    yield batch


def sharded_modules(objective: nn.Module) -> "list[FSDPModule]":
    """List the modules that are sharded over the processes, including the objective itself."""
    from torch.distributed.fsdp import FSDPModule

    return [module for module in objective.modules() if isinstance(module, FSDPModule)]


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Return whether a tensor is sharded over the processes, without importing torch.distributed.tensor."""
    spreading = sys.modules.get("torch.distributed.tensor")
    return spreading is not None and isinstance(tensor, spreading.DTensor)


def gather_full(tensor: Tensor) -> Tensor:
    """Return the full tensor of a sharded one, and any other unchanged; all processes must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def shard_like(tensor: Tensor, example: Tensor) -> Tensor:
    """Put a full tensor on the device of `example`, sharded and laid out in memory as `example` is."""
    if is_sharded(example):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor.to(example.device), example.device_mesh, example.placements)
    if tensor.stride() != example.stride():
        # A file does not keep the memory format (channels last), which the fused optimiser depends on.
        tensor = torch.empty_like(example, dtype=tensor.dtype, requires_grad=False).copy_(tensor)
    return tensor.to(example.device)


def gather_all(tensors: Mapping[str, Tensor], keep: bool = True) -> dict[str, Tensor]:
    """Gather all tensors in full, sharded ones on the host; without `keep` only take part in the gathering."""
    whole = {}
    for name, tensor in tensors.items():
        gathered = gather_full(tensor)
        if keep:
            whole[name] = gathered.cpu() if is_sharded(tensor) else gathered
    return whole


def uses_bf16(settings: TrainingSettings, device: torch.device) -> bool:
    """Return whether training computes matrix products in bfloat16."""
    if settings.precision == "bf16" and device.type == "mps":
        raise ConfigError("training.precision", '"bf16" given with an Apple GPU (mps), expected "fp32" or "auto"')
    return settings.precision == "bf16" or (settings.precision == "auto" and device.type == "cuda")


@contextlib.contextmanager
def allow_tf32(allow: bool) -> Iterator[None]:
    """Allow TF32 inside the block for products that stay in float32: finer than bfloat16, and still on tensor cores."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allow else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def describe_device(device: torch.device, world: int, bf16: bool) -> str:
    """Describe the device in words."""
    threads = torch.get_num_threads()
    name = "Apple GPU (mps)" if device.type == "mps" else f"CPU, {threads} thread{'' if threads == 1 else 's'}"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    processes = f", {world} processes" if world > 1 else ""
    return f"{name}{processes}, {'bf16' if bf16 else 'fp32'}"
