r"""The specification: logits of all tokens, then cross-entropy with label smoothing (Szegedy et al. 2016, section 7).

$\ell_t = (1 - \varepsilon) \cdot -\log p_t(y_t) + \varepsilon \cdot \frac{1}{v} \sum_k -\log p_t(k)$: as torch's own
`label_smoothing`, the mass ε is spread over all v classes, the right one included.
"""

# t tokens · d width · v classes
from typing import Any

import torch.nn.functional as F
from torch import Tensor

IGNORED = -100


def projection_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sum smoothed losses, and plain ones, which carry no gradient: [t d], [v d], [v], [t] -> two numbers.

    Targets below zero count nothing.
    """
    targets = targets.where(targets >= 0, IGNORED)
    logits = F.linear(hidden, weight, bias)
    logits = logits if logits.element_size() > 2 else logits.float()
    options: dict[str, Any] = {"reduction": "sum", "ignore_index": IGNORED}
    total = F.cross_entropy(logits, targets, label_smoothing=smoothing, **options)
    return total, F.cross_entropy(logits.detach(), targets, **options)
