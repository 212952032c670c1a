"""A model's pass over an example, with hooks and recorded."""

import itertools
import math
import threading

import pytest
import torch
from inspection.subjects import (
    ALL,
    TEXT,
    exhibit_of_subject,
    item_of,
    subject,
)
from oracles import agree
from torch import nn

from regard.decoding import tokens_of
from regard.inspection.collect.forward_pass import MEMORY_VIEWS, force, record_modules, watch_forward


@pytest.mark.parametrize("name", ALL)
def test_recording_changes_nothing(name):
    run = subject(name)
    forced = force(run, item_of(name), beam=2, longest=5)
    plain, recorded = watch_forward(run.model, forced), watch_forward(run.model, forced, record=True)
    # Projections are three products here and one there: the last digits of the largest logit may differ.
    agree(plain.log_probs, recorded.log_probs, rtol=0, atol=4e-6 * max(1.0, float(plain.logits.abs().max())))
    assert not plain.recording.steps
    assert set(plain.recording.calls) <= {"heads"}  # those of a memory, which have their own views
    for module in run.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not {"step", "step_cell"} & set(vars(module))


def test_what_is_overwritten_later_is_recorded_as_it_was():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    x = torch.randn(2, 3)
    with record_modules(net) as recording, torch.no_grad():
        expected = net[0].weight @ x[1] + net[0].bias
        net(x)
        x.zero_()
    agree(recording.output("0", 1), expected, rtol=1e-5, atol=1e-6)
    assert (recording.output("0") < 0).any() or (recording.output("0", 1) < 0).any() or (expected >= 0).all()
    assert recording.input("0", 1).abs().sum() > 0


def test_rows_go_on_over_several_calls():
    net = nn.Sequential(nn.Linear(2, 2))
    with record_modules(net) as recording:
        parts = [torch.randn(1, 3, 2), torch.randn(1, 2), torch.randn(1, 2, 2)]
        for part in parts:
            net(part)
    rows = torch.cat([part.reshape(-1, 2) for part in parts])
    for row in range(6):
        assert torch.equal(recording.input("0", row), rows[row])


def test_another_thread_is_not_recorded():
    net = nn.Sequential(nn.Linear(2, 2))
    with record_modules(net) as recording:
        other = threading.Thread(target=lambda: net(torch.zeros(1, 2)))
        other.start()
        other.join()
        net(torch.ones(1, 2))
    (call,) = recording.calls["0"]
    assert torch.equal(call.inputs[0], torch.ones(1, 2))


def test_hooks_go_when_the_pass_fails():
    net = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="shapes"), record_modules(net):
        net(torch.ones(1, 5))
    assert not net[0]._forward_hooks


def test_maps_of_a_backbone_are_not_kept():
    """A captioner's recording holds no tensor [b c h w]; a ConvNet's holds only those of its attention."""
    for name, own in (("captioner", set()), ("convnet", {"attention"})):
        run = subject(name)
        recording = watch_forward(run.model, force(run, item_of(name), beam=2, longest=5), record=True).recording
        large = {each for each, (call, *_) in recording.calls.items() if max_rank(call) > 3}
        assert {each.split(".")[0] for each in large} == own
        assert recording.calls


def max_rank(call):
    return max(each.ndim for each in (*call.inputs, call.output) if isinstance(each, torch.Tensor))


# ---- memory heads


def test_a_machine_moves_in_its_memory():
    """The last weights of the views are those of the machine's memory, and the first are its initial weights."""
    run, exhibit = subject("ntm"), exhibit_of_subject("ntm")
    views = {view.name: view for view in exhibit.views}
    read = [run.tokenizers.target.library.token_to_id(piece) for piece in exhibit.sides["read"].pieces]
    with torch.no_grad():
        memory = run.model.encode(tokens_of([run.tokenizers.source.encode(TEXT)]))
        reading, writing = memory.sentence["weights"][0].chunk(2)
        torch.testing.assert_close(views["heads.source.read"].weights[:, -1], reading)
        torch.testing.assert_close(views["heads.source.write"].weights[:, -1], writing)
        state = run.model.start(memory, 1, 20)
        for token in read:
            run.model.step(torch.tensor([token]), state)
    torch.testing.assert_close(views["heads.target.read"].weights[:, -1], state.row["weights"][0, :2])
    torch.testing.assert_close(views["heads.target.write"].weights[:, -1], state.row["weights"][0, 2:])
    assert exhibit.sides["source"].pieces[-1] == "</s>"


@pytest.mark.parametrize("name", ["ntm", "ntm-lstm"])
def test_each_stage_follows_from_the_one_before(name):
    """Compute content, gate, shift and sharpening from the paper's formulas, slot by slot."""
    exhibit = exhibit_of_subject(name)
    assert [view.name for view in exhibit.views] == list(MEMORY_VIEWS)
    for view in exhibit.views:
        found, (heads, steps, slots) = view.numbers, view.weights.shape
        assert torch.equal(found.weights, view.weights)
        for head, step in itertools.product(range(heads), range(steps)):
            exponents = [math.exp(found.strength[head, step] * cosine) for cosine in found.cosine[head, step]]
            content = [each / sum(exponents) for each in exponents]
            assert found.content[head, step].tolist() == pytest.approx(content, abs=1e-6)
            if step:
                g, before = float(found.gate[head, step]), found.weights[head, step - 1].tolist()
                gated = [g * new + (1 - g) * old for new, old in zip(content, before, strict=True)]
                assert found.gated[head, step].tolist() == pytest.approx(gated, abs=1e-6)
            gated, shifts = found.gated[head, step].tolist(), found.shifts[head, step].tolist()
            shifted = [0.0] * slots
            for i, (k, share) in itertools.product(range(slots), enumerate(shifts)):
                forwards = len(shifts) // 2 - k
                shifted[(i + forwards) % slots] += gated[i] * share
            assert found.shifted[head, step].tolist() == pytest.approx(shifted, abs=1e-6)
            powers = [each ** float(found.power[head, step]) for each in shifted]
            assert found.weights[head, step].tolist() == pytest.approx(
                [each / sum(powers) for each in powers], abs=1e-6
            )
        assert found.cosine.abs().max() <= 1 + 1e-6
        assert found.key.shape == (heads, steps, 5)
