"""What a search would take is asked before it is taken."""

import re
import time

import pytest
import torch

from regard.decoding.limits import check_memory, row_bytes, search_bytes
from regard.decoding.options import Options
from regard.decoding.search import search
from regard.errors import ArgumentError
from regard.machine import memory
from regard.models.contract import Tokens
from regard.models.kinds import KINDS, build, read_model_config

pytestmark = pytest.mark.skipif(memory() is None, reason="this system does not say how much memory it has")
TINY = {"kind": "transformer", "size": 16, "heads": 2, "layers": 1, "hidden": 16}
SOURCE = Tokens.of(torch.tensor([[5, 6, 7]]), torch.tensor([3]))


def test_the_most_that_fits_is_said_and_fits():
    row = 100 * 2**20
    with pytest.raises(
        ArgumentError, match=r"^beam: 10,000 given, with outputs of up to 50 tokens, which would"
    ) as caught:
        check_memory(Options(beam=10_000), row, 1, 50, 8000)
    most = int(re.search(r"expected at most ([\d,]+) here", str(caught.value))[1].replace(",", ""))
    check_memory(Options(beam=most), row, 1, 50, 8000)
    with pytest.raises(ArgumentError, match="beam"):
        check_memory(Options(beam=most + 1), row, 1, 50, 8000)


def test_samples_and_batches_are_named():
    with pytest.raises(ArgumentError, match="^nbest: 10,000 given, with"):
        check_memory(Options(sample=True, nbest=10_000), 2**30, 1, 50, 8000)
    with pytest.raises(ArgumentError, match=r"^beam: 5 given for 10,000 sentences at a time \(batch_tokens\)"):
        check_memory(Options(beam=5), 2**30, 10_000, 50, 8000)
    with pytest.raises(ArgumentError, match="make longest or shortest smaller"):
        check_memory(Options(beam=5), 2**50, 1, 50, 8000)


def test_groups_are_compared_with_each_other():
    """Each candidate of a group with all that the others said: far more than the hypotheses themselves."""
    assert search_bytes(10_000, 2, 0, 50, 30_000) > 50 * search_bytes(10_000, 1, 0, 50, 30_000)
    with pytest.raises(ArgumentError, match="beam: 10,000 given"):
        check_memory(Options(beam=10_000, groups=2), 0, 1, 50, 30_000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "translate" in KINDS[kind].tasks])
def test_outputs_without_end_are_refused_before_their_cache_is_made(kind):
    model = build(kind, read_model_config({"kind": kind, "preset": "tiny"}), 20, 20).eval()
    start = time.process_time()
    with pytest.raises(ArgumentError, match="^beam: 10,000 given"):
        search(model, SOURCE, Options(beam=10_000, longest=1_048_576))
    assert time.process_time() - start < 20


def test_what_fits_is_searched():
    """A wide beam of a small model."""
    model = build("transformer", read_model_config(TINY), 20, 20).eval()
    (found,) = search(model, SOURCE, Options(beam=2_000, nbest=10, longest=3))
    assert len(found.outputs) == 10
    state = model.start(model.encode(SOURCE), 1, 8)
    assert row_bytes(state, 1) >= 2 * 8 * 16 * 4  # keys and values of eight steps
