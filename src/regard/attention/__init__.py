"""Attention: a Score, a Span and a Weighting, joined; several heads side by side; and a Look at every stage."""

from regard.attention.attention import Attention, Learned
from regard.attention.blocks import Block, Decoder, Encoder
from regard.attention.cache import Cache, Prepared
from regard.attention.call_records import watch
from regard.attention.heads import Heads
from regard.attention.look import Look
from regard.kernels.backends import use_backend

__all__ = [
    "Attention",
    "Block",
    "Cache",
    "Decoder",
    "Encoder",
    "Heads",
    "Learned",
    "Look",
    "Prepared",
    "use_backend",
    "watch",
]
