"""The kernels of `one_tile`: a tile holds the scores of a sequence in one head.

A launch serves the sequences longer than LOW and no longer than TILE; those up to SMALL in a smaller tile. A program
looks through GROUP sequences: where few of them are its launch's, most programs would do nothing.
"""

# n queries · m keys · d width
from typing import no_type_check

import triton
import triton.language as tl

# What changes from batch to batch is no reason to compile again.
NUMBERS, LAYOUT = ["sequences", "whole", "whole_keys"], ["seed", "offsets", "key_offsets", "lengths"]


@triton.jit
@no_type_check
def rows_of(x, step, first, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr):
    """Return where rows `first` … of a head lie, and which of them are there."""
    i, c = first + tl.arange(0, ROWS), tl.arange(0, D)
    there = i[:, None] < count
    if WIDTH != D:
        there = there & (c[None, :] < WIDTH)
    return x + i[:, None] * step + c[None, :], there


@triton.jit
@no_type_check
def load_rows(x, step, first, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr):
    """Load some rows, zero where there are none."""
    pointers, there = rows_of(x, step, first, count, ROWS, WIDTH, D)
    return tl.load(pointers, mask=there, other=0.0)


@triton.jit
@no_type_check
def store_rows(x, rows, step, first, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr):
    """Store some rows."""
    pointers, there = rows_of(x, step, first, count, ROWS, WIDTH, D)
    tl.store(pointers, rows.to(x.dtype.element_ty), mask=there)


@triton.jit
@no_type_check
def weigh(
    q, k, first, length, scale, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Compute exp(e - max e) of every query and key, and the reciprocal of their sum; `scale` holds log2(e) too."""
    i, j = first + tl.arange(0, BLOCK), tl.arange(0, TILE)
    reached = j[None, :] < length
    if CAUSAL:
        reached = reached & (j[None, :] <= i[:, None])
    if RADIUS >= 0:
        reached = reached & (tl.abs(j[None, :] - i[:, None]) <= RADIUS)
    scores = tl.where(reached, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)  # a query with nothing to look at gets zeros, not NaN
    p = tl.exp2(scores - top[:, None])
    total = tl.sum(p, 1)
    return p, 1.0 / tl.where(total == 0.0, 1.0, total)


@triton.jit
@no_type_check
def draw_mask(seed, row, head, heads, dropout, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Draw which weights stay, as True: a draw for every four keys, by their query, head and place."""
    row, four = row + tl.arange(0, ROWS), tl.arange(0, TILE // 4)
    a, b, c, d = tl.rand4x(tl.load(seed), (row[:, None] * heads + head) * 32 + four[None, :], 7)
    some = tl.join((a >= dropout).to(tl.int8), (b >= dropout).to(tl.int8))
    more = tl.join((c >= dropout).to(tl.int8), (d >= dropout).to(tl.int8))
    return tl.join(some, more).reshape(ROWS, TILE) > 0


@triton.jit
@no_type_check
def span_of(offsets, sequence, whole, PACKED: tl.constexpr):
    """Return where a sequence begins and how long it is."""
    if PACKED:
        start = tl.load(offsets + sequence).to(tl.int64)
        return start, (tl.load(offsets + sequence + 1) - start).to(tl.int32)
    else:
        return tl.zeros((), tl.int64), whole


@triton.jit
@no_type_check
def forward_tile(
    q, k, v, o, seed, n, m, length, row, head, heads, q_t, k_t, v_t, o_t, scale, dropout,
    CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute the contexts of one sequence in one head."""
    keys = load_rows(k, k_t, 0, m, TILE, WIDTH, D)
    values = load_rows(v, v_t, 0, m, TILE, WIDTH, D)
    for block in range(BLOCKS):
        first = block * BLOCK
        query = load_rows(q, q_t, first, n, BLOCK, WIDTH, D)
        p, share = weigh(query, keys, first, length, scale, CAUSAL, RADIUS, BLOCK, TILE)
        if DROPOUT:
            p = tl.where(draw_mask(seed, row + first, head, heads, dropout, BLOCK, TILE), p, 0.0)
            share = share / tl.maximum(1.0 - dropout, 1e-6)
        context = tl.dot(p.to(values.dtype), values) * share[:, None]
        store_rows(o, context, o_t, first, n, BLOCK, WIDTH, D)


@triton.jit
@no_type_check
def backward_tile(
    q, k, v, do, dq, dk, dv, seed, n, m, length, row, head, heads, q_t, k_t, v_t, do_t, dq_t, dk_t, dv_t, scale,
    dropout, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute all gradients of one sequence in one head.

    Rows of queries beyond the sequence have no gradient (do = 0), so that they add nothing to dk and dv.
    """
    keys = load_rows(k, k_t, 0, m, TILE, WIDTH, D)
    values = load_rows(v, v_t, 0, m, TILE, WIDTH, D)
    natural = scale * 0.6931471805599453
    dkeys, dvalues = tl.zeros((TILE, D), tl.float32), tl.zeros((TILE, D), tl.float32)
    for block in range(BLOCKS):
        first = block * BLOCK
        query = load_rows(q, q_t, first, n, BLOCK, WIDTH, D)
        grad = load_rows(do, do_t, first, n, BLOCK, WIDTH, D)
        p, share = weigh(query, keys, first, length, scale, CAUSAL, RADIUS, BLOCK, TILE)
        p = p * share[:, None]
        dp = tl.dot(grad, tl.trans(values))
        if DROPOUT:
            draw = draw_mask(seed, row + first, head, heads, dropout, BLOCK, TILE)
            draw = tl.where(draw, 1.0 / tl.maximum(1.0 - dropout, 1e-6), 0.0)
            dp = dp * draw
            dvalues = tl.dot(tl.trans((p * draw).to(grad.dtype)), grad, dvalues)
        else:
            dvalues = tl.dot(tl.trans(p.to(grad.dtype)), grad, dvalues)
        # δ_i = Σ_j p_ij dp_ij: all keys are here, so that the context is not needed.
        ds = (p * (dp - tl.sum(p * dp, 1)[:, None])).to(query.dtype)
        store_rows(dq, tl.dot(ds, keys) * natural, dq_t, first, n, BLOCK, WIDTH, D)
        dkeys = tl.dot(tl.trans(ds), query, dkeys)
    store_rows(dk, dkeys * natural, dk_t, 0, m, TILE, WIDTH, D)
    store_rows(dv, dvalues, dv_t, 0, m, TILE, WIDTH, D)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=LAYOUT)
@no_type_check
def forward_kernel(
    q, k, v, o, seed, offsets, key_offsets, lengths, sequences, whole, whole_keys, heads,
    q_s, q_t, q_a, k_s, k_t, k_a, v_s, v_t, v_a, o_s, o_t, o_a, scale, dropout,
    PACKED: tl.constexpr, LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr,
    LOW: tl.constexpr, SMALL: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute the contexts, in one head, of those of GROUP sequences that belong to this launch."""
    head = (tl.program_id(0) % heads).to(tl.int64)
    # What a turn needs is computed in it: kept from turn to turn, it would take twice the registers.
    for g in tl.range(GROUP, disable_licm=True):
        number = (tl.program_id(0) // heads) * GROUP + g
        sequence = tl.minimum(number, sequences - 1).to(tl.int64)
        start, n = span_of(offsets, sequence, whole, PACKED)
        key_start, m = span_of(key_offsets, sequence, whole_keys, PACKED)
        size = tl.where(number < sequences, tl.maximum(n, m), LOW)
        length = m
        if LENGTHS:
            length = tl.minimum(m, tl.load(lengths + sequence)).to(tl.int32)
        row = sequence * whole + start
        q_h = q + sequence * q_s + start * q_t + head * q_a
        k_h = k + sequence * k_s + key_start * k_t + head * k_a
        v_h = v + sequence * v_s + key_start * v_t + head * v_a
        o_h = o + sequence * o_s + start * o_t + head * o_a
        if SMALL > 0:  # noqa: SIM102 (known when compiled)
            if (size > LOW) & (size <= SMALL):
                forward_tile(
                    q_h, k_h, v_h, o_h, seed, n, m, length, row, head, heads, q_t, k_t, v_t, o_t, scale, dropout,
                    CAUSAL, RADIUS, DROPOUT, SMALL, SMALL, 1, WIDTH, D,
                )  # fmt: skip
        if (size > LOW) & (size > SMALL) & (size <= TILE):
            forward_tile(
                q_h, k_h, v_h, o_h, seed, n, m, length, row, head, heads, q_t, k_t, v_t, o_t, scale, dropout,
                CAUSAL, RADIUS, DROPOUT, TILE, BLOCK, BLOCKS, WIDTH, D,
            )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=LAYOUT)
@no_type_check
def backward_kernel(
    q, k, v, do, dq, dk, dv, seed, offsets, key_offsets, lengths, sequences, whole, whole_keys, heads,
    q_s, q_t, q_a, k_s, k_t, k_a, v_s, v_t, v_a, do_s, do_t, do_a,
    dq_s, dq_t, dq_a, dk_s, dk_t, dk_a, dv_s, dv_t, dv_a, scale, dropout,
    PACKED: tl.constexpr, LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr,
    LOW: tl.constexpr, SMALL: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute the gradients, in one head, of those of GROUP sequences that belong to this launch."""
    head = (tl.program_id(0) % heads).to(tl.int64)
    for g in tl.range(GROUP, disable_licm=True):
        number = (tl.program_id(0) // heads) * GROUP + g
        sequence = tl.minimum(number, sequences - 1).to(tl.int64)
        start, n = span_of(offsets, sequence, whole, PACKED)
        key_start, m = span_of(key_offsets, sequence, whole_keys, PACKED)
        size = tl.where(number < sequences, tl.maximum(n, m), LOW)
        length = m
        if LENGTHS:
            length = tl.minimum(m, tl.load(lengths + sequence)).to(tl.int32)
        row = sequence * whole + start
        q_h = q + sequence * q_s + start * q_t + head * q_a
        k_h = k + sequence * k_s + key_start * k_t + head * k_a
        v_h = v + sequence * v_s + key_start * v_t + head * v_a
        do_h = do + sequence * do_s + start * do_t + head * do_a
        dq_h = dq + sequence * dq_s + start * dq_t + head * dq_a
        dk_h = dk + sequence * dk_s + key_start * dk_t + head * dk_a
        dv_h = dv + sequence * dv_s + key_start * dv_t + head * dv_a
        if SMALL > 0:  # noqa: SIM102 (known when compiled)
            if (size > LOW) & (size <= SMALL):
                backward_tile(
                    q_h, k_h, v_h, do_h, dq_h, dk_h, dv_h, seed, n, m, length, row, head, heads,
                    q_t, k_t, v_t, do_t, dq_t, dk_t, dv_t, scale, dropout,
                    CAUSAL, RADIUS, DROPOUT, SMALL, SMALL, 1, WIDTH, D,
                )  # fmt: skip
        if (size > LOW) & (size > SMALL) & (size <= TILE):
            backward_tile(
                q_h, k_h, v_h, do_h, dq_h, dk_h, dv_h, seed, n, m, length, row, head, heads,
                q_t, k_t, v_t, do_t, dq_t, dk_t, dv_t, scale, dropout,
                CAUSAL, RADIUS, DROPOUT, TILE, BLOCK, BLOCKS, WIDTH, D,
            )  # fmt: skip
