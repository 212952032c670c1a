"""Views of a memory's heads: where they stand is where the machine has them."""

import itertools
import math

import pytest
import torch
from inspection.subjects import (
    TEXT,
    exhibit_of_subject,
    subject,
)

from regard.decoding import tokens_of
from regard.inspection.collect.memory_heads import MEMORY_VIEWS


def test_a_machine_moves_in_its_memory():
    """The weights of the last step are those that the machine has then, and the first of it stands where it began."""
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
    """Content, gate, shift and sharpening, from the paper's formulas, slot by slot."""
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
