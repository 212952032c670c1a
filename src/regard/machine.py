"""The machine: its memory, Python's search for garbage in it, and the device that `auto` stands for.

Nothing here imports torch at the top.

Apple's GPU, `mps`, is taken on the plain path in float32: it has no float64, no CUDA graphs and none of our kernels.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = [
    "MPS",
    "amount",
    "auto_device",
    "is_out_of_memory",
    "memory",
    "most_threads",
    "pause_garbage_collection",
    "peak_memory",
    "settle_memory",
    "wide_dtype",
]

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # a container's limit
NEW = (20_000, 20, 20)  # objects between two searches for garbage: a busy server makes thousands a burst
MPS = "device auto: Apple's GPU (mps) is taken, in float32; if anything is odd there, try cpu"


def memory() -> int | None:
    """Bytes that a process may have at most: the machine's, the container's or its own; None where nobody says."""
    limits = []
    if sys.platform != "win32":  # which has neither such limits nor such a count
        import resource

        limits += [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
        with contextlib.suppress(OSError, ValueError):  # not every system counts its pages
            limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number, and no limit
            limits.append(int(Path(path).read_text(encoding="utf-8")))
    return min((each for each in limits if each > 0), default=None)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on a GPU or on the host."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def peak_memory() -> int | None:
    """Bytes of memory that this process has had at most; None where the system does not count them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    else:  # a branch of its own: what follows an `if` of another system is out of reach for a type checker
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collection inside the block.

    In the capture of a CUDA graph an older graph could be among it, and to free that ends the capture. And thousands of
    new lists would start the search again and again, in vain.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def settle_memory() -> None:
    """Leave what is loaded by now out of every later search for garbage, which would stop all threads for long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*NEW)


def most_threads() -> int:
    """CPU threads that are worth a try: of many more than there are cores the system may make none."""
    return max(64, 4 * (os.cpu_count() or 1))


def amount(size: float) -> str:
    """Bytes in words."""
    return f"{size / 2**30:,.1f} GiB" if size < 10 * 2**40 else f"{size / 2**40:,.0f} TiB"


def auto_device() -> str:
    """The device that `auto` stands for: a GPU where there is one, NVIDIA's or else Apple's, and the CPU elsewhere."""
    import torch

    if torch.cuda.device_count():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@cache
def wide_dtype(device: "torch.device") -> "torch.dtype":
    """Return the type that sums have on a device: float64, and float32 on Apple's GPU, which has no wider one."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64
