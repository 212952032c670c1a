"""Dropout's mask drawn in a kernel, and what lies beside it in one pass: an activation, or an embedding.

Sixteen bits decide about a number, as on a CPU (see `cpu`), so one draw of Philox's four words serves eight of them:
those of one column in eight rows, which lie in the registers of one thread. Seven rounds pass BigCrush (Salmon et al.
2011, table 2). Arithmetic is in float32.
"""

from typing import no_type_check

import triton
import triton.language as tl

GROUP = tl.constexpr(8)  # rows that share a draw
ROUNDS = tl.constexpr(7)


@triton.jit
@no_type_check
def words(seed, group, column, width):
    """Draw four random words, 128 bits used nowhere else, for eight rows of these columns."""
    return tl.randint4x(tl.load(seed), group * width + column, n_rounds=ROUNDS)


@triton.jit
@no_type_check
def is_kept(first, second, third, fourth, k, limit):
    """Return whether the numbers of row k of a group stay: by the lower or the upper half of one of the words."""
    word = tl.where(k < 4, tl.where(k < 2, first, second), tl.where(k < 6, third, fourth))
    return ((word >> (k % 2) * 16) & 0xFFFF).to(tl.int32) >= limit


@triton.jit
@no_type_check
def place(group, rows, width, BLOCK: tl.constexpr):
    """Return a group's tile: rows within it, columns, offsets and whether they are inside."""
    k = tl.arange(0, GROUP)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = (group * GROUP + k).to(tl.int64)
    return k, column, row * width + column[None, :], (row < rows) & (column < width)[None, :]


@triton.jit(do_not_specialize=["rows", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def mask(x, seed, result, rows, limit, scale, width: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    k, column, offset, inside = place(group, rows, width, BLOCK)
    value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32) * scale
    first, second, third, fourth = words(seed, group, column, width)
    value = tl.where(is_kept(first[None, :], second[None, :], third[None, :], fourth[None, :], k, limit), value, 0.0)
    tl.store(result + offset, value.to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def relu_forward(
    x,
    bias,
    seed,
    result,
    rows,
    limit,
    scale,
    width: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
    DROP: tl.constexpr,
):
    group = tl.program_id(0)
    k, column, offset, inside = place(group, rows, width, BLOCK)
    value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    value = tl.where(value <= 0.0, 0.0, value * scale)  # what is not a number stays none
    if DROP:
        first, second, third, fourth = words(seed, group, column, width)
        value = tl.where(
            is_kept(first[None, :], second[None, :], third[None, :], fourth[None, :], k, limit), value, 0.0
        )
    tl.store(result + offset, value.to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def relu_backward(grad, result, d_x, partial, rows, scale, width: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr):
    """Compute the gradient of ReLU and dropout; each program walks groups of rows and sums its columns."""
    share, shares = tl.program_id(0), tl.num_programs(0)
    groups = tl.cdiv(rows, GROUP)
    sums = tl.zeros((BLOCK,), tl.float32)
    group = share
    while group < groups:
        _, column, offset, inside = place(group, rows, width, BLOCK)
        passed = tl.load(grad + offset, mask=inside, other=0.0).to(tl.float32) * scale
        closed = tl.load(result + offset, mask=inside, other=0.0).to(tl.float32) <= 0.0
        passed = tl.where(closed, 0.0, passed)
        tl.store(d_x + offset, passed.to(d_x.dtype.element_ty), mask=inside)
        if ADD:
            sums += tl.sum(passed, 0)
        group += shares
    if ADD:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        tl.store(partial + share.to(tl.int64) * width + column, sums, mask=column < width)


@triton.jit
@no_type_check
def smooth(value, NAME: tl.constexpr):
    """Return GELU's or SiLU's result and its slope."""
    if NAME == "gelu":
        share = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
        slope = share + value * tl.exp(-0.5 * value * value) * 0.3989422804014327
    else:
        small = tl.exp(-tl.abs(value))  # which never overflows
        share = tl.where(value >= 0.0, 1.0, small) / (1.0 + small)
        slope = share * (1.0 + value * (1.0 - share))
    return value * share, slope


@triton.jit(do_not_specialize=["rows", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def smooth_forward(
    x,
    bias,
    seed,
    result,
    rows,
    limit,
    scale,
    width: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
    DROP: tl.constexpr,
    NAME: tl.constexpr,
):
    group = tl.program_id(0)
    k, column, offset, inside = place(group, rows, width, BLOCK)
    value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    value, _ = smooth(value, NAME)
    if DROP:
        first, second, third, fourth = words(seed, group, column, width)
        kept = is_kept(first[None, :], second[None, :], third[None, :], fourth[None, :], k, limit)
        value = tl.where(kept, value * scale, 0.0)
    tl.store(result + offset, value.to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def smooth_backward(
    grad,
    x,
    bias,
    seed,
    d_x,
    partial,
    rows,
    limit,
    scale,
    width: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
    DROP: tl.constexpr,
    ADD: tl.constexpr,
    NAME: tl.constexpr,
):
    """Compute the gradient of GELU or SiLU and dropout; each program walks groups of rows and sums its columns."""
    share, shares = tl.program_id(0), tl.num_programs(0)
    groups = tl.cdiv(rows, GROUP)
    sums = tl.zeros((BLOCK,), tl.float32)
    group = share
    while group < groups:
        k, column, offset, inside = place(group, rows, width, BLOCK)
        value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            value += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
        _, slope = smooth(value, NAME)
        passed = tl.load(grad + offset, mask=inside, other=0.0).to(tl.float32) * slope
        if DROP:
            first, second, third, fourth = words(seed, group, column, width)
            kept = is_kept(first[None, :], second[None, :], third[None, :], fourth[None, :], k, limit)
            passed = tl.where(kept, passed * scale, 0.0)
        tl.store(d_x + offset, passed.to(d_x.dtype.element_ty), mask=inside)
        if ADD:
            sums += tl.sum(passed, 0)
        group += shares
    if ADD:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        tl.store(partial + share.to(tl.int64) * width + column, sums, mask=column < width)


@triton.jit(do_not_specialize=["rows", "tokens", "position_count", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def embed_forward(
    ids,
    weight,
    positions,
    table,
    seed,
    result,
    rows,
    tokens,
    position_count,
    factor,
    limit,
    scale,
    width: tl.constexpr,
    BLOCK: tl.constexpr,
    DROP: tl.constexpr,
):
    """Look up embeddings and positions; a token or a position that is not in its table gives NaN."""
    group = tl.program_id(0)
    k, column, offset, inside = place(group, rows, width, BLOCK)
    row = group.to(tl.int64) * GROUP + k
    token = tl.load(ids + row, mask=row < rows, other=0).to(tl.int64)
    position = tl.load(positions + row, mask=row < rows, other=0).to(tl.int64)
    in_tables = inside & (token >= 0) & (token < tokens) & (position >= 0) & (position < position_count)
    nothing = float("nan")
    value = tl.load(weight + token * width + column[None, :], mask=in_tables, other=nothing).to(tl.float32) * factor
    value += tl.load(table + position * width + column[None, :], mask=in_tables, other=nothing).to(tl.float32)
    if DROP:
        first, second, third, fourth = words(seed, group, column, width)
        value = tl.where(
            is_kept(first[None, :], second[None, :], third[None, :], fourth[None, :], k, limit), value * scale, 0.0
        )
    tl.store(result + offset, value.to(result.dtype.element_ty), mask=inside)
