"""The machine: its memory, Python's garbage collection, and the device that `auto` selects.

No torch import at the top of this module.

Apple's GPU, `mps`, uses the plain path in float32: it has no float64, no CUDA graphs and none of Regard's kernels.
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
NEW = (20_000, 20, 20)  # thresholds of garbage collection: a busy server allocates thousands of objects at a time
MPS = "device auto: Apple's GPU (mps) is taken, in float32; if anything is odd there, try cpu"


def memory() -> int | None:
    """Return the memory limit in bytes of the machine, the container or the process, the lowest; None if unknown."""
    limits = []
    if sys.platform != "win32":  # Windows has neither of these
        import resource

        limits += [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
        with contextlib.suppress(OSError, ValueError):  # some systems do not count their pages
            limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # "max" is not a number, and means no limit
            limits.append(int(Path(path).read_text(encoding="utf-8")))
    return min((each for each in limits if each > 0), default=None)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the GPU or the host is out of memory."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes, or None if the system does not report it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    else:  # an explicit branch, as a type checker would treat code after the `if` as unreachable on Windows
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collection inside the block.

    During the capture of a CUDA graph it might free an older graph, which ends the capture. Where thousands of lists
    are created, it would start again and again without finding garbage.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def settle_memory() -> None:
    """Exclude all current objects from later garbage collections, which would otherwise stop all threads for long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*NEW)


def most_threads() -> int:
    """Return the highest number of CPU threads to allow: the system may fail to create many more than cores."""
    return max(64, 4 * (os.cpu_count() or 1))


def amount(size: float) -> str:
    """Format a number of bytes in GiB or TiB."""
    return f"{size / 2**30:,.1f} GiB" if size < 10 * 2**40 else f"{size / 2**40:,.0f} TiB"


def auto_device() -> str:
    """Return the device that `auto` selects: a CUDA GPU, else Apple's GPU, else the CPU."""
    import torch

    if torch.cuda.device_count():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@cache
def wide_dtype(device: "torch.device") -> "torch.dtype":
    """Return the dtype for sums on a device: float64, or float32 on Apple's GPU, which has no float64."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64
