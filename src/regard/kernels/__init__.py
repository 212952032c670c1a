"""Operations under the attention module: plain references, fast versions, and the one table of who serves what.

The table: `table`, its rows for attention in `backends`, `features`, `use_backend`, `describe`, `available`. Spans,
resolved: `SpanLimits`, `Window`, `Layout`. References: `softmax`, scores, `matmul_wide`. Fast attention: one tile, one
step, additive in chunks. Operations: dropout, `linear`, `residual`, `projection_loss`, `top_tokens`, and half
precision. Recurrent layers. Memory: garbage.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.kernels import backends, features, table
    from regard.kernels.additive import chunked as additive_chunked
    from regard.kernels.backends import describe, use_backend
    from regard.kernels.dot.decode_step import follow
    from regard.kernels.dot.one_tile import cross_attention, self_attention
    from regard.kernels.garbage import pause_garbage_collection, settle_memory
    from regard.kernels.operations import dropout_triton, mixed_precision
    from regard.kernels.operations.dropout import dropout, dropout_add, gelu_dropout, relu_dropout, silu_dropout
    from regard.kernels.operations.linear import Linear, linear, pack_weights
    from regard.kernels.operations.projection_loss import projection_loss
    from regard.kernels.operations.residual import residual
    from regard.kernels.operations.top_tokens import top_tokens
    from regard.kernels.recurrence import cell_layer, lstmn_cpu, rnnsearch_cpu, rnnsearch_triton
    from regard.kernels.reference import Call, add_bias, additive_scores, bilinear_scores, matmul_wide, softmax, widen
    from regard.kernels.span_limits import Layout, SharedLimits, SpanLimits, Window, broadcast, positions
    from regard.kernels.table import Plan
    from regard.kernels.triton import available

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
    "available",
    "backends",
    "bilinear_scores",
    "broadcast",
    "cell_layer",
    "cross_attention",
    "describe",
    "dropout",
    "dropout_add",
    "dropout_triton",
    "features",
    "follow",
    "gelu_dropout",
    "linear",
    "lstmn_cpu",
    "matmul_wide",
    "mixed_precision",
    "pack_weights",
    "pause_garbage_collection",
    "positions",
    "projection_loss",
    "relu_dropout",
    "residual",
    "rnnsearch_cpu",
    "rnnsearch_triton",
    "self_attention",
    "settle_memory",
    "silu_dropout",
    "softmax",
    "table",
    "top_tokens",
    "use_backend",
    "widen",
]

__getattr__, __dir__ = door(__name__)
