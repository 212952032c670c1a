"""Launches of a GRU's or an LSTM's step, forward and backward: `kernels` has what they compute."""

# k directions · b rows · n positions · d width of a state · g gates, 4d or 3d
import triton
from torch import Tensor

from regard.kernels.cells.triton_kernels import gru_backward_kernel, gru_kernel, lstm_backward_kernel, lstm_kernel


def grid(k: int, b: int, d: int) -> tuple[tuple[int, int, int], dict[str, int]]:
    """Return the launch grid: a program for each row, direction and block of the width."""
    block = min(512, triton.next_power_of_2(d))
    return (b, triton.cdiv(d, block), k), {"BLOCK": block, "num_warps": max(1, block // 256)}


def ways(x: Tensor) -> tuple[int, int]:
    """Return the strides of [k b _] over directions and rows."""
    assert x.stride(2) == 1
    return x.stride(0), x.stride(1)


def strides_of(x: Tensor | None) -> tuple[int, int, int]:
    """Return the strides of [b n k _] over rows, positions and directions."""
    if x is None:
        return 0, 0, 0
    assert x.stride(3) == 1
    return x.stride(0), x.stride(1), x.stride(2)


def lstm(
    x: Tensor,
    s: Tensor,
    before: Tensor,
    after: Tensor,
    gates: Tensor,
    state: Tensor,
    t: int,
    out: Tensor | None = None,
    lengths: Tensor | None = None,
) -> None:
    """Take an LSTM's step t: [b n k 4d], [k b 4d] and c -> c', the gates and h' [k b d], which goes into `out` too."""
    k, b, d = before.shape
    programs, options = grid(k, b, d)
    lstm_kernel[programs](
        x,
        s,
        before,
        after,
        gates,
        state,
        state if out is None else out,
        x if lengths is None else lengths,
        t,
        d,
        *strides_of(x),
        *ways(s),
        *ways(before),
        *ways(gates),
        *ways(state),
        *strides_of(out),
        TURNED=lengths is not None,
        OUT=out is not None,
        **options,
    )


def lstm_backward(
    gates: Tensor,
    before: Tensor,
    after: Tensor,
    d_output: Tensor | None,
    carried: Tensor | None,
    d_cell: Tensor,
    d_gates: Tensor,
    t: int,
    d_x: Tensor | None = None,
    lengths: Tensor | None = None,
) -> None:
    """Go back over step t: the gates' gradients before activation, from those of h' (two parts) and c' (made c's)."""
    k, b, d = before.shape
    programs, options = grid(k, b, d)
    lstm_backward_kernel[programs](
        gates,
        before,
        after,
        gates if d_output is None else d_output,
        gates if carried is None else carried,
        d_cell,
        d_gates,
        d_gates if d_x is None else d_x,
        gates if lengths is None else lengths,
        t,
        d,
        *ways(gates),
        *ways(before),
        *strides_of(d_output),
        *((0, 0) if carried is None else ways(carried)),
        *ways(d_cell),
        *ways(d_gates),
        *strides_of(d_x),
        TURNED=lengths is not None,
        D_OUTPUT=d_output is not None,
        CARRIED=carried is not None,
        OUT=d_x is not None,
        **options,
    )


def gru(
    x: Tensor,
    s: Tensor,
    bias: Tensor,
    before: Tensor,
    after: Tensor,
    gates: Tensor,
    state: Tensor,
    t: int,
    out: Tensor | None = None,
    lengths: Tensor | None = None,
) -> None:
    """Take a GRU's step t: [b n k 3d], [k b 3d or 4d], [k 3d], h -> h' in float32, r, z, proposal, u, h' as `state`."""
    k, b, d = before.shape
    programs, options = grid(k, b, d)
    gru_kernel[programs](
        x,
        s,
        bias,
        before,
        after,
        gates,
        state,
        state if out is None else out,
        x if lengths is None else lengths,
        t,
        d,
        *strides_of(x),
        *ways(s),
        *ways(before),
        *ways(gates),
        *ways(state),
        *strides_of(out),
        TURNED=lengths is not None,
        OUT=out is not None,
        FOURTH=s.shape[2] == 4 * d,
        **options,
    )


def gru_backward(
    gates: Tensor,
    before: Tensor,
    d_output: Tensor | None,
    carried: Tensor | None,
    d_state: Tensor,
    d_gates: Tensor,
    d_x: Tensor,
    t: int,
    lengths: Tensor | None = None,
) -> None:
    """Go back over step t: the gradients of s and x, from those of h' (three parts, the last becomes that of h)."""
    k, b, d = before.shape
    programs, options = grid(k, b, d)
    gru_backward_kernel[programs](
        gates,
        before,
        gates if d_output is None else d_output,
        gates if carried is None else carried,
        d_state,
        d_gates,
        d_x,
        gates if lengths is None else lengths,
        t,
        d,
        *ways(gates),
        *ways(before),
        *strides_of(d_output),
        *((0, 0) if carried is None else ways(carried)),
        *ways(d_state),
        *ways(d_gates),
        *strides_of(d_x),
        TURNED=lengths is not None,
        D_OUTPUT=d_output is not None,
        CARRIED=carried is not None,
        FOURTH=d_gates.shape[2] == 4 * d,
        **options,
    )
