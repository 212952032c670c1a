"""Measuring: interleaved rounds, medians, memory in a separate process, and checks that a peer can take part.

On a GPU, times come from CUDA events, and results are shown beside the GPU's measured peak rates.
"""

import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor

import regard
from regard.errors import RegardError
from regard.io import disk

MIB = 1024 * 1024
PEERS = ("transformers", "joeynmt", "ctranslate2")  # results list the versions of those that took part
MARK = Path("/proc/self/clear_refs")  # writing to it resets Linux's peak of resident memory
USES = {  # the benchmarks' imports from a package, if not the package itself
    "joeynmt": "import joeynmt.batch, joeynmt.model, joeynmt.search, joeynmt.vocabulary",
    "transformers": "from transformers import MarianConfig, MarianMTModel",
}
elsewhere: set[str] = set()  # peers that took part in separate processes


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median of the rounds, and the quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median * 1e3:.2f} ms ({self.low * 1e3:.2f} … {self.high * 1e3:.2f})"


@dataclass(frozen=True)
class Result:
    """One line of a benchmark: Regard's figure, a peer's, their ratio, and the goal for the ratio."""

    what: str
    ours: str
    peer: str
    ratio: float | None  # None if the peer cannot take part
    goal: str
    reached: bool
    details: dict[str, float] = field(default_factory=dict)


def compare_times(
    what: str, names: tuple[str, str], timings: Sequence[Timing], goal: str, *, most: float = 0.0, least: float = 0.0
) -> Result:
    """Compare times: the ratio is ours / the peer's, at most `most`; or with `least` the speed-up, at least `least`."""
    ours, peer = timings
    ratio = peer.median / ours.median if least else ours.median / peer.median
    reached = ratio >= least if least else ratio <= most
    details = {"ours_s": ours.median, "peer_s": peer.median}
    return Result(what, f"{names[0]} {ours}", f"{names[1]} {peer}", ratio, goal, reached, details)


def compare_memory(what: str, names: tuple[str, str], peaks: tuple[int, int], goal: str, most: float) -> Result:
    """Compare peaks of memory, in bytes: the ratio is ours / the peer's, at most `most`."""
    (ours, peer), ratio = peaks, peaks[0] / peaks[1]
    texts = f"{names[0]} {ours / MIB:.0f} MiB", f"{names[1]} {peer / MIB:.0f} MiB"
    return Result(what, *texts, ratio, goal, ratio <= most, {"ours_bytes": ours, "peer_bytes": peer})


def time_interleaved(calls: Sequence[Callable[[], object]], rounds: int) -> list[Timing]:
    """Time the calls in turn, round after round, so that changes of the machine's speed affect all alike."""
    for call in calls:  # warm up twice: first allocation, then caches
        call()
        call()
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for times, call in zip(seconds, calls, strict=True):
            finish()
            begin = time.perf_counter()
            call()
            finish()
            times.append(time.perf_counter() - begin)
    timings = []
    for times in seconds:
        low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        timings.append(Timing(statistics.median(times), low, high))
    return timings


def finish() -> None:
    """Wait for the GPU, if one is in use."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def ceilings() -> tuple[float, float]:
    """Measure the GPU's peak rates: TFLOP/s of a large bf16 product, and TB/s of a copy, counting reads and writes."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    products = time_call(lambda: a @ b)
    copies = time_call(lambda: target.copy_(source))
    return 2 * 8192**3 / products / 1e12, 2 * source.numel() / copies / 1e12


def time_call(call: Callable[[], object], rounds: int = 20) -> float:
    """Measure the median seconds of a call on the GPU, with CUDA events."""
    for _ in range(3):
        call()
    seconds = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


def agree(what: str, ours: Tensor, peer: Tensor, tolerance: float) -> None:
    """Raise a RegardError if two results differ: their speeds are then not comparable."""
    difference = float((ours.detach().double() - peer.detach().double()).abs().max())
    size = float(peer.detach().abs().max())
    if not difference <= tolerance * size:
        raise RegardError(f"bench: {what}: results differ by {difference:.2e} of {size:.2e}, so no speed is compared")


def peak_memory(run: Callable[[], None], before: Callable[[], object] | None = None) -> int:
    """Measure the peak of memory in bytes that `run` (a top-level function) needs beyond the memory in use before it.

    This runs in a new process, in which no memory freed earlier can be reused uncounted. `before` is called first, for
    imports that should not count.
    """
    if not MARK.exists():
        raise RegardError(f"bench: memory can be measured only on Linux; this system has no {MARK}")
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=report_peak, args=(run, before, torch.get_num_threads(), sender))
    process.start()
    sender.close()
    try:
        peak: int = receiver.recv()
    except EOFError:
        process.join()
        raise RegardError(f"bench: {getattr(run, '__name__', run)} ended with status {process.exitcode}") from None
    finally:
        process.join()
    return peak


def report_peak(  # type: ignore[no-untyped-def]
    run: Callable[[], None], before_it: Callable[[], object] | None, threads: int, sender
) -> None:
    """In the child process, send the peak of resident memory during the call, minus the memory before it."""
    torch.set_num_threads(threads)
    if before_it is not None:
        before_it()
    torch.ones(64, 64) @ torch.ones(64, 64)  # load libraries that torch loads on first use
    before = resident("VmRSS")
    MARK.write_bytes(b"5")  # reset the peak
    run()
    sender.send(resident("VmHWM") - before)


def resident(name: str) -> int:
    """Return a value of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RegardError(f"bench: this system does not report {name}; memory can be measured only on Linux")


def signature(device: str, threads: int) -> dict[str, str | int]:
    """Return the facts that are needed to compare a figure: versions, device, threads, date."""
    name = torch.cuda.get_device_name() if device == "cuda" else processor()
    peers = {peer: metadata.version(peer) for peer in PEERS if peer in sys.modules or peer in elsewhere}
    return {
        "regard": regard.__version__,
        "torch": torch.__version__,
        **peers,
        "python": platform.python_version(),
        "device": name,
        "threads": threads,
        "date": time.strftime("%Y-%m-%d"),
    }


def processor() -> str:
    """Return the CPU's name, if the system reports it, and the number of its cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or 'CPU'}, {os.cpu_count()} cores"


def save(path: Path, results: Sequence[Result], signed: dict[str, str | int]) -> None:
    """Write the results as JSON, for later comparison."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"signature": signed, "results": [asdict(result) for result in results]}
    disk.write_whole(path, json.dumps(content, indent=2) + "\n")


def obstacle(package: str) -> str | None:
    """Return why a package cannot take part, as words that follow its name, or None if it can."""
    if importlib.util.find_spec(package) is None:
        return "is not installed"
    error = import_error(package)
    return None if error is None else f"is installed by half ({error})"


@cache
def import_error(package: str) -> str | None:
    """Import a package in a new process, to keep it out of the measured one; return the last line of its error."""
    command = [sys.executable, "-W", "ignore", "-c", USES.get(package, f"import {package}")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", env=environment, check=False
    )
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else lines[-1] if lines else f"its import ends with {done.returncode}"
