"""Peers of the GPU's benchmark, on a CPU: equal weights give equal outputs."""

import pytest

from regard.decoding import Options, search, tokens_of
from regard_bench import decoding, decoding_cuda
from regard_bench.training_peers import Sizes


@pytest.mark.parametrize("peer", decoding_cuda.PEERS, ids=lambda peer: peer.package)
def test_peers_of_a_gpu_say_the_same_here(peer):
    """Their weights and their order are right on any device."""
    pytest.importorskip(peer.package)
    sizes = Sizes(vocabulary=60, size=32, heads=2, layers=1, hidden=48)
    model = decoding.transformer(sizes).eval()
    sources = [[4 + (7 * i + j) % 50 for j in range(9)] for i in range(3)]
    options = Options(beam=1, length_penalty=0.0, shortest=decoding_cuda.OUT, longest=decoding_cuda.OUT)
    ours = [found.outputs[0].tokens for found in search(model, tokens_of(sources), options)]
    assert decoding_cuda.alike(peer.make(model, sizes, "cpu"), sources, ours, "cpu") == 1.0
    assert decoding_cuda.alike(peer.make(model, sizes, "cpu"), sources, [[9], *ours[1:]], "cpu") < 1.0
