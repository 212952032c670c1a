"""Fused stacks: which blocks they know; what they compute is tested on a GPU, in test_fused_stack_gpu.py."""

import pytest
from torch import nn

from regard.attention import Block, fused_stack
from regard.attention.block import GELUDropout
from regard.attention.score import Additive, Dot


@pytest.mark.parametrize("cross", [False, True])
def test_what_the_fused_stacks_know(cross):
    """Scaled and unscaled dot products of heads as deep as they are wide; all else is left to the blocks."""
    known = [
        {},
        {"activation": "gelu"},
        {"activation": "silu"},
        {"score": lambda width: Dot()},
        {"score": lambda width: Dot(scaled=True)},
        {"depth": 16},
    ]
    other = [{"depth": 32}, {"depth": 8}, {"split": "input"}, {"score": lambda width: Additive(width, width, 16)}]
    plain = [fused_stack.is_known_block(Block(64, 4, cross=cross, **each)) for each in [*known, *other]]
    assert plain == [True] * 6 + [False] * 4


def test_a_feed_forward_net_of_other_parts_is_left_to_the_blocks():
    block = Block(64, 4)
    for other in (nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh(), type("Mine", (GELUDropout,), {})()):
        block.feed[1] = other
        assert not fused_stack.is_known_block(block)
