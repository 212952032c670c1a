"""The forward pass of additive attention: exponentials, scores of a tile, and the softmax-weighted sum of values.

tanh(q + k) = 1 - 2/x with x = 1 + e^{2q} e^{2k}: after the exponentials of queries and keys have been computed once, an
element costs one multiply-add and its share of a reciprocal. Reciprocals are expensive on a GPU, so several x are
multiplied and share one. If that could overflow, a tile uses a slower way.
"""

# r rows · i, n queries · j, m keys · d, h hidden, in pairs of two
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.triton.arithmetic import power, product, reciprocal, tanh

SAFE = tl.constexpr(86.0)  # e^86 < 2^125: its reciprocal is still a normal number
WIDEST = tl.constexpr(34.0)  # largest |x|: e^{2x} is then at most e^68, and at most 1e7 times that after scaling

# A tile's queries and keys: each loaded number is used with 64 others, and the sums still fit 128 registers per thread.
# Queries and keys are padded to full tiles.
BLOCK = 64
ROOM = 1 << 28  # bytes of scores held at once without a backward pass
# Each thread owns QR · KR sums, so that threads exchange no data before the last hidden unit.
TILE = {"QR": 8, "QT": 8, "KR": 4, "KT": 16, "num_warps": 4, "num_stages": 1, "maxnreg": 128}  # BLOCK by BLOCK
SUM = {"BV": 128, "num_warps": 4, "num_stages": 2}
NONE = -(1 << 62)


# ---- launches


def pad_size(size: int) -> int:
    """Round a size up to a whole number of blocks."""
    return -(-size // BLOCK) * BLOCK


def rows_at_once(rows: int, size: int, group: int) -> int:
    """Return how many rows of scores, of `size` bytes each, fit ROOM: full groups, at least one."""
    return min(rows, max(1, ROOM // (size * group)) * group)


def structured_limits(lengths, causal, start, centre, middle, radius):  # type: ignore[no-untyped-def]
    """Return the structured limits as kernel arguments; absent limits are not compiled in."""
    return {
        "lengths": lengths,
        "causal": start if causal is None else causal,
        "centre": middle if centre is None else centre,
        "radius": radius,
        "LENGTHS": lengths is not None,
        "CAUSAL": 2 if causal is not None else 0 if start == NONE else 1,
        "WINDOW": 0 if radius < 0 else 1 if centre is None else 2,
    }


def all_limits(lengths, causal, start, centre, middle, radius, mask):  # type: ignore[no-untyped-def]
    """Return all limits as kernel arguments."""
    strides = (0, 0, 0, 0) if mask is None else mask.stride()
    names = ("mask_outer", "mask_inner", "mask_i", "mask_j")
    return {
        **structured_limits(lengths, causal, start, centre, middle, radius),
        "mask": None if mask is None else mask.view(torch.uint8) if mask.dtype == torch.bool else mask,
        **dict(zip(names, strides, strict=True)),
        "inner": 1 if mask is None else mask.shape[1],
        "MASK": mask is not None,
    }


def raise_exponentials(x: Tensor, inverse: Tensor | None, heads: int, major: bool) -> tuple[Tensor, Tensor]:
    """Compute e^{2x}, hidden units first or last, packed in pairs of 64 bits, and the largest 2x of each block."""
    rows, n, h = x.shape
    n_pad, h_pad = pad_size(n), -(-h // 4) * 4
    shape = (rows, h_pad // 2, n_pad) if major else (rows, n_pad, h_pad // 2)
    out = x.new_empty(shape, dtype=torch.int64)
    most = x.new_empty((rows, n_pad // BLOCK, h_pad), dtype=torch.float32)
    exponentials[(n_pad // BLOCK, -(-h_pad // 64), rows)](
        x, inverse, out if major else out.view(torch.float32), most, n, n_pad, h, h_pad, heads, *x.stride(),
        SCALED=inverse is not None, MAJOR=major, BN=BLOCK, BP=32, num_warps=4,
    )  # fmt: skip
    return out, most


def score(query, keys, vector, out, limits, temperature):  # type: ignore[no-untyped-def]
    """Write all scores within the limits into `out` [r n m], padded, and return each tile's part of the log-sum-exp."""
    (rows, n, h), m, heads = query.shape, keys.shape[1], vector.shape[0]
    n_pad, m_pad, h_pad = pad_size(n), pad_size(m), -(-h // 4) * 4
    inverse, cost = (query.new_empty((heads, h_pad), dtype=torch.float32) for _ in range(2))
    top = query.new_empty(heads, dtype=torch.float32)
    block = 1 << (h_pad - 1).bit_length()
    vectors[(heads,)](vector, inverse, cost, top, h, h_pad, vector.stride(0), BLOCK=block)
    a, most_q = raise_exponentials(query, inverse, heads, True)
    b, most_k = raise_exponentials(keys, None, heads, True)
    grid = m_pad // (TILE["KR"] * TILE["KT"]), n_pad // (TILE["QR"] * TILE["QT"]), rows
    again = torch.empty(grid, dtype=torch.int32, device=query.device)
    partial = [out.new_empty((rows, grid[0], n_pad)) for _ in range(2)]
    for rescue in (False, True):
        scores[grid](
            a, b, inverse.view(torch.int64), cost, top, most_q, most_k, out, *partial, again, query, keys, vector,
            n, m, h, n_pad, m_pad, h_pad, heads, *query.stride(), *keys.stride(), vector.stride(0), temperature,
            **all_limits(*limits), **TILE, HB=min(256, block), BLOCK=BLOCK, RESCUE=rescue,
        )  # fmt: skip
    return partial


def weigh(scored, partial, values, out, lse, limits) -> None:  # type: ignore[no-untyped-def]
    """Compute contexts and the log-sum-exp of every query's scores."""
    (rows, n, dv), m = out.shape, values.shape[1]
    n_pad, m_pad = pad_size(n), pad_size(m)
    wide = min(SUM["BV"], max(16, 1 << (dv - 1).bit_length()))
    sum_values[(n_pad // BLOCK, -(-dv // wide), rows)](
        scored, *partial, values, out, lse, n, m, dv, n_pad, m_pad, *values.stride(),
        **structured_limits(*limits), BN=BLOCK, BM=BLOCK, **{**SUM, "BV": wide},
    )  # fmt: skip


# ---- kernels


@triton.jit
@no_type_check
def halves(pair):
    """Split 64 bits into two float32 numbers, so that one load reads two."""
    low = (pair & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)
    return low, (pair >> 32).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def pack_halves(low, high):
    """Pack two float32 numbers into 64 bits: the inverse of `halves`."""
    wide = high.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    return (wide | low.to(tl.uint32, bitcast=True).to(tl.uint64)).to(tl.int64, bitcast=True)


@triton.jit
@no_type_check
def start_of(start, row, MODE: tl.constexpr):
    """Return the start of causality or a window: one number for all rows (1), or loaded for each row (2)."""
    if MODE == 2:
        return tl.load(start + row).to(tl.int32)
    else:
        return start


@triton.jit
@no_type_check
def key_range(
    first, last, m, row, lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Return bounds low … high - 1 on the keys that any of the queries first … last may see."""
    low = 0
    high = m
    if LENGTHS:
        high = tl.minimum(high, tl.load(lengths + row).to(tl.int32))
    if CAUSAL > 0:
        high = tl.minimum(high, start_of(causal, row, CAUSAL) + last + 1)
    if WINDOW > 0:
        middle = start_of(centre, row, WINDOW)
        low = tl.maximum(low, middle + first - radius)
        high = tl.minimum(high, middle + last + radius + 1)
    return low, high


@triton.jit
@no_type_check
def query_range(
    first, last, n, row, lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Return bounds low … high - 1 on the queries that may see any of the keys first … last."""
    low = 0
    high = n
    if LENGTHS:
        high = tl.where(first < tl.load(lengths + row).to(tl.int32), high, 0)
    if CAUSAL > 0:
        low = tl.maximum(low, first - start_of(causal, row, CAUSAL))
    if WINDOW > 0:
        middle = start_of(centre, row, WINDOW)
        low = tl.maximum(low, first - middle - radius)
        high = tl.minimum(high, last - middle + radius + 1)
    return low, high


@triton.jit
@no_type_check
def visible(
    i, j, n, m, row, lengths, causal, centre, radius, mask, mask_outer, mask_inner, mask_i, mask_j, inner,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Return whether query i may see key j; i and j broadcast."""
    in_span = (i < n) & (j < m)
    if LENGTHS:
        in_span = in_span & (j < tl.load(lengths + row).to(tl.int32))
    if CAUSAL > 0:
        in_span = in_span & (j <= start_of(causal, row, CAUSAL) + i)
    if WINDOW > 0:
        distance = j - i - start_of(centre, row, WINDOW)
        in_span = in_span & (distance <= radius) & (distance >= -radius)
    if MASK:
        at = mask + (row // inner) * mask_outer + (row % inner) * mask_inner
        in_span = in_span & (
            tl.load(at + i.to(tl.int64) * mask_i + j.to(tl.int64) * mask_j, mask=in_span, other=0) != 0
        )
    return in_span


@triton.jit
@no_type_check
def vectors(v, inverse, cost, top, h, h_pad, stride, BLOCK: tl.constexpr):
    """Compute from v, [heads h]: max|v|, max|v| / v, and ln(2 max|v| / |v|), as 1 + e^{2q+2k} <= 2 max(1, e^{2q+2k}).

    v/x = max|v| / (x · max|v|/v): with v inside the denominator, sharing a reciprocal saves a multiplication.
    """
    head = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    inside = d < h
    value = tl.load(v + head * stride + d, mask=inside, other=0.0).to(tl.float32)
    most = tl.maximum(tl.max(tl.abs(value), 0), 1e-30)
    share = value / most
    sign = tl.where(share < 0, -1.0, 1.0)
    share = tl.where(inside, sign * tl.maximum(tl.abs(share), 1e-7), 1.0)  # beyond float32's precision
    tl.store(inverse + head * h_pad + d, 1.0 / share, mask=d < h_pad)
    tl.store(cost + head * h_pad + d, 0.7 - tl.log(tl.abs(share)), mask=d < h_pad)
    tl.store(top + head, most)


@triton.jit(do_not_specialize=["n"])
@no_type_check
def exponentials(
    x, inverse, out, most, n, n_pad, h, h_pad, heads, x_r, x_n, x_h,
    SCALED: tl.constexpr, MAJOR: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Compute e^{2x}, times max|v|/v if SCALED, and the largest 2x of every block of queries or keys.

    With MAJOR, hidden units come first, in pairs of 64 bits, [r h/2 n 2]; otherwise the layout is x's, [r n h]. Padding
    is zero. Pairs that are not SCALED are packed in reverse order, so that the three registers of a multiply-add are
    not all in one bank.
    """
    block, piece, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i = block * BN + tl.arange(0, BN)
    d = piece * (2 * BP) + tl.arange(0, 2 * BP)
    inside = (i < n)[:, None] & (d < h)[None, :]
    at = x + row * x_r + i[:, None].to(tl.int64) * x_n + d[None, :] * x_h
    raw = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    twice = tl.where(tl.abs(raw) <= WIDEST, 2.0 * raw, 1e30)  # NaN too
    highest = tl.max(tl.where(inside, twice, -1e30), 0)
    tl.store(most + (row * tl.num_programs(0) + block) * h_pad + d, highest, mask=d < h_pad)
    raised = tl.exp2(2.8853900817779268 * tl.minimum(tl.maximum(raw, -WIDEST), WIDEST))
    raised = tl.where(inside, tl.where(raw == raw, raised, raw), 0.0)
    if SCALED:
        factor = tl.load(inverse + (row % heads) * h_pad + d, mask=d < h_pad, other=0.0)
        raised = raised * factor[None, :]
    if MAJOR:
        low, high = tl.split(tl.reshape(raised, (BN, BP, 2)))
        both = pack_halves(low, high) if SCALED else pack_halves(high, low)
        pairs = h_pad // 2
        p = piece * BP + tl.arange(0, BP)
        there = out + (row * pairs + p[:, None]) * n_pad + i[None, :]
        tl.store(there, tl.trans(both), mask=(p < pairs)[:, None] & (i < n_pad)[None, :])
    else:
        there = out + (row * n_pad + i[:, None]) * h_pad + d[None, :]
        tl.store(there, raised, mask=(i < n_pad)[:, None] & (d < h_pad)[None, :])


@triton.jit(do_not_specialize=["n", "m", "causal", "centre", "radius", "inner"])
@no_type_check
def scores(
    a, b, inverse, cost, top, most_q, most_k, out, highest, mass, again, query, keys, v,
    n, m, h, n_pad, m_pad, h_pad, heads, q_r, q_n, q_h, k_r, k_m, k_h, v_a, temperature,
    lengths, causal, centre, radius, mask, mask_outer, mask_inner, mask_i, mask_j, inner,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MASK: tl.constexpr,
    QR: tl.constexpr, QT: tl.constexpr, KR: tl.constexpr, KT: tl.constexpr, HB: tl.constexpr,
    BLOCK: tl.constexpr, RESCUE: tl.constexpr,
):  # fmt: skip
    """Compute Σ_d v_d (tanh(q_i + k_j) - 1) / temperature of one tile, -inf if i cannot see j; softmax ignores the -1.

    It also writes each query's highest score in this tile, and its sum of exponentials.

    A thread owns QR queries and KR keys (a tile's slow dimensions belong to one thread), so that the few numbers that
    it loads for a pair of hidden units are used QR · KR times. Tiles in which a product of four could overflow are
    marked in `again`; a second launch with RESCUE computes them in pairs or one by one. In this launch, that code would
    cost registers.
    """
    jb, ib, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    BN: tl.constexpr = QR * QT
    BM: tl.constexpr = KR * KT
    low, high = key_range(
        ib * BN, tl.minimum(ib * BN + BN, n) - 1, m, row, lengths, causal, centre, radius, LENGTHS, CAUSAL, WINDOW
    )
    if (jb * BM >= high) | (jb * BM + BM <= low):
        return
    head = row % heads
    qi = tl.arange(0, QR)[:, None, None, None] * QT + tl.arange(0, QT)[None, None, :, None]  # within the tile
    kj = tl.arange(0, KR)[None, :, None, None] * KT + tl.arange(0, KT)[None, None, None, :]
    pairs = h_pad // 2
    pa = a + row * pairs * n_pad + ib * BN
    pb = b + row * pairs * m_pad + jb * BM
    w = inverse + head * pairs
    tile = again + (row * tl.num_programs(1) + ib) * tl.num_programs(0) + jb
    total = tl.zeros([QR, KR, QT, KT], tl.float32)
    if RESCUE:
        how = tl.load(tile)
        if how == 0:
            return
        if how == 1:
            for d in range(0, pairs):
                a1, a2 = halves(tl.load(pa + qi))
                b2, b1 = halves(tl.load(pb + kj))
                w1, w2 = halves(tl.load(w + d))
                pa += n_pad
                pb += m_pad
                x = a1 * b1 + w1
                y = a2 * b2 + w2
                total += (x + y) * reciprocal(x * y)
            total = total * (-2.0 * tl.load(top + head))
        else:
            pq = query + row * q_r + (ib * BN).to(tl.int64) * q_n
            pk = keys + row * k_r + (jb * BM).to(tl.int64) * k_m
            for d in range(0, h):
                q = tl.load(pq + qi * q_n, mask=qi < n - ib * BN, other=0.0).to(tl.float32)
                k = tl.load(pk + kj * k_m, mask=kj < m - jb * BM, other=0.0).to(tl.float32)
                pq += q_h
                pk += k_h
                total += tl.load(v + head * v_a + d).to(tl.float32) * (tanh(q + k) - 1.0)
            total -= 2.0 * tl.load(top + head) * (h_pad - h)  # the padding's contribution in the other branches
    else:
        # bounds on the products of two and of four
        two = 0.0
        four = 0.0
        at_q = most_q + (row * (n_pad // BLOCK) + ib * BN // BLOCK) * h_pad
        at_k = most_k + (row * (m_pad // BLOCK) + jb * BM // BLOCK) * h_pad
        for first in range(0, h_pad, HB):
            d = first + tl.arange(0, HB)
            inside = d < h_pad
            grows = tl.maximum(tl.load(at_q + d, mask=inside, other=0.0), 0.0)
            grows += tl.maximum(tl.load(at_k + d, mask=inside, other=0.0), 0.0)
            grows += tl.load(cost + head * h_pad + d, mask=inside, other=0.0)
            paired = tl.sum(tl.reshape(grows, (HB // 2, 2)), 1)
            two = tl.maximum(two, tl.max(paired, 0))
            four = tl.maximum(four, tl.max(tl.sum(tl.reshape(paired, (HB // 4, 2)), 1), 0))
        safe = four <= SAFE
        tl.store(tile, tl.where(safe, 0, tl.where(two <= SAFE, 1, 2)))
        if not safe:
            return
        for d in range(0, pairs, 2):
            q12, q34 = tl.load(pa + qi), tl.load(pa + n_pad + qi)
            k12, k34 = tl.load(pb + kj), tl.load(pb + m_pad + kj)
            pa += 2 * n_pad
            pb += 2 * m_pad
            a1, a2 = halves(q12)
            a3, a4 = halves(q34)
            b2, b1 = halves(k12)
            b4, b3 = halves(k34)
            w1, w2 = halves(tl.load(w + d))
            w3, w4 = halves(tl.load(w + d + 1))
            # 1/x1 + 1/x2 + 1/x3 + 1/x4 as one fraction, built one x at a time: three instructions per element in total
            x = a1 * b1 + w1
            y = a2 * b2 + w2
            above = x + y
            below = x * y
            x = a3 * b3 + w3
            above = above * x + below
            below = below * x
            y = a4 * b4 + w4
            above = above * y + below
            below = below * y
            total += above * reciprocal(below)
        total = total * (-2.0 * tl.load(top + head))
    in_span = visible(
        ib * BN + qi, jb * BM + kj, n, m, row, lengths, causal, centre, radius,
        mask, mask_outer, mask_inner, mask_i, mask_j, inner, LENGTHS, CAUSAL, WINDOW, MASK,
    )  # fmt: skip
    total = tl.where(in_span, total / temperature, -float("inf"))
    tl.store(out + (row * n_pad + ib * BN) * m_pad + jb * BM + (qi * m_pad + kj), total)
    most = tl.maximum(tl.max(tl.max(total, 3), 1), -1e30)  # [QR QT]
    sums = tl.sum(tl.sum(power(total - most[:, None, :, None]), 3), 1)
    at = (row * tl.num_programs(0) + jb) * n_pad + ib * BN
    i = tl.arange(0, QR)[:, None] * QT + tl.arange(0, QT)[None, :]
    tl.store(highest + at + i, most)
    tl.store(mass + at + i, sums)


@triton.jit(do_not_specialize=["n", "m", "causal", "centre", "radius"])
@no_type_check
def sum_values(
    scored, highest, mass, values, out, lse, n, m, dv, n_pad, m_pad, v_r, v_m, v_d,
    lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Compute contexts of BN queries, BV columns, and the log-sum-exp of their scores (infinity without keys)."""
    ib, piece, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i = ib * BN + tl.arange(0, BN)
    c = piece * BV + tl.arange(0, BV)
    low, high = key_range(
        ib * BN, tl.minimum(ib * BN + BN, n) - 1, m, row, lengths, causal, centre, radius, LENGTHS, CAUSAL, WINDOW
    )
    low = low // BM
    top = tl.full([BN], -1e30, tl.float32)
    sums = tl.zeros([BN], tl.float32)
    for jb in range(low, tl.cdiv(high, BM)):
        at = (row * (m_pad // BM) + jb) * n_pad + i
        here = tl.load(highest + at)
        larger = tl.maximum(top, here)
        sums = sums * tl.exp(top - larger) + tl.load(mass + at) * tl.exp(here - larger)
        top = larger
    some = sums > 0
    log_sum = tl.where(some, top + tl.log(tl.where(some, sums, 1.0)), float("inf"))
    if piece == 0:
        tl.store(lse + row * n_pad + i, log_sum)
    total = tl.zeros([BN, BV], tl.float32)
    for first in range(low * BM, high, BM):
        j = first + tl.arange(0, BM)
        s = tl.load(
            scored
            + (row * n_pad + ib * BN) * m_pad
            + first
            + (tl.arange(0, BN)[:, None] * m_pad + tl.arange(0, BM)[None, :])
        )
        p = power(s - log_sum[:, None])
        inside = (j < high)[:, None] & (c < dv)[None, :]
        at = row * v_r + j[:, None].to(tl.int64) * v_m + c[None, :] * v_d
        value = tl.load(values + at, mask=inside, other=0.0)
        total = product(p.to(value.dtype), value, total)
    here = (i < n)[:, None] & (c < dv)[None, :]
    tl.store(out + (row * n + i[:, None]) * dv + c[None, :], total.to(out.dtype.element_ty), mask=here)
