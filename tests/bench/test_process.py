"""A decoder in a process of its own: what fails there is reported here."""

from functools import partial

import pytest
from bench.cases import LENGTH, TINY
from forked import fork_for_spawn

from regard.errors import RegardError
from regard_bench import decoding
from regard_bench.process import DecoderProcess


def test_what_goes_wrong_elsewhere_is_told_here(monkeypatch):
    # test_decoding.py starts new processes, which import torch for seconds.
    fork_for_spawn(monkeypatch)
    with pytest.raises(RegardError, match="bench: ZeroDivisionError: .*by zero"):
        DecoderProcess(partial(divmod, 1, 0), ours=True)
    gone = DecoderProcess(partial(decoding.make, "Regard", TINY, 0, LENGTH), ours=False)
    gone.process.kill()
    with pytest.raises(RegardError, match="a system ended with status -9"):
        gone.time_batches([], 1)
