"""Attention: a Score, a Span and a Weighting, combined; multi-head attention; and a Look at every stage.

Scores: `Dot`, `General`, `Additive`, `Cosine`, `Location`, one per head. Spans: `Lengths`, `Causal`, `Monotonic`,
`Predictive`, `Mask`, `Alibi`, `Packed`, joined by `&`. Weightings: `Softmax`, `Hard`, `Gumbel`, `Sparsemax`, `Plain`.
Modules: `Attention`, `Learned`, `Heads`, grids; blocks, stacks and positions. Kept between steps: `Cache`, `Prepared`,
`State`. Records: `Look`, `watch`, `call_records`. Choice of kernels: `use_backend`, plans.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.attention import blocks, call_records, weighting
    from regard.attention.attention import Attention, Learned
    from regard.attention.block import Block, MixingBlock, Residual, Stack
    from regard.attention.blocks import Decoder, Encoder, ModelPlan, plan_calls, stack_features
    from regard.attention.cache import Cache, Prepared, State, buffers
    from regard.attention.call_records import watch
    from regard.attention.checks import check_positive
    from regard.attention.fused_stack import MAX_KEYS
    from regard.attention.grid import GridAttention, GridSelfAttention
    from regard.attention.heads import Heads, PerHead, ProjectionRows, SlicedProjection, parse_arguments
    from regard.attention.look import Attentive, Look
    from regard.attention.positions import FIRST, Embedded, Rotary, Sines, Sinusoidal, Sinusoidal2D, sinusoids
    from regard.attention.score import Additive, Cosine, Dot, General, Location, Score
    from regard.attention.span import (
        Alibi,
        Causal,
        Lengths,
        Mask,
        Monotonic,
        Packed,
        Predictive,
        Span,
        Start,
        join,
        padded_index,
        parts_of,
        split_packed,
    )
    from regard.attention.weighting import Gumbel, Hard, Plain, Softmax, Sparsemax, Weighting
    from regard.kernels import use_backend

__all__ = [
    "Additive",
    "Alibi",
    "Attention",
    "Attentive",
    "Block",
    "Cache",
    "Causal",
    "Cosine",
    "Decoder",
    "Dot",
    "Embedded",
    "Encoder",
    "FIRST",
    "General",
    "GridAttention",
    "GridSelfAttention",
    "Gumbel",
    "Hard",
    "Heads",
    "Learned",
    "Lengths",
    "Location",
    "Look",
    "MAX_KEYS",
    "Mask",
    "MixingBlock",
    "ModelPlan",
    "Monotonic",
    "Packed",
    "PerHead",
    "Plain",
    "Predictive",
    "Prepared",
    "ProjectionRows",
    "Residual",
    "Rotary",
    "Score",
    "Sines",
    "Sinusoidal",
    "Sinusoidal2D",
    "SlicedProjection",
    "Softmax",
    "Span",
    "Sparsemax",
    "Stack",
    "Start",
    "State",
    "Weighting",
    "blocks",
    "buffers",
    "call_records",
    "check_positive",
    "join",
    "padded_index",
    "parse_arguments",
    "parts_of",
    "plan_calls",
    "sinusoids",
    "split_packed",
    "stack_features",
    "use_backend",
    "watch",
    "weighting",
]

__getattr__, __dir__ = door(__name__)
