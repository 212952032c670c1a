"""A model's pass over an example, watched and recorded."""

import threading

import pytest
import torch
from inspection.subjects import ALL, item_of, subject
from oracles import agree
from torch import nn

from regard.inspection.collect.forward_pass import force, record_modules, watch_forward


@pytest.mark.parametrize("name", ALL)
def test_recording_changes_nothing(name):
    run = subject(name)
    forced = force(run, item_of(name), beam=2, longest=5)
    plain, recorded = watch_forward(run.model, forced), watch_forward(run.model, forced, record=True)
    # Projections are three products here and one there: the last digits of the largest logit may differ.
    agree(plain.log_probs, recorded.log_probs, rtol=0, atol=4e-6 * max(1.0, float(plain.logits.abs().max())))
    assert not plain.recording.steps
    assert set(plain.recording.calls) <= {"heads"}  # of a memory, which have views of their own
    assert not plain.recording.steps
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
    """Of a captioner's picture nothing [b c h w] is held; of a map that looks at itself the attention's own."""
    for name, own in (("captioner", set()), ("convnet", {"attention"})):
        run = subject(name)
        recording = watch_forward(run.model, force(run, item_of(name), beam=2, longest=5), record=True).recording
        large = {each for each, (call, *_) in recording.calls.items() if max_rank(call) > 3}
        assert {each.split(".")[0] for each in large} == own
        assert recording.calls


def max_rank(call):
    return max(each.ndim for each in (*call.inputs, call.output) if isinstance(each, torch.Tensor))
