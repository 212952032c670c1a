r"""Learning rates as a function of the step, from 1: a warm-up, then what the schedule says."""

import math

from regard.training.settings import TrainingSettings

__all__ = ["rate_at"]


def rate_at(step: int, settings: TrainingSettings) -> float:
    r"""The rate of a step.

    `noam`: $r \cdot \min(t/w, \sqrt{w/t})$, Vaswani et al. 2017 (arXiv:1706.03762), section 5.3, with its peak r given
    in place of the width's root. `cosine`: from r down to nothing at the last step (arXiv:1608.03983). `constant`: r.
    """
    warmup, peak = settings.warmup, settings.rate
    if step <= warmup:
        return peak * step / warmup
    if settings.schedule == "noam":
        return peak * math.sqrt(warmup / step)
    if settings.schedule == "cosine":
        done = (step - warmup) / max(1, settings.steps - warmup)
        return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return peak
