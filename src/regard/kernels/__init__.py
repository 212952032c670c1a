"""Operations below the attention module: reference implementations, fast versions, and the table that chooses.

Choice: `planning`, its rows for attention in `backends`, `describe`, `use_backend`. Resolved spans: `SpanLimits`,
`Window`, `Layout`. References: `softmax`, scores, `matmul_wide`. Fast attention: one tile, decoding steps, additive
scores in chunks. Operations: dropout, `linear`, `residual`, `projection_loss`, `top_tokens`, mixed precision. Recurrent
layers.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.kernels import backends, planning
    from regard.kernels.backends import describe, use_backend
    from regard.kernels.operations import additive as additive_chunked
    from regard.kernels.operations import lstmn as lstmn_cpu
    from regard.kernels.operations import mixed_precision
    from regard.kernels.operations import rnnsearch as rnnsearch_cpu
    from regard.kernels.operations.dropout import (
        dropout,
        dropout_add,
        gelu_dropout,
        relu_dropout,
        residual,
        silu_dropout,
    )
    from regard.kernels.operations.linear import Linear, linear, pack_weights
    from regard.kernels.operations.projection_loss import projection_loss
    from regard.kernels.operations.top_tokens import top_tokens
    from regard.kernels.planning import Plan
    from regard.kernels.reference import Call, add_bias, additive_scores, bilinear_scores, matmul_wide, softmax, widen
    from regard.kernels.span_limits import Layout, SharedLimits, SpanLimits, Window, broadcast, positions
    from regard.kernels.triton import cells as cell_layer
    from regard.kernels.triton import dropout as dropout_triton
    from regard.kernels.triton import rnnsearch as rnnsearch_triton
    from regard.kernels.triton.decode_step import follow
    from regard.kernels.triton.one_tile import cross_attention, self_attention

__all__ = [
    "Call",
    "Layout",
    "Linear",
    "Plan",
    "SharedLimits",
    "SpanLimits",
    "Window",
    "add_bias",
    "additive_chunked",
    "additive_scores",
    "backends",
    "bilinear_scores",
    "broadcast",
    "cell_layer",
    "cross_attention",
    "describe",
    "dropout",
    "dropout_add",
    "dropout_triton",
    "follow",
    "gelu_dropout",
    "linear",
    "lstmn_cpu",
    "matmul_wide",
    "mixed_precision",
    "pack_weights",
    "planning",
    "positions",
    "projection_loss",
    "relu_dropout",
    "residual",
    "rnnsearch_cpu",
    "rnnsearch_triton",
    "self_attention",
    "silu_dropout",
    "softmax",
    "top_tokens",
    "use_backend",
    "widen",
]

__getattr__, __dir__ = door(__name__)
