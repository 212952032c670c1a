"""Fused stacks: which blocks they support; test_fused_stack_gpu.py tests their results on a GPU."""

import interpreted  # noqa: F401
import pytest
import torch
from torch import nn

from regard.attention import Block, fused_stack
from regard.attention.block import GELUDropout
from regard.attention.score import Additive, Dot

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("cross", [False, True])
def test_what_the_fused_stacks_know(cross):
    """Scaled and unscaled dot products of heads as deep as they are wide are supported; the blocks compute all else."""
    known = [
        {},
        {"activation": "gelu"},
        {"activation": "silu"},
        {"score": lambda width: Dot()},
        {"score": lambda width: Dot(scaled=True)},
        {"depth": 16},
    ]
    other = [{"depth": 32}, {"depth": 8}, {"split": "input"}, {"score": lambda width: Additive(width, width, 16)}]
    plain = [not [*fused_stack.block_features(Block(64, 4, cross=cross, **each))] for each in [*known, *other]]
    assert plain == [True] * 6 + [False] * 4


def test_a_feed_forward_net_of_other_parts_is_left_to_the_blocks():
    block = Block(64, 4)
    for other in (nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh(), type("Mine", (GELUDropout,), {})()):
        block.feed[1] = other
        assert [*fused_stack.block_features(block)]


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_the_feed_forward_net_is_the_blocks(activation):
    """Interpret its kernels in float32: result and every gradient but the last bias's, which is computed later."""
    pytest.importorskip("triton")
    feed = Block(16, 1, hidden=24, activation=activation).feed.to(DEVICE)
    for parameter in feed.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(9, 16, device=DEVICE, requires_grad=True)
    work = fused_stack.feed_forward_work(feed, iter(()))
    found, on = work(x)
    assert torch.equal(on, x)
    expected, cotangent = feed(x) - feed[2].bias, torch.randn(9, 16, device=DEVICE)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    leaves = [x, feed[0].weight, feed[0].bias, feed[2].weight]
    for mine, theirs in zip(
        torch.autograd.grad(found, leaves, cotangent), torch.autograd.grad(expected, leaves, cotangent), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_the_feed_forward_net_takes_a_seed_where_it_drops():
    pytest.importorskip("triton")
    from regard.kernels import dropout_triton

    feed = Block(16, 1, hidden=64, activation="silu", feed_dropout=0.5).feed.to(DEVICE)
    x = torch.randn(9, 16, device=DEVICE)
    seeds = dropout_triton.draw_seed(DEVICE, 2).split(1)
    (one, _), (other, _), (again, _) = (
        fused_stack.feed_forward_work(feed, iter(seeds[i : i + 1]))(x) for i in (0, 1, 0)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    feed.eval()
    whole, _ = fused_stack.feed_forward_work(feed, iter(()))(x)
    torch.testing.assert_close(whole, feed(x) - feed[2].bias, rtol=1e-4, atol=1e-4)
