"""Steps of a search as they are ordered, where there are no graphs."""

import torch
from decoding.cases import sentences, small

from regard.decoding.capture import PlainSteps
from regard.decoding.device_search import DeviceSearch, SlotOptions
from regard.decoding.options import Options
from regard.decoding.sentence_search import search
from regard.decoding.sources import tokens_of


@torch.no_grad()
def test_steps_are_taken_as_they_are_ordered():
    model, options = small("transformer"), Options(beam=1, shortest=5, longest=5)
    sources = sentences(2, 8)
    device_search = DeviceSearch(model, model.encode(tokens_of([[3] * 8])), 2, 8, 1)
    device_search.put(slice(0, 2), model.encode(tokens_of(sources)), SlotOptions.of([options] * 2, [5, 5], "cpu"))
    steps = PlainSteps(device_search)
    steps.run(5)
    before = steps.read_active()
    steps.run(1)
    assert before() == [True, True]  # as it was then
    assert steps.read_active()() == [False, False]
    results = device_search.collect(slice(0, 2)).results(1)
    for found, expected in zip(results, search(model, tokens_of(sources), options), strict=True):
        assert found.outputs[0].tokens == expected.outputs[0].tokens
