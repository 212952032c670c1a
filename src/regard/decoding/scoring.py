"""Scores that are no numbers: refused wherever they come out of a model, so that nothing is made of them.

Weights are finite when they are loaded; what is computed with them may still overflow.
"""

from torch import Tensor

from regard.errors import NotFiniteError
from regard.models.contract import Model

__all__ = ["check_finite"]


def check_finite(model: Model, scores: Tensor, *, impossible: bool = True) -> None:
    """Refuse NaN and +∞; `impossible`: -∞ is the log-probability of what cannot be, and no fault.

    It waits for the device.
    """
    sound = ~(scores.isnan() | scores.isposinf()) if impossible else scores.isfinite()
    if bool(sound.all()):
        return
    raise NotFiniteError(
        f"{model.origin}: its scores for this input are not finite (NaN or infinity), as its weights are too large to "
        "compute with; take another checkpoint, or train it again with a lower training.rate"
    )
