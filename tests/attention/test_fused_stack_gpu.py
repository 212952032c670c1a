"""Blocks in few passes over memory: equal to Block in half precision, for packed sequences."""

import pytest
import torch
from rounding import DRAWS, check_as_exact

from regard.attention import fused_stack
from regard.attention.blocks import Decoder, Encoder
from regard.attention.heads import Heads
from regard.attention.score import Dot
from regard.attention.span import Packed

pytestmark = pytest.mark.gpu
OFFSETS, SOURCE = [0, 5, 5, 12, 13, 40, 103], [0, 7, 8, 8, 30, 36, 60]


def stacks(norm, seed=0, **options):
    torch.manual_seed(seed)
    made = {"norm": norm, **options}
    encoder, decoder = Encoder(64, 2, 2, 96, **made), Decoder(64, 2, 2, 96, **made)
    for stack in (encoder, decoder):
        for parameter in stack.parameters():
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, 0.5, 0.5)
    return encoder.cuda(), decoder.cuda()


def spans():
    own, keys = (torch.tensor(each, device="cuda", dtype=torch.int32) for each in (OFFSETS, SOURCE))
    sizes, key_sizes = (OFFSETS[-1], 64), (SOURCE[-1], 64)
    across = Packed(own, keys, sizes=sizes, key_sizes=key_sizes)
    return Packed(keys, sizes=key_sizes), Packed(own, sizes=sizes), across


def computed(encoder, decoder, source, target, dtype):
    """Return the output and gradients."""
    source, target = (each.clone().requires_grad_() for each in (source, target))
    inside, own, across = spans()
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype is torch.bfloat16):
        memory = encoder(source, inside)
        result = decoder(target, memory, own, across)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    generator = torch.Generator("cuda").manual_seed(1)
    along = torch.randn(result.shape, generator=generator, device="cuda")
    return [
        result.detach().float(),
        *torch.autograd.grad((result.float() * along).sum(), [source, target, *parameters]),
    ]


UNSCALED = lambda width: Dot()  # noqa: E731


@pytest.mark.parametrize(
    ("score", "activation"),
    [(None, "relu"), (UNSCALED, "relu"), (None, "gelu"), (None, "silu")],
    ids=["scaled", "unscaled", "gelu", "silu"],
)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_as_the_blocks(norm, score, activation, monkeypatch):
    ran, draws = [], []
    monkeypatch.setattr(fused_stack, "run", lambda *given, run=fused_stack.run: ran.append(1) or run(*given))
    for seed in range(DRAWS):
        encoder, decoder = stacks(norm, seed, score=score, activation=activation)
        if score is not None:  # keep scores of equal size, so that rounding errors weigh the same
            for heads in (part for stack in (encoder, decoder) for part in stack.modules() if isinstance(part, Heads)):
                heads.projection.weight.data[: heads.query_size] *= 32**-0.5
                heads.projection.bias.data[: heads.query_size] *= 32**-0.5
        source, target = torch.randn(SOURCE[-1], 64, device="cuda"), torch.randn(OFFSETS[-1], 64, device="cuda")
        exact = computed(encoder, decoder, source, target, torch.float32)
        found = computed(encoder, decoder, source, target, torch.bfloat16)
        assert len(ran) == 2 * (seed + 1)
        with monkeypatch.context() as plainly:
            plainly.setattr(fused_stack, "serves", lambda *given: False)
            plain = computed(encoder, decoder, source, target, torch.bfloat16)
        draws.append((found, plain, exact))
    check_as_exact(draws)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_dropout_is_drawn_from_torchs_generator(activation):
    encoder, decoder = stacks("pre", dropout=0.2, attention_dropout=0.2, feed_dropout=0.2, activation=activation)
    source, target = torch.randn(SOURCE[-1], 64, device="cuda"), torch.randn(OFFSETS[-1], 64, device="cuda")
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(computed(encoder, decoder, source, target, torch.bfloat16))
    assert all(map(torch.equal, results[0], results[1]))
    assert not torch.equal(results[0][0], results[2][0])


def test_who_listens_is_heard():
    encoder, _ = stacks("pre")
    heard = []
    encoder.blocks[1].attention.query.register_forward_hook(lambda *_: heard.append(1))
    with torch.autocast("cuda", torch.bfloat16):
        encoder(torch.randn(SOURCE[-1], 64, device="cuda"), spans()[0])
    assert heard
