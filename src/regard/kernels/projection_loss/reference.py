r"""The specification: logits of all tokens, then cross-entropy with label smoothing (Szegedy et al. 2016, section 7).

$\ell_t = (1 - \varepsilon) \cdot -\log p_t(y_t) + \varepsilon \cdot \frac{1}{v} \sum_k -\log p_t(k)$: as torch's own
`label_smoothing`, the mass ε is spread over all v classes, the right one included.
"""

# t tokens · d width · v classes
import torch.nn.functional as F
from torch import Tensor

__all__ = ["projection_loss"]


def projection_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """[t d], [v d], [v], [t] -> the sum of the smoothed losses, and of the plain ones, which carries no gradient."""
    logits = F.linear(hidden, weight, bias)
    logits = logits if logits.element_size() > 2 else logits.float()
    total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    return total, F.cross_entropy(logits.detach(), targets, reduction="sum")
