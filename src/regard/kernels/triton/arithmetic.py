"""Arithmetic that kernels share: what the special-function unit of a GPU has an instruction for, and products.

An instruction of that unit is the dear part of attention with tanh, so each function here is one where its digits are
enough. `.ftz` flushes numbers below 2^-126 to zero: without it the assembler adds several instructions for them. The
interpreter knows no inline assembly, and computes the same by its own functions.
"""

from typing import no_type_check

import triton
import triton.language as tl

from regard.kernels.triton import interpreted

INTERPRETED = tl.constexpr(interpreted())


@triton.jit
@no_type_check
def reciprocal(x):
    """Compute 1/x, right to the last bit or two."""
    if INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
@no_type_check
def exp2(x):
    """Compute 2^x; results below 2^-126 become zero."""
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
@no_type_check
def power(x):
    """Compute e^x; results below 2^-126 become zero."""
    if INTERPRETED:
        return tl.exp(x)
    else:
        return exp2(x * 1.4426950408889634)


@triton.jit
@no_type_check
def tanh(x):
    """Approximate tanh in one instruction, right to 2^-11; a sum of many is right to 2e-5."""
    if INTERPRETED:
        return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * tl.minimum(x, 20.0)))
    else:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
@no_type_check
def product(a, b, total):
    """total + a b on tensor cores, of float32 in three products of tf32; the interpreter's NumPy knows no bfloat16."""
    if INTERPRETED:
        return total + tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        return tl.dot(a, b, total, input_precision="tf32x3")
