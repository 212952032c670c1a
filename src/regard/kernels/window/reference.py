r"""The specification of local attention (Luong et al. 2015, arXiv:1508.04025, section 3.2): one query after the other.

The softmax runs over the keys j with $|j - p_i| \le D$ alone; the Gaussian $\exp(-(j - p_i)^2 / 2\sigma^2)$ multiplies
the weights after it, without renormalising. A query whose window has no key gets zeros. `regard.kernels.reference` says
the same for windows beside any other span, by a mask and a gate over all keys.
"""

# r rows: all leading dimensions as one · n queries · m keys · d width · dv value width
import torch
from torch import Tensor

from regard.kernels.span_limits import Window


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    window: Window,
    *,
    scale: float = 1.0,
    vector: Tensor | None = None,
    temperature: float = 1.0,
    lengths: Tensor | None = None,
    causal: int | Tensor | None = None,
) -> Tensor:
    """Attend: [r n d], [r m d], [r m dv] -> [r n dv]; scores are scale · q·k, or with a vector v [d] v·tanh(q + k)."""
    (rows, n, _), m = query.shape, keys.shape[1]
    centres = window.centres(n, query.device).expand(rows, n)
    contexts = []
    for row in range(rows):
        length = m if lengths is None else int(lengths[row])
        for i in range(n):
            centre = centres[row, i]
            last = length - 1
            if causal is not None:
                last = min(last, i + int(causal if isinstance(causal, int) else causal[row]))
            inside = [j for j in range(last + 1) if abs(j - float(centre.detach())) <= window.radius]
            near = keys[row, inside]
            scores = scale * near @ query[row, i] if vector is None else torch.tanh(near + query[row, i]) @ vector
            weights = torch.softmax(scores / temperature, 0)
            if window.sigma is not None:
                distance = torch.tensor(inside, device=query.device) - centre
                weights = weights * torch.exp(-distance.square() / (2 * window.sigma**2))
            contexts.append(weights @ values[row, inside])
    return torch.stack(contexts).view(rows, n, -1)
