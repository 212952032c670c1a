"""What graphs hold, without graphs: sentences are written into slots as `put` writes them."""

import pytest
import torch
from decoding.cases import SMALL, sentences, small

from regard.decoding.capture import PlainSteps, SlotWriter
from regard.decoding.device_search import DeviceSearch, SlotOptions
from regard.decoding.limits import output_limit
from regard.decoding.options import Options
from regard.decoding.search import search
from regard.decoding.sources import tokens_of

KEYS = 8


@pytest.mark.parametrize("kind", [*SMALL, "both"])
@torch.no_grad()
def test_sentences_that_are_written_are_searched(kind):
    """Fewer than the writer takes, in any slots; the slots beside them stay as they are."""
    model, options = small(kind), Options(beam=3, nbest=3, longest=7)
    device_search = DeviceSearch(model, model.encode(tokens_of([[3] * KEYS])), 5, 8, 3)
    writer, steps = SlotWriter(device_search, KEYS, 3), PlainSteps(device_search)
    first, second = sentences(2, KEYS), sentences(3, KEYS)
    for slots, sources in (([4, 1], first), ([0, 3, 2], second)):
        writer.write(slots, sources)
        most = [output_limit(model, len(source), options) for source in sources]
        device_search.begin(torch.tensor(slots), SlotOptions.of([options] * len(slots), most, "cpu"))
        steps.run(2)
    while any(steps.read_active()()):
        steps.run(1)
    results = device_search.collect(torch.tensor([4, 1, 0, 3, 2])).results(3)
    for found, source in zip(results, [*first, *second], strict=True):
        (expected,) = search(model, tokens_of([source]), options)
        assert [output.tokens for output in found.outputs] == [output.tokens for output in expected.outputs]
        for mine, theirs in zip(found.outputs, expected.outputs, strict=True):
            assert mine.score == pytest.approx(theirs.score, abs=1e-9)
