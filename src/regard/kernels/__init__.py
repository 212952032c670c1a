"""Operations under the attention module: plain references, fast versions, and the one table of who serves what."""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.kernels import backends
    from regard.kernels.additive import chunked as additive_chunked
    from regard.kernels.additive import cpu as additive_cpu
    from regard.kernels.additive import reference as additive_reference
    from regard.kernels.backends import use_backend
    from regard.kernels.cells import layer as cell_layer
    from regard.kernels.dot import reference as dot_reference
    from regard.kernels.dot.decode_step import follow
    from regard.kernels.dot.one_tile import cross_attention, self_attention
    from regard.kernels.features import describe
    from regard.kernels.garbage import pause_garbage_collection, settle_memory
    from regard.kernels.operations.dropout import dropout, dropout_add, gelu_dropout, relu_dropout, silu_dropout
    from regard.kernels.operations.dropout import triton as dropout_triton
    from regard.kernels.operations.linear import Linear, linear, mixed_precision
    from regard.kernels.operations.linear.cpu import pack_weights
    from regard.kernels.operations.projection_loss import projection_loss
    from regard.kernels.operations.residual import residual
    from regard.kernels.operations.top_tokens import top_tokens
    from regard.kernels.recurrence.lstmn import cpu as lstmn_cpu
    from regard.kernels.recurrence.rnnsearch import cpu as rnnsearch_cpu
    from regard.kernels.recurrence.rnnsearch import triton as rnnsearch_triton
    from regard.kernels.reference import Call, add_bias, matmul_wide, softmax, widen
    from regard.kernels.span_limits import Layout, SpanLimits, Window, broadcast, positions
    from regard.kernels.triton import available, installed

__all__ = [
    "Call",
    "Layout",
    "Linear",
    "SpanLimits",
    "Window",
    "add_bias",
    "additive_chunked",
    "additive_cpu",
    "additive_reference",
    "available",
    "backends",
    "broadcast",
    "cell_layer",
    "cross_attention",
    "describe",
    "dot_reference",
    "dropout",
    "dropout_add",
    "dropout_triton",
    "follow",
    "gelu_dropout",
    "installed",
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
    "top_tokens",
    "use_backend",
    "widen",
]

__getattr__, __dir__ = door(
    __name__,
    {
        "additive.chunked": "=additive_chunked",
        "additive.cpu": "=additive_cpu",
        "additive.reference": "=additive_reference",
        "backends": "use_backend =backends",
        "cells.layer": "=cell_layer",
        "dot.decode_step": "follow",
        "dot.one_tile": "cross_attention self_attention",
        "dot.reference": "=dot_reference",
        "features": "describe",
        "garbage": "pause_garbage_collection settle_memory",
        "operations.dropout": "dropout dropout_add gelu_dropout relu_dropout silu_dropout",
        "operations.dropout.triton": "=dropout_triton",
        "operations.linear": "Linear linear",
        "operations.linear.cpu": "pack_weights",
        "operations.linear.mixed_precision": "=mixed_precision",
        "operations.projection_loss": "projection_loss",
        "operations.residual": "residual",
        "operations.top_tokens": "top_tokens",
        "recurrence.lstmn.cpu": "=lstmn_cpu",
        "recurrence.rnnsearch.cpu": "=rnnsearch_cpu",
        "recurrence.rnnsearch.triton": "=rnnsearch_triton",
        "reference": "Call add_bias matmul_wide softmax widen",
        "span_limits": "Layout SpanLimits Window broadcast positions",
        "triton": "available installed",
    },
)
