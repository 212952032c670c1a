r"""A recurrent layer on a GPU, in one or both directions: one product and one kernel per step, forward and backward.

A step's kernel computes everything of a GRU or an LSTM after the matrix product, so that a step waits for two launches.
Products have the dtype of the inputs (bfloat16 under autocast); cells, and a GRU's states, are float32. No length is
read on the host, and all shapes are known in advance, so that a training step can be captured as a CUDA graph.

A cell reads $x$, the input's contribution to the gates, and $s$, the state's; arithmetic is in float32.

- LSTM: $i, f, o = \sigma(x + s)$, $g = \tanh(x + s)$, $c' = f c + i g$, $h' = o \tanh c'$.
- GRU: $r, z = \sigma(x + s + b)$, $u = s_n + b_n$, $\tilde h = \tanh(x_n + r u)$, $h' = z h + (1 - z) \tilde h$.

Directions run side by side. The second reads every row from its own end: at step t of a row of length l it is at
position l - 1 - t, and beyond the row at t. The kernel computes this position, so that no tensor is reversed. The gates
after their activations, and an LSTM's cells or a GRU's states, are saved for the backward pass.
"""

# k directions · b rows, or sentences · n positions · d width of a state · g gates, 4d or 3d
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable


def run(
    projected: Float[Tensor, "b n k g"],
    recurrent: Float[Tensor, "k g d"],
    bias: Float[Tensor, "k g"],
    lengths: Int[Tensor, " b"],
) -> Float[Tensor, "b n kd"]:
    """Compute the states after each position, [h→; h←], from zeros; three gates are a GRU's, four an LSTM's.

    `projected` is the input's contribution to the gates; an LSTM's includes the bias, and `bias` is not read. The
    second direction reads each row from its own end. Positions beyond a row's length change nothing before them.
    """
    states: Tensor = Layer.apply(projected, recurrent, bias, lengths)
    return states


class Layer(torch.autograd.Function):
    """All steps of a recurrent layer, with their backward pass."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, recurrent: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
        (b, n, k, g), d = projected.shape, recurrent.shape[-1]
        new, half = projected.new_empty, projected.dtype
        recurrent = recurrent.to(half)
        turned = recurrent.mT
        hidden = new(k, n + 1, b, d)
        states = new(k, n + 1, b, d, dtype=torch.float32)  # an LSTM's cells, or a GRU's states
        gates, summed, out = new(k, n, b, 4 * d), new(k, b, g), new(b, n, k, d)
        own_bias = bias if g == 3 * d else None
        hidden[:, 0], states[:, 0] = 0, 0
        for t in range(n):
            torch.bmm(hidden[:, t], turned, out=summed)
            cells = states[:, t], states[:, t + 1]
            step(projected, summed, own_bias, *cells, gates[:, t], hidden[:, t + 1], t, out, lengths)
        ctx.save_for_backward(recurrent, lengths, hidden, states, gates)
        return out.flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, lengths, hidden, states, gates = ctx.saved_tensors
        (k, n, b, _), (_, g, d) = gates.shape, recurrent.shape
        d_output = (grad if grad.stride(-1) == 1 else grad.contiguous()).unflatten(2, (k, d))
        new = gates.new_empty
        d_projected, d_gates, carried = new(b, n, k, g), new(k, n, b, g), new(k, b, d)
        by = states.new_zeros(k, b, d)  # the gradient from step to step that bypasses the product
        for t in range(n - 1, -1, -1):
            later, into = None if t == n - 1 else carried, d_gates[:, t]
            cells = states[:, t], states[:, t + 1] if g == 4 * d else None
            step_backward(gates[:, t], *cells, d_output, later, by, into, d_projected, t, lengths)
            if t:  # the state before the first step is zero and needs no gradient
                torch.bmm(d_gates[:, t], recurrent, out=carried)
        flat = d_gates.flatten(1, 2)
        d_recurrent = torch.bmm(flat.mT, hidden[:, :-1].flatten(1, 2))
        d_bias = flat.sum(1, dtype=torch.float32) if g == 3 * d else None
        return d_projected, d_recurrent, d_bias, None


# ---- a step


def grid(k: int, b: int, d: int) -> tuple[tuple[int, int, int], dict[str, int]]:
    """Return the launch grid, one program per row, direction and block of the width, and its options."""
    block = min(512, triton.next_power_of_2(d))  # eight elements per thread: 16 bytes of half precision
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


def step(
    x: Tensor,
    s: Tensor,
    bias: Tensor | None,
    before: Tensor,
    after: Tensor,
    gates: Tensor,
    state: Tensor,
    t: int,
    out: Tensor | None = None,
    lengths: Tensor | None = None,
) -> None:
    """Run step t of an LSTM or, with a `bias`, a GRU: write h' [k b d] to `state`, and to `out` if given.

    - LSTM: [b n k 4d], [k b 4d] and c -> c' and the gates.
    - GRU: [b n k 3d], [k b 3d or 4d], [k 3d] and h -> h' in float32, and r, z, proposal, u.
    """
    k, b, d = before.shape
    programs, options = grid(k, b, d)
    lstm = bias is None
    kernel = lstm_kernel if lstm else gru_kernel
    kernel[programs](
        x, s, *(() if lstm else (bias,)), before, after, gates, state, state if out is None else out,
        x if lengths is None else lengths, t, d,
        *strides_of(x), *ways(s), *ways(before), *ways(gates), *ways(state), *strides_of(out),
        TURNED=lengths is not None, OUT=out is not None, **({} if lstm else {"FOURTH": s.shape[2] == 4 * d}), **options,
    )  # fmt: skip


def step_backward(
    gates: Tensor,
    before: Tensor,
    after: Tensor | None,
    d_output: Tensor | None,
    carried: Tensor | None,
    d_state: Tensor,
    d_gates: Tensor,
    d_x: Tensor | None,
    t: int,
    lengths: Tensor | None = None,
) -> None:
    """Run the backward pass of step t of an LSTM or, without c' as `after`, a GRU.

    - LSTM: the gates' gradients before activation, also into `d_x`, from those of h' (two parts) and c' (becomes c's).
    - GRU: the gradients of s and x, from those of h' (three parts; the last becomes h's direct gradient).
    """
    k, b, d = before.shape
    programs, options = grid(k, b, d)
    lstm = after is not None
    kernel = lstm_backward_kernel if lstm else gru_backward_kernel
    kernel[programs](
        gates, before, *((after,) if lstm else ()), gates if d_output is None else d_output,
        gates if carried is None else carried, d_state, d_gates, d_gates if d_x is None else d_x,
        gates if lengths is None else lengths, t, d, *ways(gates), *ways(before), *strides_of(d_output),
        *((0, 0) if carried is None else ways(carried)), *ways(d_state), *ways(d_gates), *strides_of(d_x),
        TURNED=lengths is not None, D_OUTPUT=d_output is not None, CARRIED=carried is not None,
        **({"OUT": d_x is not None} if lstm else {"FOURTH": d_gates.shape[2] == 4 * d}), **options,
    )  # fmt: skip


# ---- kernels


@triton.jit
@no_type_check
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
@no_type_check
def tanh(x):
    """Compute tanh, accurate to 1e-7."""
    return 2 / (1 + tl.exp(-2 * x)) - 1


@triton.jit
@no_type_check
def load_wide(at, some):
    """Load elements in float32."""
    return tl.load(at, mask=some, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def store_four(at, d, first, second, third, fourth, some):
    """Store the elements of four gates, d apart."""
    kind = at.dtype.element_ty
    tl.store(at, first.to(kind), mask=some)
    tl.store(at + d, second.to(kind), mask=some)
    tl.store(at + 2 * d, third.to(kind), mask=some)
    tl.store(at + 3 * d, fourth.to(kind), mask=some)


@triton.jit
@no_type_check
def locate(lengths, t, d, TURNED: tl.constexpr, BLOCK: tl.constexpr):
    """Return a program's row, direction, elements, which of them exist, and its position at step t."""
    row = tl.program_id(0).to(tl.int64)
    way = tl.program_id(2).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    some = at < d
    place = t
    if TURNED:
        length = tl.load(lengths + row).to(tl.int32)
        place = tl.where((tl.program_id(2) == 1) & (t < length), length - 1 - t, t)
    return row, way, at, some, place.to(tl.int64)


@triton.jit(do_not_specialize=["t"])
@no_type_check
def lstm_kernel(
    x,  # [b n k g] by its strides
    s,  # [k b g]
    before,  # [k b d] float32: c
    after,  # c'
    gates,  # [k b g]
    state,  # [k b d]: h'
    out,  # [b n k d]: h' again, at its position
    lengths, t, d, x_row, x_place, x_way, s_way, s_row, cell_way, cell_row, gate_way, gate_row, state_way, state_row,
    out_row, out_place, out_way,
    TURNED: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, way, at, some, place = locate(lengths, t, d, TURNED, BLOCK)
    x += row * x_row + place * x_place + way * x_way + at
    s += way * s_way + row * s_row + at
    gates += way * gate_way + row * gate_row + at
    i = sigmoid(load_wide(x, some) + load_wide(s, some))
    f = sigmoid(load_wide(x + d, some) + load_wide(s + d, some))
    g = tanh(load_wide(x + 2 * d, some) + load_wide(s + 2 * d, some))
    o = sigmoid(load_wide(x + 3 * d, some) + load_wide(s + 3 * d, some))
    c = f * tl.load(before + way * cell_way + row * cell_row + at, mask=some, other=0.0) + i * g
    h = o * tanh(c)
    store_four(gates, d, i, f, g, o, some)
    tl.store(after + way * cell_way + row * cell_row + at, c, mask=some)
    tl.store(state + way * state_way + row * state_row + at, h.to(state.dtype.element_ty), mask=some)
    if OUT:
        tl.store(out + row * out_row + place * out_place + way * out_way + at, h.to(out.dtype.element_ty), mask=some)


@triton.jit(do_not_specialize=["t"])
@no_type_check
def lstm_backward_kernel(
    gates,  # [k b g]
    before,  # [k b d]: c
    after,  # c'
    d_output,  # [b n k d] by its strides: the gradient of h' as an output
    carried,  # [k b d]: the gradient of h' from the next step
    d_cell,  # [k b d] float32: the gradient of c', replaced by that of c
    d_gates,  # [k b g], written
    d_x,  # [b n k g], written: the same, at its position
    lengths, t, d, gate_way, gate_row, cell_way, cell_row, d_output_row, d_output_place, d_output_way, carried_way,
    carried_row, d_cell_way, d_cell_row, d_way, d_row, d_x_row, d_x_place, d_x_way,
    TURNED: tl.constexpr, D_OUTPUT: tl.constexpr, CARRIED: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, way, at, some, place = locate(lengths, t, d, TURNED, BLOCK)
    gates += way * gate_way + row * gate_row + at
    i = load_wide(gates, some)
    f = load_wide(gates + d, some)
    g = load_wide(gates + 2 * d, some)
    o = load_wide(gates + 3 * d, some)
    earlier = tl.load(before + way * cell_way + row * cell_row + at, mask=some, other=0.0)
    bent = tanh(tl.load(after + way * cell_way + row * cell_row + at, mask=some, other=0.0))
    dh = tl.zeros([BLOCK], tl.float32)
    if D_OUTPUT:
        dh += load_wide(d_output + row * d_output_row + place * d_output_place + way * d_output_way + at, some)
    if CARRIED:
        dh += load_wide(carried + way * carried_way + row * carried_row + at, some)
    d_cell += way * d_cell_way + row * d_cell_row + at
    dc = tl.load(d_cell, mask=some, other=0.0) + dh * o * (1 - bent * bent)
    tl.store(d_cell, dc * f, mask=some)
    di = dc * g * i * (1 - i)
    df = dc * earlier * f * (1 - f)
    dg = dc * i * (1 - g * g)
    do = dh * bent * o * (1 - o)
    d_gates += way * d_way + row * d_row + at
    store_four(d_gates, d, di, df, dg, do, some)
    if OUT:
        d_x += row * d_x_row + place * d_x_place + way * d_x_way + at
        store_four(d_x, d, di, df, dg, do, some)


@triton.jit(do_not_specialize=["t"])
@no_type_check
def gru_kernel(
    x,  # [b n k 3d]
    s,  # [k b 3d], or 4d
    bias,  # [k 3d]
    before,  # [k b d] float32: h
    after,  # h'
    gates,  # [k b 4d]: r, z, the proposal, u
    state,  # [k b d]: h' again
    out,  # [b n k d]
    lengths, t, d, x_row, x_place, x_way, s_way, s_row, cell_way, cell_row, gate_way, gate_row, state_way, state_row,
    out_row, out_place, out_way,
    TURNED: tl.constexpr, OUT: tl.constexpr, FOURTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, way, at, some, place = locate(lengths, t, d, TURNED, BLOCK)
    x += row * x_row + place * x_place + way * x_way + at
    s += way * s_way + row * s_row + at
    bias += way * 3 * d + at
    gates += way * gate_way + row * gate_row + at
    r = sigmoid(load_wide(x, some) + load_wide(s, some) + load_wide(bias, some))
    z = sigmoid(load_wide(x + d, some) + load_wide(s + d, some) + load_wide(bias + d, some))
    u = load_wide(s + 2 * d, some)
    u += load_wide(bias + 2 * d, some)
    put = load_wide(x + 2 * d, some)
    if FOURTH:
        put += load_wide(s + 3 * d, some)
    proposed = tanh(put + r * u)
    h = proposed + z * (tl.load(before + way * cell_way + row * cell_row + at, mask=some, other=0.0) - proposed)
    store_four(gates, d, r, z, proposed, u, some)
    tl.store(after + way * cell_way + row * cell_row + at, h, mask=some)
    tl.store(state + way * state_way + row * state_row + at, h.to(state.dtype.element_ty), mask=some)
    if OUT:
        tl.store(out + row * out_row + place * out_place + way * out_way + at, h.to(out.dtype.element_ty), mask=some)


@triton.jit(do_not_specialize=["t"])
@no_type_check
def gru_backward_kernel(
    gates,  # [k b 4d]
    before,  # [k b d]: h
    d_output,  # [b n k d]
    carried,  # [k b d]: the gradient of h' from the next step's products
    d_state,  # [k b d] float32: its part that bypasses the products, replaced by that of h
    d_gates,  # [k b 3d], or 4d: the gradient of s
    d_x,  # [b n k 3d]
    lengths, t, d, gate_way, gate_row, cell_way, cell_row, d_output_row, d_output_place, d_output_way, carried_way,
    carried_row, d_state_way, d_state_row, d_way, d_row, d_x_row, d_x_place, d_x_way,
    TURNED: tl.constexpr, D_OUTPUT: tl.constexpr, CARRIED: tl.constexpr, FOURTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, way, at, some, place = locate(lengths, t, d, TURNED, BLOCK)
    gates += way * gate_way + row * gate_row + at
    r = load_wide(gates, some)
    z = load_wide(gates + d, some)
    proposed = load_wide(gates + 2 * d, some)
    u = load_wide(gates + 3 * d, some)
    h = tl.load(before + way * cell_way + row * cell_row + at, mask=some, other=0.0)
    d_state += way * d_state_way + row * d_state_row + at
    dh = tl.load(d_state, mask=some, other=0.0)
    if D_OUTPUT:
        dh += load_wide(d_output + row * d_output_row + place * d_output_place + way * d_output_way + at, some)
    if CARRIED:
        dh += load_wide(carried + way * carried_way + row * carried_row + at, some)
    tl.store(d_state, dh * z, mask=some)
    dn = dh * (1 - z) * (1 - proposed * proposed)
    dr = dn * u * r * (1 - r)
    dz = dh * (h - proposed) * z * (1 - z)
    d_gates += way * d_way + row * d_row + at
    d_x += row * d_x_row + place * d_x_place + way * d_x_way + at
    kind = d_gates.dtype.element_ty
    tl.store(d_gates, dr.to(kind), mask=some)
    tl.store(d_gates + d, dz.to(kind), mask=some)
    tl.store(d_gates + 2 * d, (dn * r).to(kind), mask=some)
    if FOURTH:
        tl.store(d_gates + 3 * d, dn.to(kind), mask=some)
    tl.store(d_x, dr.to(kind), mask=some)
    tl.store(d_x + d, dz.to(kind), mask=some)
    tl.store(d_x + 2 * d, dn.to(kind), mask=some)
