"""Random inputs for RNNsearch's recurrence."""

import torch


def draw(gates, b, n, m, d, h, dv, lengths=None):
    """All tensors but `exists`, in float64 with gradients, and how many keys exist. A GRU has 3 gates, an LSTM 4."""
    g = gates * d
    shapes = [(b, n, g), (b, gates - 2, d), (b, m, h), (b, m, dv), (h, d), (h,), (g, dv), (g, d), (g,)]
    inputs = [torch.randn(*shape, dtype=torch.float64) / 2 for shape in shapes]
    if lengths is None:
        lengths = torch.randint(0, m + 1, (b,))
        lengths[0] = m
    return [x.requires_grad_() for x in inputs], torch.as_tensor(lengths)


def plain(recur, inputs, lengths):
    """The recurrence of `reference` or `cpu`."""
    exists = torch.arange(inputs[2].shape[1]) < lengths[:, None]
    return recur(*inputs[:4], exists, *inputs[4:])
