"""The loss and the gradient of logits in one kernel: equal to the plain expression, with every gradient."""

import pytest
import torch

pytest.importorskip("triton")
from regard.kernels import reference
from regard.kernels.operations.projection_loss import projection_loss
from regard.kernels.triton import projection_loss as triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(1, 1, 1), (7, 3, 5), (21, 8, 63), (10, 4, 130)]


def draw(t, d, v, bias=True, dtype=torch.float32):
    hidden, weight = torch.randn(t, d, device=DEVICE, dtype=dtype), torch.randn(v, d, device=DEVICE)
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    return [*inputs, torch.randn(v, device=DEVICE).requires_grad_() if bias else None], torch.randint(
        v, (t,), device=DEVICE
    )


def run(inputs, targets, smoothing=0.0, chunk=None, narrow=torch.float32):
    return triton.ProjectionLoss.apply(*inputs, targets, smoothing, chunk, torch.is_grad_enabled(), narrow)


def wide(inputs):
    return [None if t is None else t.detach().double().requires_grad_() for t in inputs]


def compare(found, inputs, targets, smoothing, tolerance):
    exact = wide(inputs)
    expected = reference.projection_loss(*exact, targets, smoothing)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)
    assert not found[1].requires_grad
    given = [i for i in range(3) if inputs[i] is not None]
    slopes = torch.autograd.grad(found[0] * 0.3, [inputs[i] for i in given])
    others = torch.autograd.grad(expected[0] * 0.3, [exact[i] for i in given])
    for i, one, other in zip(given, slopes, others, strict=True):
        assert one.dtype == inputs[i].dtype
        assert float((one.double() - other).norm()) <= tolerance * float(other.norm()) + 1e-6, i


@pytest.mark.parametrize("row", [16, 1 << 15])  # classes in blocks, and whole
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [3, None])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_equals_the_reference(shape, chunk, smoothing, bias, row, monkeypatch):
    monkeypatch.setattr(triton, "ROW", row)
    monkeypatch.setattr(triton, "BLOCK", 16)
    inputs, targets = draw(*shape, bias=bias)
    compare(run(inputs, targets, smoothing, chunk), inputs, targets, smoothing, 1e-5)


@pytest.mark.parametrize("row", [16, 1 << 15])
def test_narrow_products(row, monkeypatch):
    monkeypatch.setattr(triton, "ROW", row)
    monkeypatch.setattr(triton, "BLOCK", 16)
    inputs, targets = draw(50, 32, 40)
    compare(run(inputs, targets, 0.1, 16, torch.bfloat16), inputs, targets, 0.1, 2e-2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_below_zero_count_nothing(smoothing):
    inputs, targets = draw(20, 5, 33)
    padded = targets.clone()
    padded[[0, 3, 4, 19]] = torch.tensor([-1, -1, -100, -7], device=DEVICE)
    real = padded >= 0
    total, plain = run(inputs, padded, smoothing, 6)
    slopes = torch.autograd.grad(total, inputs)
    alone, alone_plain = run([inputs[0][real], *inputs[1:]], targets[real], smoothing)
    torch.testing.assert_close((total, plain), (alone, alone_plain))
    torch.testing.assert_close(slopes, torch.autograd.grad(alone, inputs))
    assert not slopes[0][~real].any()


def test_a_target_beyond_the_classes_is_nan_and_reads_nothing():
    inputs, targets = draw(4, 3, 5)
    targets[2] = 5
    assert run(inputs, targets)[0].isnan()


@pytest.mark.parametrize("row", [16, 1 << 15])
def test_large_and_infinite_logits(row, monkeypatch):
    monkeypatch.setattr(triton, "ROW", row)
    monkeypatch.setattr(triton, "BLOCK", 16)
    hidden, weight = torch.ones(3, 1, device=DEVICE), torch.full((50, 1), -1e4, device=DEVICE)
    weight[7], weight[40], weight[8:30] = 1e4, -3e4, float("-inf")
    total, _ = run([hidden, weight, None], torch.tensor([7, 40, 7], device=DEVICE))
    assert float(total) == pytest.approx(4e4)
    weight[3] = float("nan")
    assert run([hidden, weight, None], torch.tensor([7, 40, 7], device=DEVICE))[0].isnan()


@pytest.mark.parametrize("asked", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_what_is_asked_for_is_differentiated(asked):
    inputs, targets = draw(9, 4, 6)
    inputs = [t.detach().requires_grad_(need) for t, need in zip(inputs, asked, strict=True)]
    given = [t for t in inputs if t.requires_grad]
    torch.testing.assert_close(
        torch.autograd.grad(run(inputs, targets, 0.1, 4)[0], given),
        torch.autograd.grad(reference.projection_loss(*inputs, targets, 0.1)[0], given),
    )


def test_no_tokens_and_no_gradients():
    inputs, targets = draw(0, 4, 6)
    total, plain = run(inputs, targets, 0.1)
    assert total == 0
    assert plain == 0
    assert not any(slope.any() for slope in torch.autograd.grad(total, inputs))
    inputs, targets = draw(9, 4, 6)
    with torch.no_grad():
        found = run(inputs, targets, 0.1)
    torch.testing.assert_close(found, tuple(each.detach() for each in run(inputs, targets, 0.1)))


def test_it_is_deterministic_and_can_be_used_twice():
    inputs, targets = draw(30, 8, 70)
    total, _ = run(inputs, targets, 0.1, 7)
    once = torch.autograd.grad(total, inputs, retain_graph=True)
    for other in (torch.autograd.grad(total, inputs), torch.autograd.grad(run(inputs, targets, 0.1, 7)[0], inputs)):
        assert all(torch.equal(a, b) for a, b in zip(once, other, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [16_000, 16_001, 50_257])
def test_real_sizes_under_autocast(classes):
    inputs, targets = draw(3000, 512, classes)
    with torch.no_grad():
        inputs[1] *= 0.05
    targets[::17] = -1
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = projection_loss(*inputs, targets, 0.1)
        again = projection_loss(*inputs, targets, 0.1, 700)
    assert isinstance(found[0].grad_fn, triton.ProjectionLoss._backward_cls)
    torch.testing.assert_close(found, again, rtol=1e-5, atol=0)
    compare(found, inputs, targets, 0.1, 1e-2)


@pytest.mark.gpu
def test_the_logits_never_stand_in_single_precision():
    inputs, targets = draw(25_000, 512, 16_000)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        total, _ = projection_loss(*inputs, targets, 0.1)
    assert torch.cuda.max_memory_allocated() - before < 1.1 * 2**30
    torch.autograd.grad(total, inputs)


@pytest.mark.gpu
def test_it_can_be_captured_in_a_graph():
    inputs, targets = draw(2000, 512, 16_000)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            total, plain = projection_loss(*inputs, targets, 0.1)
        return total, plain, *torch.autograd.grad(total, inputs)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # it may still be drawing the inputs
    with torch.cuda.stream(stream):
        eager = [t.detach().clone() for t in step()]
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for _ in range(2):
        for result in results:
            result.detach().fill_(float("nan"))
        graph.replay()
        for one, other in zip(results, eager, strict=True):
            assert torch.equal(one, other)


def test_what_the_host_decides():
    assert [triton.pad_classes(v) for v in (1, 64, 65, 16_001)] == [64, 64, 128, 16_064]
    assert triton.cut_classes(1) == (16, True, 1)
    assert triton.cut_classes(5000) == (8192, True, 4)
    assert triton.cut_classes(1 << 15) == (1 << 15, True, 16)
    assert triton.cut_classes((1 << 15) + 1) == (2048, False, 8)
    assert triton.tokens_at_once(100, 1 << 20) == 100
    assert triton.tokens_at_once(5000, 1 << 20) == 1024  # one gibibyte
    assert triton.tokens_at_once(5000, 1 << 40) == 1
    assert triton.tokens_at_once(0, 1 << 20) == 0
