r"""The specification of recurrent layers: a GRU or an LSTM, one position after the other, from both ends.

- LSTM (Hochreiter and Schmidhuber 1997): $i, f, o = \sigma(x + U h)$, $g = \tanh(x + U h)$, $c' = f c + i g$,
  $h' = o \tanh c'$.
- GRU (Cho et al. 2014, arXiv:1406.1078, but with the reset behind the product, as cuDNN has it):
  $r, z = \sigma(x + U h + b)$, $\tilde h = \tanh(x + r (U h + b))$, $h' = z h + (1 - z) \tilde h$.
"""

# b sentences · n positions · k directions · d width of a state · g gates
import torch
from torch import Tensor


def run(projected: Tensor, recurrent: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
    """Run a layer from zeros: [b n k g], [k g d], [k g], [b] -> the states after each position, [h→; h←], [b n kd].

    The second direction reads each row from its own end; what stands beyond it is read in order, after the rest.
    """
    (b, n, k, g), d = projected.shape, recurrent.shape[-1]
    rows = []
    for row in range(b):
        length, ways = int(lengths[row]), []
        for way in range(k):
            order = list(range(n)) if way == 0 else [*range(length - 1, -1, -1), *range(length, n)]
            h, c = projected.new_zeros(d), projected.new_zeros(d)
            states = [h] * n
            for position in order:
                x, s = projected[row, position, way], recurrent[way] @ h
                if g == 4 * d:
                    h, c = lstm(x, s, c)
                else:
                    h = gru(x, s + bias[way], h)
                states[position] = h
            ways.append(torch.stack(states) if n else projected.new_zeros(0, d))
        rows.append(torch.cat(ways, -1))
    return torch.stack(rows)


def lstm(x: Tensor, s: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Step an LSTM: [4d], [4d] and the cell [d] -> h' and c'; the gates are i, f, g, o, in torch's order."""
    i, f, g, o = (x + s).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru(x: Tensor, s: Tensor, h: Tensor) -> Tensor:
    """Step a GRU: [3d], [3d] and the state [d] -> h'; the gates are r, z and the proposal, in torch's order."""
    (r, z, proposal), (r_state, z_state, proposal_state) = x.chunk(3), s.chunk(3)
    z = (z + z_state).sigmoid()
    proposed = (proposal + (r + r_state).sigmoid() * proposal_state).tanh()
    return z * h + (1 - z) * proposed
