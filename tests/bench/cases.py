"""Small sizes, models and batches for the benchmarks of decoding and training."""

from regard_bench.decoding import time_decoder
from regard_bench.training_peers import Sizes

TINY = Sizes(vocabulary=27, size=16, heads=2, layers=1, hidden=24)


ROWS, LENGTH = 5, 4
SMALL = Sizes(vocabulary=50, size=16, heads=2, layers=1, hidden=32)
DEMO = {
    "data": {"builtin": "phrasebook", "pair": "en-de", "count": 300},
    "model": {"kind": "transformer", "size": 16, "heads": 2, "layers": 1, "hidden": 24, "dropout": 0.0},
    "training": {"steps": 4, "batch_tokens": 256, "validate_rows": 4, "seed": 1, "device": "cpu"},
}


class Here:
    """A peer that runs in this process."""

    def __init__(self, make, ours):
        self.decoder = make()

    def time_batches(self, batches, beam):
        return time_decoder(self.decoder, batches, beam)

    def end(self):
        pass
