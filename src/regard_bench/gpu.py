"""A GPU's own clock, and what it can do at best: what every figure of `regard bench --device cuda` stands beside."""

import statistics
from collections.abc import Callable

import torch

__all__ = ["ceilings", "time_call"]


def ceilings() -> tuple[float, float]:
    """Measure what the card can do: TFLOP/s of a large product in bf16, and TB/s of a copy, read and written."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    products = time_call(lambda: a @ b)
    copies = time_call(lambda: target.copy_(source))
    return 2 * 8192**3 / products / 1e12, 2 * source.numel() / copies / 1e12


def time_call(call: Callable[[], object], rounds: int = 20) -> float:
    """Seconds, the median of rounds."""
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
